//! Slow links in words.

use litd_traces::study::named;
use litd_traces::whatif::{Link, Where};

use super::weighed::{WORTH, Weighed};
use super::words;
use crate::show::time;

/// A slow link in one sentence.
pub fn headline(link: &Link) -> String {
    let what = match link.bytes {
        Some(bytes) => format!("{} of {}", link.kind, size(bytes)),
        None => link.kind.clone(),
    };
    let takes = format!(
        "{:.1} times as long as {{}} ({what}: {} instead of {})",
        link.times(),
        time(link.takes_ns),
        time(link.peers_ns)
    );
    match &link.place {
        Where::Iterations(numbers) => format!(
            "Slow network: in {} communication of all ranks takes {}.",
            words::iterations(numbers),
            takes.replace("{}", "in the others")
        ),
        Where::Among(ranks) if ranks.len() == 2 => format!(
            "Slow link: communication between {} takes {}.",
            named(ranks),
            takes.replace("{}", "between other ranks")
        ),
        Where::Among(ranks) => format!(
            "Slow link: communication among {} takes {}.",
            named(ranks),
            takes.replace("{}", "among other ranks")
        ),
        Where::Ranks(ranks) => format!(
            "Slow link: transfers to and from {} take {}.",
            named(ranks),
            takes.replace("{}", "between other ranks")
        ),
    }
}

/// What a link is called in passing.
pub fn short(link: &Link) -> String {
    match &link.place {
        Where::Iterations(numbers) => {
            format!("the slow network in {}", words::iterations(numbers))
        }
        Where::Among(ranks) if ranks.len() == 2 => {
            format!("the slow link between {}", named(ranks))
        }
        Where::Among(ranks) => format!("the slow link among {}", named(ranks)),
        Where::Ranks(ranks) => format!("the slow links of {}", named(ranks)),
    }
}

/// What to look at.
pub fn next(link: &Link) -> String {
    match &link.place {
        Where::Iterations(numbers) => format!(
            "look at what the network did in {}: errors and pauses of NICs and switches, other jobs' traffic.",
            words::iterations(numbers)
        ),
        _ => format!(
            "look at the links of {} (NIC, NVLink, cable, route): errors, width and speed. A way between nodes is slower than one within a node by itself.",
            named(link.ranks())
        ),
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
pub fn sure(link: &Link) -> String {
    /// So many collectives leave no doubt, nor does what takes so many times as long.
    const MANY: usize = 10;
    const FAR: f64 = 2.0;
    let grade = match link.count() >= MANY && link.times() >= FAR {
        true => "very sure",
        false => "fairly sure",
    };
    format!(
        "{grade}; so {} collectives take that carry as much as their peers, once all of their ranks have come.",
        link.count()
    )
}

/// What a link costs, and what it does together with the ranks that are late.
pub fn cost(link: &Link, weighed: &Weighed<'_>) -> String {
    let first = match link.place {
        Where::Iterations(_) => "as fast there as in the others",
        _ => "as fast as the others",
    };
    let more = match weighed.all - link.saved >= WORTH {
        true => format!("; with all of this mended {:.1} %", 100.0 * weighed.all),
        false => String::new(),
    };
    format!(
        "with it {first} an iteration would take {}{more}.",
        weighed.less(link.saved)
    )
}
