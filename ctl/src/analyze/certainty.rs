//! How sure a verdict is: a grade in words, and what it rests on.

use litd_traces::study::{Cause, Diagnosis, Grids, Study};
use litd_traces::{RankReport, Report};

use super::answer::{Answer, capital};
use super::{doubts, words};

/// So many standard errors are certainty.
const CERTAIN: f64 = 100.0;
/// A value this many times noise, or its own error, can't be noise.
const CLEAR: f64 = 3.0;
const FAR: f64 = 10.0;

/// The grade of a verdict that is only likely.
const LIKELY: &str = "likely, no more";
/// The same where ranks are missing, too.
const LIKELY_OF_GIVEN: &str = "likely, no more, and only of the ranks given";
/// The grade of a verdict that would be very sure.
const DOUBTED: &str = "sure, but for the doubts below";

/// A grade, and what it rests on.
pub type Graded = (&'static str, String);

/// The grade and the reasons; `doubts` are those of the same verdict.
pub fn of(report: &Report, study: &Study<'_>, doubts: &[String]) -> String {
    let diagnosis = &study.diagnosis;
    let matching = matching(report);
    let (spread, level) = (diagnosis.spread * 100.0, diagnosis.level * 100.0);
    if diagnosis.nobody_waits() {
        return format!(
            "fairly sure, because neither names nor times of kernels tell of an exchange: by their mean leads the ranks are {spread:.2} % of an iteration apart, which tells when they started and not who waits; {matching}."
        );
    }
    if diagnosis.cause == Cause::SamplingArtefact {
        return format!("not at all: these recordings don't allow it; {matching}.");
    }
    if diagnosis.in_turn {
        let why = match diagnosis.cause {
            Cause::HostBound => "all GPUs wait for launches equally long",
            _ => {
                "whom the others wait for changes from collective to collective and from iteration to iteration"
            }
        };
        return format!(
            "{}: {why}, so no rank is to blame; {matching}.",
            match (report.missing(), doubts.is_empty()) {
                (Some(_), _) => "sure only of the ranks given",
                (None, true) => "sure",
                (None, false) if doubts::short(report).is_some() => LIKELY,
                (None, false) => DOUBTED,
            }
        );
    }
    let by = match diagnosis.measure {
        "waits" => "the times that ranks wait with nothing to compute",
        "arrivals" => "the ranks' mean arrivals at collectives",
        _ => "the ranks' mean leads (no collective is matched)",
    };
    let may_be_chance = may_be_chance(diagnosis);
    let basis = match diagnosis.spread < diagnosis.level {
        true => format!(
            "{by} differ by {spread:.2} % of an iteration, which noise alone can cause (up to {level:.2} %)"
        ),
        false => format!(
            "{by} differ by {spread:.2} % of an iteration, where noise makes up to {level:.2} %{}",
            too_close(diagnosis)
        ),
    };
    let grade = graded(report, study, doubts);
    let reasons = match (slower(diagnosis), may_be_chance) {
        // Slower kernels are significant, and are told apart from marks that may be chance.
        (Some(slower), true) => format!("{basis}, but {slower}; {matching}."),
        (Some(slower), false) => format!("{slower}; {basis}; {matching}."),
        (None, _) => format!("{basis}; {matching}."),
    };
    match diagnosis.cause {
        Cause::Unknown if diagnosis.longer.is_empty() && diagnosis.seen.len() < 2 => {
            format!("that somebody waits is {grade}, why is not known: {reasons}")
        }
        Cause::Unknown if diagnosis.longer.is_empty() => {
            format!(
                "that somebody waits is {grade}; which part each of the causes has is not known: {reasons}"
            )
        }
        Cause::Unknown => {
            format!(
                "that somebody waits is {grade}, and which kernels take longer is measured: {reasons}"
            )
        }
        Cause::DataDependent if diagnosis.grids.is_none() => format!(
            "that its kernels take longer is {grade}, whether by more work or by a slow GPU is not known: {reasons}"
        ),
        Cause::DataDependent if diagnosis.grids == Some(Grids::Equal) => format!(
            "that its kernels take longer is {grade}, that they have no more work their grids tell: {reasons}"
        ),
        _ => format!("{grade}: {reasons}"),
    }
}

/// The grade alone.
fn graded(report: &Report, study: &Study<'_>, doubts: &[String]) -> &'static str {
    let diagnosis = &study.diagnosis;
    let may_be_chance = may_be_chance(diagnosis);
    let shaky = may_be_chance || doubts::by_one(study).is_some() || doubts::short(report).is_some();
    match (report.missing(), shaky) {
        (Some(_), true) => LIKELY_OF_GIVEN,
        (Some(_), false) => "sure only of the ranks given",
        (None, true) => LIKELY,
        (None, false) => grade(diagnosis, doubts),
    }
}

/// How sure it is in a few words: the grade, how many doubts there are, and what counts most for it. The rest is in
/// [`of`].
pub fn brief(report: &Report, study: &Study<'_>, doubts: &[String]) -> Answer {
    let diagnosis = &study.diagnosis;
    let full = of(report, study, doubts);
    let by_kind = diagnosis.in_turn || diagnosis.nobody_waits();
    let grade = match diagnosis.cause {
        _ if by_kind => full.split(':').next().unwrap_or_default().to_owned(),
        Cause::SamplingArtefact => full.split(':').next().unwrap_or_default().to_owned(),
        Cause::Unknown => format!("that somebody waits is {}", graded(report, study, doubts)),
        Cause::DataDependent => format!(
            "that kernels take longer is {}",
            graded(report, study, doubts)
        ),
        _ => graded(report, study, doubts).to_owned(),
    };
    let why = match (diagnosis.cause, slower(diagnosis)) {
        (Cause::HostBound, _) if diagnosis.in_turn => {
            Some("all GPUs wait for launches equally long".to_owned())
        }
        _ if diagnosis.in_turn => Some("who is last changes all the time".to_owned()),
        (Cause::SlowClock | Cause::DataDependent, Some(_)) => Some(slower_in_short(diagnosis)),
        (Cause::SamplingArtefact, _) => None,
        _ if diagnosis.nobody_waits() => None,
        _ => Some(format!(
            "ranks are {:.2} % of an iteration apart, noise makes up to {:.2} %{}",
            100.0 * diagnosis.spread,
            100.0 * diagnosis.level,
            too_close(diagnosis)
        )),
    };
    let grade = grade.replace(
        "the doubts below",
        match doubts.len() {
            1 => "a doubt (see below)",
            _ => "doubts (see below)",
        },
    );
    // Missing ranks are in the grade.
    let told = grade.contains("doubt") || grade.contains("ranks given") && doubts.len() < 2;
    let first = match doubts {
        [_] if !told => format!("{grade}; there is a doubt (see below)."),
        [_, ..] if !told => format!("{grade}; there are doubts (see below)."),
        _ => format!("{grade}."),
    };
    Answer::of(first)
        .and(doubt(doubts))
        .and(why.map(|why| format!("{}.", capital(&why))))
}

/// The first doubt without what explains it.
fn doubt(doubts: &[String]) -> Option<String> {
    let first = doubts.first()?.split([':', ';', '(']).next()?;
    Some(format!("{}.", capital(first.trim_end())))
}

/// A verdict that is graded before doubts are known: these make it less sure, and missing ranks likely and no more,
/// because others may be waited for.
pub fn with_doubts((grade, why): Graded, missing: bool, doubts: &[String]) -> String {
    let grade = match (grade, missing, doubts.is_empty()) {
        (_, true, _) => LIKELY_OF_GIVEN,
        ("very sure", _, false) => DOUBTED,
        ("fairly sure", _, false) => LIKELY,
        _ => grade,
    };
    format!("{grade}: {why}")
}

/// Refers to the doubts below, and names the first one.
pub fn first_doubt(doubts: &[String]) -> Option<String> {
    let first = doubt(doubts)?;
    Some(match doubts {
        [_] => format!("Doubt: {first}"),
        _ => format!("Doubts (see below), the first: {first}"),
    })
}

/// By how much the rank's kernels are slower, and how sure that is, in a few words.
fn slower_in_short(diagnosis: &Diagnosis) -> String {
    let memory = words::memory_alone(diagnosis);
    let which = if memory {
        "memory-bound kernels"
    } else {
        "clock-bound kernels"
    };
    let which = match diagnosis.cause {
        Cause::DataDependent if !memory => "kernels",
        _ => which,
    };
    let by = match memory {
        true => diagnosis.apart.slower_memory,
        false => diagnosis.apart.slower_compute,
    };
    let by = words::percents(by.unwrap_or_default());
    match times(diagnosis) {
        Some(times) => format!(
            "{which} there take {by} longer, {} times the error",
            many(times)
        ),
        None => format!("{which} there take {by} longer"),
    }
}

fn many(times: f64) -> String {
    match times < CERTAIN {
        true => format!("{times:.0}"),
        false => format!("more than {CERTAIN:.0}"),
    }
}

/// Whether nobody is named although ranks are apart by more than noise: by little more, of which nothing tells why.
pub fn alike(diagnosis: &Diagnosis) -> bool {
    diagnosis.cause == Cause::Healthy && !diagnosis.in_turn && diagnosis.spread > diagnosis.level
}

/// The same as the end of a sentence on how far ranks are apart.
fn too_close(diagnosis: &Diagnosis) -> &'static str {
    match alike(diagnosis) {
        true => ", too close to name one",
        false => "",
    }
}

/// Whether ranks that somebody waits for are no further apart than noise makes them.
fn may_be_chance(diagnosis: &Diagnosis) -> bool {
    diagnosis.cause != Cause::Healthy && diagnosis.spread < diagnosis.level
}

/// How sure, in words. What makes it less sure follows as doubts.
fn grade(diagnosis: &Diagnosis, doubts: &[String]) -> &'static str {
    let clear = diagnosis.spread > CLEAR * diagnosis.level
        || times(diagnosis).is_some_and(|times| times > FAR);
    // On a level node it is the other way round.
    let clear = match diagnosis.cause {
        Cause::Healthy => CLEAR * diagnosis.spread < diagnosis.level,
        _ => clear,
    };
    match (clear, doubts.is_empty()) {
        (true, true) => "very sure",
        (true, false) => DOUBTED,
        (false, true) => "fairly sure",
        (false, false) => LIKELY,
    }
}

/// By how many of its standard errors the rank's kernels are slower.
fn times(diagnosis: &Diagnosis) -> Option<f64> {
    let by_kernels = matches!(diagnosis.cause, Cause::SlowClock | Cause::DataDependent);
    let apart = Some(&diagnosis.apart).filter(|_| by_kernels)?;
    match words::memory_alone(diagnosis) {
        true => Some(apart.slower_memory? / apart.uncertainty_memory?),
        false => Some(apart.slower_compute? / apart.uncertainty?),
    }
}

/// By how much the rank's kernels are slower, where that is why it is late: the figure of the evidence.
fn slower(diagnosis: &Diagnosis) -> Option<String> {
    let times = many(times(diagnosis)?);
    let (which, by) = match words::memory_alone(diagnosis) {
        true => ("memory-bound kernels", diagnosis.apart.slower_memory?),
        false => ("kernels", diagnosis.apart.slower_compute?),
    };
    Some(format!(
        "the {which} of {} whose overlap is the same on every rank take {:.1} % longer than those of the ranks far ahead, a difference of {times} times its error",
        words::ranks(&diagnosis.stragglers),
        by * 100.0
    ))
}

/// The share of each rank's kernels that matches, in words: ranks run different numbers.
pub fn matching(report: &Report) -> String {
    let matched = report.told().and_then(|group| group.matched_kernels);
    match shares(matched, report.told_ranks()) {
        Some([least, most]) if words::percents(least.0) == words::percents(most.0) => {
            format!("{} of the kernels match", words::percents(least.0))
        }
        Some([least, most]) => format!(
            "{} to {} of a rank's kernels match (of ranks {} and {})",
            words::percents(least.0),
            words::percents(most.0),
            least.1,
            most.1
        ),
        None => "how many kernels match is not known".into(),
    }
}

/// The least and the greatest share of a rank's kernels that match, each with its rank.
pub fn shares<'a>(
    matched: Option<usize>,
    ranks: impl Iterator<Item = &'a RankReport>,
) -> Option<[(f64, u32); 2]> {
    let matched = matched?;
    let share = |rank: &RankReport| {
        let left_out = rank.left_out.iter().flatten().map(|kind| kind.count);
        let all = matched + left_out.sum::<usize>();
        (matched as f64 / all.max(1) as f64, rank.rank)
    };
    let shares = Vec::from_iter(ranks.map(share));
    let least = shares.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0))?;
    // Of several alike the first is named.
    let most = shares
        .iter()
        .copied()
        .reduce(|a, b| if b.0 > a.0 { b } else { a })?;
    Some([least, most])
}
