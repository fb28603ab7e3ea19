//! The parts of the ranks' time, in words: the largest, and advice about it.

use litd_traces::{RankReport, Report, Split};
use litd_units::Nanos;

use super::hosts;

/// From this share of the time on, what is no computation is worth a word.
const MUCH: f64 = 0.15;
/// From this share of the time on, what comes second is worth a word beside what comes first.
const ALSO: f64 = 0.15;
/// Above this share of the time is most of it.
const MOST: f64 = 0.5;
/// Where launches of fewer kernels are known, why a GPU is idle is known in part only.
pub const KNOWN: f64 = 0.95;

/// A kind of time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Computation,
    Communication,
    Copies,
    Launch,
    Stream,
    /// The host was in time.
    Launched,
    /// On all GPUs at once, where launches are not known.
    Standstill,
    Other,
}

/// A kind of time, and which share of the time recorded it is, of all ranks together.
pub struct Part {
    kind: Kind,
    share: f64,
    /// Whether it is in few long gaps.
    long: bool,
}

impl Part {
    /// The name, and whether it is plural.
    fn name(&self) -> (&'static str, bool) {
        match self.kind {
            Kind::Computation => ("computation", true),
            Kind::Communication => ("communication with nothing beside it", true),
            Kind::Copies => ("copies with nothing beside them", false),
            Kind::Launch => ("gaps in which GPUs wait for their hosts' launches", false),
            Kind::Stream => ("gaps in which GPUs wait for another stream", false),
            Kind::Launched => ("gaps between kernels that had been launched in time", false),
            Kind::Standstill => (
                "long gaps on all GPUs at once, which wait for their hosts then,",
                false,
            ),
            Kind::Other => (
                "gaps between kernels, for reasons that these traces don't tell,",
                false,
            ),
        }
    }

    fn takes(&self) -> String {
        let (name, one) = self.name();
        let takes = if one { "takes" } else { "take" };
        format!("{name} {takes} {:.1} %", 100.0 * self.share)
    }

    /// Whether it is communication.
    pub fn communicates(&self) -> bool {
        self.kind == Kind::Communication
    }

    /// Advice where this is the largest part.
    pub fn advice(&self) -> &'static str {
        match self.kind {
            Kind::Computation => "look at the kernels that take most time, below",
            Kind::Communication => {
                "look at the collectives, below: larger ones, or computation beside them, hide them"
            }
            Kind::Copies => {
                "look at what is copied, below: pinned memory and copies beside computation hide them"
            }
            Kind::Launch if self.long => {
                "look at what hosts do between launches, in few long gaps: input (data loader), logging, checkpoints"
            }
            Kind::Launch => {
                "give GPUs more work per launch: fewer and larger launches (CUDA graphs, HIP graphs), or less work on the host between them"
            }
            Kind::Stream => "look at what streams wait for each other for (events)",
            Kind::Launched => {
                "look at what runs before the gaps: many short kernels one after the other, the steps of one graph (CUDA graph, HIP graph), or synchronisation on the GPU"
            }
            Kind::Standstill => {
                "look at what hosts do between launches, in few long gaps: input (data loader), a server's scheduler, logging, checkpoints"
            }
            Kind::Other => "record the host's calls as well: they tell why GPUs are idle",
        }
    }
}

/// All kinds of time, the greatest first.
pub fn of(report: &Report) -> Vec<Part> {
    let windows = report.ranks.iter().map(|rank| rank.window_ns);
    let whole = windows.sum::<Nanos>().0.max(1) as f64;
    let sum = |of: &dyn Fn(&RankReport) -> Nanos| {
        let part = report.ranks.iter().map(of);
        part.sum::<Nanos>().0 as f64 / whole
    };
    let share = |of: fn(&Split) -> Nanos| sum(&|rank| of(&rank.time_ns));
    let unknown = sum(&|rank| rank.time_ns.idle_other - rank.idle_launched_ns);
    let standstill = standing_still(report).min(unknown);
    let parts = [
        (Kind::Computation, share(|split| split.computation)),
        (
            Kind::Communication,
            share(|split| split.exposed_communication),
        ),
        (Kind::Copies, share(|split| split.exposed_copies)),
        (Kind::Launch, share(|split| split.idle_launch)),
        (Kind::Stream, share(|split| split.idle_stream)),
        (Kind::Launched, sum(&|rank| rank.idle_launched_ns)),
        (Kind::Standstill, standstill),
        (Kind::Other, unknown - standstill),
    ];
    let ranks = Vec::from_iter(&report.ranks);
    let long = hosts::long(&ranks).is_some();
    let mut parts = Vec::from_iter(parts.map(|(kind, share)| Part { kind, share, long }));
    parts.sort_by(|a, b| b.share.total_cmp(&a.share));
    parts
}

/// The share of the time in which no GPU does more than wait for long.
pub fn standing_still(report: &Report) -> f64 {
    let long = report.standstill.map(|still| still.long_ns.0);
    long.unwrap_or_default() as f64 / report.wall_ns.0.max(1) as f64
}

/// The largest part of the time, in one sentence without a full stop.
pub fn verdict(parts: &[Part]) -> String {
    let [first, second, ..] = parts else {
        return "Nothing ran".into();
    };
    let computation = parts.iter().find(|part| part.kind == Kind::Computation);
    let computation = computation.map_or(0.0, |part| 100.0 * part.share);
    match (first.kind, first.share > MOST) {
        (Kind::Computation, true) => {
            let also = match second.share >= ALSO {
                true => format!("; {}", second.takes()),
                false => String::new(),
            };
            format!(
                "Most of the time is computation: {computation:.1} % of the time recorded{also}"
            )
        }
        (_, true) => format!(
            "Most of the time is no computation: {} of the time recorded, computation {computation:.1} %",
            first.takes()
        ),
        (_, false) => format!(
            "Nothing takes most of the time recorded: {}, and {}",
            first.takes(),
            second.takes()
        ),
    }
}

/// Advice: the largest part, and the second where the first is computation and it is large as well.
pub fn advice(parts: &[Part]) -> String {
    let [first, second, ..] = parts else {
        return String::new();
    };
    let also = first.kind == Kind::Computation && second.share >= ALSO;
    match also {
        true => format!("{}; also {}", first.advice(), second.advice()),
        false => first.advice().into(),
    }
}

/// The largest part of the time without computation, in words without a full stop, and whether that
/// is communication.
pub fn elsewhere(parts: &[Part]) -> Option<(String, bool)> {
    let mut others = parts.iter().filter(|part| part.kind != Kind::Computation);
    let first = others.next().filter(|part| part.share > MUCH)?;
    let computation = parts.iter().find(|part| part.kind == Kind::Computation);
    let computation = computation.map_or(0.0, |part| 100.0 * part.share);
    let told = format!(
        "{} of the time recorded, computation {computation:.1} % of it",
        first.takes()
    );
    Some((told, first.communicates()))
}

/// Whether something that is no computation takes most of the time.
pub fn hardly_computes(parts: &[Part]) -> bool {
    let first = parts.first();
    first.is_some_and(|part| part.kind != Kind::Computation && part.share > MOST)
}

/// The largest part of the time that is neither computation nor waiting for another rank; none where that is little.
pub fn worth(report: &Report) -> Option<Part> {
    /// Less than this share of the time is not worth a word.
    const WORTH: f64 = 0.1;
    let windows = report.ranks.iter().map(|rank| rank.window_ns);
    let whole = windows.sum::<Nanos>().0.max(1) as f64;
    let waits = report.ranks.iter().filter_map(|rank| rank.exposed_wait_ns);
    // A wait for missing ranks looks like communication.
    let waits = match report.missing() {
        None => waits.sum::<Nanos>().0 as f64 / whole,
        Some(_) => 0.0,
    };
    let others = of(report).into_iter();
    let others = others.filter(|part| part.kind != Kind::Computation);
    let net = others.map(|part| Part {
        share: match part.kind {
            Kind::Communication => (part.share - waits).max(0.0),
            _ => part.share,
        },
        ..part
    });
    let largest = net.max_by(|a, b| a.share.total_cmp(&b.share))?;
    (largest.share >= WORTH).then_some(largest)
}

/// The same in words without a full stop; none of idleness where hosts are told to be late.
pub fn besides(report: &Report, by_hosts: bool) -> Option<String> {
    let largest = worth(report)?;
    let idles = !matches!(largest.kind, Kind::Communication | Kind::Copies);
    if by_hosts && idles {
        return None;
    }
    let waits = report
        .ranks
        .iter()
        .any(|rank| rank.exposed_wait_ns > Some(Nanos::ZERO));
    let waits = waits && report.missing().is_none();
    let mut rows = report.ranks.iter().flat_map(|rank| &rank.collectives);
    let matched = rows.all(|row| row.wait_ns.is_some());
    let apart = match (largest.kind == Kind::Communication && waits, matched) {
        (true, true) => ", without the waits for other ranks",
        (true, false) => ", some of it waiting for other ranks (how much is not known)",
        (false, _) => "",
    };
    Some(format!("{}{apart}", largest.takes()))
}
