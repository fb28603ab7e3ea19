//! Both laws under every knob of Table II (the paper's Figures 12 to 15).

use std::fmt::Write;

use litd_policies::{Law, Policy};
use litd_study::cases::{self, Knob};
use litd_study::report;
use litd_study::run::{self, Case, Settings};

use super::figures::{self, Pair};
use super::{Args, Fallible, all, write};

const QUANTITIES: [&str; 3] = ["throughput, %", "power, %", "adjustments"];

/// Both laws at one value of a knob: means over all seeds, of each quantity.
struct Outcome<'a> {
    knob: &'a Knob,
    laws: [[f64; QUANTITIES.len()]; Law::ALL.len()],
}

pub fn study(args: &Args) -> Fallible<String> {
    let knobs = cases::knobs(&Settings::default(), cases::NOISE)?;
    let outcomes = outcomes(args, &knobs)?;
    let (mut cells, mut csv) = (
        Vec::new(),
        String::from("simulated,knob,value,policy,law,throughput,power,adjustments\n"),
    );
    for Outcome { knob, laws } in &outcomes {
        for (law, [faster, power, adjustments]) in Law::ALL.into_iter().zip(laws) {
            writeln!(
                csv,
                "SIMULATED,{},{},{},{law},{},{},{adjustments}",
                knob.name,
                knob.value,
                knob.policy,
                faster / 100.0,
                power / 100.0
            )?;
            cells.push(vec![
                knob.name.to_owned(),
                knob.value.clone(),
                knob.policy.to_string(),
                law.to_string(),
                format!("{faster:+.2}"),
                format!("{power:+.2}"),
                format!("{adjustments:.1}"),
            ]);
        }
    }
    write(&args.out, "knobs.csv", &csv)?;
    for policy in Policy::STEERING {
        draw(args, policy, &outcomes)?;
    }
    let [throughput, power, adjustments] = QUANTITIES;
    let headings = [
        "knob",
        "value",
        "policy",
        "law",
        throughput,
        power,
        adjustments,
    ];
    Ok(format!(
        "\n## Table II's knobs\n\nOn `default`, {} runs each.\n\n{}",
        args.seeds,
        report::table(&headings, &cells)
    ))
}

fn outcomes<'a>(args: &Args, knobs: &'a [Knob]) -> Fallible<Vec<Outcome<'a>>> {
    let mut jobs = Vec::new();
    for knob in knobs {
        for law in Law::ALL {
            jobs.extend((0..args.seeds).map(|seed| (knob, law, seed)));
        }
    }
    let ends = all("knobs", &jobs, |&(knob, law, seed)| {
        let case = Case {
            name: "default".to_owned(),
            scenario: knob.scenario.clone(),
            policy: knob.policy,
            disturbance: None,
        };
        let reference = run::start(&case, &knob.settings)?;
        let run = run::run(&case, law, run::seed(seed), &knob.settings, &reference)?;
        let faster = reference.start.time / run.end.time - 1.0;
        let power = run.end.power / reference.start.power - 1.0;
        Ok([faster * 100.0, power * 100.0, f64::from(run.adjustments)])
    })?;
    let seeds = usize::try_from(args.seeds)?;
    let mean = |runs: &[[f64; 3]], of: usize| {
        runs.iter().map(|run| run[of]).sum::<f64>() / runs.len() as f64
    };
    let means: Vec<[f64; 3]> = ends
        .chunks(seeds)
        .map(|runs| [0, 1, 2].map(|of| mean(runs, of)))
        .collect();
    let laws = means.chunks_exact(Law::ALL.len());
    let outcome = |(knob, laws): (&'a Knob, &[[f64; 3]])| Outcome {
        knob,
        laws: [laws[0], laws[1]],
    };
    Ok(knobs.iter().zip(laws).map(outcome).collect())
}

fn draw(args: &Args, policy: Policy, outcomes: &[Outcome]) -> Fallible<()> {
    let of_policy = outcomes.iter().filter(|it| it.knob.policy == policy);
    let pair = |Outcome { knob, laws }: &Outcome| Pair {
        name: format!("{} {}", knob.name, knob.value),
        values: (0..QUANTITIES.len())
            .map(|of| laws.map(|law| law[of]))
            .collect(),
    };
    let pairs: Vec<Pair> = of_policy.map(pair).collect();
    let title = format!("{policy} on default, mean of {} runs", args.seeds);
    let svg = figures::bars(&title, &QUANTITIES, &pairs)?;
    write(&args.out, &format!("knobs-{policy}.svg"), &svg)
}
