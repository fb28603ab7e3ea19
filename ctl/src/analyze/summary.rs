//! The first screen: the verdict, its certainty, the cost and the next step. A terminal and the
//! HTML report begin with it, and JSON has it.

use std::cmp::Ordering;

use litd_traces::formats::nccl_summary::Waits;
use litd_traces::study::{Cause, Diagnosis, Gain, Study};
use litd_traces::{GroupReport, Report};
use serde::Serialize;

use super::answer::{Answer, Screen, capital};
use super::cost::{self, MUCH};
use super::hosts::LateHosts;
use super::weighed::{self, First, Weighed};
use super::{certainty, doubts, hosts, links, next, parts, stages, words};

/// The four answers.
#[derive(Serialize)]
pub struct Summary {
    /// The kind of verdict, for programs.
    kind: Kind,
    #[serde(rename = "text")]
    pub verdict: Answer,
    #[serde(rename = "how_sure")]
    sure: String,
    /// The same in a few words, for a screen that has the rest below.
    #[serde(skip)]
    brief: Answer,
    /// Doubts, a sentence each.
    pub doubts: Vec<String>,
    cost: Answer,
    next: Answer,
}

/// The kind of a verdict.
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
    /// No rank of those given is late, and there are others: "healthy" would be said of these, too.
    RanksMissing,
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
            Some(first) => summary.headed_by(first, weighed, (report, study)),
            None => summary,
        }
    }

    /// The same where something costs more than what it tells of.
    fn headed_by(
        self,
        first: First<'_>,
        weighed: &Weighed<'_>,
        (report, study): (&Report, Option<&Study<'_>>),
    ) -> Self {
        let also = weighed::besides(weighed, study.map(|study| &study.diagnosis));
        let (cause, verdict, sure, cost, next) = match first {
            First::Link(link) => (
                Cause::Communication,
                Answer::of(links::headline(link)),
                links::sure(link),
                links::cost(link, weighed),
                links::next(link),
            ),
            First::Stage(stage) => (
                stages::cause(stage),
                Answer::of(stages::headline(stage)),
                stages::sure(stage),
                Answer::of(stages::cost(stage, weighed)),
                Answer::of(stages::next(stage)),
            ),
            First::Stall(stall) => (
                Cause::HostBound,
                Answer::of(hosts::stall(stall)),
                (
                    "sure",
                    "gaps are counted, and no rank is later than the others there.".into(),
                ),
                Answer::of(format!(
                    "with hosts as fast there as in the other iterations an iteration would take {}.",
                    weighed.less(stall.saved)
                )),
                Answer::of(
                    "look at what all hosts wait for there: a shared file system, input, a checkpoint, logging.",
                ),
            ),
            First::Pauses(pauses) => (
                Cause::HostBound,
                Answer::of(hosts::pauses(pauses)),
                hosts::sure_of_pauses(pauses),
                Answer::of(format!(
                    "without these pauses an iteration would take {}.",
                    weighed.less(pauses.saved)
                )),
                Answer::of(
                    "look at what hosts do now and then: garbage collection (let all ranks collect in the same step), logging, other processes.",
                ),
            ),
            First::Launches(share) => (
                Cause::HostBound,
                Answer::of(hosts::bound(share)),
                (
                    "sure",
                    "launches are recorded, and gaps are counted.".into(),
                ),
                Answer::of(format!(
                    "with all hosts fast enough for their GPUs an iteration would take up to {}.",
                    weighed.less(share)
                )),
                next::all_hosts(report),
            ),
        };
        let missing = report.missing().is_some();
        let sure = certainty::with_doubts(sure, missing, &self.doubts);
        let (cost, next) = match missing {
            true => (
                cost.and(cost::UNLESS_MISSING.to_owned()),
                next::behind_others(report, &next),
            ),
            false => (cost, next),
        };
        Self {
            kind: Kind::Diagnosed(cause),
            verdict: verdict.with(also),
            brief: Answer::of(sure.clone()).and(certainty::first_doubt(&self.doubts)),
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
        let doubts = vec![doubt.to_owned()];
        let apart = next - least;
        Self {
            kind: Kind::Other(Other::Collectives),
            verdict: Answer::of(verdict),
            brief: Answer::of(format!(
                "fairly sure; the two that spend least differ by {apart:.3} ms in each."
            ))
            .and(certainty::first_doubt(&doubts)),
            sure: format!(
                "fairly sure: collectives end on all ranks together, so who spends least time in them comes last; the two that spend least differ by {apart:.3} ms in each."
            ),
            doubts,
            cost: Answer::of(cost),
            next: Answer::of(next_step),
        }
    }

    /// The beginning for a terminal or a page; some words may be taken by text before it.
    pub fn screen(&self, taken: usize) -> Screen {
        Screen::of([&self.verdict, &self.brief, &self.next, &self.cost], taken)
    }

    /// Sentences for below: those that the screen had no room for, and the certainty in full.
    pub fn below(&self, screen: Screen) -> impl Iterator<Item = String> {
        let sure = format!("How sure: {}", self.with_doubts());
        screen.below.into_iter().chain([sure])
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
    let parts = parts::of(report);
    // Where no rank is to blame, stages may be: what they wait is not told by any of them.
    let stages = cost::stages_wait(report);
    let stages = stages.filter(|most| diagnosis.cause == Cause::Healthy && *most >= MUCH);
    let mut verdict = match stages {
        Some(most) => Answer::of(format!(
            "Stages wait for each other, for up to {:.1} % of the time recorded; within its stage no rank holds the others back.",
            100.0 * most
        )),
        None if all_may_wait(report, diagnosis) => Answer::of(format!(
            "Not known: all may wait for a rank that is missing. None of the {} ranks given, of {}, holds the others back.",
            report.ranks.len(),
            report.world_size.unwrap_or_default()
        ))
        .and(words::unwaited(diagnosis)),
        // A job that hardly computes is not healthy, though its ranks are level.
        None if diagnosis.cause == Cause::Healthy && parts::hardly_computes(&parts) => {
            Answer::of("No rank holds the others back.").and(words::unwaited(diagnosis))
        }
        None => weighed::verdict(weighed, diagnosis),
    };
    let hosts = LateHosts::of(report).filter(|_| stages.is_some());
    if let Some(hosts) = &hosts {
        verdict = verdict.behind(hosts.headline());
    }
    // Where the rank that the rest would blame is told as the second one, both are late.
    let second = weighed.second.map(|second| second.0);
    let both = second.is_some() && second == diagnosis.once_in_step;
    let by_one = doubts::by_one(study).filter(|_| !both);
    let by_one = by_one.map(|_| match diagnosis.once_in_step {
        Some(other) => format!(
            "That is likely, no more: without the first collectives, whose waits come from where recordings started, it would be rank {other}."
        ),
        None => "That is likely, no more: it rests on one collective.".into(),
    });
    let also = match weighed.has_others() {
        true => weighed::besides(weighed, Some(diagnosis)),
        false => words::also(diagnosis),
    };
    let one_of_several = report.groups.len() > 1 && stages.is_none();
    let place = place(report, diagnosis).filter(|_| one_of_several);
    let given = report.world_size.filter(|_| {
        report.missing().is_some() && (stages.is_some() || !all_may_wait(report, diagnosis))
    });
    let given = given.map(|all| {
        format!(
            "That is of the {} ranks given, of {all}; of the rest nothing is known.",
            report.ranks.len()
        )
    });
    let elsewhere = parts::elsewhere(&parts);
    let blames_nobody = diagnosis.cause == Cause::Healthy || diagnosis.nobody_waits();
    let turns = cost::in_turn(report, diagnosis);
    // Communication there is mostly waiting, which is reported as that.
    let waits = turns.is_some() || stages.is_some();
    let communicates = |part: &(String, bool)| waits && part.1;
    let elsewhere = elsewhere.filter(|part| blames_nobody && !communicates(part));
    let but = if elsewhere.is_some() { "And" } else { "But" };
    let elsewhere = elsewhere.map(|(most, _)| format!("But {most}."));
    let in_turn = turns.map(|turns| {
        format!(
            "{but} they wait for each other in turn, for {} % of the time recorded with nothing to compute.",
            cost::in_percent(turns)
        )
    });
    let verdict = verdict.and(by_one).with(also).and(place);
    let verdict = verdict.and(in_other_groups(report, diagnosis)).and(given);
    let verdict = verdict.and(elsewhere).and(in_turn);
    let gain = gain.filter(|_| diagnosis.power_helps);
    let cost = cost::of(report, study, (gain, weighed), turns);
    Summary {
        kind: match diagnosis.nobody_waits() {
            _ if hosts.is_some() => Kind::Diagnosed(Cause::HostBound),
            true => Kind::Other(Other::NobodyWaits),
            false if all_may_wait(report, diagnosis) => Kind::Other(Other::RanksMissing),
            false => Kind::Diagnosed(diagnosis.cause),
        },
        verdict,
        brief: certainty::brief(report, study, &doubts),
        sure: certainty::of(report, study, &doubts),
        doubts,
        cost: match &hosts {
            Some(hosts) => cost.behind(hosts.cost(report)),
            None => cost,
        },
        next: match &hosts {
            Some(hosts) => hosts.next(report),
            None => next::of(report, diagnosis, turns.is_some()),
        },
    }
}

/// Whether nobody is late of the ranks given alone, and others are missing.
fn all_may_wait(report: &Report, diagnosis: &Diagnosis) -> bool {
    diagnosis.cause == Cause::Healthy && report.missing().is_some()
}

/// Ranks that others of their own groups wait for, and that the verdict does not name.
fn in_other_groups(report: &Report, diagnosis: &Diagnosis) -> Option<String> {
    let all = report.groups.iter().flat_map(GroupReport::stragglers);
    let others = all.filter(|rank| !diagnosis.stragglers.contains(rank));
    let others = Vec::from_iter(others.copied());
    (!others.is_empty() && !diagnosis.stragglers.is_empty())
        .then(|| format!("Other groups wait for {}.", words::ranks(&others)))
}

/// Of which group of several a verdict is, where the ranks that it names are all of that one.
fn place(report: &Report, diagnosis: &Diagnosis) -> Option<String> {
    let group = report.told().filter(|_| !diagnosis.stragglers.is_empty())?;
    let mut late = diagnosis.stragglers.iter();
    let place = late
        .all(|rank| group.ranks.contains(rank))
        .then(|| match group.stage {
            Some(stage) => format!("stage {stage}"),
            None => format!("one of {} groups", report.groups.len()),
        })?;
    Some(format!(
        "That is in {place} ({}).",
        words::ranks(&group.ranks)
    ))
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
            "But each rank does work of its own, as a stage of a pipeline does: a slow GPU can't be told from an uneven schedule.",
            "compare what each rank takes with how you divided the work. A job with replicas (data parallelism) has ranks that can be compared.",
        ),
        false => (
            Other::NotCompared,
            "But too few kernels of ranks with equal work match, so none is compared with another.",
            "record the same iterations on all ranks; the tables below show what each of them does.",
        ),
    };
    let sure = Answer::of("where time goes is sure: it is counted.").and(because.to_owned());
    let cost = cost::costs_of_stages(report).or_else(|| cost::of_a_row(report).filter(|_| stages));
    let cost =
        cost.unwrap_or_else(|| "not known: how long other ranks wait is not in this.".into());
    let cost = Answer::of(cost);
    let longest = longest(report).filter(|_| stages);
    // All hosts are late only where a schedule would leave one of the GPUs work.
    let hosts = LateHosts::of(report).filter(|it| stages || matches!(it, LateHosts::OfSome(_)));
    let (kind, verdict, cost, next) = match hosts {
        Some(hosts) => (
            Kind::Diagnosed(Cause::HostBound),
            Answer::of(hosts.headline()),
            cost.behind(hosts.cost(report)),
            hosts.next(report),
        ),
        None => (
            Kind::Other(kind),
            Answer::of(format!("{}.", parts::verdict(&parts))),
            cost,
            Answer::of(next),
        ),
    };
    Summary {
        kind,
        verdict: verdict.and(longest),
        sure: sure.in_full(),
        brief: sure.and(certainty::first_doubt(&doubts)),
        doubts,
        cost,
        next,
    }
}

/// The stage that computes longest, where that is clear.
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
            "Rank {} computes longest, by {} more than the next, {kernels}.",
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
        // With missing ranks that is one of the doubts.
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
        verdict: Answer::of(verdict),
        sure: sure.into(),
        brief: Answer::of(sure).and(certainty::first_doubt(&doubts)),
        doubts,
        cost: cost::of_one(report),
        next: match short {
            Some(_) => Answer::of(
                "record some iterations of the job, on all of its ranks, and analyze these.",
            ),
            None => next::of_one(report, &parts),
        },
    }
}
