//! Damaged tables: what is wrong with them is said, and nothing becomes zero.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::made::{self, Row, write};
use crate::{close, estimate, litctl, mistake, said};

/// The kinds of damage that a report tells, in one text.
fn damage(report: &Value) -> String {
    let kinds = report["input"]["damage"].as_array().unwrap().iter();
    let kinds = kinds.map(|it| format!("{} x {}\n", it["count"], it["what"].as_str().unwrap()));
    String::from_iter(kinds)
}

#[test]
fn a_table_that_is_cut_counts_up_to_there() {
    let folder = tempfile::tempdir().unwrap();
    let text = made::csv(Row::all());
    let cut = write(folder.path(), "cut.csv", &text[..text.len() - 30]);
    let report = estimate(&["--csv", &cut]);
    assert_eq!(report["fleet"]["samples"], 23_999);
    assert!(
        damage(&report).contains("1 x rows are cut"),
        "{}",
        damage(&report)
    );
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let path = folder.path().join("cut.csv.gz");
    std::fs::write(&path, &packed[..packed.len() * 2 / 3]).unwrap();
    let report = estimate(&["--csv", &path.to_string_lossy()]);
    let samples = report["fleet"]["samples"].as_u64().unwrap();
    assert!((5_000..23_000).contains(&samples), "{samples}");
    assert!(
        damage(&report).contains("1 x files end early"),
        "{}",
        damage(&report)
    );
    assert!(said(&["--csv", &path.to_string_lossy()]).contains("What is wrong with the data"));
}

#[test]
fn empty_tables_are_no_estimate() {
    let folder = tempfile::tempdir().unwrap();
    for (text, words) in [
        ("", "files are empty"),
        ("\n\n", "files are empty"),
        (made::HEAD, "files have a head and no row"),
        ("gpu,power\n", "files have a head and no row"),
        ("gpu,power\n1\n2\n", "2 x rows are cut"),
        ("\"gpu,power\n", "a quote of the head is not closed"),
    ] {
        let path = write(folder.path(), "a.csv", text);
        let said = mistake(&["--csv", &path]);
        assert!(said.contains(words), "{text:?}: {said}");
    }
    // Beside a good one an empty one is damage.
    let good = write(folder.path(), "good.csv", &made::csv(Row::all()));
    let empty = write(folder.path(), "a.csv", "");
    let report = estimate(&["--csv", &empty, &good]);
    assert!(
        damage(&report).contains("files are empty"),
        "{}",
        damage(&report)
    );
}

#[test]
fn values_that_no_gpu_has_are_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "gpu,time,power_w,clock_mhz,temp_c,cap_w,limiter\n".to_owned();
    for second in 0..10 {
        for (gpu, clock) in [("a", "1400"), ("b", "1330")] {
            text += &format!("{gpu},{second},297,{clock},60,300,power\n");
        }
    }
    let good = write(folder.path(), "n.csv", &text);
    let before = estimate(&["--csv", &good]);
    // Neither changes a median, and each is said.
    text += "a,20,NaN,1400,60,300,power\nb,20,-5,1330,60,300,power\na,21,0,1400,60,300,power\n\
             b,21,297000,1330,60,300,power\na,22,0.297 kW,1400,60,300,power\nb,22,297000 mW,1330 MHz,60,300,power\n\
             a,23,297,inf,60,300,power\nb,23,297,1.33,60,300,power\na,24,297,1400,60 F,300,power\n\
             b,yesterday,297,1330,60,300,gremlins\na,25,297 BTU,1400,hot,300,power\nb,25,297,1330,,N/A,power\n\
             ,26,297,1330,60,300,power\nb,27,297,1330,60,300,power,9\nb,27,\"297,1330,60,300,power\n";
    let bad = write(folder.path(), "n.csv", &text);
    let after = estimate(&["--csv", &bad]);
    for key in ["spread_pct", "slowest_vs_median_pct"] {
        assert_eq!(before["nodes"][0][key], after["nodes"][0][key]);
    }
    close(
        &after["nodes"][0]["spread_pct"],
        100.0 * (1400.0 / 1330.0 - 1.0),
        1e-6,
    );
    let told = damage(&after);
    for words in [
        "1 x values of power_w are NaN or infinite",
        "1 x values of clock_mhz are NaN or infinite",
        "3 x values of power_w are not between 1 and 10000",
        "1 x values of clock_mhz are not between 10 and 10000",
        "1 x values of power_w have another unit than the others, kW; they are converted",
        "1 x values of power_w have another unit than the others, mW; they are converted",
        "1 x values of temp_c have another unit than the others, F",
        "1 x values of power_w have the unit BTU, which is not known",
        "1 x values of temp_c are no numbers",
        "1 x values of temp_c are absent",
        "1 x moments can't be read",
        "1 x words for a limiter are not known",
        "1 x rows name no node or no GPU",
        "1 x rows have more fields than the head",
        "1 x rows have a quote that is not closed",
    ] {
        assert!(told.contains(words), "{words}\n{told}");
    }
    let first = after["input"]["damage"][0]["first"].as_str().unwrap();
    assert!(first.contains("n.csv, line "), "{first}");
}

#[test]
fn ends_of_lines_marks_and_quotes_do_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let plain = made::csv(Row::all().take(2_000));
    let fields = |line: &str| {
        line.split(',')
            .map(|it| format!("\"{it}\""))
            .collect::<Vec<_>>()
            .join(",")
    };
    let quoted = plain.lines().map(fields).collect::<Vec<_>>().join("\n");
    let one = estimate(&["--csv", &write(folder.path(), "a.csv", &plain)]);
    for other in [
        plain.replace('\n', "\r\n"),
        format!("\u{feff}{plain}"),
        quoted,
        plain.replace(',', "\t"),
        format!("{plain}\n\n{}\n", made::HEAD),
    ] {
        let other = estimate(&["--csv", &write(folder.path(), "a.csv", &other)]);
        assert_eq!(one, other);
    }
    // A row twice counts once, and says so.
    let line = plain.lines().last().unwrap();
    let twice = estimate(&[
        "--csv",
        &write(folder.path(), "a.csv", &format!("{plain}{line}\n")),
    ]);
    assert_eq!(
        (&twice["nodes"], &twice["input"]["repeated"]),
        (&one["nodes"], &Value::from(1))
    );
    assert!(damage(&twice).contains("say the same of the same moment"));
}

#[test]
fn units_that_differ_between_gpus_are_no_spread() {
    let folder = tempfile::tempdir().unwrap();
    let text = "gpu,time,power_w,pace\na,1,297,2.4\nb,1,297,2400\n";
    let path = write(folder.path(), "n.csv", text);
    let report = estimate(&[
        "--csv",
        &path,
        "--cap-w",
        "300",
        "--price",
        "kwh=0.1,gpu_hour=2",
    ]);
    let node = &report["nodes"][0];
    for value in [
        &node["spread_pct"],
        &node["value_per_node_hour"],
        &node["repair"],
    ] {
        assert!(value.is_null(), "{node}");
    }
    assert!(
        node["why"]["spread_pct"]
            .as_str()
            .unwrap()
            .contains("units"),
        "{node}"
    );
}

#[test]
fn a_name_moves_no_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let text = "node,gpu,time,power_w,pace\n\u{1b}[2Jx,a,1,297,2\n\u{1b}[2Jx,b,1,297,3\n";
    let path = write(folder.path(), "n.csv", text);
    let html = folder.path().join("n.html");
    let output = litctl(&[
        "--csv",
        &path,
        "--cap-w",
        "300",
        "--html",
        &html.to_string_lossy(),
    ]);
    assert!(output.status.success());
    assert!(!output.stdout.contains(&0x1b));
    assert!(!std::fs::read(html).unwrap().contains(&0x1b));
}
