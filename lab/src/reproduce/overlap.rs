//! Section 5.2: how much of the Pareto front the predicted front recovers, over 32 input lengths. The paper
//! measured the front; here it is SIMULATED: a model calibrated on measured tables of kernels, with noise.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use litd_inference::fit::{Measured, Sample, constants, corrections};
use litd_inference::interpret::Program;
use litd_inference::kernel::{Analytic, Cached, Constants, Interpolating, KernelModel};
use litd_inference::model::Model;
use litd_inference::predict::{Configuration, Deployment};
use litd_inference::spec::{Overlap, Spec, Symbol, listings};
use litd_inference::sweep::{doubling, linear, pareto};
use litd_inference::table::read;

use super::Item;
use super::energylens::{Setup, configuration};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// The tables that the front rests on.
const TABLES: [&str; 3] = [
    "a100_sxm_gemm_trtllm1.0.csv.gz",
    "a100_sxm_attn_context_vllm0.14.csv.gz",
    "a100_sxm_nccl2.27.3.csv",
];
/// Standard deviation of the noise on each latency and energy.
const NOISE: f64 = 0.02;
/// Multiprocessors that communicate, 0 for no overlap.
const SMS: [u32; 4] = [0, 1, 4, 16];

/// A way to run a scenario: how it is overlapped, and the rest.
type Choice = (usize, Configuration);

pub(super) fn items(setup: &Setup, tables: Option<&Path>) -> Fallible<Vec<Item>> {
    let what = "share of the front that the predicted front recovers";
    let Some(folder) = tables else {
        let why = "the measured front is not public, and the SIMULATED one needs measured tables: give --tables FOLDER";
        return Ok(vec![Item::absent(
            "section-5.2",
            what,
            "%",
            Some(69.0),
            why,
        )]);
    };
    let truth = calibrated(setup, folder)?;
    let model = Model::named("llama-3-70b")?;
    let programs = SMS.map(program).into_iter().collect::<Fallible<Vec<_>>>()?;
    let (predicting, measuring) = (Cached::new(&setup.kernels), Cached::new(&truth));
    let (mut recovered, mut by_rule, mut configurations, mut scenarios) = (0.0, 0.0, 0, 0.0);
    let mut overlapped_last = 0.0;
    for input in linear(256, 8192, 256) {
        let choices = choices(&model, &programs, input, &setup.kernels);
        configurations += choices.len();
        let points = |kernels: &dyn KernelModel, noise: f64| -> Fallible<Vec<(f64, f64)>> {
            choices
                .iter()
                .map(|it| point(&model, &programs, kernels, it, noise))
                .collect()
        };
        let (predicted, exact) = (points(&predicting, 0.0)?, points(&measuring, NOISE)?);
        let front = pareto(&exact);
        let chosen = pareto(&predicted);
        let share = |of: &[usize]| {
            let found = front.iter().filter(|it| of.contains(it)).count();
            found as f64 / front.len() as f64
        };
        recovered += share(&chosen);
        // The rule: the most overlap, and only batch and TP varied.
        let most: Vec<usize> = (0..choices.len())
            .filter(|&it| choices[it].0 == SMS.len() - 1)
            .collect();
        let of_most: Vec<(f64, f64)> = most.iter().map(|&it| exact[it]).collect();
        let rule: Vec<usize> = pareto(&of_most).into_iter().map(|it| most[it]).collect();
        by_rule += share(&rule);
        let fastest = chosen.first().is_some_and(|&it| choices[it].0 > 0);
        overlapped_last += f64::from(u8::from(fastest));
        scenarios += 1.0;
    }
    let note = format!(
        "SIMULATED: the front is of a model calibrated on measured A100 tables ({}) with noise of {:.0} %, the prediction is \
         uncalibrated. Both share the assumed power of collectives and the models of overlap, so this judges kernels and \
         noise only; {:.0} configurations in each of {scenarios} scenarios on average",
        TABLES.join(", "),
        100.0 * NOISE,
        configurations as f64 / scenarios
    );
    Ok(vec![
        Item::compared(
            "section-5.2",
            what,
            "%",
            69.0,
            100.0 * recovered / scenarios,
            &note,
        ),
        Item::compared(
            "section-5.2",
            "share that maximum overlap recovers",
            "%",
            20.0,
            100.0 * by_rule / scenarios,
            note,
        ),
        Item::ours(
            "figure-8",
            "scenarios whose fastest predicted configuration overlaps",
            "%",
            100.0 * overlapped_last / scenarios,
            "the paper at ISL 4096: overlap is beneficial only at the most latency-aggressive point",
        ),
    ])
}

/// The layer with both all-reduced products in four stages, or without overlap.
fn program(sms: u32) -> Fallible<Program> {
    let spec = Spec::parse(listings::FUSED_DENSE)?;
    let along = Symbol::new('s').ok_or("no symbol")?;
    let overlap = (sms > 0).then_some(Overlap {
        stages: 4,
        sms,
        along,
    });
    Ok(Program::new(&spec.with_overlap(
        &["Output Projection", "Down Projection"],
        overlap,
    ))?)
}

/// Batches to 16, TP2 to TP8, with and without overlap: what memory holds.
fn choices(
    model: &Model,
    programs: &[Program],
    input: u32,
    kernels: &dyn KernelModel,
) -> Vec<Choice> {
    let mut choices = Vec::new();
    for (variant, program) in programs.iter().enumerate() {
        let deployment = Deployment::of_the_paper(model, program, kernels);
        for batch in doubling(16) {
            for tp in [2, 4, 8] {
                let one = configuration(batch, input, 1, tp);
                if deployment.footprint(&one).fits() {
                    choices.push((variant, one));
                }
            }
        }
    }
    choices
}

fn point(
    model: &Model,
    programs: &[Program],
    kernels: &dyn KernelModel,
    (variant, configuration): &Choice,
    noise: f64,
) -> Fallible<(f64, f64)> {
    let phase =
        Deployment::of_the_paper(model, &programs[*variant], kernels).prefill(configuration)?;
    let seed = u64::from(configuration.batch) << 40
        | u64::from(configuration.input) << 16
        | u64::from(configuration.degrees.tp) << 8
        | *variant as u64;
    let each = phase.energy().0 / f64::from(configuration.batch);
    let latency = phase.latency().0 * (noise * gauss(seed)).exp();
    Ok((latency, each * (noise * gauss(seed ^ 0x5555_5555)).exp()))
}

/// A number of a normal distribution that a seed always gives: the sum of twelve uniform ones, less six.
fn gauss(seed: u64) -> f64 {
    let mut state = seed;
    let mut uniform = || {
        // SplitMix64 (Steele, Lea, Flood).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..12).map(|_| uniform()).sum::<f64>() - 6.0
}

fn calibrated(setup: &Setup, folder: &Path) -> Fallible<Interpolating> {
    let mut samples = Vec::new();
    for name in TABLES {
        let path = folder.join(name);
        let file = File::open(&path).map_err(|it| format!("{}: {it}", path.display()))?;
        let table =
            read(file, name, None, &setup.gpu).map_err(|it| format!("{}: {it}", path.display()))?;
        samples.extend(table.rows.iter().filter_map(Sample::of));
    }
    let measured = Measured {
        gpu: &setup.gpu,
        samples: &samples,
    };
    let shipped = Constants::shipped(setup.gpu.architecture);
    let analytic = Analytic::new(setup.gpu.clone(), constants(&shipped, &[measured]));
    let points = corrections(&analytic, &samples);
    Ok(Interpolating::new(analytic, points))
}
