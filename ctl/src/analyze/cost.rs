//! The cost of late ranks, and the gain of mending them.

use litd_traces::study::{Cause, Diagnosis, Gain, Study};
use litd_traces::{RankReport, Report};
use litd_units::Nanos;

use super::answer::{Answer, capital};
use super::weighed::Weighed;
use super::{certainty, doubts, hosts, parts, words};
use crate::show::time;

/// From this share of the time on it is worth a word that all ranks wait for each other, or that stages do.
pub const MUCH: f64 = 0.02;

/// From this share of the time on, what all GPUs wait for their hosts may be what these wait for another host.
const ALL_IDLE: f64 = 0.1;

/// What a cost depends on where ranks are missing.
pub const UNLESS_MISSING: &str = "Less, or nothing, if a rank that is missing is slower.";

/// Where a group gains so many times as much by itself, others bound what the job gains.
const BOUNDED: f64 = 2.0;

/// Below this share a figure would be "0.0 %".
const LEAST: f64 = 0.0005;

/// The gain if the named ranks became as fast as the median one, and then if all slow ranks did.
fn gained(report: &Report, diagnosis: &Diagnosis, gain: &Gain) -> Option<Answer> {
    if gain.group < LEAST {
        return None;
    }
    let late = words::these(&diagnosis.stragglers);
    let less = |share: f64, by: Nanos| match share < LEAST {
        true => "hardly less".into(),
        false => format!("{:.1} % less ({})", 100.0 * share, time(by)),
    };
    let first = less(gain.named_iteration, gain.named_iteration_ns);
    let all = less(gain.iteration, gain.iteration_ns);
    let whole = "an iteration";
    let alike = gain.iteration - gain.named_iteration < 0.001;
    let (measure, every) = match report.told().map_or(0, |group| group.ranks.len()) {
        2 => ("the other rank", "both ranks were at least that fast"),
        _ => (
            "the median rank",
            "every rank were at least as fast as the median rank",
        ),
    };
    let first_alone = format!("with {late} as fast as {measure} {whole} would take {first}");
    let others = first != all && !alike;
    // Of a stage that is sped up the job gains what the others allow.
    let bounded = gain.named_iteration < MUCH && gain.named > BOUNDED * gain.named_iteration;
    let why = match bounded {
        true => " (other stages take as long)",
        false => "",
    };
    Some(
        Answer::of(format!("{first_alone}, an estimate{why}."))
            .and(others.then(|| format!("If {every}: {all}."))),
    )
}

/// The others' waits for the stragglers.
pub fn of(
    report: &Report,
    study: &Study<'_>,
    (gain, weighed): (Option<&Gain>, &Weighed<'_>),
    turns: Option<[f64; 2]>,
) -> Answer {
    let diagnosis = &study.diagnosis;
    let gain = gain.and_then(|gain| gained(report, diagnosis, gain));
    // Where the rank that the rest would blame is told as the second one, both are late.
    let second = weighed.second.map(|second| second.0);
    let both = second.is_some() && second == diagnosis.once_in_step;
    // Against the median rank, which is one of them, most ranks are not slow.
    let most = diagnosis.ranks.len() < 2 * diagnosis.stragglers.len();
    let in_step = in_step_matters(report, diagnosis) && !both;
    let told = match gain {
        _ if most => None,
        Some(gain) => Some(gain),
        None if in_step => None,
        None => mended(report, study, weighed),
    };
    let Some(told) = told else {
        return waited(report, study, turns);
    };
    let by_hosts = diagnosis.cause == Cause::HostBound;
    let besides = match parts::besides(report, by_hosts) {
        Some(besides) => Some(format!("Besides, {besides}.")),
        None => stages_wait(report).map(|most| {
            format!(
                "Stages wait up to {:.1} % of the time recorded for each other.",
                100.0 * most
            )
        }),
    };
    let given = report.missing();
    let given = given.map(|_| UNLESS_MISSING.to_owned());
    told.and(given)
        .and(of_some_ranks(report).map(str::to_owned))
        .and(besides)
}

/// That collectives may be of some ranks only, which the estimate doesn't know.
fn of_some_ranks(report: &Report) -> Option<&'static str> {
    let waits = report.told()?.waits.as_ref()?;
    let untold = waits.transfers.is_some();
    untold.then_some("More or less if the collectives are of some of these ranks only (see below).")
}

/// The upper bound of the gain from mending the cause of lateness, where that is not a clock.
fn mended(report: &Report, study: &Study<'_>, weighed: &Weighed<'_>) -> Option<Answer> {
    let diagnosis = &study.diagnosis;
    let iterations = i64::try_from(study.waves.len().max(1)).unwrap_or(i64::MAX);
    let less = |share: f64, window: f64| {
        let each = time(Nanos((share * window) as i64 / iterations));
        format!("{:.1} % less ({each})", 100.0 * share)
    };
    let ranks = Vec::from_iter(report.told_ranks());
    let window = litd_diagnosis::median(Vec::from_iter(
        ranks.iter().map(|rank| rank.window_ns.0 as f64),
    ))?;
    let known = |rank: &&RankReport| rank.launches_known >= parts::KNOWN;
    let all_hosts = diagnosis.cause == Cause::HostBound && diagnosis.all_idle;
    let all_hosts = all_hosts && ranks.iter().copied().all(|rank| known(&rank));
    if diagnosis.stragglers.is_empty() || all_hosts {
        if diagnosis.cause != Cause::HostBound {
            return None;
        }
        let lost = ranks.iter().map(|rank| {
            let idle = rank.time_ns.idle() + rank.exposed_wait_ns.unwrap_or_default();
            hosts::with_first(rank, idle.0 as f64 / rank.window_ns.0.max(1) as f64)
        });
        let lost = litd_diagnosis::median(lost.collect())?;
        let all = format!(
            "with all hosts fast enough for their GPUs an iteration would take up to {}.",
            less(lost, window)
        );
        let one = match diagnosis.excess.filter(|own| *own >= LEAST) {
            Some(own) if !diagnosis.stragglers.is_empty() => format!(
                "Without what makes {} late alone about {}.",
                words::these(&diagnosis.stragglers),
                less(own, window)
            ),
            _ => one_host(weighed),
        };
        return Some(Answer::of(all).and(one));
    }
    let share = weighed.late.as_ref()?.share;
    // For an unexplained cause, the others' waits tell more.
    if share < LEAST {
        return None;
    }
    let late = words::these(&diagnosis.stragglers);
    let cost = Answer::of(format!(
        "without what makes {late} late an iteration would take about {}.",
        weighed.less(share)
    ));
    // Hosts that wait for another one on the CPU leave their GPUs idle as it does.
    let idle = ranks.iter().map(|rank| rank.time_ns.idle_launch.0 as f64);
    let idle = idle.fold(f64::INFINITY, f64::min) / window;
    let follow = diagnosis.cause == Cause::HostBound && idle >= ALL_IDLE;
    Some(cost.and(follow.then(|| {
        format!(
            "Up to {} more if the other hosts wait for that one (as for a scheduler).",
            words::percents(idle)
        )
    })))
}

/// The gain of mending one host where all are late: launches don't show whether the others follow
/// it.
fn one_host(weighed: &Weighed<'_>) -> String {
    match (weighed.host, weighed.leader) {
        (Some((rank, share)), _) => format!(
            "The host of rank {rank}, the latest, alone {:.1} %, or all of it if the other hosts wait for it (as for a scheduler).",
            100.0 * share
        ),
        (None, Some((rank, count, all))) => format!(
            "The host of rank {rank} alone as much, if the others follow it (as a scheduler): it launches first in {count} of {all} iterations."
        ),
        (None, None) => "One of them alone gains that only if the other hosts wait for it.".into(),
    }
}

/// Whether the first collectives, which see when recordings began, account for much of what is waited.
fn in_step_matters(report: &Report, diagnosis: &Diagnosis) -> bool {
    let others = Vec::from_iter(others(report, diagnosis));
    !diagnosis.stragglers.is_empty() && in_step(report, diagnosis, &others).is_some()
}

/// The ranks that wait for those that are named.
fn others<'a>(
    report: &'a Report,
    diagnosis: &'a Diagnosis,
) -> impl Iterator<Item = &'a RankReport> {
    let is_other = |other: &&RankReport| !diagnosis.stragglers.contains(&other.rank);
    report.told_ranks().filter(is_other)
}

/// The waits, where no better cost is known.
fn waited(report: &Report, study: &Study<'_>, turns: Option<[f64; 2]>) -> Answer {
    let diagnosis = &study.diagnosis;
    let stages = costs_of_stages(report);
    if diagnosis.stragglers.is_empty() {
        return by_nobody(report, diagnosis, stages, turns);
    }
    let stages = stages.map(|stages| capital(&stages));
    let others = Vec::from_iter(others(report, diagnosis));
    let own = range(&others, |rank| rank.wait_ns);
    let exposed = range(&others, |rank| rank.exposed_wait_ns);
    let (Some(own), Some(exposed)) = (own, exposed) else {
        return Answer::of("how long the others wait is not known without collectives.")
            .and(stages);
    };
    let who = match others.len() {
        1 => "the other rank waits",
        _ => "the others wait",
    };
    let each = per_iteration(others.iter().filter_map(|rank| rank.wait_ns), study);
    // Waits in several collectives at once add up to more than all of the time.
    let waits = match own[1] <= 1.0 {
        true => format!(
            "{who} in collectives for {} % of the time recorded ({each}).",
            in_percent(own)
        ),
        false => format!("{who} in collectives, in several at once: {each} in all."),
    };
    let rest = in_step(report, diagnosis, &others).map(|rest| {
        format!(
            "Without the first collectives, whose waits come from where recordings started, {}.",
            per_iteration(rest.into_iter(), study)
        )
    });
    // Waits for other stages are among what nothing hides.
    let exposed = stages.is_none().then(|| {
        format!(
            "With nothing to compute {} for {} % of the time recorded.",
            match others.len() {
                1 => "it waits",
                _ => "they wait",
            },
            in_percent(exposed)
        )
    });
    Answer::of(waits).and(rest).and(exposed).and(stages)
}

/// The waits where no rank is to blame.
fn by_nobody(
    report: &Report,
    diagnosis: &Diagnosis,
    stages: Option<String>,
    turns: Option<[f64; 2]>,
) -> Answer {
    if let Some(turns) = turns {
        return Answer::of(format!(
            "each rank waits for the others for {} % of the time recorded with nothing to compute.",
            in_percent(turns)
        ));
    }
    let largest = parts::besides(report, false);
    let largest = largest.map(|besides| format!("Of the time recorded {besides}."));
    match diagnosis.cause {
        Cause::SamplingArtefact => Answer::of("not known."),
        // "Nothing" would be wrong of a job that loses most of its time otherwise.
        _ if diagnosis.nobody_waits() => match largest {
            Some(largest) => Answer::of(largest)
                .and("That somebody is late costs nothing that these traces show.".to_owned()),
            None => {
                Answer::of("nothing that these traces show: whoever is late keeps nobody waiting.")
            }
        },
        _ if report.missing().is_some() => {
            Answer::of("not known: the ranks given may wait for one that is missing.").and(largest)
        }
        _ => {
            let apart = format!(
                "{:.1} % of an iteration at most, by which ranks are apart.",
                100.0 * diagnosis.spread
            );
            let nothing = match certainty::alike(diagnosis) {
                true => apart,
                false => "nothing: no rank makes others wait by more than chance.".into(),
            };
            Answer::of(stages.unwrap_or(nothing)).and(largest)
        }
    }
}

/// The least and the greatest of what some ranks wait, each as a share of its window.
pub fn range(ranks: &[&RankReport], of: fn(&RankReport) -> Option<Nanos>) -> Option<[f64; 2]> {
    let share = |rank: &&RankReport| Some(of(rank)?.0 as f64 / rank.window_ns.0.max(1) as f64);
    let shares = || ranks.iter().filter_map(share);
    Some([shares().reduce(f64::min)?, shares().reduce(f64::max)?])
}

pub fn in_percent([least, most]: [f64; 2]) -> String {
    let digits = if most < 0.1 { 2 } else { 1 };
    let [least, most] = [least, most].map(|share| format!("{:.digits$}", 100.0 * share));
    match least == most {
        true => most,
        false => format!("{least} to {most}"),
    }
}

/// The waits per iteration, as a time.
fn per_iteration(waits: impl Iterator<Item = Nanos> + Clone, study: &Study<'_>) -> String {
    let iterations = i64::try_from(study.waves.len().max(1)).unwrap_or(i64::MAX);
    let least = waits.clone().min().unwrap_or_default();
    let most = waits.max().unwrap_or_default();
    let [least, most] = [least, most].map(|wait| time(Nanos(wait.0 / iterations)));
    match least == most {
        true => format!("{most} per iteration"),
        false => format!("{least} to {most} per iteration"),
    }
}

/// The waits of these ranks in collectives that find their ranks in step, where the other
/// collectives account for much of all waiting: those show when recordings began, and cost a job
/// that is not recorded nothing.
fn in_step(report: &Report, diagnosis: &Diagnosis, ranks: &[&RankReport]) -> Option<Vec<Nanos>> {
    // Less than this share of it is left.
    const LEFT: f64 = 0.7;
    let group = report.told()?;
    let waits = group.waits.as_ref()?;
    let rest = waits.in_step.as_ref()?;
    let is_given = |rank: &u32| ranks.iter().any(|given| given.rank == *rank);
    let each = group
        .ranks
        .iter()
        .zip(rest)
        .filter(|(rank, _)| is_given(rank));
    let rest = Vec::from_iter(each.map(|(_, wait)| *wait));
    let all = ranks.iter().filter_map(|rank| rank.wait_ns);
    let (all, left) = (all.sum::<Nanos>(), rest.iter().copied().sum::<Nanos>());
    let much = (left.0 as f64) < LEFT * all.0 as f64;
    (much || diagnosis.once_in_step.is_some()).then_some(rest)
}

/// How long all ranks of a healthy group wait for each other: the least and the greatest share of a rank's
/// window. None where that is little, or where other stages keep them waiting besides.
pub fn in_turn(report: &Report, diagnosis: &Diagnosis) -> Option<[f64; 2]> {
    let nobody = diagnosis.cause == Cause::Healthy;
    if !nobody || stages_wait(report).is_some() && !diagnosis.in_turn {
        return None;
    }
    let ranks = Vec::from_iter(report.told_ranks());
    range(&ranks, |rank| rank.exposed_wait_ns).filter(|[least, _]| *least >= MUCH)
}

/// The greatest share of its time that a rank waits for another stage of the pipeline.
pub fn stages_wait(report: &Report) -> Option<f64> {
    // A transfer that is posted early lies ready beside computation, which waits for nothing then.
    let least = |rank: &RankReport| {
        let waits = rank.stage_wait_fraction?;
        Some(waits.min(rank.exposed_wait_fraction.unwrap_or(waits)))
    };
    let waits = report.ranks.iter().filter_map(least);
    waits.reduce(f64::max).filter(|&most| most > 0.0)
}

/// The waits of a pipeline's stages for each other.
pub fn costs_of_stages(report: &Report) -> Option<String> {
    let most = stages_wait(report)?;
    Some(format!(
        "stages wait up to {:.1} % of the time recorded for each other: that is the schedule, or stages of unequal length.",
        most * 100.0
    ))
}

/// The waits of a pipeline's ranks for each other where each is a stage.
pub fn of_a_row(report: &Report) -> Option<String> {
    let ranks = Vec::from_iter(&report.ranks);
    let exposed = range(&ranks, |rank| rank.exposed_wait_ns)?;
    Some(format!(
        "each rank waits for others for {} % of the time recorded with nothing to compute: that is the schedule, or stages of unequal length.",
        in_percent(exposed)
    ))
}

/// The parts of a rank's own time without computation, as times and shares of its window.
pub fn of_one(report: &Report) -> Answer {
    let others = match report.world_size {
        Some(1) => "no other rank waits: there is none",
        _ => "how long other ranks wait is not in this",
    };
    let Some(rank) = report.ranks.first() else {
        return Answer::of(format!("{others}."));
    };
    let window = rank.window_ns.0.max(1) as f64;
    let split = &rank.time_ns;
    let parts = [
        ("idle", split.idle()),
        (
            "in communication with nothing beside it",
            split.exposed_communication,
        ),
        ("in copies with nothing beside them", split.exposed_copies),
    ];
    let parts = parts.map(|(what, part)| (what, part, part.0 as f64 / window));
    let told = parts.iter().filter(|(_, _, share)| *share >= LEAST);
    let told = told
        .map(|&(what, part, share)| format!("{} ({}) {what}", time(part), words::percents(share)));
    let told = Vec::from_iter(told);
    let told = match told.is_empty() {
        // Of few kernels that says nothing.
        true if doubts::short(report).is_some() => return Answer::of("not known."),
        true => Answer::of("none of this rank's time, which computes throughout."),
        false => Answer::of(format!("of this rank's time {}.", told.join(", "))),
    };
    told.and(format!("{}.", capital(others)))
}
