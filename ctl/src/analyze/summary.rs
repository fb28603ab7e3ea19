//! What to know first: the verdict, how sure it is, what it costs and what to do next. A terminal
//! and the HTML report begin with it, and JSON has it.

use std::cmp::Ordering;

use litd_traces::formats::nccl_summary::Waits;
use litd_traces::study::{Cause, Gain, Study, named};
use litd_traces::{GroupReport, Report};
use serde::Serialize;

use super::cost::{self, MUCH};
use super::weighed::{self, First, Weighed};
use super::{certainty, doubts, hosts, links, next, parts, stages, words};

/// The four answers.
#[derive(Serialize)]
pub struct Summary {
    /// What the verdict is, for programs.
    kind: Kind,
    #[serde(rename = "text")]
    pub verdict: String,
    #[serde(rename = "how_sure")]
    sure: String,
    /// The same in a few words, for a screen that has the rest below.
    #[serde(skip)]
    brief: Option<String>,
    /// What makes it less sure, a sentence each.
    pub doubts: Vec<String>,
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
    /// There is a summary of collectives only.
    Collectives,
}

impl Summary {
    /// Of traces. What is gained is told where power can help.
    pub fn of(
        report: &Report,
        study: Option<&Study<'_>>,
        gain: Option<&Gain>,
        weighed: &Weighed<'_>,
    ) -> Self {
        let doubts = doubts::of(report, study);
        let summary = match study {
            Some(study) => of_diagnosis(report, study, (gain, weighed), doubts),
            None => without_diagnosis(report, doubts),
        };
        match weighed.first() {
            Some(first) => summary.headed_by(first, weighed, study),
            None => summary,
        }
    }

    /// The same where something costs more than what it tells of.
    fn headed_by(self, first: First<'_>, weighed: &Weighed<'_>, study: Option<&Study<'_>>) -> Self {
        let also = weighed::besides(weighed, study.map(|study| &study.diagnosis));
        let (cause, verdict, sure, cost, next) = match first {
            First::Link(link) => (
                Cause::Communication,
                links::headline(link),
                links::sure(link),
                links::cost(link, weighed),
                links::next(link),
            ),
            First::Stage(stage) => (
                stages::cause(stage),
                stages::headline(stage),
                stages::sure(stage),
                stages::cost(stage, weighed),
                stages::next(stage),
            ),
            First::Stall(stall) => (
                Cause::HostBound,
                hosts::stall(stall),
                "sure: gaps are counted, and no rank is late more than the others there.".into(),
                format!(
                    "with hosts as fast there as in the other iterations an iteration would take {}.",
                    weighed.less(stall.saved)
                ),
                "look at what all hosts wait for there: a shared file system, input, a checkpoint, logging.".into(),
            ),
        };
        Self {
            kind: Kind::Diagnosed(cause),
            verdict: verdict + &also,
            brief: Some(sure.clone()),
            sure,
            doubts: self.doubts,
            cost,
            next,
        }
    }

    /// Of a summary of collectives.
    pub fn of_waits(waits: &Waits) -> Self {
        let [least, next] = waits.least_two();
        let all = waits.ranks.iter().map(|rank| rank.wait_ms);
        let most = all.fold(0.0, f64::max);
        let (verdict, cost, next_step) = match waits.straggler_rank {
            Some(rank) => (
                format!("The others wait for rank {rank}: it spends least time in collectives."),
                format!("the others wait {next:.3} to {most:.3} ms in each collective, on average, before rank {rank} comes."),
                format!("look at rank {rank}: record traces of the same iterations on all ranks, and analyze these; they tell why it is late."),
            ),
            None => (
                "Nobody in particular is waited for: several ranks spend least time in collectives.".into(),
                format!("ranks wait up to {most:.3} ms in each collective, on average."),
                "record traces of the same iterations on all ranks, and analyze these; they tell who waits for whom.".into(),
            ),
        };
        let doubt = "a summary has sums over the whole recording: who is late in single iterations, and why, is not in it";
        Self {
            kind: Kind::Other(Other::Collectives),
            verdict,
            sure: format!(
                "fairly sure: collectives end on all ranks together, so who spends least time in them comes last; the two that spend least differ by {:.3} ms in each.",
                next - least
            ),
            doubts: vec![doubt.into()],
            brief: None,
            cost,
            next: next_step,
        }
    }

    /// The answers in short, with what each of them answers.
    pub fn lines(&self) -> [(&'static str, String); 4] {
        let sure = match self.brief.is_some() {
            true => self.brief.clone().unwrap_or_default(),
            false => self.with_doubts(),
        };
        [
            ("verdict", self.verdict.clone()),
            ("how sure", sure),
            ("next", self.next.clone()),
            ("cost", self.cost.clone()),
        ]
    }

    /// How sure the verdict is in full, where it was told in short.
    pub fn in_full(&self) -> Option<String> {
        let full = self.brief.is_some().then(|| self.with_doubts())?;
        Some(format!("How sure: {full}"))
    }

    fn with_doubts(&self) -> String {
        let mut sure = self.sure.clone();
        for (at, doubt) in self.doubts.iter().enumerate() {
            let mark = if at == 0 { " Doubts:" } else { "" };
            sure += &format!("{mark} {}.", capital(doubt));
        }
        sure
    }
}

fn of_diagnosis(
    report: &Report,
    study: &Study<'_>,
    (gain, weighed): (Option<&Gain>, &Weighed<'_>),
    doubts: Vec<String>,
) -> Summary {
    let diagnosis = &study.diagnosis;
    // Where no rank is to blame, stages may be: what they wait is not told by any of them.
    let stages = cost::stages_wait(report);
    let stages = stages.filter(|most| diagnosis.cause == Cause::Healthy && *most >= MUCH);
    let mut verdict = match stages {
        Some(most) => format!(
            "Stages wait for each other, for up to {:.1} % of the time recorded; within its stage no rank holds the others back.",
            100.0 * most
        ),
        None => weighed::verdict(weighed, diagnosis),
    };
    let late = hosts::Late::of(report).filter(|_| stages.is_some());
    if let Some(late) = &late {
        verdict = format!("{} {verdict}", late.headline());
    }
    if doubts::by_one(study).is_some() {
        verdict += &match diagnosis.once_in_step {
            Some(other) => format!(
                " That is likely, no more: without the first collectives, which see when recordings began, it would be rank {other}."
            ),
            None => " That is likely, no more: it rests on one collective.".into(),
        };
    }
    verdict += &match weighed.has_others() {
        true => weighed::besides(weighed, Some(diagnosis)),
        false => words::also(diagnosis),
    };
    let inside = |group: &GroupReport| {
        let mut late = diagnosis.stragglers.iter();
        late.all(|rank| group.ranks.contains(rank))
    };
    let one_of_several = report.groups.len() > 1 && stages.is_none();
    let one_of_several = one_of_several && report.told().is_some_and(inside);
    if let Some(group) = report.told().filter(|_| one_of_several) {
        let place = match group.stage {
            Some(stage) => format!("stage {stage} of the pipeline"),
            None => format!("one of {} groups", report.groups.len()),
        };
        verdict += &format!(" That is of {place} ({}).", named(&group.ranks));
    }
    if let Some(all) = report.world_size.filter(|_| report.missing().is_some()) {
        verdict += &format!(
            " That is of the {} ranks given, of {all}; of the rest nothing is known.",
            report.ranks.len()
        );
    }
    let elsewhere = parts::elsewhere(&parts::of(report));
    let blames_nobody = diagnosis.cause == Cause::Healthy || diagnosis.nobody_waits();
    let turns = cost::in_turn(report, diagnosis);
    // What is communication there is waiting, mostly, which is told as that.
    let waits = turns.is_some() || stages.is_some();
    let communicates = |part: &(String, bool)| waits && part.1;
    let elsewhere = elsewhere.filter(|part| blames_nobody && !communicates(part));
    if let Some((most, _)) = &elsewhere {
        verdict += &format!(" But {most}.");
    }
    if let Some(turns) = &turns {
        verdict += &format!(
            " {} they wait for each other in turn, for {} % of the time recorded with nothing to compute.",
            if elsewhere.is_some() { "And" } else { "But" },
            cost::in_percent(*turns)
        );
    }
    let gain = gain.filter(|_| diagnosis.power_helps);
    Summary {
        kind: match diagnosis.nobody_waits() {
            true => Kind::Other(Other::NobodyWaits),
            false => Kind::Diagnosed(diagnosis.cause),
        },
        verdict,
        brief: Some(certainty::brief(report, study, &doubts)),
        sure: certainty::of(report, study, &doubts),
        doubts,
        cost: match &late {
            Some(late) => format!(
                "{} {}",
                late.cost(report),
                capital(&cost::of(report, study, (gain, weighed), turns))
            ),
            None => cost::of(report, study, (gain, weighed), turns),
        },
        next: match &late {
            Some(late) => late.next(report),
            None => next::of(report, diagnosis, turns.is_some()),
        },
    }
}

fn without_diagnosis(report: &Report, doubts: Vec<String>) -> Summary {
    if report.ranks.len() < 2 {
        return of_one(report, doubts);
    }
    let parts = parts::of(report);
    let alone = |group: &GroupReport| group.ranks.len() == 1 || group.pipeline;
    let stages = report.groups.iter().all(alone);
    let (kind, because, next) = match stages {
        true => (
            Other::UnevenWork,
            "where time goes is sure: it is counted. But each rank does work of its own, as a stage of a pipeline does: a slow GPU can't be told from an uneven schedule.",
            "compare what each rank takes with how you divided the work, or record a job in which two ranks do the same.",
        ),
        false => (
            Other::NotCompared,
            "where time goes is sure: it is counted. But too few kernels of ranks with equal work match, so none is compared with another.",
            "record the same iterations on all ranks; the tables below show what each of them does.",
        ),
    };
    let cost = cost::costs_of_stages(report).or_else(|| cost::of_a_row(report).filter(|_| stages));
    let cost = cost.unwrap_or_else(|| "not known: what other ranks wait is not in this.".into());
    let longest = longest(report).filter(|_| stages);
    let longest = longest.unwrap_or_default();
    let late = hosts::Late::of(report);
    let (verdict, cost, next) = match &late {
        Some(late) => (
            format!("{}{longest}", late.headline()),
            format!("{} {}", late.cost(report), capital(&cost)),
            late.next(report),
        ),
        None => (
            format!("{}.{longest}", parts::verdict(&parts)),
            cost,
            next.into(),
        ),
    };
    Summary {
        kind: Kind::Other(kind),
        verdict,
        sure: because.into(),
        brief: None,
        doubts,
        cost,
        next,
    }
}

/// Which of several stages computes longest, where that is clear.
fn longest(report: &Report) -> Option<String> {
    /// Less than this share more than the second is not worth a word.
    const CLEAR: f64 = 0.02;
    let mut ranks = Vec::from_iter(&report.ranks);
    ranks.sort_by_key(|rank| std::cmp::Reverse(rank.time_ns.computation));
    let [first, second, ..] = &ranks[..] else {
        return None;
    };
    let [first_ns, second_ns] = [first, second].map(|rank| rank.time_ns.computation.0 as f64);
    let more = first_ns / second_ns.max(1.0) - 1.0;
    let kernels = match first.computation.cmp(&second.computation) {
        Ordering::Equal => "in as many kernels",
        Ordering::Less => "in fewer kernels",
        Ordering::Greater => "in more kernels",
    };
    (more >= CLEAR).then(|| {
        format!(
            " Rank {} computes longest, by {} more than the next, {kernels}.",
            first.rank,
            words::percents(more)
        )
    })
}

/// Of a rank that is compared with nobody.
fn of_one(report: &Report, doubts: Vec<String>) -> Summary {
    let parts = parts::of(report);
    let short = doubts::short(report);
    let sure = match (&short, report.world_size) {
        (Some(_), _) => "not at all: so few kernels tell nothing of a job.",
        (None, Some(1)) => {
            "very sure: it is counted. The job has one rank, so there is nobody who could wait for another."
        }
        // That is among the doubts where ranks are missing.
        (None, Some(_)) => "where the time of this rank goes is sure: it is counted.",
        (None, None) => {
            "where the time of this rank goes is sure: it is counted. Who waits for whom one rank does not tell."
        }
    };
    let verdict = match &short {
        Some(short) => format!("Too little to say: {short}."),
        None => format!("{}.", parts::verdict(&parts)),
    };
    Summary {
        kind: Kind::Other(Other::OneRank),
        verdict,
        sure: sure.into(),
        brief: None,
        doubts,
        cost: cost::of_one(report),
        next: match short {
            Some(_) => {
                "record some iterations of the job, on all of its ranks, and analyze these.".into()
            }
            None => next::of_one(report, &parts),
        },
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}
