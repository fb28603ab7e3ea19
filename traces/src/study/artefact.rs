//! What is wrong with recordings, so that leads between them mean nothing.

use std::collections::HashSet;

use litd_diagnosis::Cause;
use litd_units::Nanos;

use super::matrix::Matrix;
use crate::align::AlignOptions;
use crate::skew::{Jump, Skew};
use crate::timeline::{NameId, Timeline};

/// Ranks that were recorded together for less than this share of the time were recorded apart.
const TOGETHER: f64 = 0.5;

/// Leads of which nine in ten are at least this share of the greatest ones are constant.
const CONSTANT: f64 = 0.5;
/// A shift of a smaller share of the time recorded may be a rank's lateness.
const LEAST_SHIFT: f64 = 0.01;
/// Of fewer kernels nobody can tell whether ranks are in step now and then.
const FEWEST: usize = 10;

/// What is wrong, in words, and what to call it. `length`: of the iterations that are compared; `has_waits`: whether
/// collectives are matched.
pub(super) fn find(
    timelines: &[Timeline],
    matrix: &Matrix<'_>,
    skew: &Skew,
    (length, has_waits): (Nanos, bool),
) -> Option<(Cause, Vec<String>)> {
    if let Some(why) = apart(timelines) {
        return Some((Cause::SamplingArtefact, vec![why]));
    }
    if !skew.jumps.is_empty() {
        let jumps = skew.jumps.iter().map(|one| jump(one, timelines, skew));
        let advice = "leads across a jump mean nothing: look at iterations before or behind it (--iteration), or record again";
        let reasons = jumps.chain(stages(timelines, skew)).chain([advice.into()]);
        let reasons = reasons.collect();
        return Some((Cause::SamplingArtefact, reasons));
    }
    if let Some(why) = (!has_waits)
        .then(|| shifted(timelines, matrix, length))
        .flatten()
    {
        return Some((Cause::SamplingArtefact, vec![why]));
    }
    few(timelines, matrix)
}

/// Whether one rank starts kernels before another by about the same time throughout. Ranks that wait for each
/// other are in step again at each collective; so these were recorded from different iterations on, or
/// their clocks are apart, and nothing else in the traces tells.
fn shifted(timelines: &[Timeline], matrix: &Matrix<'_>, length: Nanos) -> Option<String> {
    let marked = |k| matrix.iteration(k).is_some();
    if !matrix.exchanges() || matrix.kernels() < FEWEST || marked(0) {
        return None;
    }
    let least = length.0 as f64 * LEAST_SHIFT;
    let ahead = (0..matrix.gpus()).filter_map(|gpu| {
        let mut leads = Vec::from_iter((0..matrix.kernels()).map(|k| matrix.lead(gpu, k)));
        leads.sort_unstable();
        let at = |share: f64| leads.get((share * (leads.len() - 1) as f64) as usize);
        let (low, high) = (*at(0.1)?, *at(0.9)?);
        let constant = low.0 as f64 > CONSTANT * high.0 as f64 && low.0 as f64 > least;
        constant.then_some((low, gpu))
    });
    let (lead, gpu) = ahead.max()?;
    let rank = timelines.get(gpu)?.rank;
    Some(format!(
        "rank {rank} starts nearly every matching kernel {:.3} ms or more before the last rank does, and is never in step with it as ranks are that wait for each other: their clocks are apart, or they were recorded from different iterations on. No iteration is marked and no collective is matched that could tell which; record the same iterations on all ranks, and have them marked (`profiler.step()`, or --cut-at NAME)",
        lead.to_millis().0
    ))
}

/// Whether ranks were recorded at other times than the others.
fn apart(timelines: &[Timeline]) -> Option<String> {
    let span = |timeline: &Timeline| {
        let start = timeline.kernels.first()?.start;
        Some((start, timeline.kernels.iter().map(|k| k.end).max()?))
    };
    let spans = timelines.iter().map(span).collect::<Option<Vec<_>>>()?;
    let start = spans.iter().map(|span| span.0).max()?;
    let end = spans.iter().map(|span| span.1).min()?;
    let shortest = spans.iter().map(|span| span.1 - span.0).min()?;
    let together = (end - start).max(Nanos::ZERO).0 as f64 / shortest.0.max(1) as f64;
    (together < TOGETHER).then(|| {
        format!(
            "all ranks were recorded at the same time for only {:.0} % of the shortest recording: leads between them mean nothing; record the same iteration on all ranks",
            together * 100.0
        )
    })
}

fn jump(jump: &Jump, timelines: &[Timeline], skew: &Skew) -> String {
    let millis = |time: Nanos| format!("{:.3} ms", time.to_millis().0);
    let by = millis(Nanos(jump.by_ns.0.saturating_abs()));
    let clock = match (jump.rank, timelines) {
        (Some(rank), _) => {
            let side = if jump.by_ns > Nanos::ZERO {
                "ahead"
            } else {
                "back"
            };
            format!("the time stamps of rank {rank} jump {side}")
        }
        (None, [first, second]) => format!(
            "the clocks of ranks {} and {} jump apart (which of them jumped, two ranks don't tell)",
            first.rank, second.rank
        ),
        _ => "a clock jumps".into(),
    };
    format!(
        "{clock} by about {by}, {} after the first kernel: so say the ends of {} collectives",
        millis(jump.since_start_ns),
        skew.collectives
    )
}

/// What else jumps that several clocks take at once may be, where no collective tells its ranks: those of a stage are taken for
/// all ranks' then, and a pipeline's last stage is behind the first one forwards and ahead of it backwards.
fn stages(timelines: &[Timeline], skew: &Skew) -> Option<String> {
    let told = |timeline: &Timeline| timeline.collectives.iter().any(|of| !of.ranks.is_empty());
    let first = skew.jumps.first()?;
    let at_once = skew.jumps.iter().filter(|jump| jump.at_ns == first.at_ns);
    let (ahead, back) = at_once
        .filter_map(|jump| Some((jump.rank?, jump.by_ns > Nanos::ZERO)))
        .partition::<Vec<_>, _>(|(_, ahead)| *ahead);
    if ahead.len() < 2 || back.len() < 2 || timelines.iter().any(told) {
        return None;
    }
    let ranks = |of: &[(u32, bool)]| {
        let each = of.iter().map(|(rank, _)| rank.to_string());
        Vec::from_iter(each).join(", ")
    };
    Some(format!(
        "or no clock jumps: these traces don't tell which ranks take part in a collective, and ranks {} may be one stage of a pipeline, or one job, and ranks {} another; give the files of each alone",
        ranks(&ahead),
        ranks(&back)
    ))
}

/// Whether fewer kernels match than are asked for unless the user asks for less.
fn few(timelines: &[Timeline], matrix: &Matrix<'_>) -> Option<(Cause, Vec<String>)> {
    let usual = AlignOptions::default().min_matched;
    let fraction = matrix.matched_fraction();
    if fraction >= usual {
        return None;
    }
    let names = |timeline: &Timeline| -> HashSet<String> {
        let ran = timeline.kernels.iter().map(|kernel| kernel.name);
        let ran = HashSet::<NameId>::from_iter(ran).into_iter();
        ran.map(|name| timeline.names.get(name).into()).collect()
    };
    let names = Vec::from_iter(timelines.iter().map(names));
    let (mut namesakes, mut all) = (0, 0);
    for kind in matrix.left_out().into_iter().flatten() {
        all += kind.count;
        if names.iter().all(|names| names.contains(&kind.name)) {
            namesakes += kind.count;
        }
    }
    let share = 100.0 * namesakes as f64 / all.max(1) as f64;
    let matched = format!(
        "only {:.1} % of the kernels of the shortest rank match on all ranks, fewer than the {:.0} % that a diagnosis needs",
        fraction * 100.0,
        usual * 100.0
    );
    let (cause, why) = match 2 * namesakes >= all {
        true => (
            Cause::SamplingArtefact,
            format!(
                "{share:.0} % of the kernels without a match are of names that all ranks ran: parts of the recordings are missing, as in sampled ones, or they ran in another order"
            ),
        ),
        false => (
            Cause::Unknown,
            format!(
                "{:.0} % of the kernels without a match are of names that not all ranks ran: these ranks run different things, and are no measure of each other",
                100.0 - share
            ),
        ),
    };
    Some((cause, vec![matched, why]))
}
