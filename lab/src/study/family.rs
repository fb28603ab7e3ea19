//! `litlab study --part family`: the laws on plants that nobody wrote for them.

use std::fmt::Write;
use std::io::IsTerminal;

use litd_cli::output;
use litd_plants::Draw;
use litd_policies::{Law, Policy};
use litd_study::judge::nodes::{Field, Named, Verdicts};
use litd_study::judge::summary::{Spread, Summary, summaries};
use litd_study::judge::{Hand, Row, Settings, WINDOW, explain, trial};
use litd_study::steered::PowerBit;
use litd_study::{StudyError, parallel};
use litd_units::{Prices, Watts};
use serde::Serialize;

use super::{Args, Fallible, bar, write};

/// Draws without and with --full.
const DRAWS: u64 = 240;
const FULL: u64 = 10_000;

/// Draws of one seed and of the next don't meet.
const APART: u64 = 1_000_000;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Draws of the family [default: 240; with --full 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=APART))]
    draws: Option<u64>,
    /// Draws have the numbers SEED x 1,000,000 and up
    #[arg(long, value_name = "SEED", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(..1_000_000_000))]
    seed: u64,
    /// Only this draw, counted from 0, with all changes of caps and the reason if it ends worse off
    #[arg(long, value_name = "K", conflicts_with_all = ["draws", "full"],
          value_parser = clap::value_parser!(u64).range(..APART))]
    draw: Option<u64>,
    /// 10,000 draws
    #[arg(long)]
    full: bool,
    /// Only this law, paper or model; may be given more than once [default: both]
    #[arg(long, value_name = "LAW")]
    law: Vec<Law>,
    /// Only this policy, gpu-red, gpu-realloc or cpu-slosh; may be given more than once [default: all]
    #[arg(long, value_name = "POLICY", value_parser = steering)]
    policy: Vec<Policy>,
    /// What a kilowatt-hour costs, for net values, in any currency
    #[arg(long, value_name = "PRICE", default_value_t = 0.14, value_parser = price)]
    energy_per_kwh: f64,
    /// What an hour of one GPU costs without its power, in the same currency
    #[arg(long, value_name = "PRICE", default_value_t = 2.5, value_parser = price)]
    gpu_hour: f64,
    /// Give the prices to the law, as `[prices]` in the configuration does
    #[arg(long)]
    tell_prices: bool,
    /// What sets the driver's power-limit bit: "cause", only the power limit (default); "nvml", also
    /// a current limit, as NVML does; "doubted", as nvml, but the daemon ignores the bit while power
    /// is far below the cap
    #[arg(
        long,
        value_name = "BIT",
        default_value = "cause",
        hide_default_value = true
    )]
    power_bit: PowerBit,
}

fn steering(text: &str) -> Result<Policy, String> {
    let named = |it: &Policy| it.name() == text;
    let found = Policy::STEERING.into_iter().find(named);
    let names = || Policy::STEERING.map(Policy::name).join(", ");
    found.ok_or_else(|| format!("is none of {}", names()))
}

fn price(text: &str) -> Result<f64, String> {
    let price: f64 = text.parse().map_err(|_| "is no number".to_owned())?;
    match price.is_finite() && price >= 0.0 {
        true => Ok(price),
        false => Err("is no price: 0 or more".to_owned()),
    }
}

/// What a study of the family comes to.
#[derive(Serialize)]
pub struct Report {
    simulated: bool,
    seed: u64,
    draws: u64,
    iterations: usize,
    held: usize,
    prices: Prices,
    law_knows_prices: bool,
    /// One per policy and law over all draws.
    summaries: Vec<Summary>,
    /// Rows of calibrated nodes and corners; of the one draw, where one was asked for.
    nodes: Vec<Line>,
    /// Why the one draw ends as it does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Why>,
}

/// A row with its node, as CSV and JSON have it. Parts, not per cent; value per node hour.
#[derive(Serialize)]
struct Line {
    node: String,
    what: String,
    start: f64,
    policy: &'static str,
    law: &'static str,
    observed: bool,
    gain: f64,
    regret: f64,
    longer: f64,
    longer_low: f64,
    longer_high: f64,
    slowest: f64,
    energy: f64,
    energy_time: f64,
    energy_time_run: f64,
    value: f64,
    value_low: f64,
    value_high: f64,
    adjustments: u32,
    worse_off: bool,
    trial: &'static str,
    trial_hours: f64,
    caps_start: Vec<Watts>,
    caps_end: Vec<Watts>,
    caps_optimum: Vec<Watts>,
    why: String,
    /// After how many iterations caps changed, and why.
    changes: Vec<(usize, String)>,
}

#[derive(Serialize)]
struct Why {
    policy: &'static str,
    law: &'static str,
    badness: f64,
    hinges_on: Vec<Hinge>,
}

#[derive(Serialize)]
struct Hinge {
    dimension: &'static str,
    value: f64,
    badness_without: f64,
}

impl Line {
    fn of(node: &Verdicts, row: &Row) -> Self {
        let [start, end, best] = row.caps.clone();
        Self {
            node: node.name.clone(),
            what: node.what.clone(),
            start: node.start,
            policy: row.policy.name(),
            law: row.hand,
            observed: row.observed,
            gain: row.gain,
            regret: row.regret,
            longer: row.longer.mean,
            longer_low: row.longer.low,
            longer_high: row.longer.high,
            slowest: row.slowest,
            energy: row.energy,
            energy_time: row.energy_time,
            energy_time_run: row.energy_time_run,
            value: row.value.mean,
            value_low: row.value.low,
            value_high: row.value.high,
            adjustments: row.adjustments,
            worse_off: row.is_worse_off(),
            trial: trial::name(row.trial),
            trial_hours: row.hours,
            caps_start: start,
            caps_end: end,
            caps_optimum: best,
            why: row.why.clone(),
            changes: row.changes.clone(),
        }
    }

    const HEAD: &'static str = "SIMULATED,node,what,start,policy,law,observed,gain,regret,longer,\
        longer_low,longer_high,slowest,energy,energy_time,energy_time_run,value,value_low,\
        value_high,adjustments,worse_off,trial,trial_hours,caps_start,caps_end,caps_optimum,why";

    fn csv(&self) -> String {
        let caps = |caps: &[Watts]| -> String {
            let each: Vec<String> = caps.iter().map(|cap| format!("{:.1}", cap.0)).collect();
            each.join(" ")
        };
        let numbers = [
            self.gain,
            self.regret,
            self.longer,
            self.longer_low,
            self.longer_high,
            self.slowest,
            self.energy,
            self.energy_time,
            self.energy_time_run,
            self.value,
            self.value_low,
            self.value_high,
        ];
        let numbers: Vec<String> = numbers.iter().map(|it| format!("{it:.7}")).collect();
        format!(
            "SIMULATED,{},{},{},{},{},{},{},{},{},{},{},{},{},{},\"{}\"\n",
            self.node,
            self.what,
            self.start,
            self.policy,
            self.law,
            self.observed,
            numbers.join(","),
            self.adjustments,
            self.worse_off,
            self.trial,
            self.trial_hours,
            caps(&self.caps_start),
            caps(&self.caps_end),
            caps(&self.caps_optimum),
            self.why.replace('"', "'")
        )
    }
}

fn lines(nodes: &[Verdicts]) -> impl Iterator<Item = Line> {
    nodes
        .iter()
        .flat_map(|node| node.rows.iter().map(move |row| Line::of(node, row)))
}

impl Options {
    fn settings(&self) -> Settings {
        let prices = Prices {
            energy_per_kwh: self.energy_per_kwh,
            gpu_hour: self.gpu_hour,
        };
        let mut settings = Settings {
            prices,
            bit: self.power_bit,
            ..Settings::default()
        };
        settings.config.model.prices = self.tell_prices.then_some(settings.prices);
        settings
    }

    fn field(&self) -> Field<'static> {
        let laws = match self.law.as_slice() {
            [] => Law::ALL.to_vec(),
            some => some.to_vec(),
        };
        let mut hands: Vec<Hand> = laws.into_iter().map(Hand::Law).collect();
        hands.push(Hand::Best);
        Field {
            hands,
            policies: match self.policy.as_slice() {
                [] => Policy::STEERING.to_vec(),
                some => some.to_vec(),
            },
        }
    }

    /// The one draw that is asked for, if any.
    pub fn draw(&self) -> Option<u64> {
        self.draw
    }

    fn draws(&self) -> u64 {
        self.draws.unwrap_or(if self.full { FULL } else { DRAWS })
    }
}

/// Judges nodes on all cores, and says how far it is.
fn judge(nodes: &[Named], field: &Field, settings: &Settings) -> Fallible<Vec<Verdicts>> {
    let bar = bar("family", nodes.len());
    let told = !std::io::stderr().is_terminal();
    let tenth = nodes.len().div_ceil(10).max(24);
    let work = |node: &Named| node.judge(field, settings);
    let done = |done: usize| {
        bar.set_position(done as u64);
        if told && done.is_multiple_of(tenth) {
            output::note("litlab", &format!("{done} of {} nodes judged", nodes.len()));
        }
    };
    let verdicts: Result<Vec<_>, StudyError> =
        parallel::map(nodes, work, done).into_iter().collect();
    bar.finish_and_clear();
    Ok(verdicts?)
}

/// The whole study.
pub fn study(args: &Args) -> Fallible<(String, Report)> {
    let options = &args.family;
    let (settings, field) = (options.settings(), options.field());
    let from = options.seed * APART;
    let mut report = Report {
        simulated: true,
        seed: options.seed,
        draws: options.draws(),
        iterations: settings.iterations,
        held: settings.held,
        prices: settings.prices,
        law_knows_prices: options.tell_prices,
        summaries: Vec::new(),
        nodes: Vec::new(),
        causes: Vec::new(),
    };
    if let Some(draw) = options.draw {
        report.draws = 1;
        let verdicts = judge(&[Named::Draw(from + draw)], &field, &settings)?;
        report.nodes = lines(&verdicts).collect();
        report.causes = causes(&verdicts, from + draw, &field, &settings)?;
        return Ok((one(&report, from + draw), report));
    }
    let draws: Vec<Named> = (from..from + options.draws()).map(Named::Draw).collect();
    let drawn = judge(&draws, &field, &settings)?;
    let wanted = |it: &Named| args.node.as_ref().is_none_or(|node| it.name() == node);
    let named: Vec<Named> = Named::with_a_name().into_iter().filter(wanted).collect();
    let named = judge(&named, &field, &settings)?;
    let mut csv = format!("{}\n", Line::HEAD);
    csv.extend(lines(&named).chain(lines(&drawn)).map(|line| line.csv()));
    write(&args.out, "family.csv", &csv)?;
    report.summaries = summaries(&drawn);
    report.nodes = lines(&named).collect();
    let mut text = format!(
        "\n## The family: {} draws from {from} on\n\n{} iterations each, then {} or more under the \
         caps held at the end. Per cent.\n\n",
        drawn.len(),
        settings.iterations,
        settings.held
    );
    text += &tables(&report.summaries);
    text += &starts(&drawn);
    let calibrated: Vec<&Verdicts> = named
        .iter()
        .filter(|it| it.node.is_paper_or_scenario())
        .collect();
    text += &format!(
        "\n### The paper's node and the simulator's\n\n{}",
        nodes(&calibrated)
    );
    let corners: Vec<&Verdicts> = named
        .iter()
        .filter(|it| !it.node.is_paper_or_scenario())
        .collect();
    text += &format!("\n### Corners of the family\n\n{}", nodes(&corners));
    text += &worst(&report.summaries);
    Ok((text, report))
}

/// A part in per cent: as many digits as a column of six has room for.
fn percent(part: f64) -> String {
    let it = part * 100.0;
    match it.abs() {
        size if size < 0.005 => "0.00".to_owned(),
        size if size >= 99.95 => format!("{it:+.0}"),
        size if size >= 9.995 => format!("{it:+.1}"),
        _ => format!("{it:+.2}"),
    }
}

fn three(spread: &Spread) -> String {
    format!(
        "{:>6}{:>6}{:>6}",
        percent(spread.median),
        percent(spread.p95),
        percent(spread.worst)
    )
}

fn whole(spread: &Spread) -> String {
    format!(
        "{:>5.0}{:>5.0}{:>5.0}",
        spread.median, spread.p95, spread.worst
    )
}

fn share(part: usize, of: usize) -> String {
    format!("{:.1}", part as f64 * 100.0 / of.max(1) as f64)
}

/// Three tables that fit a terminal of 80 columns.
fn tables(summaries: &[Summary]) -> String {
    let mut text = String::new();
    let name = |it: &Summary| format!("{:<12}{:<8}", it.policy, it.law);
    let mut table = |head: &[&str], line: &dyn Fn(&Summary) -> String| {
        text += "```text\nSIMULATED\n";
        for line in head {
            let _ = writeln!(text, "{line}");
        }
        for it in summaries {
            let _ = writeln!(text, "{}{}", name(it), line(it));
        }
        text += "```\n";
    };
    table(
        &[
            "                          regret       longer, at end    longer, on the way",
            "policy      law        med   p95 worst   med   p95 worst   med   p95 worst",
        ],
        &|it| three(&it.regret) + &three(&it.longer) + &three(&it.slowest),
    );
    table(
        &[
            "                       energy x time      worse off, % of nodes   adjustments",
            "policy      law        med   p95 worst   time  ExT  either   med  p95 worst",
        ],
        &|it| {
            format!(
                "{} {:>6}{:>5}{:>8} {}",
                three(&it.energy_time),
                share(it.slower, it.nodes),
                share(it.costlier, it.nodes),
                share(it.worse_off, it.nodes),
                whole(&it.adjustments)
            )
        },
    );
    table(
        &[
            "                    net value, per node hour     trials, % of nodes",
            "policy      law      mean   95 % interval  pays zero  und.   not  harm  hours",
        ],
        &|it| {
            let trial = |names: &[&str]| {
                let of = |name: &&str| it.trials.get(name).copied().unwrap_or(0);
                share(names.iter().map(of).sum(), it.nodes)
            };
            format!(
                "{:>+6.3} {:>+7.3}{:>+7.3} {:>5}{:>5}{:>6}{:>6}{:>6}{:>7.1}",
                it.value.mean,
                it.value.low,
                it.value.high,
                trial(&["pays"]),
                trial(&["zero"]),
                trial(&["undecided", "invalid", "open"]),
                trial(&["does-not-pay"]),
                trial(&["harm"]),
                it.trial_hours.median
            )
        },
    );
    if let Some(it) = summaries.first() {
        let _ = writeln!(
            text,
            "\nRegret: time (gpu-red: power) against the optimum's, without noise. On the way: the slowest {WINDOW}\n\
             iterations. ExT: energy times time, at the end or over the run. {} nodes.",
            it.nodes
        );
    }
    text
}

/// What nodes gain whose caps were found at the same part of TDP: most owners know theirs.
fn starts(verdicts: &[Verdicts]) -> String {
    let mut text = "\nBy the caps found: net value per node hour, mean and median, and nodes whose caps were moved.\n\n\
                    ```text\nSIMULATED              nodes policy      law        mean median moved\n"
        .to_owned();
    let mut starts: Vec<f64> = verdicts.iter().map(|it| it.start).collect();
    starts.sort_by(f64::total_cmp);
    starts.dedup();
    for start in starts.into_iter().rev() {
        let nodes: Vec<&Verdicts> = verdicts.iter().filter(|it| it.start == start).collect();
        let Some(first) = nodes.first() else { continue };
        for (at, row) in first.rows.iter().enumerate() {
            let rows = || nodes.iter().filter_map(|it| it.rows.get(at));
            let values: Vec<f64> = rows().map(|row| row.value.mean).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let median = Spread::of(values).median;
            let moved = rows().filter(|row| row.adjustments > 0).count();
            let percent = format!("{:.0} % of TDP", start * 100.0);
            let _ = writeln!(
                text,
                "{percent:<22} {:>5} {:<11} {:<8}{mean:>+7.3}{median:>+7.3}{moved:>6}",
                nodes.len(),
                row.policy.name(),
                row.hand,
            );
        }
    }
    text + "```\n"
}

/// A line for each node, policy and law.
fn nodes(verdicts: &[&Verdicts]) -> String {
    let mut text = "```text\nSIMULATED              policy      law      gain regret longer  ExT  value adj. trial\n"
        .to_owned();
    for node in verdicts {
        for row in &node.rows {
            let name = &node.name[..node.name.len().min(22)];
            let _ = writeln!(
                text,
                "{name:<22} {:<11} {:<7}{:>6} {:>6} {:>6}{:>6}{:>+6.2}{:>4} {}",
                row.policy.name(),
                row.hand,
                percent(row.gain),
                percent(row.regret),
                percent(row.longer.mean),
                percent(row.energy_time),
                row.value.mean,
                row.adjustments,
                trial::name(row.trial)
            );
        }
    }
    text + "```\n"
}

/// The draws that ended worst.
fn worst(summaries: &[Summary]) -> String {
    let mut text = "\n### The worst draws\n\n```text\nSIMULATED\n".to_owned();
    for it in summaries {
        for node in &it.worst {
            let _ = writeln!(
                text,
                "{:<12}{:<8} --draw {:<7} longer {} %, energy x time {} %\n{:>20} {}",
                it.policy,
                it.law,
                node.node.parse::<u64>().unwrap_or(0) % APART,
                percent(node.longer),
                percent(node.energy_time),
                "",
                node.what
            );
        }
    }
    text + "```\n"
}

/// What a draw's ends hinge on, for each law that left it worse off.
fn causes(
    verdicts: &[Verdicts],
    seed: u64,
    field: &Field,
    settings: &Settings,
) -> Fallible<Vec<Why>> {
    let mut whys = Vec::new();
    let rows = verdicts.iter().flat_map(|node| &node.rows);
    for (row, &hand) in rows.zip(field.hands.iter().cycle()) {
        if !row.is_worse_off() {
            continue;
        }
        let (badness, causes) = explain::explain(&Draw::new(seed), row.policy, hand, settings)?;
        let hinge = |cause: &explain::Cause| Hinge {
            dimension: cause.dimension.spec().name,
            value: cause.value,
            badness_without: cause.without,
        };
        whys.push(Why {
            policy: row.policy.name(),
            law: row.hand,
            badness,
            hinges_on: causes.iter().map(hinge).collect(),
        });
    }
    Ok(whys)
}

/// One draw in a few lines.
fn one(report: &Report, seed: u64) -> String {
    let mut text = String::new();
    if let Some(it) = report.nodes.first() {
        let _ = writeln!(
            text,
            "\nSIMULATED draw {seed}: {}, caps at {:.0} % of the highest\n\
             (litlab plants show --draw {seed} has its dimensions)\n",
            it.what,
            it.start * 100.0
        );
    }
    for it in &report.nodes {
        let _ = writeln!(
            text,
            "{} {}: gain {} %, regret {} %, longer {} % ({} to {}), slowest\n  {} %, energy x time \
             {} %, value {:+.3} ({:+.3} to {:+.3}), {} changes, trial: {} in {:.1} h{}",
            it.policy,
            it.law,
            percent(it.gain),
            percent(it.regret),
            percent(it.longer),
            percent(it.longer_low),
            percent(it.longer_high),
            percent(it.slowest),
            percent(it.energy_time.max(it.energy_time_run)),
            it.value,
            it.value_low,
            it.value_high,
            it.adjustments,
            it.trial,
            it.trial_hours,
            if it.worse_off { ": WORSE OFF" } else { "" }
        );
        let caps = |caps: &[Watts]| -> String {
            let each: Vec<String> = caps.iter().map(|cap| format!("{:.0}", cap.0)).collect();
            each.join(" ")
        };
        let _ = writeln!(text, "  caps {} W; {}", caps(&it.caps_end), it.why);
        for (after, why) in &it.changes {
            let _ = writeln!(text, "  after {after} iterations: {why}");
        }
    }
    for it in &report.causes {
        let hinge = |it: &Hinge| {
            format!(
                "{} = {:.4} ({:.1} without)",
                it.dimension, it.value, it.badness_without
            )
        };
        let hinges: Vec<String> = it.hinges_on.iter().take(6).map(hinge).collect();
        let _ = writeln!(
            text,
            "\n{} {} is {:.1} times what is called worse off. With one dimension in the\nmiddle of \
             its range instead: {}",
            it.policy,
            it.law,
            it.badness,
            match hinges.is_empty() {
                true => "about the same, whichever".to_owned(),
                false => hinges.join(", "),
            }
        );
    }
    text
}
