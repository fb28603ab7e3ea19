//! What to know first: the verdict, how sure it is, what it costs and what to do next. A terminal
//! and the HTML report begin with it, and JSON has it.

use litd_traces::formats::nccl_summary::Waits;
use litd_traces::study::{Cause, Diagnosis, Gain, Study, named};
use litd_traces::{RankReport, Report};
use litd_units::Nanos;
use serde::Serialize;

use super::{certainty, doubts, parts, words};
use crate::show::time;

/// From this share of the time on it is worth a word that all ranks wait for each other, or that stages do.
const MUCH: f64 = 0.02;

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
    pub fn of(report: &Report, study: Option<&Study<'_>>, gain: Option<&Gain>) -> Self {
        let doubts = doubts::of(report, study);
        match study {
            Some(study) => of_diagnosis(report, study, gain, doubts),
            None => without_diagnosis(report, doubts),
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
            cost,
            next: next_step,
        }
    }

    /// The answers with what each of them answers.
    pub fn lines(&self) -> [(&'static str, String); 4] {
        let mut sure = self.sure.clone();
        for (at, doubt) in self.doubts.iter().enumerate() {
            let mark = if at == 0 { " Doubts:" } else { "" };
            sure += &format!("{mark} {}.", capital(doubt));
        }
        [
            ("verdict", self.verdict.clone()),
            ("how sure", sure),
            ("cost", self.cost.clone()),
            ("next", self.next.clone()),
        ]
    }
}

fn of_diagnosis(
    report: &Report,
    study: &Study<'_>,
    gain: Option<&Gain>,
    doubts: Vec<String>,
) -> Summary {
    let diagnosis = &study.diagnosis;
    // Where no rank is to blame, stages may be: what they wait is not told by any of them.
    let stages = stages_wait(report);
    let stages = stages.filter(|most| diagnosis.cause == Cause::Healthy && *most >= MUCH);
    let mut verdict = match stages {
        Some(most) => format!(
            "Stages wait for each other, for up to {:.1} % of the time recorded; within its stage no rank holds the others back.",
            100.0 * most
        ),
        None => words::headline(diagnosis),
    };
    if doubts::by_one(study).is_some() {
        verdict += &match diagnosis.once_in_step {
            Some(other) => format!(
                " That is likely, no more: without the first collectives, which see when recordings began, it would be rank {other}."
            ),
            None => " That is likely, no more: one collective alone tells.".into(),
        };
    }
    let one_of_several = report.groups.len() > 1 && stages.is_none();
    if let Some(group) = report.told().filter(|_| one_of_several) {
        let place = match group.stage {
            Some(stage) => format!("stage {stage} of the pipeline"),
            None => "one group".into(),
        };
        verdict += &format!(
            " That is of {place}, {}; of {} groups none is compared with another.",
            named(&group.ranks),
            report.groups.len()
        );
    }
    if let Some(all) = report.world_size.filter(|_| report.missing().is_some()) {
        verdict += &format!(
            " That is of the {} ranks given, of {all}: whether the others wait for one of the rest is not known.",
            report.ranks.len()
        );
    }
    let elsewhere = parts::elsewhere(&parts::of(report));
    let blames_nobody = diagnosis.cause == Cause::Healthy || diagnosis.nobody_waits();
    if let Some(most) = elsewhere.as_ref().filter(|_| blames_nobody) {
        verdict += &format!(" But {most}.");
    }
    let turns = in_turn(report, diagnosis);
    if let Some(turns) = &turns {
        verdict += &format!(
            " {} they wait for each other in turn, for {} % of the time recorded with nothing to compute.",
            if elsewhere.is_some() { "And" } else { "But" },
            in_percent(*turns)
        );
    }
    let gain = gain.filter(|_| diagnosis.power_helps);
    let gain = gain.and_then(|gain| gained(report, diagnosis, gain));
    Summary {
        kind: match diagnosis.nobody_waits() {
            true => Kind::Other(Other::NobodyWaits),
            false => Kind::Diagnosed(diagnosis.cause),
        },
        verdict,
        sure: certainty::of(report, study, &doubts),
        doubts,
        cost: match (gain, cost(report, study, elsewhere, turns)) {
            (Some(gain), cost) => format!("{gain} {}", capital(&cost)),
            (None, cost) => cost,
        },
        next: next(report, diagnosis, turns.is_some()),
    }
}

/// Below this share a figure would be "0.0 %".
const LEAST: f64 = 0.0005;

/// What it would gain if the ranks that are named became as fast as the median one, and then what it would if
/// all that are slower did.
fn gained(report: &Report, diagnosis: &Diagnosis, gain: &Gain) -> Option<String> {
    if gain.group < LEAST {
        return None;
    }
    let late = named(&diagnosis.stragglers);
    let less = |share: f64, by: Nanos| match share < LEAST {
        true => "hardly less".into(),
        false => format!("{:.1} % less ({})", 100.0 * share, time(by)),
    };
    let stage = report.told().filter(|_| report.groups.len() > 1);
    let (whole, first, all) = match stage {
        None => (
            "an iteration".to_owned(),
            less(gain.named, gain.named_ns),
            less(gain.group, gain.group_ns),
        ),
        Some(group) => {
            let which = match group.stage {
                Some(stage) => format!("stage {stage}"),
                None => "this group".into(),
            };
            let both = |own: String, job: String| {
                format!(
                    "{own} by itself, and the whole iteration {job} and no more, because groups wait for each other"
                )
            };
            let own = less(gain.named, gain.named_ns);
            let first = both(own, less(gain.named_iteration, gain.named_iteration_ns));
            let own = less(gain.group, gain.group_ns);
            let all = both(own, less(gain.iteration, gain.iteration_ns));
            (which, first, all)
        }
    };
    let measure = match report.told().map_or(0, |group| group.ranks.len()) {
        2 => "the other rank",
        _ => "the median rank",
    };
    let first_alone = format!("with {late} as fast as {measure} {whole} would take {first}");
    let assumed = assumed(report);
    Some(match first == all {
        true => format!("{first_alone}; an estimate, from what was waited: {assumed}."),
        false => format!(
            "{first_alone}; with all ranks at least as fast, {all}. Both are estimates, from what was waited: {assumed}."
        ),
    })
}

/// What a gain assumes. Collectives that wait for less slow computation beside them for less; by how much,
/// traces don't tell.
fn assumed(report: &Report) -> &'static str {
    /// Below this share of computation nothing is beside communication.
    const BESIDE: f64 = 0.01;
    let ranks = report.told().map_or(&[][..], |group| &group.ranks);
    let own = report
        .ranks
        .iter()
        .filter(|rank| ranks.contains(&rank.rank));
    let overlap = own.filter_map(|rank| rank.overlap_ratio);
    match overlap.reduce(f64::max) >= Some(BESIDE) {
        true => {
            "assumed is that all other kernels take as long as now; those beside communication may become shorter with it, and then there is more to gain"
        }
        false => "assumed is that all other kernels take as long as now",
    }
}

fn without_diagnosis(report: &Report, doubts: Vec<String>) -> Summary {
    if report.ranks.len() < 2 {
        return of_one(report, doubts);
    }
    let parts = parts::of(report);
    let stages = report.groups.iter().all(|group| group.ranks.len() == 1);
    let (kind, because, next) = match stages {
        true => (
            Other::UnevenWork,
            "where time goes is sure: it is counted. But each rank does work of its own, as a stage of a pipeline does, so a slow GPU can't be told from an uneven schedule.",
            "compare what each rank takes with how you divided the work, or record a job in which two ranks do the same.",
        ),
        false => (
            Other::NotCompared,
            "where time goes is sure: it is counted. But too few kernels of ranks with equal work match, so none is compared with another.",
            "record the same iterations on all ranks; the tables below show what each of them does.",
        ),
    };
    let cost = costs_of_stages(report);
    Summary {
        kind: Kind::Other(kind),
        verdict: format!("{}.", parts::verdict(&parts)),
        sure: because.into(),
        doubts,
        cost: cost.unwrap_or_else(|| "not known: what other ranks wait is not in this.".into()),
        next: next.into(),
    }
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
        (None, _) => {
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
        doubts,
        cost: cost_of_one(report),
        next: match short {
            Some(_) => {
                "record some iterations of the job, on all of its ranks, and analyze these.".into()
            }
            None => next_of_one(report, &parts),
        },
    }
}

/// What of a rank's own time is spent without computing, as times and shares of its window.
fn cost_of_one(report: &Report) -> String {
    let others = match report.world_size {
        Some(1) => "nothing that another rank could be blamed for: there is none",
        _ => "what other ranks wait is not in this",
    };
    let Some(rank) = report.ranks.first() else {
        return format!("{others}.");
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
    match told.is_empty() {
        true => format!("none of this rank's time, which computes throughout; {others}."),
        false => format!("of this rank's time {}; {others}.", told.join(", ")),
    }
}

/// What to do about the time of one rank. Where it mostly communicates, it may do no more than wait: other ranks tell.
fn next_of_one(report: &Report, parts: &[parts::Part]) -> String {
    let advice = parts::advice(parts);
    let communicates = parts.first().is_some_and(parts::Part::communicates);
    match (report.world_size, communicates) {
        (Some(1), _) => format!("{advice}."),
        (Some(_), true) => format!(
            "give the traces of the other ranks as well, before anything else: communication that takes long is often waiting for one of them, which one rank does not tell. Then {advice}."
        ),
        (None, true) => format!(
            "if the job has more ranks, give their traces as well, before anything else: communication that takes long is often waiting for one of them. Then {advice}."
        ),
        (Some(_), false) => format!(
            "{advice}; the traces of the other ranks, given as well, tell who waits for whom."
        ),
        (None, false) => format!("{advice}; if the job has more ranks, give their traces as well."),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

/// What the others wait for the stragglers.
fn cost(
    report: &Report,
    study: &Study<'_>,
    elsewhere: Option<String>,
    turns: Option<[f64; 2]>,
) -> String {
    let diagnosis = &study.diagnosis;
    let also = costs_of_stages(report).map_or(String::new(), |stages| format!(" {stages}"));
    if diagnosis.stragglers.is_empty() {
        if let Some(turns) = turns {
            return format!(
                "each rank waits for the others for {} % of the time recorded with nothing to compute, and none of them costs clearly more than another.",
                in_percent(turns)
            );
        }
        let what = match (diagnosis.cause, elsewhere) {
            (Cause::SamplingArtefact, _) => "not known.",
            _ if diagnosis.nobody_waits() => {
                "nothing that these traces show: whoever is late keeps nobody waiting."
            }
            (_, Some(_)) if !also.is_empty() => {
                "no rank costs the others of its stage anything; where the time goes is below."
            }
            (_, None) if !also.is_empty() => {
                "nothing that another rank of its stage could be blamed for."
            }
            (_, Some(_)) => "no rank costs the others anything; where the time goes is below.",
            (_, None) => "nothing that another rank could be blamed for.",
        };
        return format!("{what}{also}");
    }
    let ranks = report.told().map_or(&[][..], |group| &group.ranks);
    let is_other = |other: &&RankReport| {
        ranks.contains(&other.rank) && !diagnosis.stragglers.contains(&other.rank)
    };
    let others = Vec::from_iter(report.ranks.iter().filter(is_other));
    let own = range(&others, |rank| rank.wait_ns);
    let exposed = range(&others, |rank| rank.exposed_wait_ns);
    let (Some(own), Some(exposed)) = (own, exposed) else {
        return format!("what the others wait can't be told without collectives.{also}");
    };
    // Waits for other stages are among what nothing hides.
    let exposed = match also.is_empty() {
        true => format!(
            ", and for {} % of it with nothing to compute",
            in_percent(exposed)
        ),
        false => String::new(),
    };
    let who = match others.len() {
        1 => "the other rank waits",
        _ => "the others wait",
    };
    let mut each = per_iteration(others.iter().filter_map(|rank| rank.wait_ns), study);
    if let Some(rest) = in_step(report, diagnosis, &others) {
        each += &format!(
            "; {} without the first collectives, which see when recordings began",
            per_iteration(rest.into_iter(), study)
        );
    }
    format!(
        "{who} in collectives for {} % of the time recorded ({each}){exposed}.{also}",
        in_percent(own)
    )
}

/// The least and the greatest of what some ranks wait, each as a share of its window.
fn range(ranks: &[&RankReport], of: fn(&RankReport) -> Option<Nanos>) -> Option<[f64; 2]> {
    let share = |rank: &&RankReport| Some(of(rank)?.0 as f64 / rank.window_ns.0.max(1) as f64);
    let shares = || ranks.iter().filter_map(share);
    Some([shares().reduce(f64::min)?, shares().reduce(f64::max)?])
}

fn in_percent([least, most]: [f64; 2]) -> String {
    let [least, most] = [least, most].map(|share| format!("{:.2}", 100.0 * share));
    match least == most {
        true => most,
        false => format!("{least} to {most}"),
    }
}

/// What ranks wait in an iteration, as a time.
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

/// What these ranks wait in the collectives that find their ranks in step, where the others account for much of
/// all waiting: these see when recordings began, and cost a job that is not recorded nothing.
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
fn in_turn(report: &Report, diagnosis: &Diagnosis) -> Option<[f64; 2]> {
    if diagnosis.cause != Cause::Healthy || stages_wait(report).is_some() {
        return None;
    }
    let group = report.told()?;
    let ranks = report.ranks.iter();
    let ranks = Vec::from_iter(ranks.filter(|rank| group.ranks.contains(&rank.rank)));
    range(&ranks, |rank| rank.exposed_wait_ns).filter(|[least, _]| *least >= MUCH)
}

/// The greatest share of its time that a rank waits for another stage of the pipeline.
fn stages_wait(report: &Report) -> Option<f64> {
    let ranks = report.ranks.iter();
    let waits = ranks.filter_map(|rank| rank.stage_wait_fraction);
    waits.reduce(f64::max).filter(|&most| most > 0.0)
}

/// What stages of a pipeline wait for each other.
fn costs_of_stages(report: &Report) -> Option<String> {
    let most = stages_wait(report)?;
    Some(format!(
        "Stages wait up to {:.1} % of the time recorded for each other: that is the schedule, or stages of unequal length.",
        most * 100.0
    ))
}

fn next(report: &Report, diagnosis: &Diagnosis, in_turn: bool) -> String {
    let late = named(&diagnosis.stragglers);
    match diagnosis.cause {
        Cause::SlowClock => format!(
            "look at clock, temperature and power limit: those of {late}; litd gives power there that the others only wait with. --models has what the paper predicts."
        ),
        Cause::HostBound => hosts(report, diagnosis, &late),
        Cause::Communication => format!("look at the links of {late}: errors, width and speed."),
        Cause::DataDependent => {
            format!("look at how work is divided: more of it goes to {late} (tokens, lengths, experts).")
        }
        Cause::SamplingArtefact => {
            "record the same whole iterations on all ranks, and analyze again; where they are the same already, ranks do not run the same work in the same order, and can't be compared.".into()
        }
        Cause::Unknown if diagnosis.nobody_waits() => {
            "if the ranks exchange anything, record that too, or say with --classes which kernels do; else look at what takes the time of each, below.".into()
        }
        Cause::Unknown if !diagnosis.longer.is_empty() => what_is_longer(diagnosis, &late),
        Cause::Unknown => format!(
            "record more iterations, with the host's calls, and look at {late} in the pictures (--html)."
        ),
        Cause::Healthy if in_turn => {
            "no rank needs power more than another. Look at what differs from one collective to the next: lengths of sequences, loads of experts, hosts that are late now and then; --iteration N looks at one iteration.".into()
        }
        Cause::Healthy if stages_wait(report).is_some_and(|most| most >= MUCH) => {
            "nothing to balance within a stage. Between stages compare what each of them computes, below, with how you divided the work; more and smaller micro-batches make the schedule's own waits shorter.".into()
        }
        Cause::Healthy => match parts::elsewhere(&parts::of(report)) {
            Some(_) => "nothing to balance; look at what takes the time, below.".into(),
            None => "nothing to balance.".into(),
        },
    }
}

/// What to look at where kernels of some names alone take longer.
fn what_is_longer(diagnosis: &Diagnosis, late: &str) -> String {
    let [first, ..] = &diagnosis.longer[..] else {
        return String::new();
    };
    match first.copies() {
        true => format!(
            "look at what {late} copies and over which link: pinned memory, the NUMA node of its host, width and speed of PCIe; copies beside computation are hidden."
        ),
        false => format!(
            "compare what {} works on at {late} with what it does on the other ranks: sizes, tokens, experts, what runs beside it. Most other kernels are as fast there, so it is not the clock.",
            words::short(&first.name)
        ),
    }
}

/// What to look at where hosts are late, by whose hosts are and by what launches tell.
fn hosts(report: &Report, diagnosis: &Diagnosis, late: &str) -> String {
    if diagnosis.all_idle {
        return format!(
            "no host launches kernels fast enough, so look at all of them and not at that of {late} alone: fewer and larger launches (CUDA graphs), less work on the host between them, faster input."
        );
    }
    if doubts::launched_in_time(report, diagnosis) {
        return format!(
            "the kernels of {late} were launched in time and start late all the same: look at what they wait for, such as copies and events of other streams, before you look at its host."
        );
    }
    format!(
        "look at the host of {late}: which cores it runs on, what else does, how data come; fewer and larger launches (CUDA graphs) help."
    )
}
