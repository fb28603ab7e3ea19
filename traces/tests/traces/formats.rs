//! All formats: the same simulated iteration in each gives equal timelines, real files give what
//! other programs counted in them, and damaged files give errors.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use litd_traces::{
    Choice, KernelClass, ReadError, StreamId, Timeline, Trace, formats, join, kineto,
};
use litd_units::Nanos;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Every sample of the iteration but the Kineto files that the others were made from.
const SAMPLES: [&str; 20] = [
    "plain.pftrace.gz",
    "interned.pftrace.gz",
    "in_time_order.pftrace.gz",
    "incremental.pftrace.gz",
    "defaults.pftrace.gz",
    "split.pftrace.gz",
    "lost.pftrace.gz",
    "zlib.pftrace",
    "zstd.pftrace",
    "render_stages.pftrace.gz",
    "sample.xplane.pb.gz",
    "sample.rpd.gz",
    "rocpd.db.gz",
    "rocpd_timestamps.db.gz",
    "nsys.sqlite.gz",
    "results_v1.db.gz",
    "results.json.zst",
    "results_v1.json.gz",
    "results_v1.csv.gz",
    "gpu_trace.csv.gz",
];
const CSV: &str = "kernel_trace.csv.gz";

fn ranks_of(ranks: &[u32]) -> Choice<'_> {
    Choice {
        ranks,
        ..Choice::default()
    }
}

fn samples() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples"))
}

/// The iteration as the Kineto reader has it.
fn iteration() -> Vec<Timeline> {
    let files = [0, 1].map(|rank| samples().join(format!("kineto/rank{rank}.json.gz")));
    let traces = files.map(|file| kineto::read_file(&file, None).unwrap());
    join(traces.into()).unwrap().0
}

/// The same kernels, whatever their streams are called.
fn assert_same(read: &Timeline, expected: &Timeline, what: &str) {
    assert_eq!(read.kernels.len(), expected.kernels.len(), "{what}");
    let mut streams = HashMap::<StreamId, StreamId>::new();
    let text = |timeline: &Timeline| {
        let kernels = timeline.kernels.iter();
        let mut all = Vec::from_iter(kernels.map(|kernel| {
            let name = timeline.name_of(kernel).to_owned();
            (kernel.start, kernel.end, name, kernel.class, kernel.stream)
        }));
        all.sort();
        all
    };
    for (got, wanted) in text(read).into_iter().zip(text(expected)) {
        assert_eq!(
            (got.0, got.1, &got.2, got.3),
            (wanted.0, wanted.1, &wanted.2, wanted.3),
            "{what}"
        );
        let known = *streams.entry(got.4).or_insert(wanted.4);
        assert_eq!(known, wanted.4, "{what}: streams are mixed up");
    }
    assert_eq!(streams.len(), expected.streams.len(), "{what}");
}

#[test]
fn one_iteration_is_the_same_in_every_format() {
    let expected = iteration();
    assert_eq!(expected.len(), 2);
    for file in SAMPLES.into_iter().chain([CSV]) {
        let trace = formats::read_file(&samples().join(file), None).unwrap();
        let (read, _) = join(vec![trace]).unwrap();
        assert_eq!(read.len(), 2, "{file}");
        for (read, expected) in read.iter().zip(&expected) {
            assert_eq!(read.rank, expected.rank, "{file}");
            assert_same(read, expected, file);
        }
    }
}

#[test]
fn the_gpus_of_one_file_may_be_given_ranks_in_the_order_of_their_numbers() {
    let expected = iteration();
    for name in SAMPLES {
        let path = samples().join(name);
        let read = |ranks: &[u32]| {
            let file = std::fs::File::open(&path).unwrap();
            formats::read_chosen(file, None, name, ranks_of(ranks))
        };
        let trace = read(&[7, 3]).unwrap();
        let ranks = trace.timelines.iter().map(|timeline| timeline.rank);
        assert_eq!(Vec::from_iter(ranks), [3, 7], "{name}");
        for (timeline, at) in trace.timelines.iter().zip([1, 0]) {
            assert_same(timeline, &expected[at], name);
        }
        for ranks in [&[4][..], &[1, 2, 3]] {
            let error = read(ranks).unwrap_err().to_string();
            let told = error.contains("holds 2 GPUs (") && error.contains("name one for each");
            assert!(told && error.contains(name), "{error}");
        }
    }
}

#[test]
fn a_device_on_which_next_to_nothing_ran_needs_no_rank() {
    let header =
        "\"Kind\",\"Agent_Id\",\"Queue_Id\",\"Kernel_Name\",\"Start_Timestamp\",\"End_Timestamp\"";
    let kernel = |agent: u32, start: u32, length: u32| {
        format!(
            "\nKERNEL_DISPATCH,{agent},1,gemm,{start},{}",
            start + length
        )
    };
    let lines = [(10, 0, 100), (9, 2, 100), (10, 200, 90), (4, 20, 1)];
    let lines = lines.map(|(agent, start, length)| kernel(agent, start, length));
    let text = format!("{header}{}", lines.concat());
    let read =
        |ranks: &[u32]| formats::read_chosen(text.as_bytes(), None, "a.csv", ranks_of(ranks));
    let trace = read(&[1, 0]).unwrap();
    let counts = trace
        .timelines
        .iter()
        .map(|timeline| timeline.kernels.len());
    assert_eq!(Vec::from_iter(counts), [2, 1]);
    assert!(
        trace.notes[0].contains("on its device 4 were left out"),
        "{:?}",
        trace.notes
    );
    // Who gives three ranks means all of them.
    assert_eq!(read(&[0, 1, 2]).unwrap().timelines.len(), 3);
    assert!(
        read(&[0])
            .unwrap_err()
            .to_string()
            .contains("holds 3 GPUs (4, 9, 10)")
    );
}

#[test]
fn packets_that_mean_nothing_after_a_loss_are_left_out_and_counted() {
    let trace = formats::read_file(&samples().join("lost.pftrace.gz"), None).unwrap();
    let notes = trace.notes.join("\n");
    assert!(
        notes.contains("2 packets can't be understood because others before them were lost"),
        "{notes}"
    );
}

#[test]
fn what_is_none_of_the_formats_says_so_in_one_sentence() {
    for bytes in [
        &b"hello, world"[..],
        &[0; 100],
        &[0x0A, 0x03, 1, 2, 3],
        &[0xFF; 9],
    ] {
        let error = formats::read(bytes, None, "some.file", None).unwrap_err();
        assert!(
            matches!(error, ReadError::UnknownFormat { .. }),
            "{bytes:?}: {error}"
        );
    }
    for text in [&b"\xFF\xFE{\0"[..], b"\xFE\xFF\0{"] {
        let error = formats::read(text, None, "some.file", None).unwrap_err();
        assert!(matches!(error, ReadError::Utf16 { .. }), "{error}");
    }
    let error = formats::read(&b""[..], None, "some.file", None).unwrap_err();
    assert!(matches!(error, ReadError::Empty { .. }), "{error}");
}

#[test]
fn what_is_written_for_perfetto_is_read_back() {
    let timelines = iteration();
    let leads = litd_traces::leads(&timelines, &litd_traces::AlignOptions::default()).unwrap();
    let mut bytes = Vec::new();
    formats::write_perfetto(&timelines, Some(&leads), &[], &mut bytes).unwrap();
    let trace = formats::read(&bytes[..], None, "written", None).unwrap();
    assert_eq!(trace.timelines.len(), 2);
    for (read, expected) in trace.timelines.iter().zip(&timelines) {
        assert_eq!(read.rank, expected.rank);
        assert!(read.simulated);
        assert_eq!(read.streams, expected.streams);
        assert_same(read, expected, "written");
    }
}

#[test]
fn a_report_on_collectives_names_the_rank_that_waits_least() {
    let Some(folder) = shared() else { return };
    let file =
        "tracelens/traces/mi300/llama_70b_fsdp/nccl_analysis_report_csvs/nccl_summary_long.csv";
    let source = std::fs::File::open(folder.join(file)).unwrap();
    let waits = formats::nccl_summary::read(source, file).unwrap().unwrap();
    assert_eq!(waits.straggler_rank, Some(4));
    let order = Vec::from_iter(waits.ranks.iter().map(|rank| rank.rank));
    assert_eq!(order, [0, 6, 7, 1, 3, 2, 5, 4]);
}

#[test]
fn what_compressed_a_file_that_is_cut_is_named() {
    for (name, packing) in [
        ("results.json.zst", "zstd"),
        ("interned.pftrace.gz", "gzip"),
        ("kineto/rank0.json.gz", "gzip"),
        ("rocpd.db.gz", "gzip"),
    ] {
        let whole = std::fs::read(samples().join(name)).unwrap();
        for cut in [whole.len() / 2, whole.len() - 1] {
            let error = formats::read(&whole[..cut], None, "broken", None).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("the {packing} data is")), "{text}");
            assert!(text.contains("copy the file again"), "{text}");
        }
    }
}

#[test]
fn a_damaged_database_is_told_from_one_of_another_program() {
    let cut = unpacked("sample.rpd.gz");
    let error = formats::read(&cut[..cut.len() / 2], None, "broken", None).unwrap_err();
    assert!(error.to_string().contains("copy it again"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE x(a)").unwrap();
    drop(other);
    let error = formats::read_file(&path, None).unwrap_err();
    assert!(matches!(error, ReadError::OtherDatabase { .. }), "{error}");
}

const SUMMARY: &str = "\
rank,Collective name,dur_sum,operation_count
0,_allgather_base,1500,2
1,AllReduce,500,2
0,broadcast,9e9,1
2,reduce_scatter,1e3,2
";

#[test]
fn a_summary_counts_what_synchronises_and_its_numbers_must_be_some() {
    let read = |text: &str| formats::nccl_summary::read(text.as_bytes(), "broken");
    let waits = read(SUMMARY).unwrap().unwrap();
    let times = Vec::from_iter(waits.ranks.iter().map(|rank| (rank.rank, rank.wait_ms)));
    assert_eq!(times, [(0, 0.5), (2, 0.25), (1, 0.0)]);
    assert_eq!(waits.straggler_rank, Some(1));
    for (from, to) in [("1500", "-1"), ("1500", "1e300"), ("2,red", "-2,red")] {
        let error = read(&SUMMARY.replace(from, to)).unwrap_err();
        assert!(matches!(error, ReadError::BadEvent { .. }), "{error}");
    }
    let head = SUMMARY.lines().next().unwrap();
    let error = read(head).unwrap_err();
    assert!(matches!(error, ReadError::NoCollectives { .. }), "{error}");
    // The most that can be counted is not exceeded.
    let most = SUMMARY.replace(",2\n", &format!(",{}\n", u64::MAX));
    let twice = most.clone() + most.split_once('\n').unwrap().1;
    assert_eq!(read(&twice).unwrap().unwrap().ranks[0].count, u64::MAX);
}

/// The folder of real traces, where it is there.
fn shared() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces"));
    let there = folder.is_dir();
    if !there {
        let note = "SKIPPED: ../shared/traces is absent\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), note.as_bytes());
    }
    there.then_some(folder)
}

fn counts(timeline: &Timeline) -> [usize; 3] {
    use KernelClass::{Communication, Computation, Copy};
    [Computation, Communication, Copy]
        .map(|class| timeline.kernels.iter().filter(|k| k.class == class).count())
}

#[test]
fn real_files_of_other_profilers_hold_what_others_counted() {
    let Some(folder) = shared() else { return };
    for (file, expected) in [
        (
            "tracelens/rocprof/908_results.json.gz",
            [36_239, 1_310, 6_366],
        ),
        ("rocmprofiledata/mytrace.rpd.gz", [8_948, 0, 1_176]),
        ("rocmprofiledata/matmul_result.json", [29, 0, 56]),
    ] {
        let trace = formats::read_file(&folder.join(file), None).unwrap();
        let read = Vec::from_iter(trace.timelines.iter().map(counts));
        assert_eq!(read, [expected], "{file}");
    }
    let file = "tracelens/traces/mi300/jax_conv_minimal_08/tw003.xplane.pb";
    let trace = formats::read_file(&folder.join(file), None).unwrap();
    let mut expected = [[25, 0, 0]; 8];
    expected[0][2] = 35;
    let read = Vec::from_iter(trace.timelines.iter().map(counts));
    assert_eq!(read, expected);
}

#[test]
fn launches_of_a_real_rocm_profile_are_what_its_tables_say() {
    let Some(folder) = shared() else { return };
    let file = folder.join("rocmprofiledata/mytrace.rpd.gz");
    let trace = formats::read_file(&file, None).unwrap();
    let timeline = &trace.timelines[0];
    let kernels = 0..timeline.kernels.len();
    let mut told = Vec::from_iter(kernels.filter_map(|at| timeline.launch(at)).map(|at| at.0));
    let mut plain = tempfile::NamedTempFile::new().unwrap();
    let packed = std::fs::File::open(file).unwrap();
    let mut unpacked = flate2::read::MultiGzDecoder::new(packed);
    std::io::copy(&mut unpacked, plain.as_file_mut()).unwrap();
    let tables = rusqlite::Connection::open(plain.path()).unwrap();
    let query = "SELECT min(a.start) FROM rocpd_api a JOIN rocpd_api_ops l ON l.api_id = a.id
        JOIN rocpd_op o ON o.id = l.op_id JOIN rocpd_string s ON s.id = o.opType_id
        WHERE s.string IN ('KernelExecution', 'Task') OR s.string LIKE 'Copy%' OR s.string LIKE 'Fill%' GROUP BY o.id";
    let mut query = tables.prepare(query).unwrap();
    let rows = query.query_map([], |row| row.get::<_, i64>(0)).unwrap();
    let mut expected = Vec::from_iter(rows.map(Result::unwrap));
    told.sort_unstable();
    expected.sort_unstable();
    assert!(!expected.is_empty());
    assert_eq!(told, expected);
}

#[test]
fn launches_are_the_same_in_every_format_that_tells_them() {
    for file in [
        "plain.pftrace.gz",
        "interned.pftrace.gz",
        "results.json.zst",
        "sample.rpd.gz",
        "rocpd.db.gz",
        "rocpd_timestamps.db.gz",
        "nsys.sqlite.gz",
    ] {
        let trace = formats::read_file(&samples().join(file), None).unwrap();
        for timeline in &trace.timelines {
            for (at, kernel) in timeline.kernels.iter().enumerate() {
                // Calls return when the kernel starts, which Nsight Systems' export is asked for.
                let since = if file.starts_with("nsys") { 0 } else { 1_000 };
                let expected = kernel.start - Nanos(since);
                assert_eq!(timeline.launch(at), Some(expected), "{file}");
            }
        }
    }
}

/// A sample, unpacked where it is packed with gzip: damage should reach the readers.
fn unpacked(name: &str) -> Vec<u8> {
    let bytes = std::fs::read(samples().join(name)).unwrap();
    let mut plain = Vec::new();
    match flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut plain) {
        Ok(_) => plain,
        Err(_) => bytes,
    }
}

/// A reader may refuse what is damaged, in one sentence with the file's name, or read what is
/// left of it; a kernel never ends before it starts.
fn is_sane(outcome: &Result<Trace, ReadError>) -> bool {
    match outcome {
        Ok(trace) => trace
            .timelines
            .iter()
            .flat_map(|timeline| &timeline.kernels)
            .all(|kernel| kernel.start <= kernel.end),
        Err(error) => error.to_string().starts_with("broken"),
    }
}

/// Damages each of the samples so many times and reads it; all samples at once, because the gate's
/// --full tells a large number.
fn damage(names: &[&str]) {
    let told = std::env::var("LITD_FUZZ").ok();
    let cases = told.and_then(|cases| cases.parse().ok()).unwrap_or(30);
    std::thread::scope(|scope| {
        for name in names {
            scope.spawn(move || damage_one(name, cases));
        }
    });
}

fn damage_one(name: &str, cases: u32) {
    let whole = unpacked(name);
    let flips = prop::collection::vec((0.0..1.0, any::<u8>()), 0..8);
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let ran = runner.run(&(prop::option::of(0.0..1.0), flips), |(cut, flips)| {
        let mut bytes = whole.clone();
        for (at, with) in flips {
            let at = (at * bytes.len() as f64) as usize;
            bytes[at] ^= with;
        }
        if let Some(cut) = cut {
            bytes.truncate((cut * bytes.len() as f64) as usize);
        }
        let outcome = formats::read(&bytes[..], None, "broken", None);
        prop_assert!(is_sane(&outcome), "{name}: {outcome:?}");
        Ok(())
    });
    assert!(ran.is_ok(), "{ran:?}");
}

#[test]
fn damaged_perfetto_files_never_panic() {
    damage(&SAMPLES[..10]);
}

#[test]
fn damaged_databases_never_panic() {
    damage(&SAMPLES[11..16]);
}

#[test]
fn damaged_files_of_other_formats_never_panic() {
    damage(&[
        "sample.xplane.pb.gz",
        "results.json.zst",
        "results_v1.json.gz",
        "results_v1.csv.gz",
        "gpu_trace.csv.gz",
        CSV,
        "kineto/rank0.json.gz",
    ]);
}

#[test]
fn a_path_that_is_not_there_is_named() {
    let error = formats::read_file(Path::new("no/such.pftrace"), None).unwrap_err();
    assert!(
        error.to_string().starts_with("no/such.pftrace: "),
        "{error}"
    );
}
