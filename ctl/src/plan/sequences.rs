//! `litctl plan sequences`: which computations and communications a traced job repeats, and the partitions they
//! form.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use litd_cli::show::{HEAD, SIMULATED};
use litd_cli::traces::read;
use litd_kareus::{
    Collective, CollectiveKind, Operation, Part, Repeated, Repeating, Work, partitions, repeating,
};
use litd_traces::{Choice, Kernel, KernelClass, Timeline, folder, join, printable};
use litd_units::Nanos;
use serde::Serialize;

use crate::{Outcome, output};

/// Find the sequences that a traced job repeats, and which of their parts could overlap (Kareus)
///
/// Looks at one rank of a job that runs without overlap, at its kernels in the order of their
/// starts. Sequences with a collective that are repeated at least three times in a row are divided
/// into partitions: computations of one nanobatch beside a communication of the other.
#[derive(clap::Args)]
pub struct Args {
    /// Trace files, or folders whose traces are read (not those of subfolders)
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The rank [default: the lowest]
    #[arg(long)]
    rank: Option<u32>,
}

/// A kernel as an operation.
struct Traced {
    operation: Operation,
    duration: Nanos,
}

/// A sequence that is repeated.
#[derive(Debug, Serialize)]
struct Sequence {
    repetitions: usize,
    operations: usize,
    /// The time of its kernels, the mean of one repetition.
    milliseconds: f64,
    partitions: Vec<Partition>,
}

#[derive(Debug, Serialize)]
struct Partition {
    name: String,
    per_repetition: u32,
    computations: Vec<String>,
    collectives: Vec<String>,
}

/// So many sequences are looked for: forward, backward, and what else there is.
const MOST: usize = 8;

pub fn run(args: &Args, json: bool) -> Outcome {
    let (traces, notes) = read(&folder::files(&args.paths)?, Choice::default())?;
    for note in notes {
        output::note(&note);
    }
    let (timelines, _) = join(traces)?;
    let wanted = |it: &&Timeline| args.rank.is_none_or(|rank| it.rank == rank);
    let chosen = timelines.iter().filter(wanted).min_by_key(|it| it.rank);
    let timeline = chosen.ok_or("the traces have no such rank")?;
    let sequences = sequences(&traced(timeline));
    if sequences.is_empty() {
        let why = "no sequence of kernels with a collective occurs three times in a row";
        return Err(format!("rank {}: {why}", timeline.rank).into());
    }
    match json {
        true => output::json(&serde_json::json!({
            "schema": 1, "simulated": timeline.simulated, "rank": timeline.rank, "sequences": sequences,
        })),
        false => output::text(&render(timeline, &sequences)),
    }
}

/// The operations in the order of their starts. Copies and what is neither sum nor gathering are left out.
fn traced(timeline: &Timeline) -> Vec<Traced> {
    let mut kernels: Vec<&Kernel> = timeline.kernels.iter().collect();
    kernels.sort_by_key(|it| it.start.0);
    let operation = |kernel: &Kernel| match kernel.class {
        KernelClass::Copy => None,
        KernelClass::Communication | KernelClass::Fused => {
            collective(timeline, kernel).map(Operation::Collective)
        }
        KernelClass::Computation => Some(computation(timeline, kernel)),
    };
    let all = kernels.into_iter();
    all.filter_map(|kernel| {
        let operation = operation(kernel)?;
        let duration = kernel.duration();
        Some(Traced {
            operation,
            duration,
        })
    })
    .collect()
}

/// Products of matrices and attention by the names that libraries give them; everything else is taken to be
/// memory-bound. How much work they do is not in a trace.
fn computation(timeline: &Timeline, kernel: &Kernel) -> Operation {
    const MATRIX: [&str; 12] = [
        "gemm",
        "nvjet",
        "cutlass",
        "cijk",
        "xmma",
        "matmul",
        "linear",
        "flash",
        "fmha",
        "attn",
        "attention",
        "cublas",
    ];
    let name = timeline.name_of(kernel);
    let lower = name.to_lowercase();
    let matrix = MATRIX.iter().any(|it| lower.contains(it));
    Operation::Computation {
        name: name.to_owned(),
        part: Part::None,
        work: Work {
            matrix: f64::from(u8::from(matrix)),
            ..Work::default()
        },
    }
}

fn collective(timeline: &Timeline, kernel: &Kernel) -> Option<Collective> {
    let described = timeline.collective_of(kernel);
    let name = described.and_then(|it| it.name.as_deref());
    let name = name
        .unwrap_or_else(|| timeline.name_of(kernel))
        .to_lowercase();
    let plain: String = name.chars().filter(|it| it.is_ascii_alphabetic()).collect();
    let kind = if plain.contains("allreduce") {
        CollectiveKind::AllReduce
    } else if plain.contains("allgather") {
        CollectiveKind::AllGather
    } else if plain.contains("reducescatter") {
        CollectiveKind::ReduceScatter
    } else {
        return None;
    };
    let elements = described.and_then(|it| it.in_elements.max(it.out_elements));
    let group = described.and_then(|it| it.group_size);
    Some(Collective {
        kind,
        bytes: elements.unwrap_or(0) as f64 * bytes(described.and_then(|it| it.dtype.as_deref())),
        group: group.or(timeline.world_size).unwrap_or(0),
    })
}

/// Of an element, by PyTorch's names.
fn bytes(dtype: Option<&str>) -> f64 {
    match dtype.map(str::to_lowercase).as_deref() {
        Some("float" | "float32" | "int") => 4.0,
        Some("double" | "float64" | "long") => 8.0,
        Some("byte" | "char" | "float8_e4m3fn" | "float8_e5m2") => 1.0,
        _ => 2.0,
    }
}

/// The longest repetition first, then what is before and after it.
fn sequences(all: &[Traced]) -> Vec<Sequence> {
    let (mut found, mut open) = (Vec::new(), vec![all]);
    while let Some(part) = open.pop() {
        let operations: Vec<Operation> = part.iter().map(|it| it.operation.clone()).collect();
        let Some(it) = repeating(&operations).filter(|_| found.len() < MOST) else {
            continue;
        };
        let block = &operations[it.start..it.start + it.length];
        if let Ok(divided) = partitions(&format!("sequence {}", found.len() + 1), block) {
            found.push(sequence(part, it, &divided));
        }
        let end = it.start + it.length * it.repetitions;
        open.extend([&part[end..], &part[..it.start]]);
    }
    found
}

fn sequence(part: &[Traced], it: Repeating, divided: &[Repeated]) -> Sequence {
    let repeated = &part[it.start..it.start + it.length * it.repetitions];
    let nanos: i64 = repeated.iter().map(|it| it.duration.0).sum();
    let partitions = divided.iter().map(|it| {
        let computations = it.partition.computations.iter();
        let collectives = it.partition.communication.collectives.iter();
        let collective = |it: &Collective| {
            let (kind, bytes, group) = (it.kind, it.bytes / 1e6, it.group);
            format!("{kind:?} of {bytes:.1} MB among {group}")
        };
        Partition {
            name: it.partition.name.clone(),
            per_repetition: it.count,
            computations: computations.map(|it| it.name.clone()).collect(),
            collectives: collectives.map(collective).collect(),
        }
    });
    Sequence {
        repetitions: it.repetitions,
        operations: it.length,
        milliseconds: nanos as f64 / 1e6 / it.repetitions as f64,
        partitions: partitions.collect(),
    }
}

fn render(timeline: &Timeline, sequences: &[Sequence]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, timeline, sequences);
    out
}

fn write(out: &mut String, timeline: &Timeline, sequences: &[Sequence]) -> fmt::Result {
    if timeline.simulated {
        writeln!(
            out,
            "{SIMULATED}SIMULATED{SIMULATED:#}: a simulator wrote these traces"
        )?;
    }
    for (number, it) in (1..).zip(sequences) {
        writeln!(
            out,
            "{HEAD}sequence {number} of rank {}: {} kernels, {} times, {:.2} ms each{HEAD:#}",
            timeline.rank, it.operations, it.repetitions, it.milliseconds
        )?;
        for one in &it.partitions {
            writeln!(out, "{}, {} times in each", one.name, one.per_repetition)?;
            for collective in &one.collectives {
                writeln!(out, "  beside {collective}:")?;
            }
            for name in &one.computations {
                let shown: String = printable(name).chars().take(output::WIDTH - 4).collect();
                writeln!(out, "    {shown}")?;
            }
        }
    }
    Ok(())
}
