//! Why a GPU is late: a slow clock, a late host, a slow link, or more work. Each leaves its own
//! marks in kernels; where none or several are seen, the answer is "unknown".
//!
//! This is the one rule: `litctl analyze` applies it to traces, the daemon to the iterations that
//! hooks measure, with what sensors say of clocks besides. It knows numbers only; who measures
//! them, and the words, are elsewhere.

use serde::Serialize;

/// The cause that holds a node back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// No cause.
    Healthy,
    /// A GPU's clock is slow. Kernels can't tell whether heat makes it so.
    SlowClock,
    /// A GPU is as fast as the others, but its queue runs empty: its host is late.
    HostBound,
    /// A GPU's link is slow.
    Communication,
    /// A GPU has more work than the others.
    DataDependent,
    /// The lateness comes from how the ranks were recorded, not from the node.
    SamplingArtefact,
    /// Kernels don't tell, or tell several things at once.
    Unknown,
}

impl Cause {
    /// Whether more power for the GPU that is late can help.
    #[must_use]
    pub fn power_helps(self) -> bool {
        self == Self::SlowClock
    }
}

/// Marks of a GPU's kernels, in one iteration or on average over several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Marks {
    /// How much longer than the median GPU's its kernels that follow the clock take, of those
    /// whose overlap with communication is the same on all GPUs; a share. `None`: too few.
    pub slower_compute: Option<f64>,
    /// The same of kernels that memory limits, which follow the clock little.
    pub slower_memory: Option<f64>,
    /// The standard error of `slower_compute`.
    pub uncertainty: Option<f64>,
    /// The standard error of `slower_memory`.
    pub uncertainty_memory: Option<f64>,
    /// The share of the iteration in which its queue was empty although it waited for no
    /// collective.
    pub idle: f64,
    /// How much longer its transfers take than the median GPU's; a share.
    pub slower_link: f64,
}

/// Thresholds of marks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Kernels that take longer by less than this share are not slower.
    pub slower: f64,
    /// A GPU that idles for more than this share of an iteration, beyond those ahead of it, waits
    /// for its host.
    pub idle: f64,
    /// A link that is slower by less than this share is not slow.
    pub link: f64,
    /// Leads that differ by less than this, in their own unit, hold nobody back if nothing else
    /// is seen.
    pub level: f64,
}

impl Limits {
    /// Differences between single iterations of real nodes without a cause, which are no level.
    pub const OF_TRACES: Self = Self {
        slower: 0.006,
        idle: 0.005,
        link: 0.03,
        level: 0.0,
    };
}

/// A difference counts if it is so many times its own standard error.
pub const SURE: f64 = 3.3;
/// A slow clock makes kernels that memory limits slower by less than this share of what it does
/// to the others; more work makes all slower alike.
const FOLLOWS: f64 = 0.55;
/// Between these shares it may be both at once.
const MIXED: (f64, f64) = (0.3, 0.75);
/// A difference within so many standard errors of one of these is not between them.
const WITHIN: f64 = 3.0;
/// A mark below this share of another that weighs as much is an effect of it, or of no account.
const MINOR: f64 = 0.2;
/// A GPU that nothing else makes late and whose queue is empty for more of the time than this waits
/// for its host, even if those ahead of it do so as well.
const MOSTLY_WAITS: f64 = 0.2;
/// Of fewer GPUs than this the middle one is chance: then the slowest of them is the measure.
const FEW: usize = 4;
/// A clock that is lower by this share of what kernels are slower by explains them.
const EXPLAINS: f64 = 0.5;

/// The answer, with what it rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The cause that holds the node back.
    pub cause: Cause,
    /// The GPU that is last, by its position; none of no GPUs.
    pub last: Option<usize>,
    /// The GPUs far ahead of it, with which it is compared.
    pub ahead: Vec<usize>,
    /// How far the first and the last GPU are apart, in the unit of the leads.
    pub spread: f64,
    /// The marks of the last GPU less those of the GPUs far ahead of it.
    pub apart: Marks,
    /// The share of the time in which the last GPU's own queue was empty.
    pub idle: f64,
    /// By which share its clock is below theirs, where all are known.
    pub clock_below: Option<f64>,
    /// All causes that were seen; one of them is no verdict if there are several.
    pub seen: Vec<Cause>,
}

impl Verdict {
    /// The verdict if what kernels take speaks for no clock, and for no more work of all of them.
    #[must_use]
    pub fn without_pace(mut self) -> Self {
        let by_pace = |cause: &Cause| matches!(cause, Cause::SlowClock | Cause::DataDependent);
        if self.seen.iter().any(by_pace) {
            self.seen.retain(|cause| !by_pace(cause));
            self.cause = match self.seen[..] {
                [cause] => cause,
                _ => Cause::Unknown,
            };
        }
        self
    }
}

/// Says why the GPU with the smallest lead is late. The slices have one entry per GPU; `clocks`
/// are what sensors say, in any unit, and may be empty.
#[must_use]
pub fn diagnose(
    leads: &[f64],
    marks: &[Marks],
    clocks: &[Option<f64>],
    limits: &Limits,
) -> Verdict {
    let mut order = Vec::from_iter(0..leads.len().min(marks.len()));
    order.sort_by(|&a, &b| leads[a].total_cmp(&leads[b]));
    let mut verdict = Verdict {
        cause: Cause::Unknown,
        last: order.first().copied(),
        ahead: Vec::new(),
        spread: 0.0,
        apart: Marks::default(),
        idle: 0.0,
        clock_below: None,
        seen: Vec::new(),
    };
    let (Some(&last), Some(&first)) = (order.first(), order.last()) else {
        return verdict;
    };
    verdict.spread = leads[first] - leads[last];
    // GPUs that are late by nearly as much may be late for the same reason, and are not compared with.
    let far = leads[last] + verdict.spread / 2.0;
    let ahead = Vec::from_iter(order.into_iter().filter(|&gpu| leads[gpu] >= far));
    verdict.apart = apart(marks, last, &ahead);
    verdict.idle = marks[last].idle;
    verdict.clock_below = clock_below(clocks, last, &ahead);
    verdict.ahead = ahead;
    verdict.seen = seen(&verdict.apart, verdict.clock_below, limits);
    // The kernels must be known to be as fast.
    let unexplained = verdict.seen.is_empty() && verdict.apart.slower_compute.is_some();
    if unexplained && verdict.spread >= limits.level && verdict.idle > MOSTLY_WAITS {
        verdict.seen.push(Cause::HostBound);
    }
    verdict.cause = match verdict.seen[..] {
        [] if verdict.spread < limits.level || verdict.spread <= 0.0 => Cause::Healthy,
        [cause] => cause,
        _ => Cause::Unknown,
    };
    verdict
}

/// All GPUs that are as late as the last one, as far as can be told: their leads differ from its by less
/// than the level, what makes it late makes them as late, and they are none of those that it is compared
/// with.
#[must_use]
pub fn as_late(verdict: &Verdict, leads: &[f64], marks: &[Marks], limits: &Limits) -> Vec<usize> {
    let Some(last) = verdict.last else {
        return Vec::new();
    };
    let late = |&gpu: &usize| {
        let behind = leads[gpu] - leads[last];
        let near = behind < limits.level && behind < verdict.spread / 2.0;
        gpu == last || near && alike(verdict.cause, &marks[gpu], &marks[last], limits)
    };
    let gpus = 0..leads.len().min(marks.len());
    gpus.filter(late).collect()
}

/// Whether two GPUs show as much of what speaks for a cause.
fn alike(cause: Cause, one: &Marks, other: &Marks, limits: &Limits) -> bool {
    let within = |one: f64, other: f64, limit: f64| (one - other).abs() <= limit;
    match cause {
        Cause::SlowClock | Cause::DataDependent => {
            let near = |value: fn(&Marks) -> Option<f64>, error: fn(&Marks) -> Option<f64>| {
                let error = error(one).unwrap_or(0.0).max(error(other).unwrap_or(0.0));
                let (one, other) = value(one).zip(value(other))?;
                Some(within(one, other, limits.slower.max(SURE * error)))
            };
            let compute = near(|of| of.slower_compute, |of| of.uncertainty);
            let memory = near(|of| of.slower_memory, |of| of.uncertainty_memory);
            compute == Some(true) && memory != Some(false)
        }
        Cause::HostBound => within(one.idle, other.idle, limits.idle),
        Cause::Communication => within(one.slower_link, other.slower_link, limits.link),
        Cause::Healthy | Cause::SamplingArtefact | Cause::Unknown => true,
    }
}

/// A GPU's marks less those of some others.
fn apart(marks: &[Marks], gpu: usize, others: &[usize]) -> Marks {
    let own = marks[gpu];
    let middle = |value: fn(&Marks) -> f64| {
        let values = others.iter().map(|&other| value(&marks[other]));
        median(values.collect()).unwrap_or(0.0)
    };
    let slower = |value: fn(&Marks) -> Option<f64>| {
        let values = others.iter().filter_map(|&other| value(&marks[other]));
        let theirs = match others.len() < FEW {
            true => values.max_by(f64::total_cmp)?,
            false => median(values.collect())?,
        };
        Some((1.0 + value(&own)?) / (1.0 + theirs) - 1.0)
    };
    // The error of a difference between this GPU and the median of the others.
    let count = others.len().max(1) as f64;
    let wider = (1.0 + 1.57 / count).sqrt();
    Marks {
        slower_compute: slower(|mark| mark.slower_compute),
        slower_memory: slower(|mark| mark.slower_memory),
        uncertainty: own.uncertainty.map(|one| one * wider),
        uncertainty_memory: own.uncertainty_memory.map(|one| one * wider),
        idle: own.idle - middle(|mark| mark.idle),
        slower_link: own.slower_link - middle(|mark| mark.slower_link),
    }
}

/// GPUs that wait for their hosts, whether or not other GPUs wait for them: their queues are empty for longer than
/// the median GPU's.
#[must_use]
pub fn waiting_for_hosts(marks: &[Marks], limits: &Limits) -> Vec<bool> {
    let middle = median(marks.iter().map(|mark| mark.idle).collect()).unwrap_or(0.0);
    let waits = marks.iter().map(|mark| mark.idle - middle > limits.idle);
    waits.collect()
}

fn clock_below(clocks: &[Option<f64>], gpu: usize, others: &[usize]) -> Option<f64> {
    let theirs = others.iter().map(|&other| *clocks.get(other)?);
    let theirs = median(theirs.collect::<Option<_>>()?)?;
    Some(1.0 - (*clocks.get(gpu)?)? / theirs)
}

/// The causes that the marks speak for.
fn seen(apart: &Marks, clock_below: Option<f64>, limits: &Limits) -> Vec<Cause> {
    let slower = slowness(apart, clock_below, limits);
    let most = apart.slower_compute.unwrap_or(0.0);
    let idles = apart.idle > limits.idle;
    let mut causes = Vec::new();
    if !(idles && most < MINOR * apart.idle) {
        causes.extend(slower.iter().copied());
    }
    if idles && (slower.is_empty() || apart.idle > MINOR * most) {
        causes.push(Cause::HostBound);
    }
    if apart.slower_link > limits.link {
        causes.push(Cause::Communication);
    }
    causes
}

/// The causes that slower kernels suggest: a slow clock, more work, or both.
fn slowness(apart: &Marks, clock_below: Option<f64>, limits: &Limits) -> Vec<Cause> {
    let counts = |slower: f64, uncertainty: Option<f64>| {
        slower > limits.slower.max(SURE * uncertainty.unwrap_or(0.0))
    };
    let Some(compute) = apart.slower_compute else {
        return Vec::new();
    };
    let memory = apart.slower_memory;
    let more = memory.is_some_and(|memory| counts(memory, apart.uncertainty_memory));
    if !counts(compute, apart.uncertainty) && !more {
        return Vec::new();
    }
    // A sensor can say that the clock is slow. That it is not can't be told from one: it is read
    // at another moment.
    if clock_below.is_some_and(|below| compute > 0.0 && below > EXPLAINS * compute) {
        return vec![Cause::SlowClock];
    }
    let Some(memory) = memory else {
        return vec![Cause::SlowClock];
    };
    let may_be_off = WITHIN * apart.uncertainty_memory.unwrap_or(0.0);
    let mixed = memory - MIXED.0 * compute > may_be_off && MIXED.1 * compute - memory > may_be_off;
    match (mixed, memory < FOLLOWS * compute) {
        (true, _) => vec![Cause::SlowClock, Cause::DataDependent],
        (_, true) => vec![Cause::SlowClock],
        (_, false) => vec![Cause::DataDependent],
    }
}

/// The middle value, or what is halfway between the two in the middle; none of nothing.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    Some(lower + (upper - lower) / 2.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in tests a panic is the report")]
mod tests {
    use super::*;

    const LEADS: [f64; 4] = [0.0, 9.0, 10.0, 8.0];

    /// Four GPUs of which the first is last and has these marks.
    fn cause(first: Marks) -> Cause {
        let plain = Marks {
            slower_compute: Some(0.0),
            slower_memory: Some(0.0),
            uncertainty: Some(0.0005),
            uncertainty_memory: Some(0.0005),
            ..Marks::default()
        };
        let mut marks = [plain; 4];
        marks[0] = first;
        diagnose(&LEADS, &marks, &[], &Limits::OF_TRACES).cause
    }

    fn slower(compute: f64, memory: f64) -> Marks {
        Marks {
            slower_compute: Some(compute),
            slower_memory: Some(memory),
            uncertainty: Some(0.0005),
            uncertainty_memory: Some(0.0005),
            ..Marks::default()
        }
    }

    #[test]
    fn each_cause_has_its_mark_and_two_at_once_are_unknown() {
        assert_eq!(cause(slower(0.02, 0.002)), Cause::SlowClock);
        assert_eq!(cause(slower(0.02, 0.02)), Cause::DataDependent);
        assert_eq!(cause(slower(0.02, 0.0104)), Cause::Unknown);
        let late = |marks| Marks {
            idle: 0.02,
            ..marks
        };
        assert_eq!(cause(late(slower(0.0, 0.0))), Cause::HostBound);
        assert_eq!(cause(late(slower(0.02, 0.002))), Cause::Unknown);
        // Ten times as much is not the same weight.
        assert_eq!(cause(late(slower(0.2, 0.02))), Cause::SlowClock);
        let link = |marks| Marks {
            slower_link: 0.1,
            ..marks
        };
        assert_eq!(cause(link(slower(0.0, 0.0))), Cause::Communication);
        assert_eq!(cause(link(slower(0.02, 0.002))), Cause::Unknown);
        assert_eq!(cause(slower(0.0, 0.0)), Cause::Unknown);
        assert_eq!(cause(Marks::default()), Cause::Unknown);
    }

    #[test]
    fn what_a_few_kernels_take_speaks_for_no_clock() {
        let told = |marks: Marks| {
            let all = [marks, slower(0.0, 0.0), slower(0.0, 0.0), slower(0.0, 0.0)];
            let verdict = diagnose(&LEADS, &all, &[], &Limits::OF_TRACES).without_pace();
            (verdict.cause, verdict.seen)
        };
        assert_eq!(told(slower(0.02, 0.002)), (Cause::Unknown, vec![]));
        let late = Marks {
            idle: 0.02,
            ..slower(0.02, 0.02)
        };
        assert_eq!(told(late), (Cause::HostBound, vec![Cause::HostBound]));
    }

    #[test]
    fn a_gpu_is_compared_with_those_far_ahead_and_not_with_the_median() {
        // Three of five are slow: the median GPU is one of them.
        let marks = [0.0, 0.0, 0.0, -0.03, -0.03].map(|by| slower(by, by / 10.0));
        let leads = [0.0, 0.1, 0.2, 10.0, 11.0];
        let verdict = diagnose(&leads, &marks, &[], &Limits::OF_TRACES);
        assert_eq!((verdict.cause, verdict.last), (Cause::SlowClock, Some(0)));
        assert!((verdict.apart.slower_compute.unwrap() - 0.0309).abs() < 1e-4);
        // As slow as a GPU that leads it by far: that is not why it is late.
        let marks = [0.03; 5].map(|by| slower(by, by / 10.0));
        let verdict = diagnose(&leads, &marks, &[], &Limits::OF_TRACES);
        assert_eq!(verdict.cause, Cause::Unknown);
    }

    #[test]
    fn one_fast_gpu_among_few_makes_nobody_slow() {
        // Two lead by far; one of them is as slow as the last.
        let marks = [0.0, -0.12, 0.0, 0.0].map(|by| slower(by, by));
        let leads = [0.0, 10.0, 9.0, 1.0];
        let verdict = diagnose(&leads, &marks, &[], &Limits::OF_TRACES);
        assert_eq!(verdict.cause, Cause::Unknown);
        // All queues are empty for half of the time: hosts are what everybody waits for.
        let marks = marks.map(|one| Marks { idle: 0.5, ..one });
        let verdict = diagnose(&leads, &marks, &[], &Limits::OF_TRACES);
        assert_eq!(verdict.cause, Cause::HostBound);
    }

    #[test]
    fn all_that_are_as_late_are_named() {
        let limits = Limits {
            level: 1.0,
            ..Limits::OF_TRACES
        };
        let told = |leads: [f64; 4], marks: [f64; 4]| {
            let marks = marks.map(|by| slower(by, by / 10.0));
            let verdict = diagnose(&leads, &marks, &[], &limits);
            as_late(&verdict, &leads, &marks, &limits)
        };
        assert_eq!(told([0.0, 9.0, 0.0, 9.5], [0.03, 0.0, 0.03, 0.0]), [0, 2]);
        assert_eq!(told([0.4, 9.0, 0.0, 9.5], [0.031, 0.0, 0.03, 0.0]), [0, 2]);
        // A GPU that is as late and as fast as the others was delayed by the slow one.
        assert_eq!(told([0.0, 9.0, 0.0, 9.5], [0.03, 0.0, 0.0, 0.0]), [0]);
        assert_eq!(told([0.0, 9.0, 1.5, 9.5], [0.03, 0.0, 0.03, 0.0]), [0]);
        // Nor is one whose kernels are slower for another reason.
        let leads = [0.0, 9.0, 0.0, 9.5];
        let marks = [(0.03, 0.003), (0.0, 0.0), (0.03, 0.03), (0.0, 0.0)];
        let marks = marks.map(|(compute, memory)| slower(compute, memory));
        let verdict = diagnose(&leads, &marks, &[], &limits);
        assert_eq!(as_late(&verdict, &leads, &marks, &limits), [0]);
    }

    #[test]
    fn a_sensor_may_find_the_clock_slow_where_memory_follows_it() {
        let marks = [0.02, 0.0, 0.0, 0.0].map(|by| slower(by, by));
        let told = |clocks: [f64; 4]| {
            let clocks = clocks.map(Some);
            diagnose(&LEADS, &marks, &clocks, &Limits::OF_TRACES).cause
        };
        assert_eq!(told([1.96, 2.0, 2.0, 2.0]), Cause::SlowClock);
        assert_eq!(told([2.0, 2.0, 2.0, 2.0]), Cause::DataDependent);
    }

    #[test]
    fn nobody_is_late_on_a_level_node() {
        let limits = Limits {
            level: 20.0,
            ..Limits::OF_TRACES
        };
        let verdict = diagnose(&LEADS, &[Marks::default(); 4], &[], &limits);
        assert_eq!(verdict.cause, Cause::Healthy);
        assert_eq!(diagnose(&[], &[], &[], &limits).last, None);
    }
}
