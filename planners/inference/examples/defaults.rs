//! Fits the shipped constants on the halves of measured tables that are not held out: first jointly over all
//! GPUs, then from there for each GPU alone. Prints them as Rust, and the errors on the held-out halves.
//!
//! `cargo run --release -p litd-inference --example defaults -- GPU=TABLE ...`

#![allow(clippy::unwrap_used, reason = "an example for developers")]

use std::collections::BTreeMap;
use std::fs::File;

use litd_inference::evaluate::evaluate;
use litd_inference::fit::{Half, Measured, Sample, constants, corrections, half};
use litd_inference::gpu::Gpu;
use litd_inference::kernel::{Analytic, Constants, Interpolating, KernelModel};
use litd_inference::table::{Table, read};

fn samples(table: &Table) -> Vec<Sample> {
    let train = half(table, Half::Train);
    train.rows.iter().filter_map(Sample::of).collect()
}

fn main() {
    let mut tables: Vec<(Gpu, String, Table)> = Vec::new();
    for argument in std::env::args().skip(1) {
        let (gpu, path) = argument.split_once('=').unwrap();
        let gpu = Gpu::named(gpu).unwrap();
        let table = read(File::open(path).unwrap(), path, None, &gpu).unwrap();
        tables.push((gpu, path.to_owned(), table));
    }
    let mut of_gpus: BTreeMap<String, (Gpu, Vec<Sample>)> = BTreeMap::new();
    for (gpu, _, table) in &tables {
        let of_gpu = of_gpus.entry(gpu.name.clone());
        let (_, all) = of_gpu.or_insert_with(|| (gpu.clone(), Vec::new()));
        all.extend(samples(table));
    }
    let measured = |name: Option<&str>| -> Vec<Measured> {
        let chosen = of_gpus
            .values()
            .filter(|it| name.is_none_or(|name| it.0.name == name));
        chosen
            .map(|(gpu, samples)| Measured { gpu, samples })
            .collect()
    };
    let joint = constants(&Constants::prior(), &measured(None));
    println!("// joint\n{joint:#?}");
    let mut alone: BTreeMap<&str, Constants> = BTreeMap::new();
    for name in of_gpus.keys() {
        let fitted = constants(&joint, &measured(Some(name)));
        println!("// {name}\n{fitted:#?}");
        alone.insert(name, fitted);
    }
    for (gpu, path, table) in &tables {
        let test = half(table, Half::Test);
        let errors = |model: &dyn KernelModel| {
            let it = evaluate(model, &test).unwrap();
            format!(
                "{:5.1}/{:<5.1}",
                it.latency_mape,
                it.power_mape.unwrap_or(f64::NAN)
            )
        };
        let own = Analytic::new(gpu.clone(), alone[gpu.name.as_str()]);
        let corrected = Interpolating::new(own.clone(), corrections(&own, &samples(table)));
        println!(
            "{:46} shipped {} joint {} own {} corrected {}",
            path.rsplit('/').next().unwrap(),
            errors(&Analytic::uncalibrated(gpu.clone())),
            errors(&Analytic::new(gpu.clone(), joint)),
            errors(&own),
            errors(&corrected),
        );
    }
}
