//! Jobs that also run on other nodes: whether this node waits for the others.
//!
//! Where this node waits, more power can't make the job faster here; but taking power from the GPUs that wait for
//! this node's own straggler still saves energy. Where that is unknown, caps stay.
//!
//! Each sample gives two shares of its iteration: that in which all GPUs here certainly do nothing but collectives
//! with other nodes, and that in which they possibly do nothing else. A wait for a slow network looks the same as a
//! wait for a slow node, and is treated as one.

use litd_policies::Policy;
use litd_proto::{Class, Hello, Kernels};
use litd_traces::KernelClass;
use litd_traces::live::{Reach, Waits};
use litd_units::Nanos;

/// How many samples in a row must agree.
const AGREE: u32 = 5;

/// After so many samples that did not, the answer is unknown, and samples are no longer taken sooner for its sake.
const PATIENCE: u32 = 50;

/// Shares of one iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shares {
    /// The share in which all GPUs here certainly wait for other nodes.
    certain: f64,
    /// The share in which they possibly do; `None`: unknown.
    possible: Option<f64>,
}

impl Shares {
    pub fn of(waits: &Waits, duration: Nanos) -> Self {
        let share = |time: Nanos| (time.as_secs_f64() / duration.as_secs_f64().max(1e-9)).min(1.0);
        Self {
            certain: share(waits.certain()),
            possible: waits.possible().map(share),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Verdict {
    #[default]
    Unknown,
    Waits,
    Leads,
}

/// Whether a job waits for other nodes, as far as samples have shown.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    /// The first rank on this node, if nodes have consecutive ranks, as a hook says.
    first: Option<u32>,
    /// Hooks disagree about that: then what they take to be inside the node need not be.
    scattered: bool,
    verdict: Verdict,
    last: Option<Shares>,
    /// The verdict of the last samples in a row, and their number.
    leaning: (Verdict, u32),
    /// Samples since the last that confirmed anything.
    doubts: u32,
}

impl Elsewhere {
    /// A rank says hello.
    pub fn arrived(&mut self, hello: &Hello) {
        let first = hello.rank.checked_sub(hello.local_rank);
        self.scattered |= first.is_none() || self.first.is_some_and(|known| Some(known) != first);
        self.first = self.first.or(first);
    }

    /// Adds one rank's kernels to what its iteration shows.
    pub fn add(&self, waits: &mut Waits, kernels: &Kernels, class: impl Fn(usize) -> KernelClass) {
        if !kernels.shows_collectives || self.scattered {
            return waits.add_blind();
        }
        let times = kernels.start.iter().zip(&kernels.duration_of);
        let kernel = |(at, (&start, &duration)): (usize, (&Nanos, &Nanos))| {
            let reach = match (kernels.class.get(at), class(at)) {
                (Some(Class::CommunicationInside), _) => Reach::Inside,
                (Some(Class::CommunicationOutside), _) => Reach::Outside,
                (_, KernelClass::Communication | KernelClass::Fused) => Reach::Unknown,
                (_, KernelClass::Computation | KernelClass::Copy) => Reach::Work,
            };
            (start, duration, reach)
        };
        waits.add(times.enumerate().map(kernel));
    }

    /// Takes in a sample. Returns whether that changes the permitted policy. `share`: from this share of an
    /// iteration on the node counts as waiting.
    pub fn sampled(&mut self, shares: Shares, share: f64) -> bool {
        self.last = Some(shares);
        let says = match shares {
            Shares { certain, .. } if certain >= share => Verdict::Waits,
            Shares {
                possible: Some(possible),
                ..
            } if possible < share => Verdict::Leads,
            _ => Verdict::Unknown,
        };
        let (leaning, times) = self.leaning;
        let times = if says == leaning {
            times.saturating_add(1)
        } else {
            1
        };
        self.leaning = (says, times);
        self.doubts = if times >= AGREE {
            0
        } else {
            self.doubts.saturating_add(1)
        };
        let before = self.verdict;
        if times >= AGREE {
            self.verdict = says;
        } else if self.doubts > PATIENCE {
            self.verdict = Verdict::Unknown;
        }
        self.verdict != before
    }

    /// Whether more samples would tell.
    pub fn is_undecided(&self) -> bool {
        self.leaning.1 < AGREE && self.doubts <= PATIENCE
    }

    /// Whether this node waits for others.
    pub fn waits(&self) -> bool {
        self.verdict == Verdict::Waits
    }

    /// The policy that is permitted where this one is asked for.
    pub fn permitted(&self, policy: Policy) -> Policy {
        match (self.verdict, policy) {
            (Verdict::Leads, policy) => policy,
            (Verdict::Waits, Policy::GpuRed | Policy::GpuRealloc | Policy::CpuSlosh) => {
                Policy::GpuRed
            }
            (Verdict::Waits | Verdict::Unknown, _) => Policy::Observe,
        }
    }

    /// The verdict in words, where `policy` is asked for.
    pub fn words(&self, policy: Policy) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let shares = self.last.map(|last| (last.certain, last.possible));
        match (self.verdict, shares) {
            (Verdict::Waits, Some((certain, _))) => {
                let instead = match policy {
                    Policy::GpuRealloc | Policy::CpuSlosh => {
                        format!(
                            "gpu-red in place of {policy}, because power can't make it faster here: "
                        )
                    }
                    Policy::GpuRed | Policy::Observe => String::new(),
                };
                format!(
                    "{instead}all GPUs of this node wait for the job's other nodes in {} of an iteration",
                    percent(certain)
                )
            }
            (Verdict::Leads, Some((_, Some(possible)))) => format!(
                "this node waits for the job's other nodes in no more than {} of an iteration",
                percent(possible)
            ),
            (_, shares) => {
                let why = match shares {
                    _ if self.scattered => "its ranks on this node are not consecutive".to_owned(),
                    None => "there is no sample yet".to_owned(),
                    Some((_, None)) => {
                        "its hooks time modules, which shows no collectives".to_owned()
                    }
                    Some((certain, Some(possible))) => format!(
                        "between {} and {} of an iteration, by the last sample",
                        percent(certain),
                        percent(possible)
                    ),
                };
                format!(
                    "it runs on several nodes, and whether this one waits for the others is not known: {why}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: f64 = 0.02;

    fn shares(certain: f64, possible: f64) -> Shares {
        Shares {
            certain,
            possible: Some(possible),
        }
    }

    fn after(samples: &[(Shares, usize)]) -> Elsewhere {
        let mut elsewhere = Elsewhere::default();
        for &(shares, times) in samples {
            for _ in 0..times {
                elsewhere.sampled(shares, SHARE);
            }
        }
        elsewhere
    }

    const STEERING: [Policy; 3] = [Policy::GpuRed, Policy::GpuRealloc, Policy::CpuSlosh];

    #[test]
    fn a_node_that_waits_may_save_power_and_no_more() {
        let elsewhere = after(&[(shares(0.1, 0.3), 5)]);
        assert_eq!(
            STEERING.map(|it| elsewhere.permitted(it)),
            [Policy::GpuRed; 3]
        );
        assert_eq!(elsewhere.permitted(Policy::Observe), Policy::Observe);
    }

    #[test]
    fn a_node_that_others_wait_for_may_do_anything() {
        let elsewhere = after(&[(shares(0.0, 0.01), 5)]);
        assert_eq!(STEERING.map(|it| elsewhere.permitted(it)), STEERING);
    }

    #[test]
    fn what_is_not_known_is_observed() {
        let blind = Shares {
            certain: 0.0,
            possible: None,
        };
        for elsewhere in [
            Elsewhere::default(),
            after(&[(blind, 9)]),
            after(&[(shares(0.0, 0.5), 9)]),
            after(&[(shares(0.1, 0.3), 4)]),
        ] {
            assert_eq!(
                STEERING.map(|it| elsewhere.permitted(it)),
                [Policy::Observe; 3]
            );
        }
    }

    #[test]
    fn one_odd_sample_changes_nothing_and_asks_for_more() {
        let mut elsewhere = after(&[(shares(0.1, 0.3), 5)]);
        assert!(!elsewhere.is_undecided());
        assert!(!elsewhere.sampled(shares(0.0, 0.0), SHARE));
        assert!(elsewhere.is_undecided());
        assert_eq!(elsewhere.permitted(Policy::CpuSlosh), Policy::GpuRed);
        let changes: Vec<bool> = (0..4)
            .map(|_| elsewhere.sampled(shares(0.0, 0.0), SHARE))
            .collect();
        assert_eq!(changes, [false, false, false, true]);
        assert_eq!(elsewhere.permitted(Policy::CpuSlosh), Policy::CpuSlosh);
    }

    #[test]
    fn samples_that_never_agree_end_in_not_known_and_are_hurried_no_more() {
        let mut elsewhere = after(&[(shares(0.1, 0.3), 5)]);
        for _ in 0..PATIENCE {
            elsewhere.sampled(shares(0.0, 0.0), SHARE);
            elsewhere.sampled(shares(0.1, 0.3), SHARE);
        }
        assert!(!elsewhere.is_undecided());
        assert_eq!(elsewhere.permitted(Policy::GpuRed), Policy::Observe);
    }
}
