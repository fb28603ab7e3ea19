//! The next step.

use litd_traces::Report;
use litd_traces::study::{Cause, Diagnosis, Grids};

use super::answer::{Answer, capital};
use super::cost::{MUCH, stages_wait};
use super::{doubts, hosts, parts, words};

/// The next step after a verdict on compared ranks.
pub fn of(report: &Report, diagnosis: &Diagnosis, in_turn: bool) -> Answer {
    let own = of_given(report, diagnosis, in_turn);
    match report.missing().is_some() && !diagnosis.stragglers.is_empty() {
        true => behind_others(report, &own),
        false => own,
    }
}

/// The next step where ranks are missing: their traces come first.
pub fn behind_others(report: &Report, own: &Answer) -> Answer {
    Answer::of(others(report)).and(format!("Then {}", own.in_full()))
}

/// The same, as if the ranks given were all.
fn of_given(report: &Report, diagnosis: &Diagnosis, in_turn: bool) -> Answer {
    let late = words::these(&diagnosis.stragglers);
    match diagnosis.cause {
        Cause::SlowClock => Answer::of(format!(
            "look at clock, temperature and power limit of {late}; litd can move power there."
        )),
        Cause::HostBound => hosts(report, diagnosis, &late),
        Cause::Communication => Answer::of(format!(
            "look at the links of {late}: errors, width and speed."
        )),
        Cause::DataDependent => more_work(diagnosis, &late),
        Cause::SamplingArtefact => {
            Answer::of("record the same whole iterations on all ranks, and analyze again.").and(
                "Where they are the same already, ranks do not run the same work in the same order, and can't be compared.".to_owned()
            )
        }
        Cause::Unknown if diagnosis.nobody_waits() => by_itself(report),
        Cause::Unknown if !diagnosis.longer.is_empty() => what_is_longer(diagnosis, &late),
        Cause::Unknown if diagnosis.seen.len() > 1 => several(diagnosis, &late),
        Cause::Unknown => Answer::of(format!(
            "look at {late} in the pictures (--html): in which kernels and iterations {} behind.",
            match diagnosis.stragglers.len() {
                1 => "it falls",
                _ => "they fall",
            }
        ))
        .and("More iterations, with the host's calls, tell more.".to_owned()),
        Cause::Healthy => of_nobody(report, diagnosis, in_turn),
    }
}

/// The next step where no rank is to blame.
fn of_nobody(report: &Report, diagnosis: &Diagnosis, in_turn: bool) -> Answer {
    if report.missing().is_some() {
        return Answer::of(others(report));
    }
    if in_turn {
        return Answer::of(
            "look at what differs from one collective to the next: lengths of sequences, loads of experts, hosts that are late now and then.",
        )
        .and("--iteration N looks at one iteration.".to_owned());
    }
    if stages_wait(report).is_some_and(|most| most >= MUCH) {
        return Answer::of("nothing to balance within a stage.")
            .and("Between stages compare what each of them computes, below, with how you divided the work.".to_owned())
            .and("More and smaller micro-batches make the schedule's own waits shorter.".to_owned());
    }
    if let Some((slow, _)) = &diagnosis.unwaited {
        return Answer::of(format!(
            "look at clock, temperature and power limit of {}, though that gains nothing as long as the others don't wait.",
            words::ranks(slow)
        ));
    }
    Answer::of(match parts::worth(report) {
        Some(part) => format!("nothing to balance; {}.", part.advice()),
        None => "nothing to balance.".into(),
    })
}

/// The advice where nothing is seen to be exchanged: what takes each rank's time comes first, if that is no computation.
fn by_itself(report: &Report) -> Answer {
    let exchanges =
        "if the ranks exchange anything, record that too, or say with --classes which kernels do";
    match parts::worth(report) {
        Some(part) => {
            Answer::of(format!("{}.", part.advice())).and(format!("{}.", capital(exchanges)))
        }
        None => Answer::of(format!(
            "{exchanges}; else look at what takes the time of each, below."
        )),
    }
}

/// The advice to add the traces of missing ranks.
fn others(report: &Report) -> String {
    /// So many are named.
    const NAMED: usize = 8;
    let which = match report.missing_ranks(NAMED) {
        Some((first, count)) if first.len() == count as usize => words::ranks(&first),
        Some((_, count)) => format!("the other {count} ranks"),
        None => "the other ranks".into(),
    };
    format!("give the traces of {which} as well: all may wait for one of them.")
}

/// Advice where kernels take longer that a slow clock would spare.
fn more_work(diagnosis: &Diagnosis, late: &str) -> Answer {
    match diagnosis.grids {
        Some(Grids::Larger(_)) => Answer::of(format!(
            "look at how work is divided: more of it goes to {late} (tokens, lengths, experts)."
        )),
        Some(Grids::Equal) => Answer::of(format!(
            "look at {late}: clocks, that of memory as well, and memory errors (ECC)."
        ))
        .and("Grids are equal, so more work could be in longer sequences only.".to_owned()),
        None => Answer::of(format!(
            "compare what the longest kernels work on at {late} with the other ranks (grids and shapes, tokens, lengths, experts)."
        ))
        .and("Where that differs divide the work evenly; where it is equal the GPU is slow: look at its clocks, that of memory as well, and at memory errors (ECC).".to_owned()),
    }
}

/// Advice where a rank is late for several reasons.
fn several(diagnosis: &Diagnosis, late: &str) -> Answer {
    let each = diagnosis.seen.iter().filter_map(|cause| match cause {
        Cause::HostBound => Some("host"),
        Cause::SlowClock => Some("clock, temperature and power limit"),
        Cause::DataDependent => Some("whether there is more work (grids, lengths, experts)"),
        Cause::Communication => Some("links"),
        _ => None,
    });
    Answer::of(format!(
        "look at all of it on {late}: {}.",
        Vec::from_iter(each).join("; ")
    ))
}

/// Advice where only kernels of some names take longer.
fn what_is_longer(diagnosis: &Diagnosis, late: &str) -> Answer {
    /// Clocks of GPUs that run the same job are hardly further apart.
    const CLOCKS: f64 = 0.25;
    let [first, ..] = &diagnosis.longer[..] else {
        return Answer::default();
    };
    if first.more_work().is_some() {
        return Answer::of(format!(
            "look at how work is divided: {late} {} more of it in {} (tokens, lengths, experts).",
            match diagnosis.stragglers.len() {
                1 => "has",
                _ => "have",
            },
            words::short(&first.name)
        ));
    }
    match first.copies() {
        true => Answer::of(format!(
            "look at what {late} copies and over which link: pinned memory, the NUMA node of its host, width and speed of PCIe."
        ))
        .and("Copies beside computation are hidden.".to_owned()),
        false => Answer::of(format!(
            "compare what it works on at {late} with the other ranks: sizes, tokens, experts, what runs beside it."
        ))
        .and(format!(
            "Most other kernels are as fast there, {}.",
            // A clock makes no kernel slower by more than it is.
            match first.more() {
                Some(more) if more < CLOCKS => {
                    "which a slow clock would spare only if memory limits them"
                }
                _ => "so it is not its clock that is slow",
            }
        )),
    }
}

/// Advice where all hosts are late.
pub fn all_hosts(report: &Report) -> Answer {
    Answer::of(format!(
        "look at all hosts, not at one of them: {}.",
        hosts::advice(&Vec::from_iter(&report.ranks))
    ))
}

/// Advice where hosts are late, by rank and by launches.
fn hosts(report: &Report, diagnosis: &Diagnosis, late: &str) -> Answer {
    if diagnosis.stragglers.is_empty() {
        return all_hosts(report);
    }
    let all = Vec::from_iter(&report.ranks);
    if diagnosis.all_idle {
        return Answer::of(format!(
            "look at all hosts and not at that of {late} alone: {}.",
            hosts::advice(&all)
        ));
    }
    if doubts::launched_in_time(report, diagnosis) {
        return Answer::of(format!(
            "look at what the kernels of {late} wait for, such as copies and events of other streams, before you look at hosts."
        ))
        .and(format!(
            "The kernels of {late} were launched in time and start late all the same."
        ));
    }
    let host = match diagnosis.stragglers.len() {
        1 => "host",
        _ => "hosts",
    };
    let mut own = all;
    own.retain(|rank| diagnosis.stragglers.contains(&rank.rank));
    Answer::of(match hosts::long(&own) {
        Some(_) => format!("look at the {host} of {late}: {}.", hosts::advice(&own)),
        None => format!(
            "look at the {host} of {late}: which cores, what else runs there, how data come; fewer and larger launches (CUDA graphs) help."
        ),
    })
}

/// The next step for one rank. If it mostly communicates, it may only be waiting: other ranks tell.
pub fn of_one(report: &Report, parts: &[parts::Part]) -> Answer {
    let advice = parts::advice(parts);
    let communicates = parts.first().is_some_and(parts::Part::communicates);
    let waits = "Communication that takes long is often waiting for one of them.";
    match (report.world_size, communicates) {
        (Some(1), _) => Answer::of(format!("{advice}.")),
        (Some(_), true) => {
            Answer::of("give the traces of the other ranks as well, before anything else.")
                .and(waits.to_owned())
                .and(format!("Then {advice}."))
        }
        (None, true) => Answer::of(
            "if the job has more ranks, give their traces as well, before anything else.",
        )
        .and(waits.to_owned())
        .and(format!("Then {advice}.")),
        (Some(_), false) => Answer::of(format!("{advice}."))
            .and("Give the traces of the other ranks as well.".to_owned()),
        (None, false) => Answer::of(format!("{advice}."))
            .and("If the job has more ranks, give their traces as well.".to_owned()),
    }
}
