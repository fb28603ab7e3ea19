//! `gpu_metrics`: the firmware's table of sensors, as far as it tells a GPU's limiter and the energy it has used.
//!
//! The table begins with its size in bytes (2 bytes), a format and a content revision (1 each); all is in the
//! machine's byte order, little-endian wherever amdgpu runs. Values that a GPU does not tell are all ones.
//! Layouts: Linux, `drivers/gpu/drm/amd/include/kgd_pp_interface.h`, the structures `gpu_metrics_v1_3` to
//! `gpu_metrics_v1_9`. Other revisions, and known ones of another size, are ignored, which [`unknown`] says.

use litd_units::Joules;

use crate::domain::Throttle;

/// A limiter that was active for less than this share of the time does not count.
const SHARE: f64 = 0.05;

/// The values of one table.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Metrics {
    /// Energy since the driver was loaded, where the unit is documented (from revision 1.4 on).
    pub energy: Option<Joules>,
    limits: Limits,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Limits {
    /// The table does not tell.
    #[default]
    Unknown,
    /// Limiters at this moment: one bit per limiter.
    Now(u64),
    /// For how long each limiter has been active since some moment in the past.
    Residency(Residency),
}

/// Counts of the firmware's cycles. They wrap.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Residency {
    cycles: u32,
    prochot: u32,
    power: u32,
    socket: u32,
    regulator: u32,
    memory: u32,
}

/// A GPU's limiters.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Limiter {
    /// Whether power is a limiter.
    pub power: Option<bool>,
    /// In which share of the time, where that is counted.
    pub power_share: Option<f64>,
    /// The other limiter, if any.
    pub other: Option<Throttle>,
}

/// The offsets in a table of residencies. The six counters follow each other.
struct Layout {
    energy: usize,
    residency: Option<usize>,
}

/// The layout of a table, by its revision and size. A revision may be changed without a new number, as 6 was: a table
/// of another size has other offsets.
fn layout(content: u8, size: usize) -> Option<Layout> {
    let (energy, residency) = match (content, size) {
        (4, 288) => (24, None),
        (5, 360) => (88, None),
        (6, 384) => (88, Some(104)),
        (6, 1656 | 1664) => (16, Some(32)),
        (7, 2208) | (8, 3872) => (24, Some(40)),
        _ => return None,
    };
    Some(Layout { energy, residency })
}

/// Size, format and revision of a table, if it has them.
fn header(table: &[u8]) -> Option<(usize, u8, u8)> {
    Some((u16_at(table, 0)?.into(), *table.get(2)?, *table.get(3)?))
}

/// What a table is whose revision is unknown here, in words.
pub(super) fn unknown(table: &[u8]) -> Option<String> {
    let (size, format, content) = header(table)?;
    let is_known = match (format, content) {
        (1, 3) => size == SIZE_OF_1_3,
        (1, 9) => true,
        (1, _) => layout(content, size).is_some(),
        _ => false,
    };
    (!is_known).then(|| format!("revision {format}.{content} of {size} bytes"))
}

/// The size of revision 1.3.
const SIZE_OF_1_3: usize = 120;

/// The offset of the limiters in revision 1.3.
const INDEPENDENT_STATUS: usize = 112;

/// Energy is counted in 2^-16 J.
const ENERGY_UNIT: f64 = 1.0 / 65536.0;

impl Metrics {
    /// Reads a table. Malformed tables and unknown revisions give an empty result.
    pub fn parse(table: &[u8]) -> Self {
        let Some((size, format, content)) = header(table) else {
            return Self::default();
        };
        match (format, content) {
            (1, 3) if size != SIZE_OF_1_3 => Self::default(),
            (1, 3) => Self {
                energy: None,
                limits: u64_at(table, INDEPENDENT_STATUS).map_or(Limits::Unknown, Limits::Now),
            },
            (1, 9) => attributes(table),
            (1, _) => layout(content, size)
                .map(|layout| fixed(table, &layout))
                .unwrap_or_default(),
            _ => Self::default(),
        }
    }

    /// The limiters since the table `before`; `None` if these two can't tell (no time has passed).
    pub fn limiter(&self, before: &Self) -> Option<Limiter> {
        match (self.limits, before.limits) {
            (Limits::Unknown, _) => Some(Limiter::default()),
            (Limits::Now(bits), _) => Some(of_bits(bits)),
            (Limits::Residency(now), Limits::Residency(then)) => now.since(then),
            (Limits::Residency(_), _) => None,
        }
    }
}

fn fixed(table: &[u8], layout: &Layout) -> Metrics {
    let residency = layout.residency.and_then(|at| {
        let counter = |index: usize| u32_at(table, at + 4 * index);
        Some(Residency {
            cycles: counter(0)?,
            prochot: counter(1)?,
            power: counter(2)?,
            socket: counter(3)?,
            regulator: counter(4)?,
            memory: counter(5)?,
        })
    });
    Metrics {
        energy: u64_at(table, layout.energy).map(energy),
        limits: residency.map_or(Limits::Unknown, Limits::Residency),
    }
}

fn energy(count: u64) -> Joules {
    Joules(count as f64 * ENERGY_UNIT)
}

/// Revision 1.9 is a list: a count (4 bytes), then for each attribute its encoding (8 bytes) and its values. The
/// encoding holds the number of values (bits 0 to 9), the attribute (10 to 19), its type (20 to 23) and its unit.
fn attributes(table: &[u8]) -> Metrics {
    let mut metrics = Metrics::default();
    let mut residency = [None; 6];
    let count = u32_at(table, 4).unwrap_or(0);
    let mut at = 8;
    for _ in 0..count {
        let Some(encoding) = u64_at(table, at) else {
            break;
        };
        at += 8;
        let values = (encoding & 0x3ff) as usize;
        let id = encoding >> 10 & 0x3ff;
        let Some(&width) = [1usize, 1, 2, 2, 4, 4, 8, 8].get((encoding >> 20 & 0xf) as usize)
        else {
            break;
        };
        match (id, width) {
            // ENERGY_ACCUMULATOR.
            (7, 8) => metrics.energy = u64_at(table, at).map(energy),
            // ACCUMULATION_COUNTER, then the residencies in the order of the fixed tables.
            (9..=14, 4) => residency[id as usize - 9] = u32_at(table, at),
            _ => {}
        }
        at += values * width;
    }
    if let [
        Some(cycles),
        Some(prochot),
        Some(power),
        Some(socket),
        Some(regulator),
        Some(memory),
    ] = residency
    {
        metrics.limits = Limits::Residency(Residency {
            cycles,
            prochot,
            power,
            socket,
            regulator,
            memory,
        });
    }
    metrics
}

impl Residency {
    fn since(self, then: Self) -> Option<Limiter> {
        let cycles = self.cycles.wrapping_sub(then.cycles);
        // The counters begin anew when the GPU is reset.
        if cycles == 0 || cycles > u32::MAX / 2 {
            return None;
        }
        let share = |now: u32, then: u32| f64::from(now.wrapping_sub(then)) / f64::from(cycles);
        let others = [
            (share(self.socket, then.socket), Throttle::Heat),
            (share(self.memory, then.memory), Throttle::Memory),
            (share(self.regulator, then.regulator), Throttle::Regulator),
            (share(self.prochot, then.prochot), Throttle::Hardware),
        ];
        let worst = others
            .into_iter()
            .reduce(|worst, other| if other.0 > worst.0 { other } else { worst });
        let power = share(self.power, then.power);
        Some(Limiter {
            power: Some(power >= SHARE),
            power_share: Some(power.min(1.0)),
            other: worst
                .filter(|(share, _)| *share >= SHARE)
                .map(|(_, throttle)| throttle),
        })
    }
}

/// Revision 1.3's limiters, the same bits on every GPU: `SMU_THROTTLER_*_BIT` in
/// `drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h`.
fn of_bits(bits: u64) -> Limiter {
    let any = |from: u32, to: u32| (from..=to).any(|bit| bits >> bit & 1 == 1);
    // 32 to 43 are temperatures: of the memory 34; of regulators 38 to 41.
    let other = if any(32, 33) || any(35, 37) || any(42, 43) {
        Some(Throttle::Heat)
    } else if any(34, 34) {
        Some(Throttle::Memory)
    } else if any(38, 41) || any(44, 45) || any(16, 23) {
        // Too hot, or at their limit of current.
        Some(Throttle::Regulator)
    } else if any(46, 47) {
        Some(Throttle::Hardware)
    } else {
        None
    };
    Limiter {
        power: Some(any(0, 7)),
        power_share: None,
        other,
    }
}

fn bytes_at<const N: usize>(table: &[u8], at: usize) -> Option<[u8; N]> {
    let bytes: [u8; N] = table.get(at..at.checked_add(N)?)?.try_into().ok()?;
    (bytes != [0xff; N]).then_some(bytes)
}

fn u16_at(table: &[u8], at: usize) -> Option<u16> {
    bytes_at(table, at).map(u16::from_le_bytes)
}

fn u32_at(table: &[u8], at: usize) -> Option<u32> {
    bytes_at(table, at).map(u32::from_le_bytes)
}

fn u64_at(table: &[u8], at: usize) -> Option<u64> {
    bytes_at(table, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table without values.
    fn table(size: usize, content: u8) -> Vec<u8> {
        let mut table = vec![0xff; size];
        table[..2].copy_from_slice(&(size as u16).to_le_bytes());
        table[2..4].copy_from_slice(&[1, content]);
        table
    }

    fn put<const N: usize>(table: &mut [u8], at: usize, bytes: [u8; N]) {
        table[at..at + N].copy_from_slice(&bytes);
    }

    /// The counters at `at`, in the header's order: cycles, prochot, power, socket, VR, HBM.
    fn residencies(size: usize, content: u8, at: usize, counters: [u32; 6]) -> Metrics {
        let mut table = table(size, content);
        for (index, counter) in counters.into_iter().enumerate() {
            put(&mut table, at + 4 * index, counter.to_le_bytes());
        }
        Metrics::parse(&table)
    }

    /// Sizes and offsets as the compiler lays out the kernel's structures.
    const RESIDENCIES: [(usize, u8, usize); 4] =
        [(384, 6, 104), (1664, 6, 32), (2208, 7, 40), (3872, 8, 40)];

    #[test]
    fn a_power_limited_gpu_is_told_from_an_idle_one() {
        for (size, content, at) in RESIDENCIES {
            let before = residencies(size, content, at, [1000, 0, 100, 0, 0, 0]);
            let idle = residencies(size, content, at, [2000, 0, 110, 0, 0, 0]);
            let busy = residencies(size, content, at, [2000, 0, 900, 0, 0, 0]);
            let power = |now: Metrics| {
                let limiter = now.limiter(&before).unwrap();
                (limiter.power, limiter.power_share)
            };
            assert_eq!(power(idle), (Some(false), Some(0.01)), "1.{content}");
            assert_eq!(power(busy), (Some(true), Some(0.8)), "1.{content}");
        }
    }

    #[test]
    fn what_else_limits_it_is_named() {
        let cases = [
            (1, Throttle::Hardware),
            (3, Throttle::Heat),
            (4, Throttle::Regulator),
            (5, Throttle::Memory),
        ];
        for (size, content, at) in RESIDENCIES {
            for (index, throttle) in cases {
                let mut counters = [1000, 7, 7, 7, 7, 7];
                let before = residencies(size, content, at, counters);
                counters[0] += 1000;
                counters[index] += 400;
                let now = residencies(size, content, at, counters);
                let limiter = now.limiter(&before).unwrap();
                assert_eq!(limiter.other, Some(throttle), "1.{content} {index}");
                assert_eq!(limiter.power, Some(false));
            }
        }
    }

    #[test]
    fn counters_that_wrap_go_on() {
        let before = residencies(2208, 7, 40, [u32::MAX - 99, 0, u32::MAX - 49, 0, 0, 0]);
        let now = residencies(2208, 7, 40, [900, 0, 850, 0, 0, 0]);
        assert_eq!(now.limiter(&before).unwrap().power, Some(true));
    }

    #[test]
    fn nothing_is_told_without_time_or_after_a_reset() {
        let before = residencies(2208, 7, 40, [5000, 0, 10, 0, 0, 0]);
        assert_eq!(before.limiter(&before), None);
        assert_eq!(before.limiter(&Metrics::default()), None);
        let reset = residencies(2208, 7, 40, [3, 0, 0, 0, 0, 0]);
        assert_eq!(reset.limiter(&before), None);
    }

    #[test]
    fn the_limiters_of_this_moment_are_read_from_revision_1_3() {
        let limiter = |bits: u64| {
            let mut table = table(120, 3);
            put(&mut table, 112, bits.to_le_bytes());
            let metrics = Metrics::parse(&table);
            metrics.limiter(&Metrics::default()).unwrap()
        };
        let only = |power, other| Limiter {
            power: Some(power),
            power_share: None,
            other,
        };
        assert_eq!(limiter(0), only(false, None));
        assert_eq!(limiter(1), only(true, None));
        assert_eq!(limiter(1 << 36), only(false, Some(Throttle::Heat)));
        assert_eq!(limiter(1 << 34), only(false, Some(Throttle::Memory)));
        assert_eq!(limiter(1 << 16), only(false, Some(Throttle::Regulator)));
        assert_eq!(limiter(1 << 47 | 1), only(true, Some(Throttle::Hardware)));
        // Reliability (57) always shows on some GPUs and limits nothing by itself.
        assert_eq!(limiter(1 << 57), only(false, None));
        // All ones: the driver does not tell.
        assert_eq!(limiter(u64::MAX), Limiter::default());
    }

    #[test]
    fn energy_is_counted_in_parts_of_a_joule() {
        for (size, content, at) in [(288, 4, 24), (360, 5, 88), (1664, 6, 16), (2208, 7, 24)] {
            let mut table = table(size, content);
            put(&mut table, at, (65536u64 * 250).to_le_bytes());
            assert_eq!(
                Metrics::parse(&table).energy,
                Some(Joules(250.0)),
                "1.{content}"
            );
        }
        assert_eq!(Metrics::parse(&table(2208, 7)).energy, None);
    }

    #[test]
    fn unknown_revisions_tell_nothing() {
        for content in [0, 1, 2, 10, 99] {
            let metrics = Metrics::parse(&table(4000, content));
            assert_eq!(metrics, Metrics::default());
        }
        let mut apu = table(128, 3);
        apu[2] = 2;
        assert_eq!(Metrics::parse(&apu), Metrics::default());
        // A size that no kernel uses for this revision.
        assert_eq!(Metrics::parse(&table(500, 6)), Metrics::default());
    }

    #[test]
    fn a_table_that_is_not_read_is_named() {
        for (size, content) in [(120, 3), (288, 4), (360, 5), (384, 6), (1656, 6), (1664, 6)] {
            assert_eq!(unknown(&table(size, content)), None, "1.{content}");
        }
        for (size, content) in [(2208, 7), (3872, 8), (9, 9)] {
            assert_eq!(unknown(&table(size, content)), None, "1.{content}");
        }
        for (size, content) in [
            (96, 1),
            (96, 3),
            (288, 5),
            (360, 4),
            (2208, 8),
            (3872, 7),
            (9, 10),
        ] {
            let mut table = table(size, content);
            let named = format!("revision 1.{content} of {size} bytes");
            assert_eq!(unknown(&table), Some(named));
            // Whatever stands where another revision has its values.
            table[4..].fill(7);
            assert_eq!(Metrics::parse(&table), Metrics::default(), "1.{content}");
        }
        assert_eq!(unknown(&[]), None);
    }

    fn listed(attributes: &[(u64, u64, u64, &[u8])]) -> Vec<u8> {
        let mut table = vec![0, 0, 1, 9];
        table.extend((attributes.len() as u32).to_le_bytes());
        for (id, kind, values, bytes) in attributes {
            table.extend((kind << 20 | id << 10 | values).to_le_bytes());
            table.extend(*bytes);
        }
        let size = (table.len() as u16).to_le_bytes();
        table[..2].copy_from_slice(&size);
        table
    }

    #[test]
    fn revision_1_9_is_read_attribute_by_attribute() {
        let make = |cycles: u32, power: u32| {
            let (u16s, u32s, u64s) = (2, 4, 6);
            let zero = 0u32.to_le_bytes();
            Metrics::parse(&listed(&[
                (33, u16s, 8, &[1; 16]),
                (7, u64s, 1, &131072u64.to_le_bytes()),
                (9, u32s, 1, &cycles.to_le_bytes()),
                (10, u32s, 1, &zero),
                (11, u32s, 1, &power.to_le_bytes()),
                (12, u32s, 1, &zero),
                (13, u32s, 1, &zero),
                (14, u32s, 1, &zero),
            ]))
        };
        let (before, now) = (make(100, 0), make(200, 60));
        assert_eq!(now.energy, Some(Joules(2.0)));
        assert_eq!(now.limiter(&before).unwrap().power, Some(true));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_table_or_none(
            revision in 0u8..12,
            mut before: Vec<u8>,
            mut now in prop::collection::vec(any::<u8>(), 0..4200),
        ) {
            for table in [&mut before, &mut now] {
                if let [_, _, format, content, ..] = table.as_mut_slice() {
                    (*format, *content) = (1, revision);
                }
            }
            let (before, now) = (Metrics::parse(&before), Metrics::parse(&now));
            let _ = now.limiter(&before);
            if let Some(energy) = now.energy {
                prop_assert!(energy.is_finite() && energy.0 >= 0.0);
            }
        }
    }
}
