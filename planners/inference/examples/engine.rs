//! Fits the shipped constants of engines on the half of a table of requests that is not held out, and prints
//! them with the errors on both halves: GPU TABLE.

#![allow(clippy::unwrap_used, reason = "an example for developers")]

use std::fs::File;

use litd_inference::engine::{compare, evaluate, fit};
use litd_inference::fit::{Half, half};
use litd_inference::gpu::Gpu;
use litd_inference::kernel::Constants;
use litd_inference::table::read;

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
    let (train, test) = (half(&table, Half::Train), half(&table, Half::Test));
    let shipped = Constants::shipped(gpu.architecture);
    println!("shipped, held out: {:?}", evaluate(&shipped, &test));
    let fitted = fit(&shipped, &train);
    println!("{:#?}", fitted.engine);
    for (row, (measured, predicted)) in table.rows.iter().zip(compare(&fitted, &table)) {
        println!(
            "{:50} {:?} {:.2} {:.2} {:.2} tpot {:.1}",
            row.group,
            row.line,
            predicted.energy / measured.energy,
            predicted.token / measured.token,
            predicted.power / measured.power,
            measured.token.0
        );
    }
    println!("fitted: {:?}", evaluate(&fitted, &train));
    println!("held out: {:?}", evaluate(&fitted, &test));
}
