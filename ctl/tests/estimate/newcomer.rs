//! Mistakes and surprises of a first-time user.

use std::fs;

use serde_json::Value;

use crate::made::write;
use crate::{estimate, litctl, mistake, said};

/// Ten minutes of GPUs at their cap of 300 W with these paces, no column for the node.
fn table(paces: &[f64]) -> String {
    let mut text = "gpu,time,power_w,cap_w,temp_c,pace\n".to_owned();
    for minute in 0..10 {
        for (gpu, pace) in paces.iter().enumerate() {
            text += &format!("{gpu},{},297,300,{},{pace}\n", 60 * minute, 60 + gpu);
        }
    }
    text
}

/// All reasons of the fleet in one text.
fn reasons(report: &Value) -> String {
    report["fleet"]["cannot_tell"].to_string()
}

#[test]
fn files_of_one_name_are_nodes_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut args = vec!["--csv".to_owned()];
    for name in ["d1", "d2"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        let text = table(&[100.0, 101.0, 103.0]);
        args.push(write(folder.path(), &format!("{name}/smi.csv"), &text));
    }
    args.push(write(folder.path(), "other.csv", &table(&[1.0, 2.0])));
    let report = estimate(&args);
    let nodes = report["nodes"].as_array().unwrap().iter();
    let names = Vec::from_iter(nodes.map(|it| it["node"].as_str().unwrap()));
    assert_eq!(names, ["d1/smi", "d2/smi", "other"]);
    assert_eq!(report["input"]["earlier"], 0);
    // With a node's name only that node is meant.
    args.extend(["--node".to_owned(), "n".to_owned()]);
    assert_eq!(estimate(&args)["nodes"].as_array().unwrap().len(), 1);
}

#[test]
fn bounds_that_hold_only_if_caps_can_rise_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "n.csv", &table(&[100.0, 101.0, 105.0]));
    let price = ["--price", "kwh=0.14,gpu_hour=2.50"];
    let plain = [&["--csv", &path], &price[..]].concat();
    let page = said(&plain).replace("\n          ", " ");
    let verdict = page.lines().find(|it| it.contains("could gain")).unwrap();
    assert!(
        verdict.contains("Throughput counts only if caps can rise"),
        "{page}"
    );
    assert!(
        verdict.contains("--max-cap-w") && verdict.contains("gpu-red's"),
        "{page}"
    );
    let worth = page
        .lines()
        .find(|it| it.contains("per node-hour"))
        .unwrap();
    assert!(worth.contains("(gpu-red's) if caps can't rise"), "{page}");
    let report = estimate(&plain);
    let why = report["nodes"][0]["why"]["bound"].as_str().unwrap();
    assert!(why.contains("only if caps can rise"), "{why}");
    assert!(reasons(&report).contains(why));
    // Where it is told there is no condition.
    let told = [&plain[..], &["--max-cap-w", "400"]].concat();
    assert!(!said(&told).contains("can rise") && !reasons(&estimate(&told)).contains("can rise"));
    assert!(said(&["--help"]).contains("power.max_limit"));
}

#[test]
fn what_does_not_persist_is_not_said_to() {
    let folder = tempfile::tempdir().unwrap();
    let steady = write(folder.path(), "n.csv", &table(&[100.0, 101.0, 105.0]));
    let words = |path: &str| said(&["--csv", path]).replace("\n          ", " ");
    assert!(words(&steady).contains("; it persists: halves of the time correlate 1.000"));
    let mut text = "gpu,time,power_w,cap_w,pace\n".to_owned();
    for minute in 0..10 {
        let paces = match minute < 5 {
            true => [100.0, 101.0, 105.0, 102.0],
            false => [104.0, 101.0, 100.0, 105.0],
        };
        for (gpu, pace) in paces.iter().enumerate() {
            text += &format!("{gpu},{},297,300,{pace}\n", 60 * minute);
        }
    }
    let page = words(&write(folder.path(), "n.csv", &text));
    assert!(
        page.contains("; it does not persist: halves of the time correlate -0."),
        "{page}"
    );
    assert!(!page.contains("it persists"), "{page}");
}

#[test]
fn a_column_that_is_there_twice_is_not_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(
        folder.path(),
        "n.csv",
        "gpu,power.draw [W],pace,power.draw [W]\na,297,1,30\nb,297,2,30\n",
    );
    for args in [
        &["--csv", &path][..],
        &["--csv", &path, "--columns", "power_w=power.draw [W]"],
        &["--csv", &path, "--columns", "power_w=power.draw"],
    ] {
        let said = mistake(args);
        let words = "columns 2 (power.draw [W]) and 4 (power.draw [W]) have one name";
        assert!(said.contains(words), "{args:?}: {said}");
    }
    // Left aside it does no harm, and neither does one that says nothing.
    estimate(&["--csv", &path, "--columns", "power_w="]);
    let other = write(
        folder.path(),
        "n.csv",
        "gpu,note,pace,note\na,x,1,y\nb,x,2,y\n",
    );
    estimate(&["--csv", &other]);
}

#[test]
fn names_of_files_and_columns_move_no_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(5_000);
    let head = format!("when\u{1b}[31m,\u{9b}2J\u{202e},{long}\n1,2,3\n");
    let path = write(folder.path(), "a\u{1b}[2Jb.csv", &head);
    let said = mistake(&["--csv", &path]);
    assert!(said.contains("there are when"), "{said}");
    let odd = |it: char| it.is_control() && it != '\n' || it == '\u{202e}';
    assert!(!said.contains(odd) && said.len() < 1_000, "{said:?}");
    let head = format!("gpu,pace\u{1b}[31m,power_w\n{long}\u{1b}[31m,1,\u{1b}[31m\nb,2,297\n");
    let path = write(folder.path(), "a\u{1b}[2Jb.csv", &head);
    let output = litctl(&["--csv", &path]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(!page.contains(odd) && page.len() < 5_000, "{page:?}");
}

#[test]
fn a_page_does_not_take_the_place_of_an_input() {
    let folder = tempfile::tempdir().unwrap();
    let text = table(&[100.0, 101.0, 105.0]);
    let path = write(folder.path(), "n.csv", &text);
    let link = folder.path().join("page.html");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for page in [path.as_str(), &link.to_string_lossy()] {
        let said = mistake(&["--csv", &path, "--html", page]);
        assert!(
            said.contains("would be written over what is read"),
            "{said}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn page_and_json_say_what_no_telemetry_tells() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "n.csv", &table(&[100.0, 101.0, 105.0]));
    let html = folder.path().join("n.html");
    let html = html.to_string_lossy();
    let report = reasons(&estimate(&["--csv", &path, "--html", &html]));
    let page = fs::read_to_string(&*html).unwrap();
    let text = said(&["--csv", &path]).replace("\n  ", " ");
    for words in [
        "wait for each other",
        "equal work",
        "Bursts between two samples",
    ] {
        for (place, said) in [("JSON", &report), ("HTML", &page), ("text", &text)] {
            assert_eq!(said.matches(words).count(), 1, "{place}: {words}\n{said}");
        }
    }
}

#[test]
fn the_cap_of_amd_smi_monitor_is_the_current_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "timestamp,gpu,power_usage,max_power,hotspot_temperature,gfx_clock\n".to_owned();
    for second in 0..6 {
        text += &format!("{second},0,745,750,80,1800\n{second},1,745,750,81,1700\n");
    }
    let report = estimate(&["--csv", &write(folder.path(), "n.csv", &text)]);
    assert_eq!(report["nodes"][0]["limiter_share"]["power"], 1.0);
    assert!(report["nodes"][0]["spread_pct"].as_f64() > Some(5.0));
}
