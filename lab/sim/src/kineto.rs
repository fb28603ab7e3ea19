//! Writes a [`Timeline`] as a Kineto file, the PyTorch profiler's JSON, so that the readers and
//! other people's tools can be tried on a simulated node. The files say that they are simulated.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use litd_traces::{Collective, Kernel, KernelClass, Timeline};
use litd_units::Nanos;
use serde_json::json;

/// Writes a timeline to a file, gzip-compressed if its name ends in `.gz`.
///
/// # Errors
/// The file can't be written.
pub fn write_file(timeline: &Timeline, file: &Path) -> io::Result<()> {
    let out = BufWriter::new(std::fs::File::create(file)?);
    if file.extension().is_some_and(|extension| extension == "gz") {
        let mut out = BufWriter::new(GzEncoder::new(out, Compression::default()));
        write(timeline, &mut out)?;
        let encoder = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        encoder.finish()?.flush()
    } else {
        let mut out = out;
        write(timeline, &mut out)?;
        out.flush()
    }
}

/// The marks of iterations that are in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// Those of PyTorch's profiler, which a script steps.
    Profiler,
    /// Steps of optimizers, which are all that a trace on demand has.
    Optimizer,
    /// None: inference.
    Nothing,
}

/// Writes a timeline as Kineto JSON: device = rank, times relative to the earliest.
///
/// # Errors
/// `out` doesn't take it.
pub fn write(timeline: &Timeline, out: impl Write) -> io::Result<()> {
    write_marked(timeline, Marks::Profiler, out)
}

/// The same with other marks.
///
/// # Errors
/// `out` doesn't take it.
pub fn write_marked(timeline: &Timeline, wanted: Marks, mut out: impl Write) -> io::Result<()> {
    let kernels = timeline.kernels.iter().map(|kernel| kernel.start);
    let marks = timeline.iterations.iter().map(|iteration| iteration.start);
    let base = kernels.chain(marks).min().unwrap_or_default();
    let mut head = json!({
        "schemaVersion": 1,
        "simulated": true,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base.0,
        "distributedInfo": { "backend": "nccl", "rank": timeline.rank },
        "traceName": format!("simulated rank {}", timeline.rank),
    });
    if let Some(world_size) = timeline.world_size {
        head["distributedInfo"]["world_size"] = world_size.into();
    }
    // The head without its closing brace, so that the events, which are many, can be streamed.
    let head = head.to_string();
    out.write_all(head.strip_suffix('}').unwrap_or(&head).as_bytes())?;
    out.write_all(b",\n\"traceEvents\": [")?;

    let mut separator = "\n";
    let profiler = marks_of(timeline, base).filter(|_| wanted == Marks::Profiler);
    let steps = steps_of(timeline, base).filter(|_| wanted == Marks::Optimizer);
    for event in profiler.chain(steps).chain(kernels_of(timeline, base)) {
        write!(out, "{separator}{event}")?;
        separator = ",\n";
    }
    out.write_all(b"\n]}\n")
}

/// An event of phase X (complete). Times are written by hand: serde would print a float, and three decimals
/// are exact nanoseconds.
struct Event {
    category: &'static str,
    name: String,
    process: serde_json::Value,
    thread: serde_json::Value,
    start: Micros,
    duration: Micros,
    args: serde_json::Value,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            category,
            process,
            thread,
            start,
            duration,
            args,
            ..
        } = self;
        let name = json!(self.name);
        write!(
            f,
            r#"{{"ph":"X","cat":"{category}","name":{name},"pid":{process},"tid":{thread},"ts":{start},"dur":{duration},"args":{args}}}"#
        )
    }
}

/// A span, printed in microseconds with three decimals.
struct Micros(i128);

impl Micros {
    fn between(start: Nanos, end: Nanos) -> Self {
        Self(i128::from(end.0) - i128::from(start.0))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:03}", nanos / 1000, nanos % 1000)
    }
}

/// The marks of the iterations: on the host, and on every stream of the GPU as newer profilers
/// have them.
fn marks_of(timeline: &Timeline, base: Nanos) -> impl Iterator<Item = Event> {
    timeline.iterations.iter().flat_map(move |iteration| {
        let mark = move |category, process, thread| Event {
            category,
            name: format!("ProfilerStep#{}", iteration.number),
            process,
            thread,
            start: Micros::between(base, iteration.start),
            duration: Micros::between(iteration.start, iteration.end),
            args: json!({}),
        };
        let streams = timeline.streams.iter();
        let on_gpu = streams.map(move |stream| {
            mark(
                "gpu_user_annotation",
                timeline.rank.into(),
                number_or_text(stream),
            )
        });
        on_gpu.chain([mark("user_annotation", json!("host"), json!("host"))])
    })
}

/// A step of an optimizer on the host, in the middle of each iteration: the host is ahead of its GPU.
fn steps_of(timeline: &Timeline, base: Nanos) -> impl Iterator<Item = Event> {
    timeline.iterations.iter().map(move |iteration| {
        let length = iteration.end - iteration.start;
        let start = iteration.start + Nanos(length.0 / 2);
        Event {
            category: "user_annotation",
            name: "Optimizer.step#AdamW.step".to_owned(),
            process: json!("host"),
            thread: json!("host"),
            start: Micros::between(base, start),
            duration: Micros::between(start, start + Nanos(length.0 / 10)),
            args: json!({}),
        }
    })
}

fn kernels_of(timeline: &Timeline, base: Nanos) -> impl Iterator<Item = Event> {
    timeline.kernels.iter().enumerate().map(move |(k, kernel)| {
        let stream = timeline.streams.get(kernel.stream.0 as usize);
        let stream = number_or_text(stream.map_or("", |label| label));
        Event {
            category: match kernel.class {
                KernelClass::Computation | KernelClass::Communication | KernelClass::Fused => {
                    "kernel"
                }
                KernelClass::Copy => "gpu_memcpy",
            },
            name: timeline.name_of(kernel).to_owned(),
            process: timeline.rank.into(),
            thread: stream.clone(),
            start: Micros::between(base, kernel.start),
            duration: Micros::between(kernel.start, kernel.end),
            args: arguments(timeline, kernel, k, stream),
        }
    })
}

fn arguments(
    timeline: &Timeline,
    kernel: &Kernel,
    correlation: usize,
    stream: serde_json::Value,
) -> serde_json::Value {
    let mut args = json!({
        "device": timeline.rank,
        "stream": stream,
        "correlation": correlation,
    });
    let collective = kernel
        .collective
        .and_then(|id| timeline.collectives.get(id.0.get() as usize));
    if let (Some(collective), Some(args)) = (collective, args.as_object_mut()) {
        for (key, value) in metadata(collective) {
            if !value.is_null() {
                args.insert(key.to_owned(), value);
            }
        }
    }
    args
}

/// A collective's metadata under the profiler's keys; null where it isn't known.
fn metadata(collective: &Collective) -> [(&'static str, serde_json::Value); 10] {
    // The profiler writes the list as text.
    let ranks = &collective.ranks;
    let ranks = (!ranks.is_empty()).then(|| {
        let numbers: Vec<String> = ranks.iter().map(u32::to_string).collect();
        format!("[{}]", numbers.join(", "))
    });
    [
        ("Collective name", json!(collective.name.as_deref())),
        ("In msg nelems", json!(collective.in_elements)),
        ("Out msg nelems", json!(collective.out_elements)),
        ("Group size", json!(collective.group_size)),
        ("dtype", json!(collective.dtype.as_deref())),
        (
            "Process Group Name",
            json!(collective.process_group.as_deref()),
        ),
        (
            "Process Group Description",
            json!(collective.description.as_deref()),
        ),
        ("Process Group Ranks", json!(ranks)),
        (peer_key(collective), json!(collective.peer)),
        ("Seq", json!(collective.sequence)),
    ]
}

/// The key of the rank at the other end: of a receive it is the source.
fn peer_key(collective: &Collective) -> &'static str {
    match collective.name.as_deref() {
        Some("recv") => "Src Rank",
        _ => "Dst Rank",
    }
}

/// A stream's label as the profiler prints it: a number where it is one.
fn number_or_text(label: &str) -> serde_json::Value {
    match label.parse::<u64>() {
        // "07" would come back as another label.
        Ok(number) if number.to_string() == label => number.into(),
        _ => label.into(),
    }
}
