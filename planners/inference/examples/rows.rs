//! Prints every row of a table with its prediction: GPU TABLE [FITTED.json], as CSV on standard output.
#![allow(clippy::unwrap_used, reason = "an example for developers")]
use litd_inference::evaluate::predict;
use litd_inference::fit::{Fitted, Half, Measured, Sample, constants, corrections, half};
use litd_inference::gpu::Gpu;
use litd_inference::kernel::{Analytic, Constants, Interpolating, KernelModel};
use litd_inference::table::read;
use std::fs::File;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let gpu = Gpu::named(&arguments[0]).unwrap();
    let table = read(
        File::open(&arguments[1]).unwrap(),
        &arguments[1],
        None,
        &gpu,
    )
    .unwrap();
    let mode = arguments.get(2).map_or("shipped", String::as_str);
    let train: Vec<Sample> = half(&table, Half::Train)
        .rows
        .iter()
        .filter_map(Sample::of)
        .collect();
    let test = half(&table, Half::Test);
    let model: Box<dyn KernelModel> = match mode {
        "shipped" => Box::new(Analytic::uncalibrated(gpu)),
        "analytic" | "corrected" => {
            let shipped = Constants::shipped(gpu.architecture);
            let fitted = constants(
                &shipped,
                &[Measured {
                    gpu: &gpu,
                    samples: &train,
                }],
            );
            eprintln!("{fitted:?}");
            let analytic = Analytic::new(gpu, fitted);
            let points = corrections(&analytic, &train);
            match mode {
                "analytic" => Box::new(analytic),
                _ => Box::new(Interpolating::new(analytic, points)),
            }
        }
        path => Fitted::parse(&std::fs::read_to_string(path).unwrap(), &gpu)
            .unwrap()
            .model(),
    };
    for row in &test.rows {
        let it = predict(model.as_ref(), row).unwrap();
        println!(
            "{},{},{},{},{}",
            row.line,
            row.latency.0,
            it.latency.0,
            row.power.map_or(0.0, |it| it.0),
            it.power.0
        );
    }
}
