//! Trials for people. "Saved" and "faster" are words of this file only, and of complete trials.

use std::fmt::Write;

use litd_api::{HoldOutStatus, Trials};
use litd_trial::report::Counts;
use litd_trial::{Estimate, Report, State, Verdict};

use crate::output::{WIDTH, count, wrap};
use crate::show::{self, HEAD, SIMULATED, WARNING};

/// A page made line by line; writing to a string cannot fail.
#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.0, "{text}");
    }

    fn wrapped(&mut self, text: &str) {
        for line in wrap(text, WIDTH) {
            self.line(&line);
        }
    }

    fn head(&mut self, text: &str) {
        let _ = writeln!(self.0, "{HEAD}{text}{HEAD:#}");
    }
}

/// How far the trial is, and the hold-out.
pub fn status(trials: &Trials) -> String {
    let mut page = Page::default();
    if let Some(why) = &trials.harm {
        for line in wrap(
            &format!("Steering did harm, and is stopped for these users: {why}"),
            WIDTH,
        ) {
            page.line(&format!("{WARNING}{line}{WARNING:#}"));
        }
        page.line("`litctl resume` steers again.\n");
    }
    match &trials.report {
        None => page.line("No trial yet: `litctl trial start` begins one."),
        Some(report) => progress(&mut page, report),
    }
    for hold_out in &trials.hold_outs {
        page.line("");
        held_out(&mut page, hold_out);
    }
    page.0
}

fn heading(page: &mut Page, report: &Report) {
    if report.simulated {
        page.line(&format!(
            "{SIMULATED}SIMULATED{SIMULATED:#}: no number below is of a real node"
        ));
    }
    let kind = match report.design.same {
        true => "A/A trial",
        false => "trial",
    };
    page.head(&format!(
        "{kind} on {}, {} ({})",
        report.job,
        report.policy,
        report.state.name()
    ));
}

fn progress(page: &mut Page, report: &Report) {
    heading(page, report);
    page.wrapped(&format!(
        "{} of {} measured since {}: {}",
        report.blocks,
        count(report.design.blocks(), "block"),
        show::moment(report.started_unix),
        report.why
    ));
    if report.state.is_over() {
        page.line("`litctl trial report` prints what it shows.");
        return;
    }
    if !report.now.is_empty() {
        page.line(&report.now);
    }
    page.line(&format!(
        "at least {} left",
        show::span(report.left().as_secs_f64())
    ));
    if let Some(it) = &report.throughput {
        page.wrapped(&format!("so far, no result yet: throughput {}", share(it)));
    }
}

fn held_out(page: &mut Page, it: &HoldOutStatus) {
    page.head(&format!(
        "hold-out on {}: the caps found for {:.1} % of the time",
        it.job,
        it.share * 100.0
    ));
    match &it.throughput {
        None => page.line(&format!(
            "{} so far, too few to say anything",
            count(it.comparisons, "comparison")
        )),
        Some(throughput) => page.line(&format!(
            "{}: throughput {}",
            count(it.comparisons, "comparison"),
            share(throughput)
        )),
    }
    if let Some(power) = &it.power {
        page.line(&format!("power {}", share(power)));
    }
    if let Some(rounds) = it.to_find {
        page.line(&format!(
            "a loss of 0.5 % is found and stopped within {}",
            count(rounds, "comparison")
        ));
    }
    page.line(&it.now);
}

/// A difference in percent with its interval.
fn share(it: &Estimate) -> String {
    format!(
        "{:+.2} % ({:+.2} to {:+.2} %)",
        it.mean * 100.0,
        it.low * 100.0,
        it.high * 100.0
    )
}

/// The text of a trial's report.
pub fn report(report: &Report) -> String {
    let mut page = Page::default();
    heading(&mut page, report);
    page.wrapped(&verdict(report));
    page.line("");
    differences(&mut page, report);
    page.line("");
    page.head("how");
    let design = &report.design;
    page.wrapped(&format!(
        "A: the caps found; B: {}. {} of {} of at least {:.0} s, each {:.0} s after a change of \
         caps; {}, begun {}, order drawn from {}",
        match design.same {
            true => "the caps found, too",
            false => "the balanced caps",
        },
        report.blocks,
        count(design.blocks(), "block"),
        design.block.as_secs_f64(),
        design.settle.as_secs_f64(),
        count(report.gpus, "GPU"),
        show::moment(report.started_unix),
        design.seed
    ));
    page.wrapped(&format!(
        "iterations, A: {}; B: {}",
        counts(&report.found),
        counts(&report.balanced)
    ));
    page.wrapped(&format!("left out: {}", report.rule));
    page.wrapped(&format!("looked at {}", report.looks));
    needs(&mut page, report);
    page.0
}

fn counts(counts: &Counts) -> String {
    format!(
        "{} counted, {} left out as too long, {} as profiled, in {}",
        counts.counted,
        counts.excluded,
        counts.profiled,
        count(counts.blocks, "block")
    )
}

fn differences(page: &mut Page, report: &Report) {
    let Some(throughput) = &report.throughput else {
        page.line("No two whole quads were measured: nothing is known.");
        return;
    };
    page.head("B against A               mean   95 % interval");
    let row =
        |page: &mut Page, what: &str, it: &Estimate, scale: f64, digits: usize, unit: &str| {
            page.line(&format!(
                "{what:<20} {:>+9.digits$}   {:+.digits$} to {:+.digits$} {unit}",
                it.mean * scale,
                it.low * scale,
                it.high * scale
            ));
        };
    row(page, "throughput", throughput, 100.0, 3, "%");
    let parts = [
        ("GPU power", &report.power, 100.0, 2, "%"),
        ("GPU power", &report.watts, 1.0, 1, "W"),
        ("energy an iteration", &report.energy, 100.0, 2, "%"),
        ("node power", &report.node_watts, 1.0, 1, "W"),
    ];
    for (what, it, scale, digits, unit) in parts {
        if let Some(it) = it {
            row(page, what, it, scale, digits, unit);
        }
    }
    match (&report.net_value, &report.prices) {
        (Some(value), Some(prices)) => {
            let unit = "per GPU-hour";
            row(page, "net value", value, 1.0, 5, unit);
            page.line(&format!(
                "  at {} per kWh and {} per GPU-hour",
                prices.energy_per_kwh, prices.gpu_hour
            ));
        }
        (None, Some(_)) => page.line("net value: unknown, power was not measured throughout"),
        _ => page.line("net value: unknown, no [prices] are configured"),
    }
}

fn needs(page: &mut Page, report: &Report) {
    if report.precision.is_empty() {
        return;
    }
    page.line("");
    page.head("blocks, from the first, that take");
    let more = |blocks: Option<u32>| match blocks {
        None => "more than can be planned".to_owned(),
        Some(blocks) => match blocks.checked_sub(report.blocks) {
            None | Some(0) => format!("{blocks}"),
            Some(more) => format!("{blocks} ({more} more)"),
        },
    };
    for it in &report.precision {
        page.line(&format!(
            "  to know throughput within {:.2} %: {}",
            it.share * 100.0,
            more(it.blocks)
        ));
    }
    for it in &report.stops {
        page.line(&format!(
            "  to stop a loss of {:.1} %: {}",
            it.share * 100.0,
            more(it.blocks)
        ));
    }
}

/// The verdict in words.
fn verdict(report: &Report) -> String {
    match (report.state, report.verdict) {
        (_, Verdict::Harm) => format!(
            "HARM: the balanced caps make the job slower. {}. The caps found are back and nothing \
             is steered until `litctl resume`.",
            capital(&report.why)
        ),
        (State::Aborted, _) => format!("ABORTED, so nothing is concluded: {}.", report.why),
        (State::Complete, Verdict::Zero) if report.blocks == 0 => {
            format!("NOTHING TO DO: {}. Predicted gain: 0.", report.why)
        }
        (State::Complete, Verdict::Zero) => "ZERO: where nothing differs nothing is found, as it \
             should be."
            .to_owned(),
        (State::Complete, Verdict::Invalid) if report.design.same => {
            "INVALID: a difference is found where there is none. 1 of 20 A/A trials shows one by \
             chance; if the next does too, what is measured here can't be relied upon."
                .to_owned()
        }
        (State::Complete, Verdict::Invalid) => "INVALID: more iterations were left out of one arm \
             than of the other, so that they can't be compared."
            .to_owned(),
        (State::Complete, Verdict::Pays) => format!("IT PAYS: {}.", shown(report)),
        (State::Complete, Verdict::DoesNotPay) => {
            format!("IT DOES NOT PAY: {}.", shown(report))
        }
        (State::Complete, _) => format!(
            "UNDECIDED: {}. The interval allows for gain and for loss; more blocks narrow it.",
            shown(report)
        ),
        _ => "Not complete: nothing is concluded yet.".to_owned(),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// The differences beyond chance.
fn shown(report: &Report) -> String {
    let mut parts = Vec::new();
    if let Some(it) = &report.throughput {
        parts.push(match (report.faster(), report.slower()) {
            (true, _) => format!("faster by {:.2} %", it.mean * 100.0),
            (_, true) => format!("slower by {:.2} %", -it.mean * 100.0),
            _ => "no difference in speed is shown".to_owned(),
        });
    }
    if let (Some(it), Some(watts)) = (&report.power, &report.watts) {
        let hotter = it.low > 0.0;
        parts.push(match (report.saved(), hotter) {
            (true, _) => format!(
                "saved {:.0} W of GPU power ({:.2} %)",
                -watts.mean,
                -it.mean * 100.0
            ),
            (_, true) => format!(
                "{:.0} W more GPU power ({:.2} %)",
                watts.mean,
                it.mean * 100.0
            ),
            _ => "no difference in power is shown".to_owned(),
        });
    }
    if let Some(value) = &report.net_value {
        parts.push(format!("net value {:+.5} per GPU-hour", value.mean));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use litd_trial::report::About;
    use litd_trial::{Arm, Block, Design, Prices, Times};
    use litd_units::{Millis, Nanos, Watts};

    fn design(same: bool) -> Design {
        Design {
            quads: 6,
            block: Nanos(300_000_000_000),
            settle: Nanos(60_000_000_000),
            iterations: 20,
            seed: 4,
            same,
        }
    }

    fn empty(same: bool) -> Report {
        let about = About {
            job: "train".into(),
            policy: "gpu-red".into(),
            simulated: true,
            gpus: 8,
            prices: Some(Prices {
                energy_per_kwh: 0.14,
                gpu_hour: 2.5,
            }),
            started_unix: 1.8e9,
        };
        Report::new(about, design(same))
    }

    fn blocks(throughput: f64, power: f64) -> Vec<Block> {
        let design = design(false);
        let block = |index: u32| {
            let arm = design.arm(index);
            let on = f64::from(u8::from(arm == Arm::Balanced));
            let noise = 1.0 + f64::from(index * 7919 % 13) * 1e-5;
            Block {
                arm,
                times: Times {
                    mean: Millis(500.0 * noise / (1.0 + on * throughput)),
                    counted: 540,
                    excluded: 3,
                    profiled: 1,
                },
                power: Some(Watts(5600.0 * noise * (1.0 + on * power))),
                node_power: None,
            }
        };
        (0..design.blocks()).map(block).collect()
    }

    #[test]
    fn a_complete_trial_says_what_was_saved() {
        let mut it = empty(false);
        it.complete(&blocks(0.0, -0.04));
        let text = anstream::adapter::strip_str(&report(&it)).to_string();
        assert!(text.starts_with("SIMULATED"), "{text}");
        assert!(
            text.contains("IT PAYS: no difference in speed is shown, saved 224 W"),
            "{text}"
        );
        // An eighth of 224 W at 0.14 per kWh, and 0.0024 % of 2.5: the noise in what was done.
        let words = Vec::from_iter(text.split_whitespace()).join(" ");
        assert!(words.contains("net value +0.00398 per GPU-hour"), "{text}");
        assert!(text.contains("to know throughput within 0.05 %"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_complete_says_neither_saved_nor_faster() {
        let mut it = empty(false);
        it.state = State::Running;
        it.update(&blocks(0.05, -0.04)[..12]);
        it.now = "block 13 of 24 (A), settling, 40 s left".into();
        let trials = Trials {
            report: Some(it.clone()),
            ..Trials::default()
        };
        for text in [report(&it), status(&trials)] {
            assert!(
                !text.contains("saved") && !text.contains("faster"),
                "{text}"
            );
        }
        assert!(status(&trials).contains("block 13 of 24 (A)"));
        it.abort("its job has ended");
        let text = report(&it);
        assert!(text.contains("ABORTED, so nothing is concluded: its job has ended."));
        assert!(
            !text.contains("saved") && !text.contains("faster"),
            "{text}"
        );
    }

    #[test]
    fn an_a_a_trial_says_zero() {
        let mut it = empty(true);
        it.complete(&blocks(0.0, 0.0));
        assert!(report(&it).contains("ZERO"));
        it.complete(&blocks(0.01, 0.0));
        assert!(report(&it).contains("INVALID"));
    }
}
