//! The paper's analysis in words, for a terminal and for the HTML report.

use std::fmt::{self, Write};

use litd_traces::study::{Cause, Diagnosis, Grids, Longer, Models, SetRight, Study, named};
use litd_traces::{Exchange, GroupReport, Timeline, printable};
use litd_units::Nanos;

use super::answer::Screen;
use super::summary::Summary;
use crate::output::{WIDTH, wrap};
use crate::show::{HEAD, percent, time};

/// The longest name that is shown, in characters.
const NAME: usize = 60;

/// That a clock is slow though nobody waits for its rank.
pub fn unwaited(diagnosis: &Diagnosis) -> Option<String> {
    let (slow, by) = diagnosis.unwaited.as_ref()?;
    Some(format!(
        "But the clock of {} is slow: kernels there take {} longer, for which nobody waits.",
        ranks(slow),
        percents(*by)
    ))
}

/// The cause that holds the node back, in one sentence; and when, if ranks are slow at times only.
pub fn headline(diagnosis: &Diagnosis, when: Option<String>) -> String {
    let late = ranks(&diagnosis.stragglers);
    let others = diagnosis.ranks.iter().map(|marks| marks.rank);
    let mut others = others.filter(|rank| !diagnosis.stragglers.contains(rank));
    let wait = match (others.next(), others.next()) {
        (Some(other), None) => format!("rank {other} waits for {late}"),
        _ => format!("the others wait for {late}"),
    };
    match diagnosis.cause {
        Cause::Healthy => {
            let healthy = "Healthy: no rank holds the others back.";
            match unwaited(diagnosis) {
                Some(slow) => format!("{healthy} {slow}"),
                None => healthy.into(),
            }
        }
        Cause::SlowClock => match when {
            Some(when) => format!("Slow clock: {wait}, {when}; power can help."),
            None => format!("Slow clock: {wait}; power can help."),
        },
        Cause::HostBound if diagnosis.in_turn => {
            "Late hosts: no host launches kernels fast enough for its GPU; no rank is later than the others beyond chance, and power can't help.".into()
        }
        Cause::HostBound if diagnosis.all_idle => {
            format!(
                "Late hosts: no host launches kernels fast enough for its GPU, and {wait}; power can't help."
            )
        }
        Cause::HostBound if diagnosis.stragglers.len() > 1 => {
            format!("Late hosts: they launch kernels too late, and {wait}; power can't help.")
        }
        Cause::HostBound => format!(
            "Late host: it launches kernels too late{}, and {wait}; power can't help.",
            when.map_or(String::new(), |when| format!(" {when}"))
        ),
        Cause::Communication => {
            format!("Slow link: {wait}; look at its links, power can't help.")
        }
        Cause::DataDependent => data_dependent(diagnosis, &wait),
        Cause::SamplingArtefact => {
            "No diagnosis: these recordings can't be compared, so who starts kernels first or last in them means nothing.".into()
        }
        Cause::Unknown if diagnosis.nobody_waits() => {
            "Nobody is seen to wait: nothing that was recorded looks like an exchange between ranks.".into()
        }
        Cause::Unknown => match diagnosis.longer.first() {
            Some(first) => longer(first, &wait, diagnosis.longer.len() > 1),
            None if diagnosis.seen.len() > 1 => several(diagnosis, &wait),
            None => format!("Unknown: {wait}, and traces don't tell why."),
        },
    }
}

/// The sentence that kernels take longer that a slow clock would spare.
fn data_dependent(diagnosis: &Diagnosis, wait: &str) -> String {
    let (which, kernels) = match memory_alone(diagnosis) {
        true => ("memory", "memory-bound kernels"),
        false => ("GPU", "kernels of all kinds"),
    };
    match diagnosis.grids {
        Some(Grids::Larger(more)) => format!(
            "More work: {wait}, whose kernels take longer in grids that are {} larger; power only hides it.",
            percents(more)
        ),
        Some(Grids::Equal) => format!(
            "Slow {which}, most likely: {wait}, whose {kernels} take longer in grids as large as elsewhere."
        ),
        None => format!(
            "More work or {} {which}: {wait}, whose {kernels} take longer; traces don't tell which of the two.",
            if which == "GPU" { "a slow" } else { "slow" }
        ),
    }
}

/// Ranks by their numbers, no more of them than are read at a glance.
pub fn ranks(ranks: &[u32]) -> String {
    /// So many are named.
    const NAMED: usize = 6;
    match ranks {
        [first, .., last]
            if ranks.len() > NAMED
                && usize::try_from(last - first).ok() == Some(ranks.len() - 1) =>
        {
            format!("ranks {first} to {last}")
        }
        _ if ranks.len() > NAMED => {
            let first = ranks.iter().take(NAMED / 2).map(u32::to_string);
            format!(
                "ranks {} and {} more",
                Vec::from_iter(first).join(", "),
                ranks.len() - NAMED / 2
            )
        }
        _ => named(ranks),
    }
}

/// Ranks that the verdict names, in the other answers.
pub fn these(ranks: &[u32]) -> String {
    match ranks {
        [_, _, _, ..] => "these ranks".into(),
        _ => named(ranks),
    }
}

/// Iterations by their numbers, as in "iterations 4 to 6".
pub fn iterations(numbers: &[u32]) -> String {
    /// So many are named.
    const NAMED: usize = 4;
    match numbers {
        [] => "no iteration".into(),
        [one] => format!("iteration {one}"),
        [first, .., last] if usize::try_from(last - first).ok() == Some(numbers.len() - 1) => {
            format!("iterations {first} to {last}")
        }
        [rest @ .., last] if numbers.len() <= NAMED => {
            let rest = Vec::from_iter(rest.iter().map(u32::to_string));
            format!("iterations {} and {last}", rest.join(", "))
        }
        [first, .., last] => format!("{} iterations from {first} to {last}", numbers.len()),
    }
}

/// Whether only kernels that memory limits are clearly slower, where kernels are why a rank is late.
pub fn memory_alone(diagnosis: &Diagnosis) -> bool {
    let apart = &diagnosis.apart;
    let compute = apart.slower_compute.unwrap_or_default().max(0.0);
    let more = apart.slower_memory > Some(2.0 * compute);
    diagnosis.cause == Cause::DataDependent && more
}

/// The sentence that a rank is late for several reasons at once.
fn several(diagnosis: &Diagnosis, wait: &str) -> String {
    let each = diagnosis.seen.iter().filter_map(|cause| match cause {
        Cause::SlowClock => Some("a slow clock"),
        Cause::DataDependent => Some("more work or a slow GPU"),
        Cause::HostBound => Some("a late host"),
        Cause::Communication => Some("a slow link"),
        _ => None,
    });
    let each = Vec::from_iter(each);
    match diagnosis.seen.contains(&Cause::HostBound) || each.len() > 2 {
        true => format!("Several causes: {wait}, for {}.", listed(&each)),
        false => format!(
            "Several causes, or one of them: {wait}, for {}.",
            each.join(" or ")
        ),
    }
}

/// Some things, as in "one, two and three".
fn listed(all: &[&str]) -> String {
    match all {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => all.concat(),
    }
}

/// Ranks that the others wait for as well, for another reason.
pub fn also(diagnosis: &Diagnosis) -> Vec<String> {
    /// A rank to blame for less than this share of what is waited is not worth a word.
    const BLAME: f64 = 0.2;
    /// Nor are queues that are empty for less than this share of the time more than the median rank's.
    const IDLE: f64 = 0.01;
    /// Nor are kernels that take longer by less than this share, or by few of their standard errors.
    const SLOWER: f64 = 0.01;
    const ERRORS: f64 = 10.0;
    let idles = diagnosis.ranks.iter().map(|rank| rank.marks.idle);
    let middle = litd_diagnosis::median(idles.collect()).unwrap_or_default();
    let others = diagnosis.ranks.iter().filter(|rank| {
        !diagnosis.stragglers.contains(&rank.rank) && rank.blame.is_some_and(|of| of >= BLAME)
    });
    if diagnosis.stragglers.is_empty() {
        return Vec::new();
    }
    if diagnosis.cause != Cause::HostBound {
        let hosts = others.filter(|rank| rank.marks.idle - middle >= IDLE);
        let hosts = Vec::from_iter(hosts.map(|rank| rank.rank));
        return match hosts.is_empty() {
            true => Vec::new(),
            false => vec![format!(
                "They also wait for the late host of {}.",
                ranks(&hosts)
            )],
        };
    }
    let slow = others.filter_map(|rank| {
        let slower = rank.marks.slower_compute?;
        let clear = ERRORS * rank.marks.uncertainty.unwrap_or_default();
        (slower > clear.max(SLOWER)).then(|| {
            format!(
                "They also wait for rank {}, whose kernels take {} longer.",
                rank.rank,
                percents(slower)
            )
        })
    });
    slow.collect()
}

/// The sentence that kernels of one name, or several, make a rank late.
fn longer(longer: &Longer, wait: &str, several: bool) -> String {
    if longer.counts[1] == 0 && longer.ahead_ns == Nanos::ZERO {
        return format!(
            "Extra {}: {wait}; only there {} {}, for {} in all{}.",
            if longer.copies() { "copies" } else { "work" },
            short(&longer.name),
            if longer.copies() { "run" } else { "runs" },
            time(longer.time_ns),
            if several { " (and others)" } else { "" }
        );
    }
    if let Some(more) = longer.more_kernels() {
        return format!(
            "More work: {wait}, where {more} more kernels {} run in all than on the ranks far ahead of it, each as long as there.",
            short(&longer.name)
        );
    }
    let (what, take) = match (longer.copies(), several) {
        (true, _) => ("Slow copies", "take"),
        (false, true) => ("Some kernels take longer", "takes"),
        (false, false) => ("One kernel takes longer", "takes"),
    };
    let beside = longer.beside.as_ref().map_or(String::new(), |stream| {
        format!(" on stream {}, beside most others,", shorter(stream, NAME))
    });
    let more = longer.more();
    let more = more.map_or(String::new(), |more| format!(" ({})", percents(more)));
    let (what, grids) = match longer.more_work() {
        Some(more) => (
            "More work",
            format!(", in grids that are {} larger", percents(more)),
        ),
        None => (what, String::new()),
    };
    format!(
        "{what}: {wait}, whose {}{beside} {take} {}{more} longer in all than on the ranks far ahead of it{grids}{}.",
        short(&longer.name),
        time(longer.time_ns - longer.ahead_ns),
        if several { " (and others)" } else { "" }
    )
}

/// A share in percent, as sentences have it.
pub fn percents(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A group of ranks: its number, its kind and its cause.
pub fn group(number: usize, group: &GroupReport) -> String {
    let stage = group
        .stage
        .map_or(String::new(), |stage| format!("stage {stage}, "));
    let ranks = Vec::from_iter(group.ranks.iter().map(u32::to_string)).join(" ");
    let kind = match group.kind {
        Exchange::Unknown => String::new(),
        kind => format!(", {kind:?}").to_uppercase(),
    };
    let verdict = match &group.diagnosis {
        Some(diagnosis) => format!(": {}", headline(diagnosis, None)),
        None => String::new(),
    };
    format!("{number}: {stage}ranks {ranks}{kind}{verdict}")
}

/// The ranks whose time stamps were set right.
pub fn skew(study: &Study<'_>) -> Vec<String> {
    let ranks = study.diagnosis.ranks.iter().map(|marks| marks.rank);
    let skew = &study.skew;
    let each = ranks.zip(&skew.ahead_ns).zip(&skew.removed);
    let removed = each.filter(|(_, removed)| **removed);
    removed
        .map(|((rank, ahead), _)| {
            format!(
                "the time stamps of rank {rank} are {}, by the ends of {} collectives; they were set right",
                off(*ahead),
                skew.collectives
            )
        })
        .collect()
}

/// How far time stamps are off, and to which side.
fn off(ahead: Nanos) -> String {
    let side = match ahead > Nanos::ZERO {
        true => "ahead",
        false => "behind",
    };
    format!("{} {side}", time(Nanos(ahead.0.saturating_abs())))
}

/// The groups whose time stamps were set right.
pub fn clocks(clocks: &[SetRight], timelines: &[Timeline]) -> Vec<String> {
    let told = |SetRight { range, ahead }: &SetRight| {
        let own = timelines.get(range.clone()).unwrap_or_default();
        let own = Vec::from_iter(own.iter().map(|timeline| timeline.rank));
        format!(
            "the time stamps of {} are {}, by what was handed over from and to other ranks; they were set right",
            ranks(&own),
            off(*ahead)
        )
    };
    clocks.iter().map(told).collect()
}

/// The models' assumptions.
pub fn assumptions(models: &Models) -> String {
    format!(
        "Sections IV.A and IV.B of the Lit Silicon paper, if all GPUs were equal: {} kernels of constant overlap, {} of varying; assumed are {:.0} W per GPU before and {:.0} W idle.",
        models.constant,
        models.varying,
        models.options.baseline_power.0,
        models.options.idle_power.0
    )
}

/// A name that fits a line, and no more: names come from files.
pub fn short(name: &str) -> String {
    shorter(name, NAME)
}

/// A name of no more than so many characters.
pub fn shorter(name: &str, most: usize) -> String {
    let name = printable(name);
    match name.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()),
        None => name,
    }
}

/// Names of no more than so many characters each. Where several would be cut to the same, what they have in
/// common is cut instead.
pub fn distinct(names: &[&str], most: usize) -> Vec<String> {
    /// How many letters of the beginning are kept, to show the kind of kernel.
    const HEAD: usize = 5;
    let names = Vec::from_iter(
        names
            .iter()
            .map(|name| Vec::from_iter(printable(name).chars())),
    );
    let cut = |name: &[char]| Vec::from(name.get(..most).unwrap_or(name));
    let short = |(at, name): (usize, &Vec<char>)| {
        let alike = names.iter().enumerate();
        let alike = alike
            .filter(|(other, _)| *other != at)
            .map(|(_, other)| other);
        let alike = alike.filter(|other| *other != name && cut(other) == cut(name));
        let common = |other: &Vec<char>| {
            let pairs = other.iter().zip(name);
            pairs.take_while(|(one, own)| one == own).count()
        };
        let Some(common) = alike.map(common).max().filter(|_| name.len() > most) else {
            return shorter(&String::from_iter(name), most);
        };
        // From the beginning of the word in which they differ.
        let same = name.get(..common).unwrap_or_default();
        let word = same.iter().rposition(|letter| !letter.is_alphanumeric());
        let from = word
            .map_or(common, |at| at + 1)
            .max(common.saturating_sub(most / 2));
        let rest = (name.len() - from).min(most.saturating_sub(HEAD + 1));
        let head = name.iter().take(most.saturating_sub(rest + 1));
        let rest = name.iter().skip(from).take(rest);
        String::from_iter(head.chain(&['…']).chain(rest))
    };
    names.iter().enumerate().map(short).collect()
}

/// The basis of the verdict: of a diagnosis, and sentences that the first screen has no room for.
pub fn reasons(study: Option<&Study<'_>>, first: &Summary, screen: Screen) -> Vec<String> {
    let of_study = study.map(|study| {
        let evidence = study.diagnosis.evidence.iter().cloned();
        evidence.chain(skew(study)).chain(changes(study))
    });
    Vec::from_iter(of_study.into_iter().flatten().chain(first.below(screen)))
}

/// The same for a terminal.
pub fn why(reasons: &[String]) -> String {
    let mut out = format!("\n{HEAD}why{HEAD:#}\n");
    for reason in reasons {
        for (at, line) in wrap(reason, WIDTH - 2).iter().enumerate() {
            let bullet = if at == 0 { "- " } else { "  " };
            out.push_str(bullet);
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// The last rank of each stretch of the first iteration, where that changes and a rank waits.
pub fn changes(study: &Study<'_>) -> Option<String> {
    let is_named = !study.diagnosis.stragglers.is_empty();
    let changes = is_named && study.straggler_changes;
    let wave = study.waves.first().filter(|_| changes)?;
    let stretch = |stretch: &litd_traces::study::Stretch| {
        format!("rank {} from kernel {}", stretch.rank, stretch.first)
    };
    let all = Vec::from_iter(wave.last.iter().map(stretch));
    Some(format!(
        "the straggler changes within an iteration of {} kernels: {}",
        wave.kernels,
        all.join(", ")
    ))
}

/// Why nothing is predicted, where clocks are not what makes ranks differ: the models suppose that they are.
pub fn no_models(diagnosis: &Diagnosis) -> Option<&'static str> {
    match diagnosis.cause {
        Cause::SlowClock => None,
        Cause::Healthy => Some(
            "Left out: no rank holds the others back, so what the models predict is noise, or nothing (--json has it).",
        ),
        _ => Some(
            "Left out: the models suppose that clocks make ranks differ, and the diagnosis says otherwise (--json has what they would predict).",
        ),
    }
}

/// The models for a terminal.
pub fn models(study: &Study<'_>) -> String {
    let mut out = format!("\n{HEAD}predicted{HEAD:#}\n");
    match no_models(&study.diagnosis) {
        Some(why) => out.extend(wrap(why, WIDTH).iter().map(|line| format!("{line}\n"))),
        // Writing to a string cannot fail.
        None => drop(write_models(&mut out, &study.models)),
    }
    out
}

fn write_models(out: &mut String, models: &Models) -> fmt::Result {
    for line in wrap(&assumptions(models), WIDTH) {
        writeln!(out, "{line}")?;
    }
    writeln!(
        out,
        "{HEAD}aligned to  policy       speed-up  of that noise  per iteration     power{HEAD:#}"
    )?;
    for (name, aligned) in [
        ("slowest", &models.max),
        ("median", &models.med),
        ("fastest", &models.min),
    ] {
        let noise = aligned.noise_share;
        let noise = noise.map_or("-".into(), |share| format!("{:.0} %", share * 100.0));
        let interval = aligned.speedup_interval;
        let interval = interval.map_or("-".into(), |[least, most]| {
            format!("{least:.3} to {most:.3}")
        });
        writeln!(
            out,
            "{name:<11} {:<12} {:>8.4} {noise:>14}  {interval:<16} {:>6.4}",
            aligned.policy, aligned.speedup, aligned.node_power_ratio
        )?;
    }
    writeln!(
        out,
        "estimates: speed-up is time before / after, above 1 is less time;\npower: after / before, below 1 is less. These are the paper's models, which take\ncomputation alone and know no waits; \"cost\" above goes by what was waited, so it\nand the median's speed-up differ"
    )
}

/// The median of what the ranks have, or a dash.
pub fn middle(of: &[Option<f64>]) -> String {
    let middle = litd_diagnosis::median(of.iter().flatten().copied().collect());
    middle.map_or("-".into(), |middle| format!("{middle:.2}"))
}

/// Overlap by kernel, for a terminal.
pub fn overlap(study: &Study<'_>) -> String {
    let mut out = String::new();
    let _ = write_overlap(&mut out, study);
    out
}

fn write_overlap(out: &mut String, study: &Study<'_>) -> fmt::Result {
    writeln!(
        out,
        "\n{HEAD}overlap, %    kernels of overlap      correlation (median){HEAD:#}"
    )?;
    writeln!(
        out,
        "{HEAD}least  most  least varying most      Pearson  cosine  kernel{HEAD:#}"
    )?;
    for kernel in study.kernels.iter().take(20) {
        let ratios = || kernel.overlap_ratio.iter().flatten().copied();
        writeln!(
            out,
            "{:>5} {:>5} {:>6} {:>7} {:>4} {:>12} {:>7}  {}",
            percent(ratios().reduce(f64::min)),
            percent(ratios().reduce(f64::max)),
            kernel.constant_minimum,
            kernel.varying,
            kernel.constant_maximum,
            middle(&kernel.pearson),
            middle(&kernel.cosine),
            short(&kernel.name)
        )?;
    }
    Ok(())
}
