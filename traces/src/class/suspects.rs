//! Kernels that count as computation and may be none: their names look like a collective's, or
//! they end together on all ranks however late each rank starts them, as only what waits does.

use std::collections::HashMap;

use litd_units::Nanos;

use crate::align::Alignment;
use crate::text::printable;
use crate::timeline::{KernelClass, Timeline};

/// Words of collectives, without what separates them.
const WORDS: [&str; 10] = [
    "allreduce",
    "allgather",
    "reducescatter",
    "alltoall",
    "all2all",
    "sendrecv",
    "crossdevice",
    "symmmem",
    "symmetricmemory",
    "lamport",
];
/// Before such a word these tell of a collective within one GPU.
const WITHIN: [&str; 5] = ["warp", "block", "wave", "wavefront", "lane"];
/// Fewer executions than this show no behaviour.
const FEWEST: usize = 5;
/// Starts that are closer together, on average over executions, show none either, in nanoseconds: profilers that round to
/// microseconds make that much of nothing.
const APART: f64 = 500.0;
/// What waits takes a nanosecond less for each by which it starts later, to within this part of it. What computes takes as
/// long however late it starts.
const OFF: f64 = 0.25;
/// So many standard errors are no chance.
const CLEAR: f64 = 8.0;
/// The longest name that is shown, in characters.
const SHOWN: usize = 60;
/// So many names are shown in one note.
const NAMES: usize = 5;

/// Why a kernel may be communication.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Suspicion {
    /// Its name has a collective's word in it.
    Name,
    /// Its executions end together on all ranks, and take the longer the earlier they start.
    Ends {
        /// The correlation of its duration with how late it starts: near -1.
        correlation: f64,
    },
}

/// A kernel that counts as computation and may be communication.
#[derive(Debug, Clone, PartialEq)]
pub struct Suspect {
    /// Its name.
    pub name: String,
    /// How many executions there are on all ranks.
    pub executions: usize,
    /// How long they take, together.
    pub time: Nanos,
    /// Why it is listed.
    pub why: Suspicion,
}

/// The kernels that count as computation although their names look like communication; those
/// that take most time first.
#[must_use]
pub fn suspects(timelines: &[Timeline]) -> Vec<Suspect> {
    let mut found = HashMap::<&str, (usize, Nanos)>::new();
    for timeline in timelines {
        let looks = Vec::from_iter(timeline.names.iter().map(looks_like_communication));
        if !looks.contains(&true) {
            continue;
        }
        for kernel in &timeline.kernels {
            let looks = looks.get(kernel.name.0 as usize);
            if kernel.class == KernelClass::Computation && looks == Some(&true) {
                let (executions, time) = found.entry(timeline.name_of(kernel)).or_default();
                *executions += 1;
                *time += kernel.duration();
            }
        }
    }
    let suspect = |(name, (executions, time)): (&str, _)| Suspect {
        name: name.to_owned(),
        executions,
        time,
        why: Suspicion::Name,
    };
    sorted(found.into_iter().map(suspect).collect())
}

/// Whether these ranks exchange anything, as far as their recordings tell: a kernel communicates, or
/// one looks or behaves as if it did. Ranks that exchange nothing are not seen to wait for each other.
pub(crate) fn exchange(timelines: &[Timeline], alignment: &Alignment) -> bool {
    let mut kernels = timelines.iter().flat_map(|timeline| &timeline.kernels);
    kernels.any(|kernel| kernel.class.communicates())
        || !suspects(timelines).is_empty()
        || !behaving(timelines, alignment).is_empty()
}

fn sorted(mut suspects: Vec<Suspect>) -> Vec<Suspect> {
    suspects.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    suspects
}

fn looks_like_communication(name: &str) -> bool {
    let plain = name.to_ascii_lowercase().replace('_', "");
    WORDS.iter().any(|word| {
        plain.match_indices(word).any(|(at, _)| {
            let before = plain.get(..at).unwrap_or_default();
            !WITHIN.iter().any(|within| before.ends_with(within))
        })
    })
}

/// What the executions of one name show.
#[derive(Default)]
struct Shown {
    rows: usize,
    time: Nanos,
    /// Sums over executions and ranks, each from the mean of its execution: squares of starts and of durations, and
    /// starts times durations.
    starts: f64,
    durations: f64,
    mixed: f64,
}

impl Shown {
    /// Adds one execution: start and duration on each rank, from the first start.
    fn add(&mut self, ranks: &[(f64, f64)]) {
        let count = ranks.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| ranks.iter().map(of).sum::<f64>() / count;
        let (start, duration) = (mean(|rank| rank.0), mean(|rank| rank.1));
        for rank in ranks {
            let (late, longer) = (rank.0 - start, rank.1 - duration);
            self.starts += late * late;
            self.durations += longer * longer;
            self.mixed += late * longer;
        }
        self.rows += 1;
    }

    /// The correlation of duration and lateness, if it shows that the kernel waits for the other ranks.
    fn waits(&self, ranks: usize) -> Option<f64> {
        let samples = (self.rows * ranks) as f64;
        let apart = (self.starts / samples.max(1.0)).sqrt();
        if self.rows < FEWEST || apart < APART {
            return None;
        }
        // A line through durations by lateness, and how far its slope may be off.
        let slope = self.mixed / self.starts;
        let left = f64::max(self.durations - slope * self.mixed, 0.0);
        let free = (self.rows * ranks.saturating_sub(1)) as f64 - 1.0;
        let error = (left / free.max(1.0) / self.starts).sqrt();
        let waits = (slope + 1.0).abs() <= OFF && -slope >= CLEAR * error;
        waits.then(|| self.mixed / (self.starts * self.durations).sqrt())
    }
}

/// The matched kernels that count as computation and end together on all ranks although they start
/// apart; those that take most time first.
pub(crate) fn behaving(timelines: &[Timeline], alignment: &Alignment) -> Vec<Suspect> {
    let Some(first) = timelines.first().filter(|_| timelines.len() > 1) else {
        return Vec::new();
    };
    let mut shown = HashMap::<_, Shown>::new();
    let mut ranks = Vec::new();
    for row in alignment.matched() {
        ranks.clear();
        let kernels = row.iter().zip(timelines);
        let mut kernels = kernels.filter_map(|(&at, timeline)| timeline.kernels.get(at as usize));
        let Some(base) = kernels.next() else { continue };
        let mut time = Nanos::ZERO;
        let mut computes = true;
        for kernel in std::iter::once(base).chain(kernels) {
            computes &= kernel.class == KernelClass::Computation;
            time += kernel.duration();
            let start = (kernel.start - base.start).0 as f64;
            ranks.push((start, kernel.duration().0 as f64));
        }
        if computes && ranks.len() == timelines.len() {
            let shown = shown.entry(base.name).or_default();
            shown.add(&ranks);
            shown.time += time;
        }
    }
    let suspect = |(name, shown): (_, Shown)| {
        Some(Suspect {
            name: first.names.get(name).to_owned(),
            executions: shown.rows * timelines.len(),
            time: shown.time,
            why: Suspicion::Ends {
                correlation: shown.waits(timelines.len())?,
            },
        })
    };
    sorted(shown.into_iter().filter_map(suspect).collect())
}

impl Suspect {
    /// Those of several groups of ranks, each name once: of the reasons, the first group's counts.
    pub(crate) fn merged(suspects: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut all = Vec::<Self>::new();
        for suspect in suspects {
            match all.iter_mut().find(|other| other.name == suspect.name) {
                Some(known) => {
                    known.executions += suspect.executions;
                    known.time += suspect.time;
                }
                None => all.push(suspect),
            }
        }
        sorted(all)
    }

    /// What is to be said of suspects of one kind, if there are any.
    #[must_use]
    pub fn note(suspects: &[Self]) -> Option<String> {
        let first = suspects.first()?;
        let why = match first.why {
            Suspicion::Name => "have names that look like communication",
            Suspicion::Ends { .. } => {
                "end together on all ranks however late each starts them, as communication does"
            }
        };
        let name = |suspect: &Self| {
            let name = printable(&suspect.name);
            let name = match name.char_indices().nth(SHOWN) {
                Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()),
                None => name,
            };
            format!("{} × {name}", suspect.executions)
        };
        let mut names = Vec::from_iter(suspects.iter().take(NAMES).map(name));
        if suspects.len() > NAMES {
            names.push(format!("{} more names", suspects.len() - NAMES));
        }
        Some(format!(
            "kernels that count as computation {why}: {}; if they are communication, say so with --classes",
            names.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_look_like_communication_or_do_not() {
        for (name, looks) in [
            ("void my::ring_all_reduce<8>", true),
            ("AllToAllKernel", true),
            ("void ft::warpAllReduce<4>", false),
            ("blockAllReduceSum", false),
            ("softmax_warp_all_reduce", false),
            ("void at::native::reduce_kernel<512>", false),
            ("CollectiveMma", false),
        ] {
            assert_eq!(looks_like_communication(name), looks, "{name}");
        }
    }

    #[test]
    fn what_waits_ends_together_and_what_computes_does_not() {
        let shown = |length: fn(f64) -> f64| {
            let mut shown = Shown::default();
            for k in 0..8 {
                let late = 1_000.0 * f64::from(20 - k);
                shown.add(&[(0.0, length(0.0)), (late, length(late))]);
            }
            shown.waits(2)
        };
        assert!(shown(|late| 50_000.0 - late).is_some_and(|r| r < -0.99));
        assert_eq!(shown(|_| 50_000.0), None);
        assert_eq!(shown(|late| 50_000.0 + late), None);
    }

    #[test]
    fn what_waits_for_less_than_microseconds_shows_that_too() {
        // Starts are apart by about a microsecond, as where ranks exchange something every 100 µs, and ends by half of that.
        let shown = |waits: bool| {
            let mut shown = Shown::default();
            for k in 0..200 {
                let late = f64::from(k * 37 % 100) * 30.0;
                let noise = f64::from(k * 53 % 97) * 12.0 - 576.0;
                let rest = if waits { late } else { 0.0 };
                shown.add(&[(0.0, 8_000.0), (late, 8_000.0 - rest + noise)]);
            }
            shown.waits(2)
        };
        assert!(shown(true).is_some_and(|r| r < -0.7), "{:?}", shown(true));
        assert_eq!(shown(false), None);
    }
}
