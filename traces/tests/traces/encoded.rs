//! Perfetto files as Python's package `perfetto` encodes them here and now, with the classes that
//! Perfetto publishes: the samples anew, and Perfetto's own hand-written examples.

use std::path::{Path, PathBuf};
use std::process::Command;

use litd_traces::{Timeline, formats};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn skip(why: &str) {
    let text = format!("SKIPPED: {why}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}

/// A Python that has the packages; the gate puts one below target/tools.
fn python() -> Option<PathBuf> {
    let own = Path::new(HERE).join("../target/tools/perfetto/bin/python");
    let found = [own, "python3".into()].into_iter().find(|python| {
        let import = "import perfetto.protos.perfetto.trace.perfetto_trace_pb2, zstandard";
        let run = Command::new(python).args(["-c", import]).output();
        run.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        skip("no Python with the packages perfetto and zstandard");
    }
    found
}

fn run(python: &Path, script: &str, args: &[PathBuf]) {
    let script = Path::new(HERE).join("tests/samples").join(script);
    let output = Command::new(python).arg(script).args(args).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Kernels as rank, stream, name, start and end, in nanoseconds.
fn kernels(timelines: &[Timeline]) -> Vec<(u32, String, String, i64, i64)> {
    let of = |timeline: &Timeline| {
        let kernel = |kernel: &litd_traces::Kernel| {
            let stream = timeline.streams[kernel.stream.0 as usize].to_string();
            let name = timeline.name_of(kernel).to_owned();
            (timeline.rank, stream, name, kernel.start.0, kernel.end.0)
        };
        Vec::from_iter(timeline.kernels.iter().map(kernel))
    };
    timelines.iter().flat_map(of).collect()
}

#[test]
fn samples_encoded_anew_are_read_as_before() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, "make.py", &[folder.path().to_owned()]);
    let mut files = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        let read = |path: &Path| kernels(&formats::read_file(path, None).unwrap().timelines);
        let before = read(&Path::new(HERE).join("tests/samples").join(name));
        assert!(before.len() > 100, "{name:?}");
        assert_eq!(read(&path), before, "{name:?}");
        files += 1;
    }
    assert!(files >= 21, "{files}");
}

#[test]
fn perfettos_own_examples_give_the_kernels_that_they_describe() {
    let examples = Path::new(HERE).join("../../shared/traces/perfetto_textproto");
    if !examples.is_dir() {
        return skip("../shared/traces is absent");
    }
    let Some(python) = python() else { return };
    let add = "vectorAdd(float*, float*, float*, int)";
    let multiply = "matMul(float*, float*, float*, int, int)";
    for (example, expected) in [
        (
            "gpu_compute_kernel",
            &[
                ("Compute Queue", add, 100, 50),
                ("Compute Queue", multiply, 200, 100),
                ("Compute Queue", add, 400, 50),
            ][..],
        ),
        (
            "gpu_compute_launch",
            &[("Compute Queue", "vectorAdd", 100, 50)],
        ),
        (
            "gpu_context",
            &[("queue", "stage", 100, 10), ("queue", "stage", 200, 20)],
        ),
        (
            "gpu_render_stages_flow",
            &[
                ("compute_0", "softmax", 100, 50),
                ("compute_1", "matmul", 200, 40),
            ],
        ),
        // A fourth event is on a queue that nobody declared.
        (
            "gpu_render_stages_interned_spec",
            &[
                ("vertex", "binning", 100, 10),
                ("fragment", "render", 200, 10),
                ("queue2", "render", 300, 10),
            ],
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("example.pftrace");
        let text = examples.join(format!("{example}.textproto"));
        run(&python, "textproto.py", &[text, out.clone()]);
        let trace = formats::read_file(&out, None).unwrap();
        let expected = expected.iter().map(|&(queue, name, start, length)| {
            (0, queue.to_owned(), name.to_owned(), start, start + length)
        });
        assert_eq!(
            kernels(&trace.timelines),
            Vec::from_iter(expected),
            "{example}"
        );
    }
}
