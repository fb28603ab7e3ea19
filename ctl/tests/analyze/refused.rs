//! Files, options and combinations of them that are refused, or read as far as they go.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::{analyze, document, gzip, kernel, rank, refusal, report, write};

#[test]
fn options_that_say_nothing_are_told() {
    let folder = TempDir::new().unwrap();
    write(&folder, "a.json", rank(0, 0.0, 50.0));
    write(&folder, "b.json", rank(1, 5.0, 50.0));
    let traces = folder.path();
    let told = refusal(&["--cut-at", ""], &[traces]);
    assert!(told.contains("--cut-at: an empty name"), "{told}");
    let own = TempDir::new().unwrap();
    let classes = own.path().join("classes.toml");
    for (text, part) in [
        (&b""[..], "has no row; a row is [[kernel]]"),
        (b"\xff\xfe", "is no text (UTF-8)"),
    ] {
        fs::write(&classes, text).unwrap();
        let told = refusal(&["--classes", classes.to_str().unwrap()], &[traces]);
        assert!(told.contains(part), "{told}");
    }
    let row = "[[kernel]]\nname = \"nowhere\"\nclass = \"copy\"\n";
    fs::write(&classes, row).unwrap();
    let report = report(&["--classes", classes.to_str().unwrap()], &[traces]);
    let notes = report["notes"].as_array().unwrap();
    let mut notes = notes.iter().map(|note| note.as_str().unwrap());
    assert!(
        notes.any(|note| note.contains("none of its rows fits")),
        "{report}"
    );
}

#[test]
fn bad_files_are_refused_by_name_and_cause() {
    let folder = TempDir::new().unwrap();
    let good = rank(0, 0.0, 50.0);
    let packed = gzip(&good);
    let twice = gzip(&good);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&twice).unwrap();
    let twice = encoder.finish().unwrap();
    let cases: [(&str, &[u8], &str); 10] = [
        ("twice.json.gz", &twice, "compressed twice"),
        (
            "truncated.json.gz",
            &packed[..packed.len() / 2],
            "truncated",
        ),
        (
            "cut.json",
            &good.as_bytes()[..good.len() / 2],
            "cut at byte",
        ),
        ("empty.json", b"", "is empty"),
        (
            "host.json",
            br#"{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1}]}"#,
            "holds no GPU kernels",
        ),
        ("text.json", b"once upon a time", "none of the formats"),
        (
            "other.json",
            br#"{"rocprofiler-sdk-tool":[{"x":1}]}"#,
            "holds no GPU kernels",
        ),
        (
            "back.json",
            document("", &[kernel("gemm", 5.0, -1.0)]).leak().as_bytes(),
            "times run backwards",
        ),
        (
            "absurd.json",
            document("", &[kernel(&"k".repeat(100_000), 1.0, 1.0)])
                .leak()
                .as_bytes(),
            "100000 bytes",
        ),
        (
            "far.json",
            document("", &[kernel("gemm", 1e17, 1.0)]).leak().as_bytes(),
            "gemm",
        ),
    ];
    for (name, content, cause) in cases {
        let path = write(&folder, name, content);
        let error = refusal(&[], &[&path]);
        assert!(
            error.contains(name) && error.contains(cause),
            "{name}: {error}"
        );
        // One bad file among good ones is no less bad.
        let other = write(&folder, "good.json", rank(1, 0.0, 50.0));
        assert!(refusal(&["--json"], &[&other, &path]).contains(name));
    }
}

#[test]
fn cut_tables_are_read_to_the_cut_and_empty_ones_say_what_to_do() {
    let folder = TempDir::new().unwrap();
    let header =
        "Kind,Agent_Id,Queue_Id,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_Id\n";
    let line = |k: u32| {
        format!(
            "KERNEL_DISPATCH,4,1,gemm,{},{},{k}\n",
            100 * k,
            100 * k + 50
        )
    };
    let whole = format!("{header}{}", (0..9).map(line).collect::<String>());
    for cut in [15, 12, 5, 3] {
        let path = write(&folder, "cut.csv", &whole[..whole.len() - cut]);
        let report = report(&[], &[&path]);
        assert_eq!(report["ranks"][0]["kernels"], 8, "{cut}");
        let note = report["notes"].to_string();
        assert!(note.contains("cut in the middle of line 10"), "{note}");
    }
    // What stands in the middle is damage, and a file of one cut line has nothing to use.
    let middle = write(&folder, "middle.csv", whole.replace(",200,250", ",200"));
    let first = write(&folder, "first.csv", &whole[..header.len() + 20]);
    for path in [middle, first] {
        let error = refusal(&[], &[&path]);
        assert!(
            error.contains("fields") && error.contains("copy or record it again"),
            "{error}"
        );
    }
    let empty = write(&folder, "empty.csv", header);
    let error = refusal(&[], &[&empty]);
    assert!(
        error.contains("holds no GPU kernels") && error.contains("--kernel-trace"),
        "{error}"
    );
}

#[test]
fn no_trace_is_written_over() {
    let folder = TempDir::new().unwrap();
    let (a, b) = (
        write(&folder, "a.json", rank(0, 0.0, 50.0)),
        write(&folder, "b.json", rank(1, 5.0, 50.0)),
    );
    let twice = format!("{}/r.html", folder.path().display());
    let other_way = format!(
        "{}/../{}/a.json",
        folder.path().display(),
        folder.path().file_name().unwrap().to_str().unwrap()
    );
    for written in [
        &["--csv", a.to_str().unwrap()][..],
        &["--html", &other_way],
        &["--html", &twice, "--csv", &twice],
    ] {
        let error = refusal(written, &[&a, &b]);
        assert!(error.contains("name another file to write"), "{error}");
    }
    assert_eq!(fs::read_to_string(&a).unwrap(), rank(0, 0.0, 50.0));
}

#[test]
fn names_from_files_do_no_harm_to_a_terminal() {
    let folder = TempDir::new().unwrap();
    let odd = |delay: f64| {
        let kernels = (0..10).map(|k| {
            kernel(
                "a\\n\\u001b[31mred\\u0000",
                10.0 * f64::from(k) + delay,
                0.0,
            )
        });
        document("", &Vec::from_iter(kernels))
    };
    let (a, b) = (
        write(&folder, "a.json", odd(0.0)),
        write(&folder, "b.json", odd(1.0)),
    );
    let output = analyze(&["--ranks", "0,1", "--models", "--overlap"], &[&a, &b]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("red"), "{text}");
    assert!(
        !text.contains(['\u{1b}', '\0']) && !text.contains("inf"),
        "{text}"
    );
    assert!(!text.contains("a\n"), "{text}");
}

#[test]
fn numbers_that_make_no_sense_are_refused_with_what_would() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "a.json", rank(0, 0.0, 50.0));
    for (option, value, says) in [
        ("--idle-power", "-5", "number of watts from 0"),
        ("--baseline-power", "inf", "number of watts from 0"),
        ("--min-matched", "-0.5", "number from 0 to 1"),
        ("--varying", "nan", "number from 0 to 1"),
        ("--iteration", "-1", "whole number from 0"),
        ("--ranks", "a", "whole number from 0"),
        ("--ranks", "-1", "whole number from 0"),
    ] {
        let output = analyze(&[option, value], &[&path]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says) && error.contains(option), "{error}");
    }
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let folder = TempDir::new().unwrap();
    let a = write(&folder, "a.json", rank(0, 0.0, 50.0));
    let duplicate = refusal(&[], &[&a, &write(&folder, "b.json", rank(0, 1.0, 50.0))]);
    assert!(
        duplicate.contains("a.json")
            && duplicate.contains("b.json")
            && duplicate.contains("rank 0")
    );
    let larger = rank(1, 0.0, 50.0).replace("\"world_size\":2", "\"world_size\":4");
    let error = refusal(&[], &[&a, &write(&folder, "c.json", larger)]);
    assert!(
        error.contains("world size 2") && error.contains("one of 4") && error.contains("c.json"),
        "{error}"
    );
    let error = refusal(&[], &[&a, &write(&folder, "d.json", rank(1, 1e9, 50.0))]);
    assert!(error.contains("do not belong together"), "{error}");
    let stranger = rank(1, 0.0, 50.0).replace("gemm", "conv");
    let error = refusal(&[], &[&a, &write(&folder, "e.json", stranger)]);
    assert!(
        error.contains("leads are refused") && error.contains("conv"),
        "{error}"
    );
}

#[test]
fn missing_paths_are_refused() {
    let folder = TempDir::new().unwrap();
    assert!(refusal(&[], &[&folder.path().join("none.json")]).contains("none.json"));
    assert!(refusal(&[], &[folder.path()]).contains("holds no file"));
    // That is clap's own error: nothing was given at all.
    assert_eq!(analyze(&[], &[]).status.code(), Some(2));
    assert_eq!(
        analyze(&["--min-matched", "7"], &[folder.path()])
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn one_recording_under_two_names_is_refused() {
    let folder = TempDir::new().unwrap();
    let a = write(&folder, "a.json", rank(0, 0.0, 50.0));
    let b = write(&folder, "b.json", rank(0, 0.0, 50.0));
    let error = refusal(&["--ranks", "0,1"], &[&a, &b]);
    assert!(error.contains("a.json and "), "{error}");
    assert!(error.contains("hold the same recording") && error.contains("leave one out"));
    // Another one of the same rank is another one.
    let c = write(&folder, "c.json", rank(0, 1.0, 50.0));
    assert!(analyze(&["--ranks", "0,1"], &[&a, &c]).status.success());
}

#[test]
fn what_differs_is_told_where_too_little_matches() {
    let folder = TempDir::new().unwrap();
    let run = |number: u32, names: [&str; 10]| {
        let kernels = (0..10)
            .zip(names)
            .map(|(k, name)| kernel(name, 100.0 * f64::from(k), 50.0));
        let info = format!(r#""distributedInfo":{{"rank":{number},"world_size":2}},"#);
        document(&info, &Vec::from_iter(kernels))
    };
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let a = write(&folder, "a.json", run(0, names));
    // The same ten, half of them elsewhere.
    let turned = ["f", "g", "h", "i", "j", "a", "b", "c", "d", "e"];
    let b = write(&folder, "b.json", run(1, turned));
    let error = refusal(&[], &[&a, &b]);
    for part in [
        "Names are not what differs, but their order or their streams: all ranks have 10 of the same names",
        "--min-matched 0.50 compares them all the same",
    ] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
    assert!(!error.contains("in the same iterations?"), "{error}");
    // What is advised is enough.
    assert!(
        analyze(&["--min-matched", "0.50"], &[&a, &b])
            .status
            .success()
    );
    let others = ["a", "b", "c", "x", "x", "x", "x", "x", "x", "x"];
    let b = write(&folder, "b.json", run(1, others));
    let error = refusal(&[], &[&a, &b]);
    assert!(
        error.contains("Names differ: only 3 are of the same names"),
        "{error}"
    );
    assert!(
        error.contains("--min-matched, with a lower share,"),
        "{error}"
    );
}
