//! Kareus's tables, on the simulated A100.

use std::error::Error;

use litd_cli::plan::kareus::Explored;
use litd_kareus::{
    A100, Clocks, Iteration, IterationPoint, Job, Method, Model, Reductions, Results, Training,
    Workload, reductions,
};
use litd_planner::Schedule;
use litd_units::Millis;

use super::Item;
use crate::plan::kareus::explored;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// SMs that NCCL takes by itself on an A100 with NVSwitch.
const LIBRARY_SMS: u32 = 24;
const SEED: u64 = 1;

const LLAMA_3B: Model = Model {
    hidden_size: 3072,
    num_hidden_layers: 28,
    num_attention_heads: 24,
    num_key_value_heads: Some(8),
    head_dim: Some(128),
    intermediate_size: 8192,
    vocab_size: 128_256,
};

const QWEN_2B: Model = Model {
    hidden_size: 2048,
    num_hidden_layers: 28,
    num_attention_heads: 16,
    num_key_value_heads: Some(8),
    head_dim: Some(128),
    intermediate_size: 6144,
    vocab_size: 151_936,
};

const LLAMA_70B: Model = Model {
    hidden_size: 8192,
    num_hidden_layers: 80,
    num_attention_heads: 64,
    num_key_value_heads: Some(8),
    head_dim: Some(128),
    intermediate_size: 28_672,
    vocab_size: 128_256,
};

/// The workload of table 8.
const ABLATED: &str = "Qwen 3 1.7B, TP8, 8 x 4K";

/// A row of tables 3 and 4; percent, more is better.
struct Row {
    name: &'static str,
    model: Model,
    /// Tensor and context parallelism, microbatch size, sequence length.
    degrees: [u32; 2],
    sizes: [u64; 2],
    /// Table 3: Megatron-LM with Perseus, nanobatching with Perseus, Kareus. Nothing where memory was not enough.
    time: Option<[f64; 3]>,
    energy: Option<[f64; 3]>,
    /// Table 4: nanobatching with Perseus, Kareus.
    iso_time: [Option<f64>; 2],
    iso_energy: [Option<f64>; 2],
}

const K: u64 = 1024;

fn rows() -> Vec<Row> {
    let row =
        |name, model: &Model, degrees, sizes, [time, energy]: [[f64; 3]; 2], iso: [f64; 4]| {
            let known = |it: f64| Some(it).filter(|it| it.is_finite());
            let known3 = |it: [f64; 3]| Some(it).filter(|it| it[2].is_finite());
            Row {
                name,
                model: model.clone(),
                degrees,
                sizes,
                time: known3(time),
                energy: known3(energy),
                iso_time: [known(iso[0]), known(iso[1])],
                iso_energy: [known(iso[2]), known(iso[3])],
            }
        };
    const NONE: f64 = f64::NAN;
    const MEMORY: [[f64; 3]; 2] = [[NONE; 3]; 2];
    let (tp, cp) = ([8, 1], [4, 2]);
    let (llama, qwen) = (&LLAMA_3B, &QWEN_2B);
    vec![
        row(
            "Llama 3.2 3B, TP8, 8 x 4K",
            llama,
            tp,
            [8, 4 * K],
            [[-0.3, 8.5, 12.3], [10.0, 15.5, 19.6]],
            [21.0, 24.3, 18.9, 24.0],
        ),
        row(
            "Llama 3.2 3B, TP8, 8 x 8K",
            llama,
            tp,
            [8, 8 * K],
            MEMORY,
            [NONE; 4],
        ),
        row(
            "Llama 3.2 3B, TP8, 16 x 4K",
            llama,
            tp,
            [16, 4 * K],
            MEMORY,
            [NONE; 4],
        ),
        row(
            "Llama 3.2 3B, CP2 TP4, 8 x 4K",
            llama,
            cp,
            [8, 4 * K],
            [[0.2, 0.0, 5.2], [7.4, 7.3, 14.4]],
            [NONE, 17.4, 7.0, 13.9],
        ),
        row(
            "Llama 3.2 3B, CP2 TP4, 8 x 8K",
            llama,
            cp,
            [8, 8 * K],
            [[-1.4, 1.5, 6.2], [11.5, 7.3, 14.9]],
            [4.0, 12.4, 4.4, 16.4],
        ),
        row(
            "Llama 3.2 3B, CP2 TP4, 16 x 4K",
            llama,
            cp,
            [16, 4 * K],
            [[-0.7, 2.4, 8.0], [8.9, 7.0, 16.2]],
            [6.6, 20.4, 5.1, 12.5],
        ),
        row(
            ABLATED,
            qwen,
            tp,
            [8, 4 * K],
            [[-0.5, 5.6, 12.2], [7.7, 12.8, 22.1]],
            [16.8, 26.8, 17.8, 27.5],
        ),
        row(
            "Qwen 3 1.7B, TP8, 8 x 8K",
            qwen,
            tp,
            [8, 8 * K],
            [[0.1, 9.0, 14.9], [7.9, 12.2, 15.1]],
            [20.0, 23.1, 17.7, 23.1],
        ),
        row(
            "Qwen 3 1.7B, TP8, 16 x 4K",
            qwen,
            tp,
            [16, 4 * K],
            [[-0.1, 9.4, 14.8], [7.6, 13.4, 17.3]],
            [20.4, 28.3, 19.9, 26.7],
        ),
        row(
            "Qwen 3 1.7B, CP2 TP4, 8 x 4K",
            qwen,
            cp,
            [8, 4 * K],
            [[-0.5, -20.4, -0.5], [7.1, 3.1, 7.1]],
            [NONE, 0.0, NONE, 5.1],
        ),
        row(
            "Qwen 3 1.7B, CP2 TP4, 8 x 8K",
            qwen,
            cp,
            [8, 8 * K],
            [[0.5, 1.7, 8.0], [7.4, 6.7, 8.7]],
            [-0.7, 15.0, -0.4, 12.1],
        ),
        row(
            "Qwen 3 1.7B, CP2 TP4, 16 x 4K",
            qwen,
            cp,
            [16, 4 * K],
            [[0.0, 3.9, 10.5], [6.9, 6.9, 11.2]],
            [8.9, 20.1, 8.4, 19.7],
        ),
    ]
}

/// Tables 1 to 10 but for 2 and 5, which are settings: those whose name contains `what`.
pub fn items(what: Option<&str>) -> Fallible<Vec<Item>> {
    let wanted = |tables: &[&str]| {
        let named = |what: &str| tables.iter().any(|it| it.contains(what));
        what.is_none_or(named)
    };
    let mut items = Vec::new();
    if wanted(&["table-1"]) {
        table_1(&mut items)?;
    }
    for row in rows() {
        let ablated = row.name == ABLATED && wanted(&["table-8"]);
        if !ablated && !wanted(&["table-3", "table-4"]) {
            continue;
        }
        let found = Frontiers::of(&row.model, row.degrees, row.sizes, 2, 8)?;
        table_3(&mut items, &row, &found);
        table_4(&mut items, &row, &found);
        if ablated {
            table_8(&mut items, &found);
        }
    }
    if wanted(&["table-6", "table-7"]) {
        emulation(&mut items)?;
    }
    if wanted(&["table-9", "table-10"]) {
        microbatch_sizes(&mut items)?;
    }
    Ok(items)
}

/// The simulator itself, without a search: whole iterations of Qwen 3 1.7B with CP2 TP4.
fn table_1(items: &mut Vec<Item>) -> Fallible<()> {
    let ours = litd_overlap::paper::table_1(litd_overlap::gpu::A100)?;
    for (ours, theirs) in ours.iter().zip(&litd_overlap::paper::TABLE_1) {
        let note = "SIMULATED without noise and without a search; its matrix rate and energy were fitted to the \
                    first row";
        let what = |it: &str| format!("{}: {it}", theirs.system);
        let compared = |name: &str, unit, theirs, ours| {
            Item::compared("table-1", what(name), unit, theirs, ours, note)
        };
        items.extend([
            compared("time", "s", theirs.time.0 * 1e-3, ours.time.0 * 1e-3),
            compared("static energy", "J", theirs.resting.0, ours.resting.0),
            compared("dynamic energy", "J", theirs.dynamic.0, ours.dynamic.0),
        ]);
    }
    Ok(())
}

/// All methods' frontiers of one workload.
struct Frontiers {
    megatron: Vec<IterationPoint>,
    perseus: Vec<IterationPoint>,
    nanobatching_perseus: Vec<IterationPoint>,
    kareus: Vec<IterationPoint>,
    /// Table 8: no clocks; nanobatching alone.
    highest: Vec<IterationPoint>,
    nanobatching: Vec<IterationPoint>,
}

impl Frontiers {
    fn of(
        model: &Model,
        [tensor_parallel, context_parallel]: [u32; 2],
        [microbatch, sequence]: [u64; 2],
        pipeline_parallel: u32,
        microbatches: u32,
    ) -> Fallible<Self> {
        let training = Training {
            tensor_parallel,
            context_parallel,
            pipeline_parallel,
            microbatch,
            microbatches,
            sequence,
            recompute: true,
            layers: None,
        };
        let job = Job::new(&Workload::new(model.clone(), training)?)?;
        let found = explored(&job, &A100, LIBRARY_SMS, SEED, true)?;
        Self::from(&job, &found)
    }

    fn from(job: &Job, found: &Explored) -> Fallible<Self> {
        let points = |results: &Results, method| -> Fallible<Vec<IterationPoint>> {
            let schedule = Schedule::OneForwardOneBackward;
            let iteration = Iteration::new(job, results, method, schedule, Millis(1.0))?;
            Ok(iteration.points().collect())
        };
        let nano = Method::nanobatching_perseus(LIBRARY_SMS);
        let highest = |method| Method {
            clocks: Clocks::Highest,
            ..method
        };
        Ok(Self {
            megatron: points(&found.baselines, Method::MEGATRON)?,
            perseus: points(&found.baselines, Method::MEGATRON_PERSEUS)?,
            nanobatching_perseus: points(&found.baselines, nano)?,
            kareus: points(&found.results, Method::KAREUS)?,
            highest: points(&found.results, highest(Method::KAREUS))?,
            nanobatching: points(&found.baselines, highest(nano))?,
        })
    }

    fn reductions(&self, ours: &[IterationPoint]) -> Option<Reductions> {
        reductions(ours, &self.megatron, &self.perseus)
    }

    /// Megatron-LM with Perseus, nanobatching with Perseus, Kareus.
    fn three(&self) -> [(&'static str, Option<Reductions>); 3] {
        [
            ("Megatron-LM + Perseus", self.reductions(&self.perseus)),
            (
                "nanobatching + Perseus",
                self.reductions(&self.nanobatching_perseus),
            ),
            ("Kareus", self.reductions(&self.kareus)),
        ]
    }
}

const SETTING: &str = "planned on the SIMULATED A100, microbatches searched with seed 1";

/// A number beside the paper's, either of which may be absent.
fn beside(item: &'static str, what: String, theirs: Option<f64>, ours: Option<f64>) -> Item {
    match (theirs, ours) {
        (Some(theirs), Some(ours)) => Item::compared(item, what, "%", theirs, ours, SETTING),
        (None, Some(ours)) => {
            let note = "SIMULATED; the paper has none: no configuration satisfies it, or memory was not enough";
            Item::ours(item, what, "%", ours, note)
        }
        (theirs, None) => {
            let why = "no point of ours satisfies it";
            Item::absent(item, what, "%", theirs, why)
        }
    }
}

fn table_3(items: &mut Vec<Item>, row: &Row, found: &Frontiers) {
    for (place, (method, ours)) in found.three().into_iter().enumerate() {
        let what = |saved: &str| format!("{}: {saved} saved by {method}", row.name);
        let time = row.time.map(|it| it[place]);
        items.push(beside(
            "table-3",
            what("time"),
            time,
            ours.map(|it| it.time),
        ));
        let energy = row.energy.map(|it| it[place]);
        items.push(beside(
            "table-3",
            what("energy"),
            energy,
            ours.map(|it| it.energy),
        ));
    }
}

fn table_4(items: &mut Vec<Item>, row: &Row, found: &Frontiers) {
    for (place, (method, ours)) in found.three().into_iter().skip(1).enumerate() {
        let what = |saved: &str| format!("{}: {saved} saved by {method}", row.name);
        let iso = ours.and_then(|it| it.iso_time_energy);
        items.push(beside(
            "table-4",
            what("energy in the same time"),
            row.iso_time[place],
            iso,
        ));
        let iso = ours.and_then(|it| it.iso_energy_time);
        items.push(beside(
            "table-4",
            what("time for the same energy"),
            row.iso_energy[place],
            iso,
        ));
    }
}

/// What leaving a part out costs, relative to Kareus.
fn table_8(items: &mut Vec<Item>, found: &Frontiers) {
    let fastest = |points: &[IterationPoint]| {
        points
            .iter()
            .copied()
            .min_by(|a, b| a.0.0.total_cmp(&b.0.0))
    };
    let variants = [
        ("without frequency", &found.highest, [1.0, 12.9]),
        (
            "without kernel schedule",
            &found.nanobatching_perseus,
            [8.2, 10.8],
        ),
        ("nanobatching", &found.nanobatching, [7.8, 20.6]),
    ];
    for (name, points, [time, energy]) in variants {
        let pair = fastest(points).zip(fastest(&found.kareus));
        let more = |ours: f64, base: f64| 100.0 * (ours / base - 1.0);
        let ours = pair.map(|(it, base)| [more(it.0.0, base.0.0), more(it.1.0, base.1.0)]);
        let what = |of: &str| format!("{of} that {name} takes more than Kareus");
        items.push(beside(
            "table-8",
            what("time"),
            Some(time),
            ours.map(|it| it[0]),
        ));
        items.push(beside(
            "table-8",
            what("energy"),
            Some(energy),
            ours.map(|it| it[1]),
        ));
    }
}

/// Tables 6 and 7: microbatches; Perseus's energy, Kareus's time and energy, iso-time energy, iso-energy time.
const EMULATION: [(u32, [f64; 5]); 4] = [
    (16, [15.0, 9.3, 20.2, 11.6, 19.1]),
    (32, [14.3, 9.2, 20.0, 14.1, 16.8]),
    (64, [13.8, 9.1, 19.8, 15.3, 16.4]),
    (128, [13.5, 9.1, 19.7, 15.1, 16.0]),
];

fn emulation(items: &mut Vec<Item>) -> Fallible<()> {
    for (microbatches, theirs) in EMULATION {
        let found = Frontiers::of(&LLAMA_70B, [8, 1], [4, 4 * K], 10, microbatches)?;
        let name = format!("Llama 3.3 70B, PP10 TP8, {microbatches} microbatches");
        five(items, ["table-6", "table-7"], &name, theirs, &found);
    }
    Ok(())
}

/// Tables 9 and 10: the microbatch's size, and the same five.
const SIZES: [(u64, [f64; 5]); 4] = [
    (8, [7.7, 12.2, 22.1, 26.8, 27.5]),
    (12, [9.4, 14.7, 17.6, 28.6, 27.3]),
    (16, [7.6, 14.8, 17.3, 28.3, 26.7]),
    (20, [9.4, 18.1, 18.8, 29.8, 28.8]),
];

fn microbatch_sizes(items: &mut Vec<Item>) -> Fallible<()> {
    for (size, theirs) in SIZES {
        let found = Frontiers::of(&QWEN_2B, [8, 1], [size, 4 * K], 2, 8)?;
        let name = format!("Qwen 3 1.7B, TP8, microbatches of {size}");
        five(items, ["table-9", "table-10"], &name, theirs, &found);
    }
    Ok(())
}

fn five(
    items: &mut Vec<Item>,
    [fastest, frontier]: [&'static str; 2],
    name: &str,
    theirs: [f64; 5],
    found: &Frontiers,
) {
    let [(_, perseus), _, (_, kareus)] = found.three();
    let ours = [
        perseus.map(|it| it.energy),
        kareus.map(|it| it.time),
        kareus.map(|it| it.energy),
        kareus.and_then(|it| it.iso_time_energy),
        kareus.and_then(|it| it.iso_energy_time),
    ];
    let what = [
        "energy saved by Megatron-LM + Perseus",
        "time saved by Kareus",
        "energy saved by Kareus",
        "energy saved by Kareus in the same time",
        "time saved by Kareus for the same energy",
    ];
    for (place, what) in what.into_iter().enumerate() {
        let item = if place < 3 { fastest } else { frontier };
        items.push(beside(
            item,
            format!("{name}: {what}"),
            Some(theirs[place]),
            ours[place],
        ));
    }
}
