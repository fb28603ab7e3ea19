//! Doubts about a verdict, in words: missing ranks, unknown clocks, and iterations that differ or
//! are too few.

use std::collections::BTreeMap;

use litd_traces::Report;
use litd_traces::study::{Cause, Clocks, Diagnosis, Skew, Study, Wave};

use super::{parts, words};
use crate::output;
use crate::show::time;

/// Where less than this share of a rank's idle time is said to be its host's, its host is not why.
const HOSTS: f64 = 0.5;
/// Of fewer kernels nothing is firm.
const FEW: usize = 30;
/// So many ranks that are last in turn are named.
const NAMED: usize = 4;

/// A sentence for each, without a full stop.
pub fn of(report: &Report, study: Option<&Study<'_>>) -> Vec<String> {
    let mut doubts = Vec::from_iter(report.missing());
    // Where recordings allow no verdict at all, nothing makes it less sure.
    let Some(study) = study.filter(|it| it.diagnosis.cause != Cause::SamplingArtefact) else {
        return doubts;
    };
    doubts.extend(short(report));
    doubts.extend(report.doubts.iter().cloned());
    doubts.extend(clocks(&study.skew));
    doubts.extend(transfers(report));
    doubts.extend(other_jobs(report));
    doubts.extend(few(&study.waves));
    if !study.diagnosis.stragglers.is_empty() {
        if study.diagnosis.cause == Cause::HostBound && launched_in_time(report, &study.diagnosis) {
            doubts.push("most of its gaps end with kernels that had been launched before, so its host may not be why".into());
        }
        doubts.extend(from_one_to_the_next(study));
        doubts.extend(within(study));
        doubts.extend(by_one(study));
    }
    doubts
}

/// Whether launches tell that the host of a rank that is said to be late was in time, mostly.
pub fn launched_in_time(report: &Report, diagnosis: &Diagnosis) -> bool {
    let mut ranks = report.ranks.iter();
    let late = ranks.find(|rank| diagnosis.stragglers.first() == Some(&rank.rank));
    late.is_some_and(|rank| {
        let idle = rank.time_ns.idle().0 as f64;
        rank.launches_known >= parts::KNOWN && (rank.time_ns.idle_launch.0 as f64) < HOSTS * idle
    })
}

/// A doubt: the recording is too short for a firm verdict.
pub fn short(report: &Report) -> Option<String> {
    let one = report.ranks.len() < 2;
    let kernels = match one {
        true => report.ranks.first()?.kernels,
        false => report.told()?.matched_kernels?,
    };
    let count = output::count(kernels, "kernel");
    (kernels < FEW).then(|| match one {
        true => format!(
            "only {count} {} recorded ({})",
            if kernels == 1 { "was" } else { "were" },
            time(report.wall_ns)
        ),
        false => format!("only {count} of each rank are compared, too few for a firm verdict"),
    })
}

/// A doubt: the clocks' skew is unknown.
fn clocks(skew: &Skew) -> Option<String> {
    let known = skew.estimated || skew.one_clock;
    (!known).then(|| {
        format!(
            "how far the ranks' time stamps are off each other is not known: that takes all-reduces, all-gathers or reduce-scatters that all ranks ran, and there are {}",
            match skew.collectives {
                0 => "none".into(),
                few => format!("only {few}"),
            }
        )
    })
}

/// A doubt: what groups hand to each other doesn't tell how their clocks are.
pub fn between_groups(clocks: &Clocks) -> Option<String> {
    clocks.unknown.then(|| {
        "how far the time stamps of groups are off each other is not known: that takes transfers both ways whose ends are matched, or collectives of both; if these are of several machines, what stages wait for each other and what it costs may be wrong".into()
    })
}

/// A doubt: transfers or collectives of some ranks count as those of all, because nothing tells which ranks take part.
fn transfers(report: &Report) -> Option<String> {
    let group = report.told()?;
    let name = group.waits.as_ref()?.transfers.as_ref()?;
    Some(format!(
        "the trace does not tell which ranks take part in {}; it is taken for one of all {} ranks, although it mostly ends on some before it starts on others. Waits in it may be wrong",
        words::short(name),
        group.ranks.len()
    ))
}

/// A doubt: ranks of equal work communicate as often, unless they are of different jobs.
fn other_jobs(report: &Report) -> Option<String> {
    /// So many times as many kernels are no loss of a recording.
    const TIMES: usize = 4;
    let few = report.told_ranks().min_by_key(|rank| rank.communication)?;
    let many = report.told_ranks().max_by_key(|rank| rank.communication)?;
    (few.communication * TIMES < many.communication).then(|| {
        format!(
            "rank {} has {} of communication and rank {} has {}: these may be of different jobs",
            few.rank,
            output::count(few.communication, "kernel"),
            many.rank,
            many.communication
        )
    })
}

/// A doubt: a single iteration says nothing of others.
fn few(waves: &[Wave]) -> Option<String> {
    let [one] = waves else { return None };
    Some(match one.iteration {
        Some(number) => {
            format!("only one iteration is compared (number {number}), and others may differ from it")
        }
        None => "the traces mark no iterations and count as one, so whether iterations differ is not known (--cut-at NAME tells them apart)".into(),
    })
}

/// A doubt: one collective alone, or those until ranks are in step, decide who is late.
pub fn by_one(study: &Study<'_>) -> Option<String> {
    if let Some(other) = study.diagnosis.once_in_step {
        return Some(format!(
            "recordings start at different moments on the ranks, which lengthens waits in the first collectives; without those collectives the straggler would be rank {other}"
        ));
    }
    // A single iteration was mentioned above.
    let several = study.waves.len() > 1;
    (several && study.diagnosis.hangs_on_one).then(|| {
        "one collective alone tells who is waited for, and that may be chance: more iterations would tell".into()
    })
}

/// A doubt: another rank is last in other iterations.
fn from_one_to_the_next(study: &Study<'_>) -> Option<String> {
    let waves = &study.waves;
    let mut counts = BTreeMap::<u32, usize>::new();
    for rank in waves.iter().filter_map(|wave| wave.straggler_rank) {
        *counts.entry(rank).or_default() += 1;
    }
    if counts.len() < 2 || are_named(study, counts.keys()) {
        return None;
    }
    let mut counts = Vec::from_iter(counts);
    counts.sort_by_key(|&(rank, count)| (std::cmp::Reverse(count), rank));
    let shown = counts.iter().take(NAMED);
    let mut each = Vec::from_iter(shown.map(|(rank, count)| format!("rank {rank} in {count}")));
    if counts.len() > NAMED {
        let rest = counts.iter().skip(NAMED).map(|(_, count)| count);
        each.push(format!("others in {}", rest.sum::<usize>()));
    }
    Some(format!(
        "which rank starts kernels last changes from iteration to iteration: {} of {}",
        each.join(", "),
        waves.len()
    ))
}

/// Whether the verdict names all of these ranks: that they are last in turn is what it says.
fn are_named<'a>(study: &Study<'_>, mut ranks: impl Iterator<Item = &'a u32>) -> bool {
    ranks.all(|rank| study.diagnosis.stragglers.contains(rank))
}

/// A doubt: another rank is last in other parts of an iteration.
fn within(study: &Study<'_>) -> Option<String> {
    let mut turns = Vec::<u32>::new();
    let wave = study.waves.first().filter(|_| study.straggler_changes)?;
    for stretch in &wave.last {
        if !turns.contains(&stretch.rank) {
            turns.push(stretch.rank);
        }
    }
    let more = if turns.len() > NAMED {
        " and others"
    } else {
        ""
    };
    let named = turns.iter().take(NAMED).map(u32::to_string);
    let named = Vec::from_iter(named).join(", ");
    (turns.len() > 1 && !are_named(study, turns.iter())).then(|| {
        format!("which rank starts kernels last changes within an iteration: {named}{more} in turn")
    })
}
