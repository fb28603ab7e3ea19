//! Slow links in words.

use litd_traces::whatif::{Link, Where};

use super::answer::Answer;
use super::certainty::Graded;
use super::weighed::{WORTH, Weighed};
use super::words;
use crate::show::time;

/// A slow link in one sentence.
pub fn headline(link: &Link) -> String {
    let what = match link.bytes {
        Some(bytes) => format!("{} of {}", link.kind, size(bytes)),
        None => link.kind.clone(),
    };
    let times = format!("{:.1} times as long as", link.times());
    let (between, among) = ("between other ranks", "among other ranks");
    let (text, peers) = match &link.place {
        Where::Iterations(numbers) => (
            format!(
                "Slow network: in {} communication of all ranks takes {times}",
                words::iterations(numbers)
            ),
            "in the others",
        ),
        Where::Among(ranks) if ranks.len() == 2 => (
            format!(
                "Slow link: communication between {} takes {times}",
                words::ranks(ranks)
            ),
            between,
        ),
        Where::Among(ranks) => (
            format!(
                "Slow link: communication among {} takes {times}",
                words::ranks(ranks)
            ),
            among,
        ),
        Where::Ranks(ranks) => (
            format!(
                "Slow link: transfers to and from {} take {times}",
                words::ranks(ranks)
            ),
            between,
        ),
        Where::From(ranks) => (
            format!(
                "Slow link, one way only: transfers from {} take {times}",
                words::ranks(ranks)
            ),
            between,
        ),
        Where::To(ranks) => (
            format!(
                "Slow link, one way only: transfers to {} take {times}",
                words::ranks(ranks)
            ),
            between,
        ),
        Where::OneWay([from, to]) => (
            format!(
                "Slow link, one way only: transfers from rank {from} to rank {to} take {times}"
            ),
            between,
        ),
    };
    format!(
        "{text} {peers} ({what}: {} instead of {}).",
        time(link.takes_ns),
        time(link.peers_ns)
    )
}

/// The short name of a link.
pub fn short(link: &Link) -> String {
    match &link.place {
        Where::Iterations(numbers) => {
            format!("the slow network in {}", words::iterations(numbers))
        }
        Where::Among(ranks) if ranks.len() == 2 => {
            format!("the slow link between {}", words::ranks(ranks))
        }
        Where::Among(ranks) => format!("the slow link among {}", words::ranks(ranks)),
        Where::Ranks(ranks) => format!("the slow links of {}", words::ranks(ranks)),
        Where::From(ranks) => format!("the slow links from {}", words::ranks(ranks)),
        Where::To(ranks) => format!("the slow links to {}", words::ranks(ranks)),
        Where::OneWay([from, to]) => format!("the slow link from rank {from} to rank {to}"),
    }
}

/// The next step.
pub fn next(link: &Link) -> Answer {
    match &link.place {
        Where::Iterations(_) => Answer::of(
            "look at what the network did then: errors and pauses of NICs and switches, other jobs' traffic.",
        ),
        _ => Answer::of(format!(
            "look at the links of {} (NIC, NVLink, cable, route): errors, width and speed.",
            words::ranks(link.ranks())
        ))
        .and("A way between nodes is slower than one within a node by itself.".to_owned()),
    }
}

/// A number of bytes as people say it.
fn size(bytes: u64) -> String {
    const UNITS: [(&str, f64); 3] = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    let bytes = bytes as f64;
    let unit = UNITS.iter().find(|unit| bytes >= unit.1);
    unit.map_or(format!("{bytes:.0} B"), |(unit, one)| {
        format!("{:.0} {unit}", bytes / one)
    })
}

/// How sure it is that a link is slow.
pub fn sure(link: &Link) -> Graded {
    /// So many collectives leave no doubt, nor does what takes so many times as long.
    const MANY: usize = 10;
    const FAR: f64 = 2.0;
    let grade = match link.count() >= MANY && link.times() >= FAR {
        true => "very sure",
        false => "fairly sure",
    };
    let why = format!(
        "by {} collectives that carry as much as their peers, once all ranks have come.",
        link.count()
    );
    (grade, why)
}

/// The cost of a link, alone and together with late ranks.
pub fn cost(link: &Link, weighed: &Weighed<'_>) -> Answer {
    let first = match link.place {
        Where::Iterations(_) => "as fast there as in the others",
        _ => "as fast as the others",
    };
    let more = weighed.all - link.saved >= WORTH;
    let more = more.then(|| format!("With all of this mended {:.1} %.", 100.0 * weighed.all));
    Answer::of(format!(
        "with it {first} an iteration would take {}.",
        weighed.less(link.saved)
    ))
    .and(more)
}
