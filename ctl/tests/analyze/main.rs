//! `litctl analyze` as people run it: the whole process, on files.

// In tests a panic is the report.
#![allow(clippy::unwrap_used, clippy::panic)]

mod beside;
mod causes;
mod costs;
mod first;
mod first_screen;
mod given;
mod jobs;
mod pipeline;
mod refused;
mod round_trip;
mod run;
mod schema;
mod study;
mod truth;
mod weighed;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Output;

use flate2::Compression;
use flate2::write::GzEncoder;
use run::shared;
use serde_json::Value;
use tempfile::TempDir;

fn analyze(arguments: &[&str], paths: &[&Path]) -> Output {
    let paths = paths.iter().map(|path| path.to_str().unwrap());
    run::output(&[&["analyze"], arguments, &Vec::from_iter(paths)].concat())
}

/// The report of a run that must succeed.
fn report(arguments: &[&str], paths: &[&Path]) -> Value {
    let output = analyze(&[&["--json"], arguments].concat(), paths);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a run that must fail says.
fn refusal(arguments: &[&str], paths: &[&Path]) -> String {
    let output = analyze(arguments, paths);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        output.stdout.is_empty() && stderr.starts_with("litctl: "),
        "{stderr}"
    );
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

/// One kernel event: name, start and length in µs.
fn kernel(name: &str, ts: f64, dur: f64) -> String {
    format!(
        r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{ts:.3},"dur":{dur:.3},"args":{{"device":0,"stream":7}}}}"#
    )
}

fn document(keys: &str, events: &[String]) -> String {
    format!("{{{keys}\"traceEvents\":[\n{}\n]}}\n", events.join(",\n"))
}

/// A rank of two that runs ten kernels, each delayed by so many µs.
fn rank(number: u32, delay: f64, length: f64) -> String {
    let kernels = (0..10).map(|k| {
        kernel(
            &format!("gemm{}", k % 4),
            100.0 * f64::from(k) + delay,
            length,
        )
    });
    let info = format!(r#""distributedInfo":{{"rank":{number},"world_size":2}},"#);
    document(&info, &Vec::from_iter(kernels))
}

/// What a rank exchanges with the others, to which it comes late by so many µs; it ends on all ranks at once.
fn exchange(ts: f64, delay: f64) -> String {
    kernel("ncclDevKernel_AllReduce", ts + delay, 100.0 - delay)
}

/// A rank of two that exchanges something behind its ten kernels.
fn exchanging(number: u32, delay: f64, length: f64) -> String {
    let exchange = exchange(1000.0, delay);
    rank(number, delay, length).replacen("\n]", &format!(",\n{exchange}\n]"), 1)
}

fn write(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn eight_real_ranks_have_the_known_leads() {
    let Some(folder) = shared("param_dlrm_v100x8") else {
        return;
    };
    let report = report(&["--kernels", "all"], &[&folder]);
    assert_eq!(report["schema"], 2);
    assert_eq!(report["matched_kernels"], 244);
    assert!((report["matched_fraction"].as_f64().unwrap() - 244.0 / 245.0).abs() < 1e-12);
    assert_eq!(report["straggler_rank"], 7);
    let known = [205.0, 373.0, 130.0, 327.0, 195.0, 189.0, 130.0, 76.5];
    for (rank, (one, known)) in report["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .zip(known)
        .enumerate()
    {
        assert_eq!(one["rank"], rank);
        let lead = one["lead"]["sum_ns"].as_f64().unwrap() / 1e6;
        assert!(
            (lead / known - 1.0).abs() < 0.02,
            "rank {rank}: {lead} instead of {known} ms"
        );
        let source = one["source"].as_str().unwrap();
        assert!(Path::new(source).is_file(), "{source}");
        assert_eq!(one["communication"], 8);
        assert!((0.0..=1.0).contains(&one["busy_fraction"].as_f64().unwrap()));
    }
}

#[test]
fn a_real_late_rank_with_fast_kernels_is_not_blamed_on_its_clock() {
    let Some(folder) = shared("param_dlrm_v100x8") else {
        return;
    };
    let output = analyze(&[], &[&folder]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Rank 7 is the straggler"), "{text}");
    assert!(
        text.contains("no host launches kernels fast enough for its GPU"),
        "{text}"
    );
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("it would be rank 5"), "{text}");
    assert!(
        !text.contains('\u{1b}'),
        "colours where there is no terminal: {text}"
    );
    assert!(output.stderr.is_empty());
}

#[test]
fn sampled_real_ranks_are_refused() {
    let Some(folder) = shared("hta/trace_filter") else {
        return;
    };
    let error = refusal(&[], &[&folder]);
    assert!(
        error.contains("leads are refused") && error.contains("at least 80 %"),
        "{error}"
    );
    let lenient = report(&["--min-matched", "0.5"], &[&folder]);
    assert!(lenient["matched_fraction"].as_f64().unwrap() < 0.8);
    assert_eq!(lenient["diagnosis"]["cause"], "sampling-artefact");
    let evidence = &lenient["diagnosis"]["evidence"][0];
    assert!(evidence.as_str().unwrap().contains("69.7 %"), "{evidence}");
    let text = analyze(&["--min-matched", "0.5"], &[&folder]).stdout;
    let text = String::from_utf8(text).unwrap();
    let words = Vec::from_iter(text.split_whitespace()).join(" ");
    assert!(
        words.contains("but that means nothing in these recordings"),
        "{text}"
    );
    assert!(text.contains("No diagnosis: "), "{text}");
}

#[test]
fn two_ranks_of_a_folder() {
    let folder = TempDir::new().unwrap();
    // Whatever they are called.
    write(&folder, "b", exchanging(0, 0.0, 50.0));
    write(&folder, "a.pt.trace.GZ", gzip(&exchanging(1, 5.0, 50.0)));
    write(&folder, "README.md", "not a trace");
    let report = report(&[], &[folder.path()]);
    assert_eq!(
        (&report["matched_kernels"], &report["straggler_rank"]),
        (&10.into(), &1.into())
    );
    let first = &report["ranks"][0];
    assert_eq!(first["source"], folder.path().join("b").to_str().unwrap());
    assert!(report["notes"].to_string().contains("README.md"));
    assert_eq!(
        first["lead"],
        serde_json::json!({"sum_ns": 50_000, "max_ns": 5_000, "last_ns": 5_000})
    );
    assert_eq!(
        (&first["last_in"], &report["ranks"][1]["last_in"]),
        (&0.into(), &10.into())
    );
    assert_eq!(
        (&first["kernels"], &first["computation"]),
        (&11.into(), &10.into())
    );
    // 10 x 50 and 100 of 1100 µs.
    assert!((first["busy_fraction"].as_f64().unwrap() - 600.0 / 1100.0).abs() < 1e-12);
    assert_eq!(first["overlap_ratio"], 0.0);
}

#[test]
fn equal_ranks_have_no_straggler() {
    let folder = TempDir::new().unwrap();
    let (a, b) = (
        write(&folder, "a.json", exchanging(0, 0.0, 50.0)),
        write(&folder, "b.json", exchanging(1, 0.0, 50.0)),
    );
    assert!(report(&[], &[&a, &b])["straggler_rank"].is_null());
    let text = String::from_utf8(analyze(&[], &[&a, &b]).stdout).unwrap();
    assert!(text.contains("No straggler"), "{text}");
}

#[test]
fn a_slow_clock_is_told_from_a_late_host() {
    let folder = TempDir::new().unwrap();
    let (a, b) = (
        write(&folder, "a.json", exchanging(0, 0.0, 50.0)),
        write(&folder, "b.json", exchanging(1, 5.0, 55.0)),
    );
    let text = String::from_utf8(analyze(&[], &[&a, &b]).stdout).unwrap();
    // Wherever its lines break.
    let text = Vec::from_iter(text.split_whitespace()).join(" ");
    assert!(
        text.contains("the clock is slow") && !text.contains("the host is late"),
        "{text}"
    );
}

#[test]
fn one_rank_has_statistics_and_no_leads() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "rank1.json", rank(1, 0.0, 50.0));
    let report = report(&[], &[&path]);
    for key in ["matched_kernels", "matched_fraction", "straggler_rank"] {
        assert!(report[key].is_null(), "{report}");
    }
    let one = &report["ranks"][0];
    assert!(
        one["lead"].is_null() && one["last_in"].is_null(),
        "{report}"
    );
    assert_eq!((&one["rank"], &one["kernels"]), (&1.into(), &10.into()));
    let text = String::from_utf8(analyze(&[], &[&path]).stdout).unwrap();
    assert!(text.contains("at least two ranks"), "{text}");
}

#[test]
fn launches_that_nobody_recorded_are_no_zero() {
    let folder = TempDir::new().unwrap();
    let trace = rank(0, 0.0, 50.0);
    let without = write(&folder, "without.json", &trace);
    // The same, whose first kernel tells its launch.
    let call = r#"{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":0.5,"dur":1,"args":{"correlation":4}}"#;
    let trace = trace.replacen("\"stream\":7", "\"stream\":7,\"correlation\":4", 1);
    let trace = trace.replacen('[', &format!("[{call},"), 1);
    let with = write(&folder, "with.json", trace);
    let page = folder.path().join("page.html");
    let told = |path: &Path| {
        let html = ["--html", page.to_str().unwrap()];
        let output = analyze(&html, &[path]);
        let text = String::from_utf8(output.stdout).unwrap();
        let (_, rows) = text.split_once("where the time goes").unwrap();
        let row = rows.lines().find(|row| row.starts_with("   0 ")).unwrap();
        let columns = Vec::from_iter(row.split_whitespace().rev());
        let idle = [columns[5], columns[4]].map(str::to_owned);
        let said = [text, fs::read_to_string(&page).unwrap()];
        (
            idle,
            said.map(|said| said.contains("launches are not recorded")),
        )
    };
    assert_eq!(told(&without), (["-", "-"].map(Into::into), [true; 2]));
    assert_eq!(told(&with), (["0.0", "0.0"].map(Into::into), [false; 2]));
}

#[test]
fn ranks_may_be_given() {
    let folder = TempDir::new().unwrap();
    let nameless = |delay| {
        document(
            "",
            &[
                kernel("a", delay, 2.0),
                kernel("b", delay + 10.0, 2.0),
                exchange(20.0, delay),
            ],
        )
    };
    let (a, b) = (
        write(&folder, "a.json", nameless(0.0)),
        write(&folder, "b.json", nameless(1.0)),
    );
    let error = refusal(&[], &[&a, &b]);
    assert!(
        error.contains("a.json") && error.contains("--ranks"),
        "{error}"
    );
    let given = report(&["--ranks", "4,2"], &[&a, &b]);
    assert_eq!(given["straggler_rank"], 2);
    let mapping = "as given, b.json is rank 2, a.json is rank 4";
    assert_eq!(given["notes"][0], mapping);
    assert!(refusal(&["--ranks", "1"], &[&a, &b]).contains("2 files"));
}

#[test]
fn the_gpus_of_files_may_be_given_ranks() {
    let folder = TempDir::new().unwrap();
    // Two files of two GPUs each; device 1 of the second is last.
    let file = |name: &str, delays: [f64; 2]| {
        let kernels = (0..2).zip(delays).flat_map(|(device, delay)| {
            let on = format!("\"device\":{device}");
            let one = move |k: u32| kernel(&format!("k{k}"), 10.0 * f64::from(k) + delay, 2.0);
            let kernels = (0..9).map(one).chain([exchange(100.0, delay)]);
            kernels.map(move |kernel| kernel.replace("\"device\":0", &on))
        });
        write(&folder, name, document("", &Vec::from_iter(kernels)))
    };
    let (a, b) = (file("a.json", [0.0, 1.0]), file("b.json", [2.0, 3.0]));
    assert_eq!(report(&[], &[&a])["straggler_rank"], 1);
    assert_eq!(report(&["--ranks", "5,4"], &[&a])["straggler_rank"], 4);
    let four = report(&["--ranks", "0,1,8,9"], &[&a, &b]);
    assert_eq!(four["straggler_rank"], 9);
    assert_eq!(four["ranks"][2]["source"], b.to_str().unwrap());
    let error = refusal(&["--ranks", "3"], &[&a]);
    assert!(
        error.contains("holds 2 GPUs (0, 1)") && error.contains("names one rank"),
        "{error}"
    );
    let error = refusal(&["--ranks", "1,2,3"], &[&a, &b]);
    assert!(error.contains("one for each GPU"), "{error}");
}

#[test]
fn the_files_of_a_folder_are_in_the_order_of_their_numbers() {
    let folder = TempDir::new().unwrap();
    for number in [0, 5, 10, 15] {
        let delay = f64::from(number);
        let kernels = (0..9).map(|k| kernel(&format!("k{k}"), 100.0 * f64::from(k) + delay, 2.0));
        let all = kernels.chain([exchange(1000.0, delay)]);
        write(
            &folder,
            &format!("gpu{number}.json"),
            document("", &Vec::from_iter(all)),
        );
    }
    let report = report(&["--ranks", "0,5,10,15"], &[folder.path()]);
    for rank in report["ranks"].as_array().unwrap() {
        let name = format!("gpu{}.json", rank["rank"]);
        assert!(rank["source"].as_str().unwrap().ends_with(&name), "{rank}");
    }
    assert_eq!(report["straggler_rank"], 15);
}

#[test]
fn a_file_that_is_named_twice_is_not_compared_with_itself() {
    let folder = TempDir::new().unwrap();
    let a = write(&folder, "a.json", rank(0, 0.0, 50.0));
    for paths in [[a.as_path(), a.as_path()], [folder.path(), a.as_path()]] {
        assert!(refusal(&[], &paths).contains("is named twice"));
    }
}

#[test]
fn the_user_may_say_what_kernels_are() {
    let folder = TempDir::new().unwrap();
    for number in 0..2 {
        let delay = 5.0 * f64::from(number);
        let kernels = (0..20).map(|k| {
            let name = if k % 2 == 0 { "gemm" } else { "my_all_reduce" };
            kernel(name, 100.0 * f64::from(k) + delay, 50.0)
        });
        let info = format!(r#""distributedInfo":{{"rank":{number},"world_size":2}},"#);
        write(
            &folder,
            &format!("r{number}.json"),
            document(&info, &Vec::from_iter(kernels)),
        );
    }
    let traces = TempDir::new().unwrap();
    let rows =
        "[[kernel]]\nname = \"my_all_reduce\"\nclass = \"communication\"\nsource = \"ours\"\n";
    let classes = write(&traces, "classes.toml", rows);
    let before = report(&[], &[folder.path()]);
    assert_eq!(before["ranks"][0]["communication"], 0);
    assert!(
        before["notes"].to_string().contains("20 × my_all_reduce"),
        "{before}"
    );
    let after = report(&["--classes", classes.to_str().unwrap()], &[folder.path()]);
    assert_eq!(after["ranks"][0]["communication"], 10);
    assert!(!after["notes"].to_string().contains("my_all_reduce"));
    let bad = write(&traces, "bad.toml", rows.replace("communication", "coffee"));
    let error = refusal(&["--classes", bad.to_str().unwrap()], &[folder.path()]);
    assert!(
        error.contains("bad.toml") && error.contains("fused"),
        "{error}"
    );
}

#[test]
fn gpus_of_a_file_may_be_chosen() {
    let folder = TempDir::new().unwrap();
    let kernels = (0..3).flat_map(|device| {
        let on = format!("\"device\":{device}");
        let one = move |k: u32| {
            kernel(
                &format!("k{k}"),
                10.0 * f64::from(k) + f64::from(device),
                2.0,
            )
        };
        (0..9).map(move |k| one(k).replace("\"device\":0", &on))
    });
    let path = write(&folder, "a.json", document("", &Vec::from_iter(kernels)));
    let count = |arguments: &[&str]| {
        report(arguments, &[&path])["ranks"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!((count(&[]), count(&["--devices", "2,0"])), (3, 2));
    let error = refusal(&["--devices", "7"], &[&path]);
    assert!(
        error.contains("has none of the devices 7") && error.contains("0, 1, 2"),
        "{error}"
    );
}

#[test]
fn traces_of_collectives_alone_are_told_what_matches_them() {
    let folder = TempDir::new().unwrap();
    for number in 0..2 {
        // They end together, whenever they start.
        let late = 5.0 * f64::from(number);
        let text = rank(number, late, 50.0 - late).replace("gemm", "ncclDevKernel_");
        write(&folder, &format!("r{number}.json"), text);
    }
    assert!(refusal(&[], &[folder.path()]).contains("--kernels all"));
    assert_eq!(
        report(&["--kernels", "all"], &[folder.path()])["straggler_rank"],
        1
    );
}

#[test]
fn an_iteration_may_be_chosen_or_cut() {
    let folder = TempDir::new().unwrap();
    let (a, b) = (
        write(&folder, "a.json", rank(0, 0.0, 50.0)),
        write(&folder, "b.json", rank(1, 5.0, 50.0)),
    );
    // gemm0 runs as the first, fifth and ninth of ten.
    let second = report(&["--cut-at", "gemm0", "--iteration", "1"], &[&a, &b]);
    assert_eq!(second["matched_kernels"], 4);
    let last = report(&["--cut-at", "gemm0", "--iteration", "2"], &[&a, &b]);
    assert_eq!(last["ranks"][0]["kernels"], 2);
    assert!(refusal(&["--iteration", "1"], &[&a, &b]).contains("--cut-at"));
    let error = refusal(&["--cut-at", "gemm0", "--iteration", "9"], &[&a, &b]);
    assert!(error.contains("3 iterations from 0 to 2"), "{error}");
    assert!(refusal(&["--cut-at", "nothing"], &[&a, &b]).contains("a.json"));
}

#[test]
fn long_names_are_read() {
    let folder = TempDir::new().unwrap();
    let path = write(
        &folder,
        "rank0.json",
        document("", &[kernel(&"k".repeat(5_000), 1.0, 1.0)]),
    );
    assert_eq!(report(&[], &[&path])["ranks"][0]["kernels"], 1);
}

#[test]
fn every_option_is_in_the_documentation() {
    let help = run::litctl(&["analyze", "--help"]);
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/analyze.md");
    let docs = fs::read_to_string(docs).unwrap();
    let options = help.lines().filter_map(|line| {
        let option = line.trim_start().split_once("--")?.1;
        let before = line.split_once("--")?.0;
        let is_option = before.trim().is_empty() || before.trim().ends_with(',');
        let end = option.find(|c: char| !c.is_ascii_lowercase() && c != '-');
        is_option.then(|| format!("--{}", &option[..end.unwrap_or(option.len())]))
    });
    let options = Vec::from_iter(options);
    assert!(options.len() > 13, "{options:?}");
    for option in options.iter().filter(|option| *option != "--help") {
        assert!(docs.contains(&format!("`{option}")), "{option}");
    }
}

#[test]
fn other_json_of_a_folder_is_skipped_with_a_note() {
    let folder = TempDir::new().unwrap();
    let other = write(&folder, "config.json", r#"{"batch": 7}"#);
    assert!(refusal(&[], &[folder.path()]).contains("no file is a trace"));
    write(&folder, "a.json", rank(0, 0.0, 50.0));
    write(&folder, "b.json", rank(1, 5.0, 50.0));
    write(&folder, "empty.json", "");
    // An editor's copy, which is passed over without a word.
    write(&folder, ".b.json", "{");
    let report = report(&[], &[folder.path()]);
    assert_eq!(report["matched_kernels"], 10);
    for (note, file) in [(0, "config.json"), (1, "empty.json")] {
        let note = report["notes"][note].as_str().unwrap();
        assert!(note.contains("skipped") && note.contains(file), "{note}");
    }
    // What is named is meant.
    assert!(refusal(&[], &[folder.path(), &other]).contains("config.json"));
}

#[test]
fn what_profilers_write_beside_traces_is_skipped_with_a_note() {
    let folder = TempDir::new().unwrap();
    // What XLA writes for viewers, and rocprofv3's copies and agents.
    let others = [
        (
            "host.trace.json",
            r#"{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":[
                {"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"name":"fusion"}]}"#,
        ),
        (
            "7_memory_copy_trace.csv",
            "Kind,Direction,Source_Agent_Id,Destination_Agent_Id,Start_Timestamp,End_Timestamp\n\
                MEMORY_COPY,HOST_TO_DEVICE,0,2,1,2\nMEMORY_COPY,DEVICE_TO_HOST,2,0,3,4\n",
        ),
        ("7_agent_info.csv", "Node_Id,Agent_Type\n0,CPU\n"),
    ];
    for (name, content) in others {
        write(&folder, name, content);
    }
    for number in 0..2 {
        write(
            &folder,
            &format!("rank{number}.json"),
            rank(number, 0.0, 1.0),
        );
    }
    let report = report(&[], &[folder.path()]);
    assert_eq!(report["ranks"].as_array().unwrap().len(), 2);
    let notes = report["notes"].to_string();
    for (name, _) in others {
        assert!(notes.contains(name), "{name}: {notes}");
    }
}

#[test]
fn the_table_fits_eighty_columns_and_marks_the_straggler() {
    let folder = TempDir::new().unwrap();
    write(&folder, "a.json", exchanging(0, 0.0, 50.0));
    write(&folder, "b.json", exchanging(1, 5.0, 55.0));
    let text = String::from_utf8(analyze(&[], &[folder.path()]).stdout).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let marked: Vec<_> = text.lines().filter(|line| line.starts_with('>')).collect();
    assert!(
        matches!(marked.as_slice(), [line] if line.starts_with(">  1 ")),
        "{text}"
    );
    assert!(text.contains("pace: "), "{text}");
}
