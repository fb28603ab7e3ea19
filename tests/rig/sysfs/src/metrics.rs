//! The table `gpu_metrics` (struct gpu_metrics_v1_3 and _v1_6, drivers/gpu/drm/amd/include/
//! kgd_pp_interface.h), as far as power goes; all else is 0.

use litd_power::{Reading, Throttle};
use litd_rig::Residency;
use litd_units::{Joules, Millis};

use crate::board::Metrics;

/// Energy is counted in 2^-16 J.
const ENERGY_UNITS: f64 = 65_536.0;

/// Bits of `indep_throttle_status` (amdgpu_smu.h): the first power limit, the junction's
/// temperature, and the system's hot signal to the GPU.
const PPT0: u32 = 0;
const TEMP_HOTSPOT: u32 = 36;
const PROCHOT_GFX: u32 = 47;

/// The table as the driver copies it out.
pub(crate) fn table(version: Metrics, reading: &Reading, residency: &Residency) -> Vec<u8> {
    match version {
        Metrics::V1_3 => v1_3(reading, residency),
        Metrics::V1_6 => v1_6(reading, residency),
    }
}

/// A table of `size` bytes with its header, for fields to be put into.
struct Table(Vec<u8>);

impl Table {
    fn new(size: u16, content: u8) -> Self {
        let mut table = Self(vec![0; usize::from(size)]);
        table.put(0, &size.to_le_bytes());
        table.put(2, &[1, content]);
        table
    }

    fn put(&mut self, at: usize, field: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + field.len()) {
            place.copy_from_slice(field);
        }
    }

    fn u16(&mut self, at: usize, value: f64) {
        self.put(at, &(value.round() as u16).to_le_bytes());
    }

    fn u32(&mut self, at: usize, value: f64) {
        // The driver's counters are of 32 bits, and wrap.
        self.put(at, &(value.round() as u64 as u32).to_le_bytes());
    }

    fn u64(&mut self, at: usize, value: f64) {
        self.put(at, &(value.round() as u64).to_le_bytes());
    }
}

/// The values of both tables, in their units.
struct Common {
    temperature: f64,
    power: f64,
    energy: f64,
    clock: f64,
    nanoseconds: f64,
}

impl Common {
    fn of(reading: &Reading, residency: &Residency) -> Self {
        Self {
            temperature: reading.temperature.map_or(0.0, |temperature| temperature.0),
            power: reading.power.map_or(0.0, |power| power.0),
            energy: reading.energy.unwrap_or(Joules::ZERO).0 * ENERGY_UNITS,
            clock: reading.clock.map_or(0.0, |clock| clock.0 / 1e6),
            nanoseconds: residency.total.0 * 1e6,
        }
    }
}

fn v1_3(reading: &Reading, residency: &Residency) -> Vec<u8> {
    let common = Common::of(reading, residency);
    let mut table = Table::new(120, 3);
    // Edge, hotspot, memory, and three regulators.
    for at in (4..16).step_by(2) {
        table.u16(at, common.temperature);
    }
    table.u16(16, 99.0); // average_gfx_activity
    table.u16(22, common.power); // average_socket_power
    table.u64(24, common.energy); // energy_accumulator
    table.u64(32, common.nanoseconds); // system_clock_counter
    table.u16(40, common.clock); // average_gfxclk_frequency
    table.u16(54, common.clock); // current_gfxclk
    let bit = match reading.throttle {
        Some(Throttle::PowerBrake | Throttle::Hardware) => Some(PROCHOT_GFX),
        Some(_) => Some(TEMP_HOTSPOT),
        None => (reading.power_limited == Some(true)).then_some(PPT0),
    };
    let status = bit.map_or(0u64, |bit| 1 << bit);
    table.put(112, &status.to_le_bytes()); // indep_throttle_status
    table.0
}

fn v1_6(reading: &Reading, residency: &Residency) -> Vec<u8> {
    let common = Common::of(reading, residency);
    // The firmware counts in steps of 1 ms.
    let steps = |time: Millis| time.0;
    let mut table = Table::new(1664, 6);
    table.u16(4, common.temperature); // temperature_hotspot
    table.u16(6, common.temperature); // temperature_mem
    table.u16(8, common.temperature); // temperature_vrsoc
    table.u16(10, common.power); // curr_socket_power
    table.u16(12, 99.0); // average_gfx_activity
    table.u64(16, common.energy); // energy_accumulator
    table.u64(24, common.nanoseconds); // system_clock_counter
    table.u32(32, steps(residency.total)); // accumulation_counter
    table.u32(36, steps(residency.brake)); // prochot_residency_acc
    table.u32(40, steps(residency.power)); // ppt_residency_acc
    table.u32(44, steps(residency.heat)); // socket_thm_residency_acc
    for at in (264..280).step_by(2) {
        table.u16(at, common.clock); // current_gfxclk, one for each of 8 dies
    }
    table.0
}

#[cfg(test)]
mod tests {
    use litd_units::{Celsius, Hertz, Watts};

    use super::*;

    fn reading() -> Reading {
        Reading {
            power: Some(Watts(512.3)),
            energy: Some(Joules(2.5)),
            temperature: Some(Celsius(71.0)),
            clock: Some(Hertz(1.9e9)),
            power_limited: Some(true),
            ..Reading::default()
        }
    }

    fn residency() -> Residency {
        Residency {
            total: Millis(9_000.0),
            power: Millis(6_000.0),
            heat: Millis(2_000.0),
            brake: Millis(1_000.0),
        }
    }

    fn number(table: &[u8], at: usize, size: usize) -> u64 {
        let bytes = table[at..at + size].iter().rev();
        bytes.fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    #[test]
    fn the_tables_have_their_fields_where_the_header_has_them() {
        let new = v1_6(&reading(), &residency());
        assert_eq!((new.len(), number(&new, 0, 2)), (1664, 1664));
        assert_eq!(new[2..4], [1, 6]);
        assert_eq!(number(&new, 4, 2), 71);
        assert_eq!(number(&new, 10, 2), 512);
        assert_eq!(number(&new, 16, 8), 163_840);
        let residencies = [32, 36, 40, 44].map(|at| number(&new, at, 4));
        assert_eq!(residencies, [9_000, 1_000, 6_000, 2_000]);
        assert_eq!(number(&new, 278, 2), 1_900);

        let old = v1_3(&reading(), &residency());
        assert_eq!((old.len(), number(&old, 0, 2)), (120, 120));
        assert_eq!(old[2..4], [1, 3]);
        assert_eq!(number(&old, 22, 2), 512);
        assert_eq!(number(&old, 24, 8), 163_840);
        assert_eq!(number(&old, 54, 2), 1_900);
        assert_eq!(number(&old, 112, 8), 1);
    }

    #[test]
    fn what_throttles_has_its_bit() {
        let status = |throttle| {
            let reading = Reading {
                throttle,
                ..reading()
            };
            number(&v1_3(&reading, &residency()), 112, 8)
        };
        assert_eq!(status(Some(Throttle::Heat)), 1 << 36);
        assert_eq!(status(Some(Throttle::PowerBrake)), 1 << 47);
    }
}
