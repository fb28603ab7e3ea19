//! What the paper's Tables 3 to 6 say beyond their numbers, and whether ours say it, too.

use super::workloads::{LARGE, SCALES};
use super::{Fallible, Lab};
use crate::reproduce::Trend;

fn listed(values: &[f64]) -> String {
    let shown: Vec<String> = values.iter().map(|it| format!("{it:.1}")).collect();
    shown.join(", ")
}

/// The mean savings on A100 and on A40.
fn of_both_gpus(means: &[f64]) -> String {
    let named = ["A100", "A40"].iter().zip(means);
    let shown: Vec<String> = named
        .map(|(gpu, mean)| format!("{gpu} {mean:.1} %"))
        .collect();
    format!("mean: {}", shown.join(", "))
}

pub(super) fn all(lab: &Lab) -> Fallible<Vec<Trend>> {
    let mut trends = testbed(lab)?;
    trends.extend(stragglers(lab)?);
    trends.extend(scales(lab));
    Ok(trends)
}

fn testbed(lab: &Lab) -> Fallible<Vec<Trend>> {
    let mut trends = Vec::new();
    let (mut means, mut slowest) = (Vec::new(), 0.0_f64);
    for (table, gpu, workloads) in [("3a", "A100 PCIe", &lab.four), ("3b", "A40", &lab.eight)] {
        let (mut perseus, mut envpipe) = (Vec::new(), Vec::new());
        for (_, emulated) in workloads {
            let own = emulated.saved(&emulated.perseus(1.0), 1.0);
            slowest = slowest.max(own.slowdown);
            perseus.push(own.percent);
            envpipe.push(
                emulated
                    .saved(&emulated.baselines()?.envpipe(None), 1.0)
                    .percent,
            );
        }
        let better = perseus
            .iter()
            .zip(&envpipe)
            .filter(|(own, other)| own > other)
            .count();
        trends.push(Trend {
            table,
            what: format!("{gpu}: Perseus saves more than EnvPipe in most workloads"),
            is_ours: 2 * better > perseus.len(),
            numbers: format!(
                "Perseus {} %, EnvPipe {} %",
                listed(&perseus),
                listed(&envpipe)
            ),
        });
        means.push(perseus.iter().sum::<f64>() / perseus.len() as f64);
    }
    trends.push(Trend {
        table: "3",
        what: "A40 saves more than A100".into(),
        is_ours: means.last() > means.first(),
        numbers: of_both_gpus(&means),
    });
    trends.push(Trend {
        table: "3",
        what: "Perseus slows down by no more than 2.3 %".into(),
        is_ours: slowest <= 2.3,
        numbers: format!("{slowest:.2} % at most, because planned times are whole milliseconds"),
    });
    Ok(trends)
}

fn stragglers(lab: &Lab) -> Fallible<Vec<Trend>> {
    let (mut turn, mut wane, mut above) = (0, 0, 0);
    let all: Vec<_> = lab.four.iter().chain(&lab.eight).collect();
    let mut peaks = Vec::new();
    for (_, emulated) in &all {
        let degrees = (100..=150).map(|it| f64::from(it) / 100.0);
        let saved: Vec<(f64, f64)> = degrees
            .map(|it| (it, emulated.saved(&emulated.perseus(it), it).percent))
            .collect();
        let peak = saved.iter().fold(
            (1.0, 0.0),
            |best, it| if it.1 > best.1 { *it } else { best },
        );
        turn += usize::from(peak.0 > 1.0 && peak.0 < 1.5);
        wane += usize::from(saved.last().is_some_and(|it| it.1 < peak.1));
        peaks.push(peak.0);
        let envpipe = emulated.baselines()?.envpipe(None);
        above += usize::from(
            emulated.saved(&envpipe, 1.2).percent
                < emulated.saved(&emulated.perseus(1.2), 1.2).percent,
        );
    }
    let count = all.len();
    let shown = |peaks: &[f64]| {
        let all: Vec<String> = peaks.iter().map(|it| format!("{it:.2}")).collect();
        all.join(", ")
    };
    Ok(vec![
        Trend {
            table: "4",
            what: "savings rise with T'/T, are greatest below 1.5, and then fall".into(),
            is_ours: turn == count && wane == count,
            numbers: format!(
                "greatest at T'/T {} (4a), {} (4b)",
                shown(&peaks[..lab.four.len()]),
                shown(&peaks[lab.four.len()..])
            ),
        },
        Trend {
            table: "4",
            what: "at T'/T 1.2 EnvPipe saves less than Perseus in every workload".into(),
            is_ours: above == count,
            numbers: format!("in {above} of {count} workloads"),
        },
    ])
}

fn scales(lab: &Lab) -> Vec<Trend> {
    let mut trends = Vec::new();
    for (models, gpu) in lab.large.iter().zip(["A100", "A40"]) {
        let saved: Vec<Vec<f64>> = models
            .iter()
            .map(|scales| {
                scales
                    .iter()
                    .map(|it| it.saved(&it.perseus(1.0), 1.0).percent)
                    .collect()
            })
            .collect();
        for (own, model) in saved.iter().zip(LARGE) {
            let falls = own.windows(2).all(|pair| pair[0] < pair[1]);
            trends.push(Trend {
                table: "6",
                what: format!(
                    "{}, {gpu}: savings fall with more microbatches",
                    model[0].name
                ),
                is_ours: falls,
                numbers: format!(
                    "{} % for {} microbatches",
                    listed(own),
                    SCALES.map(|it| it.2.to_string()).join(", ")
                ),
            });
        }
        if let [gpt, bloom] = &saved[..] {
            trends.push(Trend {
                table: "6",
                what: format!("{gpu}: GPT-3 saves more than Bloom, which has the larger imbalance"),
                is_ours: gpt.iter().zip(bloom).all(|(gpt, bloom)| gpt > bloom),
                numbers: format!("GPT-3 {} %, Bloom {} %", listed(gpt), listed(bloom)),
            });
        }
    }
    if let [a100, a40] = &lab.large[..] {
        let mean = |gpu: &Vec<Vec<super::Emulated>>| {
            let all: Vec<f64> = gpu
                .iter()
                .flatten()
                .map(|it| it.saved(&it.perseus(1.0), 1.0).percent)
                .collect();
            all.iter().sum::<f64>() / all.len() as f64
        };
        let means = [mean(a100), mean(a40)];
        trends.push(Trend {
            table: "6",
            what: "A100 saves more than A40".into(),
            is_ours: means[0] > means[1],
            numbers: of_both_gpus(&means),
        });
    }
    trends
}
