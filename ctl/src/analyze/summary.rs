//! What to know first: the verdict, how sure it is, what it costs and what to do next. A terminal
//! and the HTML report begin with it, and JSON has it.

use litd_traces::study::{Cause, Diagnosis, Study};
use litd_traces::{RankReport, Report, Split};
use litd_units::Nanos;
use serde::Serialize;

use super::{doubts, words};

/// From this share of a rank's time on, what is no computation is worth a word.
const MUCH: f64 = 0.3;
/// So many standard errors are certainty.
const CERTAIN: f64 = 100.0;

/// The four answers.
#[derive(Serialize)]
pub struct Summary {
    /// What the verdict is, for programs.
    kind: Kind,
    #[serde(rename = "text")]
    pub verdict: String,
    #[serde(rename = "how_sure")]
    sure: String,
    /// What makes it less sure, a sentence each.
    doubts: Vec<String>,
    cost: String,
    next: String,
}

/// What a verdict is.
#[derive(Serialize)]
#[serde(untagged)]
enum Kind {
    /// A cause was looked for.
    Diagnosed(Cause),
    /// Ranks differ, and nobody is seen to wait, or none can be compared with another.
    Other(Other),
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Other {
    /// Ranks are apart, and exchange nothing.
    NobodyWaits,
    /// There is one rank.
    OneRank,
    /// Each rank does work of its own.
    UnevenWork,
    /// Too little matches.
    NotCompared,
}

impl Summary {
    pub fn of(report: &Report, study: Option<&Study<'_>>) -> Self {
        let mut summary = match study {
            Some(study) => {
                let mut summary = of_diagnosis(report, &study.diagnosis);
                summary.cost += &gain(study).unwrap_or_default();
                summary
            }
            None => without_diagnosis(report),
        };
        summary.doubts = doubts::of(report, study);
        summary
    }

    /// The answers with what each of them answers.
    pub fn lines(&self) -> [(&'static str, String); 4] {
        let mut sure = self.sure.clone();
        for doubt in &self.doubts {
            sure += &format!(" {}.", capital(doubt));
        }
        [
            ("verdict", self.verdict.clone()),
            ("how sure", sure),
            ("cost", self.cost.clone()),
            ("next", self.next.clone()),
        ]
    }
}

fn of_diagnosis(report: &Report, diagnosis: &Diagnosis) -> Summary {
    let mut verdict = words::headline(diagnosis);
    if let Some(group) = report.told().filter(|_| report.groups.len() > 1) {
        let place = match group.stage {
            Some(stage) => format!("stage {stage} of the pipeline"),
            None => "one group".into(),
        };
        let ranks = Vec::from_iter(group.ranks.iter().map(u32::to_string)).join(", ");
        verdict += &format!(
            " That is of {place}, ranks {ranks}; of {} groups none is compared with another.",
            report.groups.len()
        );
    }
    let elsewhere = where_else(report);
    let blames_nobody = diagnosis.cause == Cause::Healthy || diagnosis.nobody_waits();
    if let Some(most) = elsewhere.as_ref().filter(|_| blames_nobody) {
        verdict += &format!(" But {most}.");
    }
    Summary {
        kind: match diagnosis.nobody_waits() {
            true => Kind::Other(Other::NobodyWaits),
            false => Kind::Diagnosed(diagnosis.cause),
        },
        verdict,
        doubts: Vec::new(),
        sure: sure(report, diagnosis),
        cost: cost(report, diagnosis, elsewhere),
        next: next(report, diagnosis),
    }
}

/// What equal clocks would gain, where power can help.
fn gain(study: &Study<'_>) -> Option<String> {
    let gain = 100.0 * (1.0 - 1.0 / study.models.med.speedup);
    let helps = study.diagnosis.power_helps && gain > 0.0;
    helps.then(|| {
        format!(" With all ranks as fast as the median an iteration would take {gain:.1} % less (estimate).")
    })
}

fn without_diagnosis(report: &Report) -> Summary {
    let one = report.ranks.len() < 2;
    let verdict = match where_else(report) {
        Some(most) => format!("{}.", capital(&most)),
        None => "Most of the time is computation.".into(),
    };
    let stages = !one && report.groups.iter().all(|group| group.ranks.len() == 1);
    let (kind, because, next) = match (one, stages) {
        (true, _) => (
            Other::OneRank,
            "one rank tells where its time goes, not who waits for whom.",
            "give the traces of the other ranks as well; the tables below show what takes most of the time.",
        ),
        (_, true) => (
            Other::UnevenWork,
            "each rank does work of its own, as a stage of a pipeline does, so a slow GPU can't be told from an uneven schedule.",
            "compare what each rank takes with how you divided the work, or record a job in which two ranks do the same.",
        ),
        _ => (
            Other::NotCompared,
            "too few kernels of ranks with equal work match, so none is compared with another.",
            "record the same iterations on all ranks; the tables below show what each of them does.",
        ),
    };
    Summary {
        kind: Kind::Other(kind),
        verdict,
        sure: because.into(),
        doubts: Vec::new(),
        cost: costs_of_stages(report)
            .unwrap_or_else(|| "not known: what other ranks wait is not in this.".into()),
        next: next.into(),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

fn sure(report: &Report, diagnosis: &Diagnosis) -> String {
    let matched = report.matched_fraction.unwrap_or(0.0) * 100.0;
    let (spread, level) = (diagnosis.spread * 100.0, diagnosis.level * 100.0);
    let by = match diagnosis.measure {
        "waits" => "what they wait with nothing to compute",
        "arrivals" => "when they come to collectives, on average,",
        _ => "their mean leads (no collective is matched)",
    };
    if diagnosis.nobody_waits() {
        return format!(
            "by their mean leads the ranks are {spread:.2} % of an iteration apart, which tells when they started and not who waits; {matched:.1} % of the kernels match."
        );
    }
    let basis = match diagnosis.spread < diagnosis.level {
        true => format!(
            "{by} alone could be chance ({spread:.2} % of an iteration, where noise makes up to {level:.2} %); {matched:.1} % of the kernels match."
        ),
        false => format!(
            "by {by} the ranks are {spread:.2} % of an iteration apart, where noise makes up to {level:.2} %; {matched:.1} % of the kernels match."
        ),
    };
    match diagnosis.cause {
        Cause::SamplingArtefact => format!(
            "not at all: these recordings don't allow it; {matched:.1} % of the kernels match."
        ),
        Cause::Unknown => format!("that somebody waits is sure, why is not: {basis}"),
        _ => match slower(diagnosis) {
            Some(slower) => format!("{slower}; {basis}"),
            None => basis,
        },
    }
}

/// By how much the rank's kernels are slower, where that is why it is late.
fn slower(diagnosis: &Diagnosis) -> Option<String> {
    if !matches!(diagnosis.cause, Cause::SlowClock | Cause::DataDependent) {
        return None;
    }
    let mut ranks = diagnosis.ranks.iter();
    let marks = ranks
        .find(|marks| Some(marks.rank) == diagnosis.rank)?
        .marks;
    let (slower, error) = (marks.slower_compute?, marks.uncertainty?);
    let times = match slower / error {
        times if times < CERTAIN => format!("{times:.0}"),
        _ => format!("more than {CERTAIN:.0}"),
    };
    Some(format!(
        "its kernels take {:.1} % longer than the median rank's, {times} times what that may be off by",
        slower * 100.0
    ))
}

/// What the others wait for the straggler.
fn cost(report: &Report, diagnosis: &Diagnosis, elsewhere: Option<String>) -> String {
    let also = costs_of_stages(report).map_or(String::new(), |stages| format!(" {stages}"));
    let Some(rank) = diagnosis.rank else {
        let what = match (diagnosis.cause, elsewhere) {
            (Cause::SamplingArtefact, _) => "not known.",
            _ if diagnosis.nobody_waits() => {
                "nothing that these traces show: whoever is late keeps nobody waiting."
            }
            (_, Some(_)) => "no rank costs the others anything; where the time goes is below.",
            (_, None) => "nothing that another rank could be blamed for.",
        };
        return format!("{what}{also}");
    };
    let ranks = report.told().map_or(&[][..], |group| &group.ranks);
    let others = report.ranks.iter();
    let others = others.filter(|other| other.rank != rank && ranks.contains(&other.rank));
    let others = Vec::from_iter(others);
    let range = |of: fn(&RankReport) -> Option<f64>| {
        let shares = || {
            others
                .iter()
                .filter_map(|other| of(other))
                .map(|share| 100.0 * share)
        };
        let least = shares().reduce(f64::min)?;
        let most = shares().reduce(f64::max)?;
        Some(match others.len() {
            1 => format!("{most:.2}"),
            _ => format!("{least:.2} to {most:.2}"),
        })
    };
    let own = range(|rank| rank.wait_fraction);
    let exposed = range(|rank| rank.exposed_wait_fraction);
    let (Some(own), Some(exposed)) = (own, exposed) else {
        return format!("what the others wait can't be told without collectives.{also}");
    };
    // Waits for other stages are among what nothing hides.
    let exposed = match also.is_empty() {
        true => format!(", and for {exposed} % of it with nothing to compute"),
        false => String::new(),
    };
    let who = match others.len() {
        1 => "the other rank waits",
        _ => "the others wait",
    };
    format!("{who} in collectives for {own} % of the time recorded{exposed}.{also}")
}

/// What stages of a pipeline wait for each other.
fn costs_of_stages(report: &Report) -> Option<String> {
    let waits = report
        .ranks
        .iter()
        .filter_map(|rank| rank.stage_wait_fraction);
    let most = waits.reduce(f64::max).filter(|&most| most > 0.0)?;
    Some(format!(
        "Stages wait up to {:.1} % of the time recorded for each other: that is the schedule, or stages of unequal length.",
        most * 100.0
    ))
}

fn next(report: &Report, diagnosis: &Diagnosis) -> String {
    let rank = diagnosis
        .rank
        .map_or("the rank".into(), |rank| format!("rank {rank}"));
    match diagnosis.cause {
        Cause::SlowClock => format!(
            "look at the clock, temperature and power limit of {rank}'s GPU; litd gives it power that the others only wait with. --models tells what that gains."
        ),
        Cause::HostBound => format!(
            "look at the host of {rank}: which cores it runs on, what else does, how data come; fewer and larger launches (CUDA graphs) help."
        ),
        Cause::Communication => format!("look at the links of {rank}: errors, width and speed."),
        Cause::DataDependent => {
            format!(
                "look at how work is divided: {rank} gets more of it (tokens, lengths, experts)."
            )
        }
        Cause::SamplingArtefact => {
            "record the same iterations on all ranks, and analyze again.".into()
        }
        Cause::Unknown if diagnosis.nobody_waits() => {
            "if the ranks exchange anything, record that too, or say with --classes which kernels do; else look at what takes the time of each, below.".into()
        }
        Cause::Unknown => format!(
            "record more iterations, with the host's calls, and look at {rank} in the pictures (--html)."
        ),
        Cause::Healthy => match where_else(report) {
            Some(_) => "nothing to balance; look at what takes the time, below.".into(),
            None => "nothing to balance; --models tells what is left to gain.".into(),
        },
    }
}

/// What takes much of the ranks' time and is no computation, in words.
fn where_else(report: &Report) -> Option<String> {
    let whole = report
        .ranks
        .iter()
        .map(|rank| rank.window_ns)
        .sum::<Nanos>();
    let share = |of: fn(&Split) -> Nanos| {
        let part = report
            .ranks
            .iter()
            .map(|rank: &RankReport| of(&rank.time_ns));
        part.sum::<Nanos>().0 as f64 / whole.0.max(1) as f64
    };
    let parts = [
        (
            share(|split| split.exposed_copies),
            "copies with nothing beside them take",
        ),
        (
            share(|split| split.exposed_communication),
            "communication with nothing beside it takes",
        ),
        (
            share(|split| split.idle_launch),
            "GPUs that wait for their hosts' launches take",
        ),
        (
            share(|split| split.idle_stream + split.idle_other),
            "GPUs without anything to do take",
        ),
    ];
    let most = parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let computation = share(|split| split.computation) * 100.0;
    (most.0 > MUCH).then(|| {
        format!(
            "{} {:.1} % of the time recorded, computation {computation:.1} % of it",
            most.1,
            most.0 * 100.0
        )
    })
}
