//! Tables of a study: Markdown for people, CSV for programs.

use std::fmt::Write;

use litd_policies::{Law, Policy};

use crate::day::Hour;
use crate::harm::{self, Verdict};
use crate::next::Choice;
use crate::rest::{self, Rest};
use crate::run::{Finished, Reference};

/// All runs of one law on one case.
#[derive(Debug)]
pub struct Row {
    /// The case's name.
    pub name: String,
    /// Its policy.
    pub policy: Policy,
    /// How many GPUs it has.
    pub gpus: usize,
    /// The law.
    pub law: Law,
    /// One run per seed.
    pub runs: Vec<Finished>,
    /// What there was to be had.
    pub reference: Reference,
}

/// What numbers say of some values.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn worst(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

impl Row {
    fn each(&self, of: impl Fn(&Finished) -> f64) -> Vec<f64> {
        self.runs.iter().map(of).collect()
    }

    /// By which part the iteration is longer than at the optimum.
    #[must_use]
    pub fn behind(&self) -> Vec<f64> {
        let best = self.reference.best.outcome.time;
        self.each(|run| run.end.time / best - 1.0)
    }

    /// By which part power is more than at the optimum.
    #[must_use]
    pub fn above(&self) -> Vec<f64> {
        let best = self.reference.best.outcome.power;
        self.each(|run| run.end.power / best - 1.0)
    }

    /// The slowest caps on the way, against the start.
    #[must_use]
    pub fn slowest(&self) -> f64 {
        worst(&self.each(|run| run.slowest))
    }

    /// Adjustments until within 1 % for good: median and worst of the runs that came to it, and
    /// how many did.
    fn near(&self, of: impl Fn(&Finished) -> Option<u32>) -> (f64, f64, usize) {
        let known: Vec<f64> = self.runs.iter().filter_map(of).map(f64::from).collect();
        (median(&known), worst(&known), known.len())
    }

    fn cells(&self) -> Vec<String> {
        let start = &self.reference.start;
        let best = &self.reference.best;
        let percent = |value: f64| format!("{:+.2}", value * 100.0);
        let faster = self.each(|run| start.time / run.end.time - 1.0);
        let less = self.each(|run| run.end.power / start.power - 1.0);
        let value = self.each(|run| run.net_value(start, self.gpus));
        let most = Finished {
            end: best.outcome,
            ..self.runs[0].clone()
        };
        let adjustments = self.near(|run| run.near_after);
        let iterations = self.near(|run| run.near_iterations);
        let all = self.runs.len();
        vec![
            self.name.clone(),
            self.policy.to_string(),
            self.law.to_string(),
            percent(median(&faster)),
            percent(start.time / best.outcome.time - 1.0),
            percent(median(&self.behind())),
            percent(worst(&self.behind())),
            percent(median(&less)),
            percent(best.outcome.power / start.power - 1.0),
            percent(median(&self.above())),
            percent(worst(&self.above())),
            format!(
                "{:.2} of {:.2}",
                median(&value),
                most.net_value(start, self.gpus)
            ),
            match adjustments.2 {
                0 => format!("never ({all} runs)"),
                came => format!(
                    "{:.0} / {:.0} ({came} of {all})",
                    adjustments.0, adjustments.1
                ),
            },
            match iterations.2 {
                0 => "-".to_owned(),
                _ => format!("{:.0} / {:.0}", iterations.0, iterations.1),
            },
            format!(
                "{:.1}",
                median(&self.each(|run| f64::from(run.adjustments)))
            ),
            format!("{:.0}", worst(&self.each(|run| run.overshoot.0))),
            format!(
                "{:.1}",
                mean(&self.each(|run| f64::from(run.after_convergence)))
            ),
            percent(self.slowest()),
        ]
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The headings of [`markdown`] and [`csv`].
const HEADINGS: [&str; 18] = [
    "node",
    "policy",
    "law",
    "throughput, %",
    "optimum, %",
    "longer than optimum, %, median",
    "worst",
    "power, %",
    "optimum, %",
    "above optimum, %, median",
    "worst",
    "net value, per node hour",
    "adjustments to within 1 %, median / worst",
    "iterations to it",
    "adjustments in all",
    "overshoot, W, worst",
    "changes after convergence, mean",
    "slowest on the way, %",
];

/// A table for people.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    table(&HEADINGS, &rows.iter().map(Row::cells).collect::<Vec<_>>())
}

/// A Markdown table of any cells.
#[must_use]
pub fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(headings.to_vec());
    text += &line(vec!["---"; headings.len()]);
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

/// One line per run, for programs.
#[must_use]
pub fn csv(rows: &[Row]) -> String {
    let mut text = String::from(
        "simulated,node,policy,law,run,start_ms,start_w,end_ms,end_w,optimum_ms,optimum_w,\
         adjustments,near_adjustments,near_iterations,overshoot_w,after_convergence,slowest\n",
    );
    for row in rows {
        let (start, best) = (&row.reference.start, &row.reference.best.outcome);
        for (number, run) in row.runs.iter().enumerate() {
            let maybe = |value: Option<u32>| value.map_or(String::new(), |v| v.to_string());
            // Writing to a string doesn't fail.
            let _ = writeln!(
                text,
                "SIMULATED,{},{},{},{number},{},{},{},{},{},{},{},{},{},{},{},{}",
                row.name,
                row.policy,
                row.law,
                start.time.0,
                start.power.0,
                run.end.time.0,
                run.end.power.0,
                best.time.0,
                best.power.0,
                run.adjustments,
                maybe(run.near_after),
                maybe(run.near_iterations),
                run.overshoot.0,
                run.after_convergence,
                run.slowest,
            );
        }
    }
    text
}

/// What became of random nodes: the breaches, each, and how many there were.
#[must_use]
pub fn harm(law: Law, verdicts: &[Verdict]) -> String {
    let breaches: Vec<&Verdict> = verdicts.iter().filter(|v| v.is_breach()).collect();
    let mut text = format!(
        "{law} law: {} of {} random nodes worse off (an iteration longer by more than {} %, or \
         energy times time more by {} %).\n",
        breaches.len(),
        verdicts.len(),
        harm::SLOWER * 100.0,
        harm::COSTLIER * 100.0
    );
    if breaches.is_empty() {
        return text;
    }
    let cells = breaches.iter().map(|verdict| {
        vec![
            verdict.node.number.to_string(),
            verdict.node.policy.to_string(),
            format!("{:?}", verdict.node.flaw),
            format!("{:+.2}", verdict.slower * 100.0),
            format!("{:+.2}", verdict.costlier * 100.0),
            verdict.why.clone(),
        ]
    });
    let headings = [
        "node",
        "policy",
        "flaw",
        "longer, %",
        "energy x time, %",
        "last word",
    ];
    text += "\n";
    text += &table(&headings, &cells.collect::<Vec<_>>());
    text
}

/// How often each law touches a level node.
#[must_use]
pub fn at_rest(rests: &[Rest]) -> String {
    let mut cells = Vec::new();
    let nodes = rest::Node::ALL.into_iter();
    for (node, policy) in nodes.flat_map(|node| Policy::STEERING.map(|policy| (node, policy))) {
        for law in Law::ALL {
            let of = |rest: &&Rest| (rest.node, rest.policy, rest.law) == (node, policy, law);
            let rates: Vec<f64> = rests.iter().filter(of).map(Rest::rate).collect();
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            let node = match node {
                rest::Node::Alike => "GPUs all alike",
                rest::Node::Levelled => "`default`, levelled",
            };
            cells.push(vec![
                node.to_owned(),
                policy.to_string(),
                law.to_string(),
                rates.len().to_string(),
                format!("{mean:.2}"),
                format!("{:.2}", worst(&rates)),
            ]);
        }
    }
    let headings = [
        "node",
        "policy",
        "law",
        "runs",
        "changes per 1,000 iterations, mean",
        "worst",
    ];
    table(&headings, &cells)
}

/// How each law follows a budget, hour by hour.
#[must_use]
pub fn day(hours: &[Hour]) -> String {
    let mut cells = Vec::new();
    for at in 0..crate::day::BUDGETS.len() {
        for law in Law::ALL {
            let of = |hour: &&Hour| hour.at == at && hour.law == law;
            let hours: Vec<&Hour> = hours.iter().filter(of).collect();
            let behind: Vec<f64> = hours.iter().map(|hour| hour.behind).collect();
            let adjustments: Vec<f64> = hours.iter().map(|h| f64::from(h.adjustments)).collect();
            let over = hours.iter().map(|hour| hour.over.0).fold(0.0, f64::max);
            cells.push(vec![
                format!("{:.0}", crate::day::BUDGETS[at]),
                law.to_string(),
                hours.len().to_string(),
                percent(median(&behind)),
                percent(worst(&behind)),
                format!("{:.0}", median(&adjustments)),
                format!("{over:.0}"),
            ]);
        }
    }
    let headings = [
        "budget, W per GPU",
        "law",
        "runs",
        "longer than optimum, %, median",
        "worst",
        "changes of caps, median",
        "beyond the budget, W, worst",
    ];
    table(&headings, &cells)
}

/// What choices bring on top of a level node.
#[must_use]
pub fn next(choices: &[Choice]) -> String {
    let cells = choices.iter().map(|choice| {
        vec![
            choice.node.clone(),
            choice.what.clone(),
            percent(-choice.longer),
            percent(choice.power),
            format!("{:+.3}", choice.value),
        ]
    });
    let headings = [
        "node",
        "on top of levelling",
        "throughput, %",
        "power, %",
        "net value, per node hour",
    ];
    table(&headings, &cells.collect::<Vec<_>>())
}

fn percent(share: f64) -> String {
    format!("{:+.2}", share * 100.0)
}
