//! Why a GPU is late, from traces alone: the marks of each rank, the verdict that
//! [`litd_diagnosis`] makes of them, and what it rests on, in words.

use std::ops::RangeInclusive;

use litd_diagnosis::{Cause, Limits, Marks, SURE, Verdict, median};
use litd_units::Nanos;
use serde::Serialize;

use super::longer::{self, Found, Longer};
use super::matrix::Matrix;
use super::measure::{Measure, hangs_on_one, once_in_step, spread};
use super::names::{self, Kinds};
use super::turns::{self, Nobody};
use super::{artefact, equal};
use crate::analysis::{idle_of, wall_time};
use crate::collectives::GroupWaits;
use crate::idle;
use crate::marks::marks;
use crate::pace::paces;
use crate::skew::Skew;
use crate::spans::ratio;
use crate::time::{Split, launches_known};
use crate::timeline::{Kernel, NonMax, Timeline};

/// Where launches of fewer kernels are known, why a GPU is idle is known in part only.
const KNOWN: f64 = 0.95;
/// What takes longer by at least this share of what it is to explain explains it.
const EXPLAINS: f64 = 0.5;
/// Where others wait in turn a rank is slow from this share on.
const SLOW: f64 = 0.01;

/// The diagnosis, with what it rests on.
#[derive(Debug, Clone, Serialize)]
pub struct Diagnosis {
    /// What holds the node back.
    pub cause: Cause,
    /// The rank that the others wait for; null where nobody waits, for nobody in particular, or for several
    /// alike.
    pub rank: Option<u32>,
    /// All ranks that the others wait for alike, as far as the traces tell them apart: `rank` alone, or
    /// several.
    pub stragglers: Vec<u32>,
    /// Whether the ranks exchange anything in what was recorded; else nobody is seen to wait.
    #[serde(skip)]
    pub exchanges: bool,
    /// Whether more power for that rank can help.
    pub power_helps: bool,
    /// What tells how far ranks are apart: `waits` in collectives with nothing to compute, `arrivals` at
    /// collectives or, where there are none, `leads`.
    pub measure: &'static str,
    /// How far the ranks are apart by that measure, as a share of the time.
    pub spread: f64,
    /// How far noise may drive them apart.
    pub level: f64,
    /// What sets the ranks that are late apart from those that are far ahead of them.
    #[serde(skip)]
    pub apart: Marks,
    /// Whether the others' queues are empty as long as those of the ranks that are late.
    #[serde(skip)]
    pub all_idle: bool,
    /// Whether ranks come last in turn, so that none of them is to blame for what the others wait.
    #[serde(skip)]
    pub in_turn: bool,
    /// Ranks whose clocks are slow though nobody is late, and by how much longer their kernels take.
    #[serde(skip)]
    pub unwaited: Option<(Vec<u32>, f64)>,
    /// What the grids of its kernels tell, where these take longer whatever limits them; none where that is not known.
    #[serde(skip)]
    pub grids: Option<Grids>,
    /// The iterations in which the rank that is late is slow, where it is not in the others.
    #[serde(skip)]
    pub slow_in: Vec<u32>,
    /// All causes that are seen on the rank that is late.
    #[serde(skip)]
    pub seen: Vec<Cause>,
    /// By how much longer than those far ahead of it the rank that is late computes, copies and waits for its host, a
    /// share of the time: no more than that can be gained there.
    #[serde(skip)]
    pub excess: Option<f64>,
    /// Whether one collective alone tells who is late, which may be so by chance.
    #[serde(skip)]
    pub hangs_on_one: bool,
    /// Another rank, which the others would wait for by the collectives alone that find their ranks in step:
    /// recordings begin at different moments, which the first collectives see.
    #[serde(skip)]
    pub once_in_step: Option<u32>,
    /// Where the cause is unknown, or no host is fast enough: names whose kernels take longer on the rank that is
    /// late, and explain that.
    pub longer: Vec<Longer>,
    /// The reasons, in words and numbers.
    pub evidence: Vec<String>,
    /// What was measured of each rank.
    pub ranks: Vec<RankMarks>,
}

impl Diagnosis {
    /// Whether ranks differ and nobody is seen to wait for anybody: they exchange nothing.
    #[must_use]
    pub fn nobody_waits(&self) -> bool {
        !self.exchanges && self.cause == Cause::Unknown
    }

    /// Whether a clock is slow by so much that it is no chance, whoever waits.
    #[must_use]
    pub fn clearly_slow(&self) -> bool {
        /// So many standard errors are no chance.
        const CLEAR: f64 = 10.0;
        let slower = self.apart.slower_compute.zip(self.apart.uncertainty);
        let clear = slower.is_some_and(|(slower, error)| slower > CLEAR * error);
        self.cause == Cause::SlowClock && clear
    }
}

/// What was measured of a rank.
#[derive(Debug, Clone, Serialize)]
pub struct RankMarks {
    /// The rank.
    pub rank: u32,
    /// What its kernels show.
    #[serde(flatten)]
    pub marks: Marks,
    /// By how much it leads the rank that is last, as a share of an iteration, on average.
    pub lead: f64,
    /// How long it waits in collectives with nothing to compute, as a share of the iterations that
    /// are compared; null without collectives.
    pub wait: Option<f64>,
    /// Of what others wait for whoever comes last, the share that they wait for this rank; none where that is not
    /// known.
    #[serde(skip)]
    pub blame: Option<f64>,
}

/// Ranks by their numbers, as in "ranks 0, 4 and 5".
#[must_use]
pub fn named(ranks: &[u32]) -> String {
    let [rest @ .., last] = ranks else {
        return "a rank".into();
    };
    match rest {
        [] => format!("rank {last}"),
        rest => {
            let rest = Vec::from_iter(rest.iter().map(u32::to_string));
            format!("ranks {} and {last}", rest.join(", "))
        }
    }
}

/// Which ranks are late, and why.
struct Judged {
    verdict: Verdict,
    /// All that are as late, by their places.
    late: Vec<usize>,
    /// The iterations in which the last one is slow, where it is not in the others.
    slow_in: Vec<u32>,
    nobody: Option<Nobody>,
    once_in_step: Option<usize>,
    /// Whether its pace alone tells, and not who waits least.
    by_pace: bool,
    /// Ranks whose kernels are slow where nobody is late, and by how much.
    unwaited: Option<(Vec<usize>, f64)>,
    found: Found,
}

/// What ranks are judged by.
struct Given<'a, 'b> {
    timelines: &'a [Timeline],
    matrix: &'a Matrix<'b>,
    kinds: &'a Kinds,
    skew: &'a Skew,
    waits: Option<&'a GroupWaits>,
    length: Nanos,
    runs: Runs,
    measure: Measure,
    marks: Vec<Marks>,
    limits: Limits,
}

impl Given<'_, '_> {
    fn marks_of(&self, kinds: &Kinds) -> Vec<Marks> {
        marks_of(
            self.timelines,
            self.matrix,
            kinds,
            self.skew,
            (self.length, &self.runs),
        )
    }

    /// The verdict on ranks of these values and marks of some kernels.
    fn told(&self, values: &[f64], (marks, kinds): (&[Marks], &Kinds), limits: &Limits) -> Verdict {
        let verdict = litd_diagnosis::diagnose(values, marks, &[], limits);
        let by_work = || {
            let more = (self.timelines, self.matrix, (kinds, false));
            let more = names::more_blocks_of(more.0, more.1, more.2, &verdict);
            let slower = verdict.apart.slower_compute.unwrap_or_default();
            verdict.cause == Cause::SlowClock && more >= Some(EXPLAINS * slower)
        };
        match names::few(self.matrix, kinds, &verdict) || by_work() {
            true => verdict.without_pace(),
            false => verdict,
        }
    }

    /// The verdict, and the iterations in which the rank that is last is slow, where it is not in the others.
    fn first(&self) -> (Verdict, Vec<u32>) {
        let values = &self.measure.values;
        let mut verdict = self.told(values, (&self.marks, self.kinds), &self.limits);
        let mut slow_in = names::slow_iterations(self.matrix, self.kinds, &verdict);
        // What a few iterations show may be lost among all of them, and is told of these alone.
        let unseen = verdict.cause == Cause::Unknown && verdict.seen.is_empty();
        if !slow_in.is_empty() && (unseen || is_slow(&verdict)) {
            let within = self.kinds.within(self.matrix, &slow_in);
            let marks = self.marks_of(&within);
            let other = self.told(values, (&marks, &within), &self.limits);
            if is_slow(&other) {
                verdict = other;
            }
        }
        if !is_slow(&verdict) {
            slow_in.clear();
        }
        (verdict, slow_in)
    }

    /// The verdict on the ranks of the slowest kernels, whoever waits least: where loads move from rank to rank these
    /// hide who waits for a slow clock. None where they are not clearly slower.
    fn slowest(&self) -> Option<(Verdict, Vec<usize>)> {
        let slower = |marks: &Marks| Some(-marks.slower_compute?);
        let values = self.marks.iter().map(slower).collect::<Option<Vec<_>>>()?;
        let errors = self.marks.iter().filter_map(|marks| marks.uncertainty);
        let error = errors.fold(0.0, f64::max);
        let limits = Limits {
            level: self.limits.slower.max(SURE * error),
            ..self.limits
        };
        let verdict = self.told(&values, (&self.marks, self.kinds), &limits);
        let clear = turns::is_slow(&verdict) && verdict.apart.slower_compute >= Some(SLOW);
        let late = litd_diagnosis::as_late(&verdict, &values, &self.marks, &limits);
        clear.then_some((verdict, late))
    }

    /// The same on the ranks whose hosts are late, as launches tell.
    fn latest_hosts(&self) -> Option<(Verdict, Vec<usize>)> {
        /// Queues that are empty for less than this share of the time more are none of their own.
        const MUCH: f64 = 0.02;
        let known = |timeline: &Timeline| launches_known(timeline) >= KNOWN;
        if !self.timelines.iter().all(known) {
            return None;
        }
        let values = Vec::from_iter(self.marks.iter().map(|marks| -marks.idle));
        let limits = Limits {
            level: MUCH,
            ..self.limits
        };
        let verdict = self.told(&values, (&self.marks, self.kinds), &limits);
        let late = litd_diagnosis::as_late(&verdict, &values, &self.marks, &limits);
        let own = verdict.cause == Cause::HostBound && verdict.apart.idle >= MUCH;
        (own && 2 * late.len() <= self.timelines.len()).then_some((verdict, late))
    }

    fn judge(&self, comparable: bool) -> Judged {
        let (mut verdict, slow_in) = self.first();
        let mut late =
            litd_diagnosis::as_late(&verdict, &self.measure.values, &self.marks, &self.limits);
        // Loads that move hide that others are as slow.
        if turns::is_slow(&verdict)
            && let Some((_, all)) = self.slowest()
            && late.iter().all(|gpu| all.contains(gpu))
        {
            late = all;
        }
        let is_late = verdict.cause != Cause::Healthy && comparable;
        let one = verdict.last.filter(|_| is_late);
        let once_in_step =
            one.and_then(|last| once_in_step(last, self.waits, &self.measure, self.length));
        let nobody = match (is_late, once_in_step) {
            (true, None) => turns::nobody(self.waits, &verdict, &late),
            // Where recordings began at different moments the first collectives speak against the others.
            (true, Some(other)) => turns::nobody_in_step(self.waits, &verdict, other),
            (false, _) => None,
        };
        let once_in_step = once_in_step.filter(|_| nobody.is_none());
        let nobody = match nobody {
            None if is_late => None,
            Some(Nobody::Hosts) => nobody,
            _ => self.all_hosts(comparable).or(nobody),
        };
        let found = match nobody {
            None => longer_of(self, one, &verdict),
            Some(nobody) => {
                verdict.cause = nobody.cause();
                Found::default()
            }
        };
        let mut judged = Judged {
            verdict,
            late,
            slow_in,
            nobody,
            once_in_step,
            by_pace: false,
            unwaited: None,
            found,
        };
        if comparable && judged.verdict.cause == Cause::Healthy && nobody.is_none() {
            judged.unwaited = self.slowest().and_then(|(verdict, late)| {
                let clock = verdict.cause == Cause::SlowClock;
                Some((late, verdict.apart.slower_compute.filter(|_| clock)?))
            });
        }
        if is_late && judged.is_open() {
            let hosts = || self.latest_hosts().filter(|_| nobody.is_some());
            match self.slowest().or_else(hosts) {
                Some((verdict, late)) => judged.takes(verdict, late),
                None if nobody.is_none() && self.is_alike(&judged.verdict, judged.late.len()) => {
                    judged.verdict.cause = Cause::Healthy;
                }
                None => {}
            }
        }
        judged
    }

    /// Whether a rank of which nothing tells why it is late is no later than GPUs of one model differ in their paces, or
    /// most ranks are as late: then the others are early, by hardly more than noise.
    fn is_alike(&self, verdict: &Verdict, late: usize) -> bool {
        let slower = verdict.apart.slower_compute.unwrap_or_default();
        let differ = slower.clamp(0.0, self.limits.slower);
        let (spread, level) = (self.measure.spread, self.measure.level);
        spread < level + differ || 2 * late > self.timelines.len() && spread < 2.0 * level
    }

    /// The share of the time recorded for which all queues are empty.
    fn all_empty(&self, verdict: &Verdict) -> f64 {
        let whole = wall_time(self.timelines).0.max(1) as f64;
        (verdict.idle - verdict.apart.idle) * self.length.0 as f64 / whole
    }

    /// Whether launches tell that no host is fast enough, where no rank is later than the others.
    fn all_hosts(&self, comparable: bool) -> Option<Nobody> {
        let idles = |marks: &Marks| marks.idle >= turns::ALL_WAIT;
        let all = comparable && self.marks.iter().all(idles);
        let by_host = |timeline: &Timeline| {
            let (split, _) = Split::of(timeline);
            let known = launches_known(timeline) >= KNOWN;
            known && ratio(split.idle_launch, split.window()) >= Some(turns::ALL_WAIT)
        };
        (all && self.timelines.iter().all(by_host)).then_some(Nobody::Hosts)
    }
}

impl Judged {
    /// Whether no rank is to blame, or one of which nothing tells why it is late.
    fn is_open(&self) -> bool {
        let unknown = self.verdict.cause == Cause::Unknown && self.verdict.seen.is_empty();
        let unknown = unknown && self.found.explains.is_empty() && self.once_in_step.is_none();
        self.nobody == Some(Nobody::InTurn) || self.nobody.is_none() && unknown
    }

    /// Takes the verdict on a rank whose kernels are slow, or whose host is late, whoever waits least.
    fn takes(&mut self, verdict: Verdict, late: Vec<usize>) {
        self.verdict = verdict;
        self.late = late;
        self.slow_in.clear();
        self.nobody = None;
        self.found = Found::default();
        self.by_pace = true;
    }
}

pub(super) fn diagnose(
    timelines: &[Timeline],
    matrix: &Matrix<'_>,
    kinds: &Kinds,
    skew: &Skew,
    waits: Option<&GroupWaits>,
) -> Diagnosis {
    let length = length(matrix);
    let runs = Runs::of(matrix);
    let leads = leads(matrix, length);
    let noise = expected_spread(matrix, length);
    let iterations = matrix.iterations().len().max(1);
    let measure = Measure::of(waits, &leads, (length, iterations), noise);
    let limits = Limits {
        level: measure.threshold(),
        ..Limits::OF_TRACES
    };
    let marks = marks_of(timelines, matrix, kinds, skew, (length, &runs));
    let given = Given {
        timelines,
        matrix,
        kinds,
        skew,
        waits,
        length,
        runs,
        measure,
        marks,
        limits,
    };
    let exchanges = matrix.exchanges();
    let artefact = artefact::find(timelines, matrix, skew, (length, waits.is_some()));
    let comparable = artefact.is_none() && exchanges;
    let judged = given.judge(comparable);
    let verdict = &judged.verdict;
    let nobody = judged.nobody;
    let is_late = verdict.cause != Cause::Healthy && comparable && nobody.is_none();
    let one = verdict.last.filter(|_| is_late);
    // What the pace alone tells rests on no collective.
    let by_pace = judged.by_pace || given.slowest().is_some_and(|(_, late)| late == judged.late);
    let shaky = one.filter(|_| !by_pace).is_some_and(|last| {
        let set_apart = set_apart(verdict);
        hangs_on_one((last, set_apart), waits, &given.measure, length)
    });
    let number = |&gpu: &usize| timelines.get(gpu).map(|timeline| timeline.rank);
    let last = verdict.last.and_then(|gpu| number(&gpu)).unwrap_or(0);
    let late = Vec::from_iter(judged.late.iter().filter_map(number));
    let (cause, evidence) = match artefact {
        Some(artefact) => artefact,
        None if late.is_empty() => (Cause::Unknown, Vec::new()),
        None if !exchanges && verdict.cause != Cause::Healthy => {
            (Cause::Unknown, alone(timelines, &leads, &given.marks))
        }
        None => (
            verdict.cause,
            match nobody {
                Some(nobody) => nobody.evidence(&late, given.all_empty(verdict)),
                None => evidence((&late, last), &given.measure, &judged),
            },
        ),
    };
    let stragglers = if is_late { late } else { Vec::new() };
    Diagnosis {
        cause,
        rank: match stragglers[..] {
            [rank] => Some(rank),
            _ => None,
        },
        stragglers,
        exchanges,
        power_helps: cause.power_helps(),
        measure: given.measure.name,
        spread: given.measure.spread,
        level: given.measure.level,
        apart: verdict.apart,
        all_idle: all_idle(verdict) || nobody.is_some(),
        in_turn: nobody.is_some(),
        unwaited: judged.unwaited.as_ref().map(|(late, slower)| {
            let late = late.iter().filter_map(number);
            (late.collect(), *slower)
        }),
        grids: one.and_then(|_| grids(&given, verdict)),
        excess: one.and_then(|last| excess(&given, last, &judged)),
        slow_in: judged.slow_in.clone(),
        seen: verdict.seen.clone(),
        hangs_on_one: shaky,
        once_in_step: judged.once_in_step.and_then(|at| number(&at)),
        ranks: ranks(timelines, &given.marks, &leads, waits, length),
        longer: judged.found.explains,
        evidence,
    }
}

fn ranks(
    timelines: &[Timeline],
    marks: &[Marks],
    leads: &[f64],
    waits: Option<&GroupWaits>,
    length: Nanos,
) -> Vec<RankMarks> {
    let each = timelines.iter().zip(marks).zip(leads).enumerate();
    let one = |(at, ((timeline, marks), &lead)): (usize, ((&Timeline, &Marks), &f64))| RankMarks {
        rank: timeline.rank,
        marks: *marks,
        lead,
        wait: waits.and_then(|waits| ratio(*waits.exposed.get(at)?, length)),
        blame: waits.and_then(|waits| Some(waits.lags.get(at)?.blame)),
    };
    each.map(one).collect()
}

fn is_slow(verdict: &Verdict) -> bool {
    matches!(verdict.cause, Cause::SlowClock | Cause::DataDependent)
}

/// What grids tell of a rank whose kernels of all kinds take longer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Grids {
    /// They are larger by this share, and that is why.
    Larger(f64),
    /// They are as large as on the other ranks, so there is no more work.
    Equal,
}

/// What grids tell, where they are known and kernels of all kinds take longer.
fn grids(given: &Given<'_, '_>, verdict: &Verdict) -> Option<Grids> {
    /// By less than this part of what kernels take longer grids are not larger.
    const EQUAL: f64 = 0.1;
    let apart = &verdict.apart;
    let slower = apart.slower_compute.into_iter().chain(apart.slower_memory);
    let slower = slower.reduce(f64::max)?;
    let kernels = (given.kinds, true);
    let more = names::more_blocks_of(given.timelines, given.matrix, kernels, verdict);
    let more = more.filter(|_| verdict.cause == Cause::DataDependent && slower > 0.0)?;
    match more {
        more if more >= EXPLAINS * slower => Some(Grids::Larger(more)),
        more if more.abs() < EQUAL * slower => Some(Grids::Equal),
        _ => None,
    }
}

/// By how much more than those far ahead of it the last rank computes, copies and waits for its host, a share of the
/// time.
fn excess(given: &Given<'_, '_>, last: usize, judged: &Judged) -> Option<f64> {
    let verdict = &judged.verdict;
    // Among loads that move what a rank computes more is no measure of what makes it late.
    let more = match judged.by_pace {
        true => Nanos::ZERO,
        false => longer::excess(given.timelines, &given.runs, (last, &verdict.ahead)),
    };
    let idle = match verdict.seen.contains(&Cause::HostBound) {
        true => verdict.apart.idle.max(0.0),
        false => 0.0,
    };
    Some(ratio(more, given.length)? + idle)
}

/// Whether the queue of the rank that is last is empty hardly longer than those of the ranks far ahead of it.
fn all_idle(verdict: &Verdict) -> bool {
    let own = verdict.apart.idle;
    own <= Limits::OF_TRACES.idle || turns::all_alike(verdict)
}

/// Whether what is seen of the rank that is last is its own.
fn set_apart(verdict: &Verdict) -> bool {
    match verdict.cause {
        Cause::HostBound => !all_idle(verdict),
        cause => cause != Cause::Unknown,
    }
}

/// Which names take longer on a rank of which nothing else tells why it is late.
fn longer_of(given: &Given<'_, '_>, last: Option<usize>, verdict: &Verdict) -> Found {
    // That all hosts are late does not tell why one rank is.
    let unexplained = match verdict.cause {
        Cause::Unknown => verdict.seen.is_empty(),
        cause => cause == Cause::HostBound && all_idle(verdict),
    };
    let Some(last) = last.filter(|_| unexplained) else {
        return Found::default();
    };
    let late = given.measure.late_by * given.length.0 as f64;
    longer::find(given.timelines, &given.runs, (last, &verdict.ahead), late)
}

/// What is to be said of ranks that exchange nothing: how far apart they are, which holds nobody back by
/// itself, and whose kernels are slow.
fn alone(timelines: &[Timeline], leads: &[f64], marks: &[Marks]) -> Vec<String> {
    let mut evidence = vec![
        "no collective is recorded, nor anything that looks or behaves like one: nobody is seen to wait for another".into(),
    ];
    let place = |of: Option<(usize, &f64)>| Some(timelines.get(of?.0)?.rank);
    let each = || leads.iter().enumerate();
    let first = place(each().max_by(|a, b| a.1.total_cmp(b.1)));
    let last = place(each().min_by(|a, b| a.1.total_cmp(b.1)));
    if let (Some(first), Some(last)) = (first, last) {
        evidence.push(format!(
            "rank {first} starts matching kernels {:.2} % of an iteration before rank {last} on average: so far apart are they, and that alone holds nobody back",
            100.0 * spread(leads)
        ));
    }
    let slower = timelines.iter().zip(marks).filter_map(|(timeline, marks)| {
        let slower = marks.slower_compute?;
        let clear = SURE * marks.uncertainty.unwrap_or(0.0);
        (slower > clear.max(Limits::OF_TRACES.slower)).then_some((slower, timeline.rank))
    });
    if let Some((slower, rank)) = slower.max_by(|a, b| a.0.total_cmp(&b.0)) {
        evidence.push(format!(
            "the computation of rank {rank} takes {:.1} % longer than the median rank's",
            slower * 100.0
        ));
    }
    evidence
}

/// What the verdict rests on.
fn evidence((late, last): (&[u32], u32), measure: &Measure, judged: &Judged) -> Vec<String> {
    let (verdict, found) = (&judged.verdict, &judged.found);
    let apart = &verdict.apart;
    let [level, unexplained] = measure.apart(&named(late), !found.explains.is_empty());
    // Of several that are alike the last one stands for all.
    let its = match late {
        [_] => "its".into(),
        _ if verdict.cause == Cause::Healthy => "the last rank's".into(),
        _ => format!("rank {last}'s"),
    };
    let mut evidence = Vec::new();
    match (verdict.cause, &verdict.seen[..]) {
        (Cause::Healthy, _) => evidence.push(level),
        (Cause::Unknown, []) => evidence.push(unexplained),
        (Cause::Unknown, [Cause::SlowClock, Cause::DataDependent]) => evidence.push(
            "a slow clock would slow memory-bound kernels less, more work would slow them as much: it may be both".into(),
        ),
        (Cause::Unknown, _) => evidence.push("several causes at once: none is named".into()),
        _ => {}
    }
    evidence.extend(found.explains.iter().map(|one| one.evidence(&its)));
    let unknown = verdict.cause == Cause::Unknown;
    if let Some(most) = found.most.as_ref().filter(|_| unknown) {
        evidence.push(format!(
            "most of what takes longer: {}",
            most.evidence(&its)
        ));
    }
    evidence.push(pace(&its, verdict));
    if verdict.seen.contains(&Cause::HostBound) {
        let more = match apart.idle > Limits::OF_TRACES.idle {
            true => format!(
                ", {:.1} percentage points more than on the ranks far ahead of it",
                apart.idle * 100.0
            ),
            false => ", as on the others (none of the hosts keeps up)".into(),
        };
        evidence.push(format!(
            "{its} queue is empty, with no collective to wait for, for {} of an iteration{more}: the host is late",
            percent(verdict.idle)
        ));
    }
    if verdict.seen.contains(&Cause::Communication) {
        evidence.push(format!(
            "{its} transfers end {} of their length later than those of the ranks far ahead of it: the link is slow",
            percent(apart.slower_link)
        ));
    }
    evidence
}

/// The kernels of which a pace is told.
const EQUAL: &str = "only kernels whose overlap is the same on every rank count";

/// How long the computation of the rank that is late takes, against that of the ranks far ahead of it.
fn pace(its: &str, verdict: &Verdict) -> String {
    let apart = &verdict.apart;
    let is_slower = |cause: &Cause| matches!(cause, Cause::SlowClock | Cause::DataDependent);
    let slower = verdict.seen.iter().any(is_slower);
    match (apart.slower_compute, apart.slower_memory) {
        (Some(compute), Some(memory)) if slower => format!(
            "{its} clock-bound kernels take {} than those of the ranks far ahead of it, and {its} memory-bound ones {} ({EQUAL}){}",
            against(compute),
            against(memory),
            match verdict.cause {
                Cause::SlowClock =>
                    ": the clock is slow (these traces hold no temperature that would say why)",
                Cause::DataDependent =>
                    ": a slow clock would spare the latter, so there is more work, or all of the GPU is slow",
                _ => "",
            }
        ),
        (Some(compute), None) if slower => format!(
            "{its} kernels take {} than those of the ranks far ahead of it ({EQUAL}): the clock is slow, or there is more work; too few kernels are memory-bound to tell which",
            against(compute),
        ),
        (Some(compute), _) => format!(
            "{its} kernels take {} than those of the ranks far ahead of it ({EQUAL}): not significantly slower",
            against(compute),
        ),
        (None, _) => {
            format!("too few of {its} kernels have the same overlap on all ranks to tell the pace")
        }
    }
}

/// A share of the time in percent.
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// How much longer something takes by this share; below zero it takes less.
fn against(share: f64) -> String {
    let side = if share < 0.0 { "less" } else { "longer" };
    format!("{} {side}", percent(share.abs()))
}

fn marks_of(
    timelines: &[Timeline],
    matrix: &Matrix<'_>,
    kinds: &Kinds,
    skew: &Skew,
    (length, runs): (Nanos, &Runs),
) -> Vec<Marks> {
    let size = [matrix.gpus(), matrix.kernels()];
    let duration = |gpu, k| matrix.duration(gpu, k);
    let paces = paces(size, duration, |k| kinds.constant[k], |k| kinds.limits[k]);
    let idles = Vec::from_iter(timelines.iter().map(|timeline| runs.idle(timeline)));
    let mut marks = marks(&paces, &idles, skew, length);
    equal::add_chance(&mut marks, matrix, kinds);
    marks
}

/// The iterations in which kernels match, those of consecutive numbers as one span each: what a
/// rank ran before, behind and between says nothing of them. None where traces mark none.
pub(super) struct Runs(Vec<RangeInclusive<u32>>);

impl Runs {
    fn of(matrix: &Matrix<'_>) -> Self {
        let mut runs = Vec::<RangeInclusive<u32>>::new();
        for number in matrix.iterations().into_keys() {
            let Some(number) = number else {
                return Self(Vec::new());
            };
            match runs.last_mut() {
                Some(run) if run.end().checked_add(1) == Some(number) => {
                    *run = *run.start()..=number;
                }
                _ => runs.push(number..=number),
            }
        }
        Self(runs)
    }

    /// Whether a kernel is of one of them; each is where traces mark none.
    pub(super) fn have(&self, kernel: &Kernel) -> bool {
        self.0.is_empty() || self.0.iter().any(|run| is_in(kernel, run))
    }

    /// How long a rank's GPU had nothing to do in them; in all of its time if there are none.
    fn idle(&self, timeline: &Timeline) -> Nanos {
        let late = idle::before_collectives(timeline, |kernel| self.have(kernel));
        if self.0.is_empty() {
            return idle_of(&timeline.kernels) + late;
        }
        let idle = |run| idle_of(timeline.kernels.iter().filter(|kernel| is_in(kernel, run)));
        self.0.iter().map(idle).sum::<Nanos>() + late
    }
}

fn is_in(kernel: &Kernel, run: &RangeInclusive<u32>) -> bool {
    let number = kernel.iteration.map(NonMax::get);
    number.is_some_and(|number| run.contains(&number))
}

/// Mean lead of each GPU, as a share of an iteration.
fn leads(matrix: &Matrix<'_>, length: Nanos) -> Vec<f64> {
    let kernels = matrix.kernels().max(1) as f64;
    let iteration = length.0.max(1) as f64 / matrix.iterations().len().max(1) as f64;
    matrix.column(|gpu| {
        let leads = (0..matrix.kernels()).map(|k| matrix.lead(gpu, k).0 as f64);
        leads.sum::<f64>() / kernels / iteration
    })
}

/// From first start to last end of matched kernels, of all iterations.
fn length(matrix: &Matrix<'_>) -> Nanos {
    let iterations = matrix.iterations();
    iterations
        .values()
        .map(|kernels| matrix.length(kernels))
        .sum()
}

/// How far kernel noise alone drives ranks apart, as a share of an iteration.
fn expected_spread(matrix: &Matrix<'_>, length: Nanos) -> f64 {
    let deviation = |k: usize| {
        let times = matrix.column(|gpu| matrix.duration(gpu, k).0 as f64);
        let middle = median(times.clone()).filter(|&middle| middle > 0.0)?;
        median(
            times
                .iter()
                .map(|time| (time / middle - 1.0).abs())
                .collect(),
        )
    };
    let kernels = 0..matrix.kernels();
    let noise = median(kernels.clone().filter_map(deviation).collect());
    let first = kernels.map(|k| matrix.duration(0, k).0 as f64);
    let squares: f64 = first.map(|time| time.powi(2)).sum();
    // 1.4826 makes a standard deviation of a median absolute one.
    let drift = 1.4826 * noise.unwrap_or(0.0) * squares.sqrt();
    match length > Nanos::ZERO {
        true => 2.5 * drift / length.0 as f64,
        false => 0.0,
    }
}
