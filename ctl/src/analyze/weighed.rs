//! Causes that hold the job back, weighed by the gain of mending them: late ranks, and links.

use litd_traces::Report;
use litd_traces::study::{Cause, Diagnosis, Study};
use litd_traces::whatif::{Course, Link, Mended, Part, Pauses, Stage, Stall, WhatIf};
use litd_units::Nanos;

use super::answer::Answer;
use super::{hosts, links, stages, words};
use crate::show::time;

/// Less than this share of the time is not worth a word.
pub const WORTH: f64 = 0.005;

/// An explained cause comes first if it costs this part of the unexplained one.
pub const EXPLAINS: f64 = 0.9;

/// Whether it is known why ranks are late.
pub fn is_explained(diagnosis: &Diagnosis) -> bool {
    diagnosis.cause != Cause::Unknown || !diagnosis.longer.is_empty()
}

/// Costs of ranks and links.
pub struct Weighed<'a> {
    /// Of the ranks that the others wait for, if any are named.
    pub late: Option<Late>,
    /// The most costly first.
    pub links: &'a [Link],
    pub stage: Option<&'a Stage>,
    pub stall: Option<&'a Stall>,
    pub pauses: Option<&'a Pauses>,
    /// The share of its time in which every GPU waits for launches, where something else makes ranks late.
    pub launches: Option<f64>,
    /// The rank whose host alone costs most, and its share of the time.
    pub host: Option<(u32, f64)>,
    /// The rank whose host the others may follow, in how many iterations it launches first, and of how many.
    pub leader: Option<(u32, usize, usize)>,
    /// The rank that costs most once all of that is mended, what of it, and its share of the time.
    pub second: Option<(u32, Part, f64)>,
    /// The gain of mending all of that, as a share of the time.
    pub all: f64,
    wall: Nanos,
    iterations: i64,
}

/// A cause that costs more than any rank.
#[derive(Clone, Copy, PartialEq)]
pub enum First<'a> {
    Link(&'a Link),
    Stage(&'a Stage),
    Stall(&'a Stall),
    Pauses(&'a Pauses),
    Launches(f64),
}

/// The cost of the named ranks.
pub struct Late {
    /// As a share of the time.
    pub share: f64,
    /// Whether it is known why they are late.
    pub explained: bool,
    /// When their kernels are slow or their hosts late, where that is why; ranks of the same times together.
    pub courses: Vec<(Vec<u32>, Course)>,
}

/// The part of ranks that makes them late.
pub fn part(diagnosis: &Diagnosis) -> Part {
    match diagnosis.cause {
        Cause::SlowClock => Part::Clock,
        Cause::DataDependent | Cause::Communication => Part::Kernels,
        Cause::HostBound => Part::Host,
        Cause::Unknown if !diagnosis.longer.is_empty() => Part::Kernels,
        _ => Part::All,
    }
}

/// Whether kernels are why ranks are late, whatever their hosts do.
fn by_kernels(diagnosis: &Diagnosis) -> bool {
    !diagnosis.stragglers.is_empty() && matches!(part(diagnosis), Part::Clock | Part::Kernels)
}

/// When the host of a rank is late, where that is now and then.
fn pauses(job: &WhatIf<'_>, rank: u32) -> Course {
    let ranks = job.pauses().map_or(&[][..], |pauses| &pauses.ranks);
    let own = ranks.iter().find(|paused| paused.rank == rank);
    own.map_or(Course::Always, |own| Course::In(own.iterations.clone()))
}

/// When the kernels of a rank are slow. Loads that move from rank to rank look like slow iterations, which the diagnosis
/// tells apart.
fn course(job: &WhatIf<'_>, diagnosis: &Diagnosis, rank: u32) -> Course {
    match (job.course(rank), diagnosis.rank, &diagnosis.slow_in[..]) {
        (worse @ Course::Worse(_), ..) => worse,
        (_, _, []) => Course::Always,
        (_, Some(_), slow) => Course::In(slow.to_vec()),
        (course, None, _) => course,
    }
}

/// Names all ranks that are late for the same reason as those that are named: of one host, or of one replica.
pub fn add_alike(job: &WhatIf<'_>, diagnosis: &mut Diagnosis) {
    if diagnosis.stragglers.is_empty() {
        return;
    }
    diagnosis.stragglers = job.with_alike(&diagnosis.stragglers, part(diagnosis));
    if diagnosis.stragglers.len() > 1 {
        diagnosis.rank = None;
    }
}

/// A diagnosis of these ranks alone: those of other groups that are as late are told for the whole job only.
pub fn within(diagnosis: &Diagnosis, ranks: &[u32]) -> Diagnosis {
    let mut own = diagnosis.clone();
    own.stragglers.retain(|rank| ranks.contains(rank));
    if let ([one], false) = (&own.stragglers[..], diagnosis.stragglers.len() == 1) {
        own.rank = Some(*one);
    }
    own
}

impl<'a> Weighed<'a> {
    pub fn of(job: &'a WhatIf<'_>, report: &Report, study: Option<&Study<'_>>) -> Self {
        let diagnosis = study.map(|study| &study.diagnosis);
        let late = diagnosis.filter(|diagnosis| !diagnosis.stragglers.is_empty());
        let ranks = late.map_or(Vec::new(), |diagnosis| {
            let part = part(diagnosis);
            let each = diagnosis.stragglers.iter();
            each.map(|&rank| (rank, part)).collect()
        });
        let links = Vec::from_iter(0..job.links().len());
        let first = Mended {
            ranks: &ranks,
            links: &links,
        };
        let all = job.share(first);
        let late = late.map(|diagnosis| {
            let mended = Mended {
                ranks: &ranks,
                links: &[],
            };
            let mut courses = Vec::<(Vec<u32>, Course)>::new();
            for &rank in &diagnosis.stragglers {
                let course = match diagnosis.cause {
                    Cause::SlowClock | Cause::DataDependent => course(job, diagnosis, rank),
                    Cause::HostBound => pauses(job, rank),
                    _ => continue,
                };
                match courses.iter_mut().find(|one| one.1 == course) {
                    Some(same) => same.0.push(rank),
                    None => courses.push((vec![rank], course)),
                }
            }
            Late {
                share: job.share(mended),
                explained: is_explained(diagnosis),
                courses,
            }
        });
        let known = late.is_some() || !links.is_empty();
        let second = known.then(|| job.second(first)).flatten();
        let all_hosts = diagnosis.is_some_and(|diagnosis| diagnosis.cause == Cause::HostBound);
        let compared = study.map(|study| study.waves.len().max(1));
        let iterations = compared.unwrap_or_else(|| job.iterations());
        Self {
            late,
            links: job.links(),
            stage: job.stage(),
            stall: job.stall(),
            pauses: job.pauses(),
            launches: diagnosis
                .filter(|diagnosis| by_kernels(diagnosis))
                .and_then(|_| hosts::launch_bound(report)),
            host: all_hosts.then(|| job.latest_host()).flatten(),
            leader: job.leader(),
            second,
            all: all + second.map_or(0.0, |second| second.2),
            wall: job.wall(),
            iterations: i64::try_from(iterations).unwrap_or(i64::MAX),
        }
    }

    /// The cause that costs more than the named ranks, if any.
    pub fn first(&self) -> Option<First<'a>> {
        let late = self.late.as_ref().map_or(0.0, |late| match late.explained {
            true => late.share,
            false => EXPLAINS * late.share,
        });
        let link = self
            .links
            .first()
            .map(|link| (link.saved, First::Link(link)));
        let stage = self.stage.map(|stage| (stage.saved, First::Stage(stage)));
        let stall = self.stall.map(|stall| (stall.saved, First::Stall(stall)));
        // Ranks that pause are named together, though one of them costs most.
        let pauses = self
            .pauses
            .filter(|pauses| pauses.ranks.len() > 1)
            .map(|pauses| (pauses.saved, First::Pauses(pauses)));
        let launches = self.launches.map(|share| (share, First::Launches(share)));
        let all = [link, stage, stall, pauses, launches].into_iter().flatten();
        let most = all.max_by(|a, b| a.0.total_cmp(&b.0));
        most.filter(|most| most.0 > late).map(|most| most.1)
    }

    /// Whether anything costs much besides what is named first.
    pub fn has_others(&self) -> bool {
        self.second.is_some()
            || !self.links.is_empty()
            || self.stage.is_some()
            || self.stall.is_some()
    }

    /// By how much less an iteration takes, as a share and as a time.
    pub fn less(&self, share: f64) -> String {
        let each = self.wall.0 as f64 * share / self.iterations as f64;
        format!("{:.1} % less ({})", 100.0 * share, time(Nanos(each as i64)))
    }
}

/// Further causes besides the first, a sentence each.
pub fn besides(weighed: &Weighed<'_>, diagnosis: Option<&Diagnosis>) -> Vec<String> {
    let first = weighed.first();
    let mut also = Vec::new();
    let late = weighed.late.as_ref().zip(diagnosis);
    let paused = |diagnosis: &Diagnosis| match first {
        Some(First::Pauses(pauses))
            if matches!(diagnosis.cause, Cause::HostBound | Cause::Unknown) =>
        {
            let paused = |late: &u32| pauses.ranks.iter().any(|paused| paused.rank == *late);
            diagnosis.stragglers.iter().all(paused)
        }
        _ => false,
    };
    let late = late
        .filter(|(late, diagnosis)| first.is_some() && late.share >= WORTH && !paused(diagnosis));
    if let Some((late, diagnosis)) = late {
        let why = match diagnosis.cause {
            Cause::SlowClock => "whose clock is slow",
            Cause::HostBound => "whose host is late",
            _ => "which is late as well",
        };
        also.push(format!(
            "They also wait for {}, {why} ({}).",
            words::ranks(&diagnosis.stragglers),
            words::percents(late.share)
        ));
    }
    let others = weighed.links.iter();
    let others = others.filter(|link| first != Some(First::Link(link)));
    for link in others.take(2) {
        let cost = words::percents(link.saved);
        also.push(format!("Besides, {} costs {cost}.", links::short(link)));
    }
    let stage = weighed
        .stage
        .filter(|stage| first != Some(First::Stage(stage)));
    if let Some(stage) = stage {
        let cost = words::percents(stage.saved);
        also.push(format!("Besides, {} costs {cost}.", stages::short(stage)));
    }
    let stall = weighed
        .stall
        .filter(|stall| first != Some(First::Stall(stall)));
    if let Some(stall) = stall {
        also.push(format!(
            "Besides, hosts that are all late in {} cost {}.",
            words::iterations(&stall.iterations),
            words::percents(stall.saved)
        ));
    }
    if let Some((rank, part, share)) = weighed.second {
        let what = match part {
            Part::Host => "whose host is late",
            _ => "whose kernels take longer",
        };
        also.push(format!(
            "Second is rank {rank}, {what}: {} more.",
            words::percents(share)
        ));
    }
    also
}

/// The cause that holds the node back: one sentence, and another on the latest host of all late
/// ones.
pub fn verdict(weighed: &Weighed<'_>, diagnosis: &Diagnosis) -> Answer {
    let all_hosts = diagnosis.in_turn && diagnosis.cause == Cause::HostBound;
    let latest = weighed.host.filter(|_| all_hosts);
    let latest = latest.map(|(rank, _)| format!("The host of rank {rank} is the latest."));
    let when = weighed.late.as_ref().and_then(when);
    Answer::of(words::headline(diagnosis, when)).and(latest)
}

/// When ranks are slow, where they are not always or not always as much.
fn when(late: &Late) -> Option<String> {
    let several = late.courses.len() > 1;
    let each = late.courses.iter().filter_map(|(ranks, course)| {
        let who = match several {
            true => format!("{} ", words::ranks(ranks)),
            false => String::new(),
        };
        match course {
            Course::Always => None,
            Course::In(numbers) => Some(format!("{who}in {} alone", words::iterations(numbers))),
            Course::Worse([(first, less), (last, more)]) => Some(format!(
                "{who}more and more ({} longer in iteration {first}, {} in iteration {last})",
                words::percents(less.max(0.0)),
                words::percents(*more)
            )),
        }
    });
    let each = Vec::from_iter(each);
    (!each.is_empty()).then(|| match &each[..] {
        // The pictures show the rest.
        [first, second, _, rest @ ..] => format!("{first}, {second} and {} more", rest.len() + 1),
        _ => each.join(", "),
    })
}
