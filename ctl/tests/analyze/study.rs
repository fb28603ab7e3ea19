//! `litctl analyze` beyond leads: predictions, a diagnosis, and the files that it writes.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{litctl, litlab, shared, skip};
use litd_traces::formats;
use serde_json::Value;
use tempfile::TempDir;

const ORACLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/oracle");

/// A folder of its own with the simulated node of one of the oracle's cases, and the case.
fn node(at: usize) -> (TempDir, Value) {
    let cases = std::fs::read_to_string(format!("{ORACLE}/node.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&cases).unwrap();
    let case = cases[at].clone();
    let folder = TempDir::new().unwrap();
    let speeds = case["speeds"].as_array().unwrap().iter();
    let speeds = Vec::from_iter(speeds.map(ToString::to_string)).join(",");
    let workload = format!("{ORACLE}/{}.json", case["workload"].as_str().unwrap());
    litlab(&[
        "simulate",
        "--workload",
        &workload,
        "--speeds",
        &speeds,
        "--contention",
        &case["contention"].to_string(),
        "--write-kineto",
        folder.path().to_str().unwrap(),
    ]);
    (folder, case)
}

#[test]
fn predictions_are_the_oracles() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    for at in 0..6 {
        let (folder, case) = node(at);
        let report = litctl(&[
            "--json",
            "analyze",
            "--models",
            folder.path().to_str().unwrap(),
        ]);
        let report: Value = serde_json::from_str(&report).unwrap();
        let expected = &case["predict_700w_idle_140w"];
        assert_eq!(report["models"]["constant"], expected["constant"]);
        assert_eq!(report["models"]["varying"], expected["varying"]);
        for name in ["max", "med", "min"] {
            for value in ["speedup", "node_power_ratio"] {
                let got = report["models"][name][value].as_f64().unwrap();
                let wanted = expected[name][value].as_f64().unwrap();
                assert!((got - wanted).abs() < 1e-6, "{at} {name} {value}: {got}");
            }
        }
    }
}

#[test]
fn the_text_names_the_cause_and_the_direction_of_each_number() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let (folder, _) = node(0);
    let text = litctl(&[
        "analyze",
        "--models",
        "--overlap",
        folder.path().to_str().unwrap(),
    ]);
    for part in [
        "Slow clock: the others wait for rank 4",
        "above 1 is less time;\npower: after / before, below 1 is less",
        "b.gate_proj",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn pictures_a_trace_and_a_table_are_written() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let (folder, _) = node(4);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (html, trace, csv) = (path("r.html"), path("r.pftrace"), path("r.csv"));
    let ranks = [path("rank0.json.gz"), path("rank1.json.gz")];
    litctl(&[
        "analyze",
        &ranks[0],
        &ranks[1],
        "--html",
        &html,
        "--perfetto",
        &trace,
        "--csv",
        &csv,
    ]);
    let page = std::fs::read_to_string(&html).unwrap();
    assert_eq!(page.matches("<svg").count(), 5);
    assert_eq!(page.matches("</svg>").count(), 5);
    assert!(page.contains("SIMULATED") && page.contains("rank 0"));
    // Self-contained: nothing is fetched, nothing runs.
    for foreign in ["http://", "https://", "<script", "url(", "NaN", "inf"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    let written = formats::read_file(Path::new(&trace), None).unwrap();
    let kernels = written
        .timelines
        .iter()
        .map(|timeline| timeline.kernels.len());
    assert_eq!(Vec::from_iter(kernels), [91, 91]);
    // A head, and 80 computation kernels on two ranks.
    let table = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(table.lines().count(), 161);
    let columns = table.lines().map(|line| line.split(',').count());
    assert!(columns.into_iter().all(|count| count == 8));
}

/// Measures, in the browser, what is on the page: the widths of page and window, and for each
/// chart its size and how many of its shapes have one.
const MEASURE: &str = "<script>
onload = () => {
  const sizes = [...document.querySelectorAll('svg')].map(svg => {
    const box = svg.getBoundingClientRect();
    const shapes = [...svg.querySelectorAll('path,polyline,line,circle,rect,text')];
    const drawn = shapes.filter(shape => {
      const {width, height} = shape.getBoundingClientRect();
      return width + height > 0;
    });
    return [Math.round(box.width), Math.round(box.height), drawn.length].join(' ');
  });
  const page = document.documentElement;
  document.title = [page.scrollWidth, innerWidth, ...sizes].join(';');
};
</script>";

fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let programs =
        std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
    let found = programs.into_iter().find(|program| program.is_file());
    if found.is_none() {
        skip("no Chromium in PATH");
    }
    found
}

/// Opens a page in a window of a phone's width; what the browser prints and logs.
fn open(browser: &Path, page: &Path, how: &str) -> (String, String) {
    let profile = page.with_extension("profile");
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            // Nothing of the network is needed, and where there is none nothing is waited for.
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            // A phone is narrower, but not the windows of Chromium.
            "--window-size=500,5000",
            "--enable-logging=stderr",
            "--timeout=60000",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(how)
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("CONSOLE"), "{said}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), said)
}

#[test]
fn a_browser_draws_the_report() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let Some(browser) = browser() else { return };
    let (folder, _) = node(4);
    let html = folder.path().join("r.html");
    litctl(&[
        "analyze",
        folder.path().to_str().unwrap(),
        "--html",
        html.to_str().unwrap(),
    ]);
    // Kept for whoever wants to see it.
    let shot = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("analyze-report.png");
    open(&browser, &html, &format!("--screenshot={}", shot.display()));
    // A page of one colour would take less.
    let size = std::fs::metadata(&shot).unwrap().len();
    assert!(size > 30_000, "{}", shot.display());
    // The report itself has no script; what is measured is the same page with one.
    let page = std::fs::read_to_string(&html).unwrap();
    let measured = folder.path().join("measured.html");
    std::fs::write(&measured, page + MEASURE).unwrap();
    let (dom, _) = open(&browser, &measured, "--dump-dom");
    let title = dom.split_once("<title>").unwrap().1;
    let title = title.split_once("</title>").unwrap().0;
    let mut parts = title.split(';');
    let number = |text: Option<&str>| text.unwrap().parse::<f64>().unwrap();
    let (page, window) = (number(parts.next()), number(parts.next()));
    assert!(
        page <= window,
        "the page is {page} wide in a window of {window}"
    );
    let charts = Vec::from_iter(parts);
    assert_eq!(charts.len(), 5, "{title}");
    for (at, chart) in charts.into_iter().enumerate() {
        let sizes = Vec::from_iter(chart.split(' ').map(|size| number(Some(size))));
        let [width, height, shapes] = sizes[..] else {
            panic!("{chart}")
        };
        assert!(width > 300.0 && height > 100.0, "{title}");
        // Where the time of two ranks goes is little to draw.
        let least = if at == 0 { 12.0 } else { 20.0 };
        assert!(shapes > least, "{title}");
    }
}

/// Counts what Perfetto's own classes find in a file: begins, counters, arrows and their ends.
const DECODE: &str = "
import collections, sys
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
trace = pb.Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
events = [packet.track_event for packet in trace.packet if packet.HasField('track_event')]
flows = collections.Counter(flow for event in events for flow in event.flow_ids)
kinds = collections.Counter(event.type for event in events)
print(kinds[1], kinds[2], kinds[4], len(flows), *sorted(set(flows.values())))
";

#[test]
fn perfettos_own_classes_decode_the_trace() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let (folder, _) = node(4);
    let trace = folder.path().join("r.pftrace");
    let trace = trace.to_str().unwrap();
    litctl(&[
        "analyze",
        folder.path().to_str().unwrap(),
        "--perfetto",
        trace,
    ]);
    // The gate puts one below target/tools.
    let own = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../target/tools/perfetto/bin/python"
    );
    let decoded = [own, "python3"].iter().find_map(|python| {
        let output = Command::new(python).args(["-c", DECODE, trace]).output();
        output.ok().filter(|output| output.status.success())
    });
    let Some(output) = decoded else {
        return skip("no Python with the package perfetto");
    };
    let counted = String::from_utf8(output.stdout).unwrap();
    // 91 kernels and 80 leads on each of two ranks; every arrow joins two kernels.
    assert_eq!(counted.trim(), "182 182 160 80 2");
}

#[test]
fn a_report_on_collectives_is_read_too() {
    let folder = "tracelens/traces/mi300/llama_70b_fsdp/nccl_analysis_report_csvs";
    let Some(folder) = shared(folder) else { return };
    let folder = folder.to_str().unwrap();
    // Another summary, which names no ranks, lies beside it.
    for path in [folder, &format!("{folder}/nccl_summary_long.csv")] {
        let text = litctl(&["analyze", path]);
        assert!(text.contains("Rank 4 is the straggler"), "{text}");
        let report: Value = serde_json::from_str(&litctl(&["--json", "analyze", path])).unwrap();
        assert_eq!(report["straggler_rank"], 4);
    }
}

#[test]
fn a_report_on_collectives_has_no_pictures() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (summary, html) = (path("summary.csv"), path("r.html"));
    let text = "rank,Collective name,dur_sum,operation_count\n\
        0,allreduce,100,2\n1,allreduce,50,2\n";
    std::fs::write(&summary, text).unwrap();
    assert!(litctl(&["analyze", &summary]).contains("Rank 1 is the straggler"));
    let output = Command::new(env!("CARGO_BIN_EXE_litctl"))
        .args(["analyze", &summary, "--html", &html])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("r.html: is not written"), "{said}");
    assert!(!Path::new(&html).exists());
    // What needs kernels is refused as well, not left out in silence.
    for option in [
        &["--models"][..],
        &["--overlap"],
        &["--iteration", "1"],
        &["--cut-at", "x"],
        &["--ranks", "1"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_litctl"))
            .args(["analyze", &summary])
            .args(option)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("{} is for traces", option[0])),
            "{said}"
        );
    }
}

#[test]
fn a_layer_of_many_kernels_makes_no_huge_page() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (traces, html) = ([path("0.json"), path("1.json")], path("r.html"));
    for (rank, trace) in traces.iter().enumerate() {
        let event = |at: usize| {
            // One in a hundred is long.
            let (start, length) = (at * 10 + rank, if at % 100 == 7 { 9 } else { 1 });
            format!(
                r#"{{"ph":"X","cat":"kernel","name":"f.0.part","pid":0,"tid":7,"ts":{start},"dur":{length},"args":{{"device":0,"stream":7}}}}"#
            )
        };
        let events = Vec::from_iter((0..3_000).map(event)).join(",");
        let text = format!(r#"{{"distributedInfo":{{"rank":{rank}}},"traceEvents":[{events}]}}"#);
        std::fs::write(trace, text).unwrap();
    }
    litctl(&["analyze", &traces[0], &traces[1], "--html", &html]);
    let page = std::fs::read_to_string(&html).unwrap();
    let mut charts = page.split("<svg");
    let chart = charts
        .find(|chart| chart.contains("of 6000 kernels"))
        .unwrap();
    assert_eq!(chart.matches("<rect").count(), 2_000);
    // What is left out is said in the picture, and it is the short ones.
    assert!(page.contains("(of 6000 kernels, the 1000 longest of each rank)"));
    assert_eq!(page.matches("f.0.part: 0.009 ms").count(), 60);
    assert!(page.len() < 600_000, "{}", page.len());
}

#[test]
fn powers_that_no_gpu_has_are_refused() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let (folder, _) = node(4);
    for powers in [["100", "140"], ["0", "0"], ["1e308", "0"], ["-1", "-2"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_litctl"))
            .args(["analyze", "--models"])
            .arg(format!("--baseline-power={}", powers[0]))
            .arg(format!("--idle-power={}", powers[1]))
            .arg(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{powers:?}: {said}");
        assert!(said.contains("--baseline-power"), "{said}");
    }
}

#[test]
fn the_straggler_of_a_real_step_changes_from_forward_to_backward() {
    let Some(folder) = shared("param_dlrm_v100x8") else {
        return;
    };
    let folder = folder.to_str().unwrap();
    let report: Value = serde_json::from_str(&litctl(&["--json", "analyze", folder])).unwrap();
    // Two ranks ran more kernels outside of the step, which say nothing of it.
    let step = litctl(&["--json", "analyze", "--iteration", "10", folder]);
    let step: Value = serde_json::from_str(&step).unwrap();
    assert_eq!(report["diagnosis"], step["diagnosis"]);
    assert_eq!(report["straggler_changes"], true);
    let last = report["waves"][0]["last"].as_array().unwrap();
    let ranks = Vec::from_iter(last.iter().map(|stretch| stretch["rank"].as_u64().unwrap()));
    assert_eq!(ranks[0], 7);
    assert!(
        ranks[1..].iter().all(|rank| [4, 5].contains(rank)),
        "{ranks:?}"
    );
    assert_eq!(report["diagnosis"]["cause"], "host-bound");
}

/// Writes a job of several parallelisms, with a slow GPU at this place.
fn job(folder: &TempDir, spec: &str, ranks: usize, slow: usize) {
    let speed = |rank| if rank == slow { "0.97" } else { "1" };
    let speeds = Vec::from_iter((0..ranks).map(speed)).join(",");
    litlab(&[
        "simulate",
        "--parallel",
        spec,
        "--speeds",
        &speeds,
        "--seed",
        "3",
        "--write-kineto",
        folder.path().to_str().unwrap(),
    ]);
}

#[test]
fn stages_of_a_pipeline_are_not_compared_with_each_other() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let folder = TempDir::new().unwrap();
    job(&folder, "pp2tp4", 8, 2);
    let path = folder.path().to_str().unwrap();
    let report: Value = serde_json::from_str(&litctl(&["--json", "analyze", path])).unwrap();
    assert_eq!(report["straggler_rank"], 2);
    assert_eq!(report["diagnosis"]["cause"], "slow-clock");
    let groups = report["groups"].as_array().unwrap();
    let of = |key: &str| Vec::from_iter(groups.iter().map(|group| group[key].clone()));
    let lists = [vec![0, 1, 2, 3], vec![4, 5, 6, 7]];
    assert_eq!(of("ranks"), lists.map(Value::from));
    assert_eq!(of("kind"), ["tp", "tp"]);
    assert_eq!(of("stage"), [0, 1]);
    assert_eq!(groups[1]["diagnosis"]["cause"], "healthy");
    let text = litctl(&["analyze", path]);
    for part in [
        "Slow clock: the others wait for rank 2",
        "That is in stage 0",
        "Stages wait up to",
    ] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(part), "{part} is not in {text}");
    }
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

/// The text of an analysis in one line.
fn in_a_line(path: &str) -> String {
    let text = litctl(&["analyze", path]);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn ranks_that_are_missing_are_told_where_certainty_is() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let folder = TempDir::new().unwrap();
    job(&folder, "tp4", 4, 2);
    let path = folder.path().to_str().unwrap();
    assert!(!in_a_line(path).contains("missing"));
    fs::remove_file(folder.path().join("rank2.json.gz")).unwrap();
    let missing = "1 of the job's 4 ranks is missing (2): it may be the one that all wait for";
    let text = in_a_line(path);
    assert_eq!(text.matches(missing).count(), 2, "{text}");
    let report: Value = serde_json::from_str(&litctl(&["--json", "analyze", path])).unwrap();
    assert!(report["notes"].to_string().contains(missing), "{report}");
}

#[test]
fn stages_of_one_rank_each_are_not_asked_for_more_ranks() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let folder = TempDir::new().unwrap();
    job(&folder, "pp4", 4, 2);
    let text = in_a_line(folder.path().to_str().unwrap());
    assert!(text.contains("each rank does work of its own"), "{text}");
    assert!(!text.contains("give the traces"), "{text}");
}

#[test]
fn one_rank_is_told_where_its_time_goes_in_text_and_pictures() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (trace, html) = (path("rank0.json"), path("r.html"));
    let event = |category: &str, name: &str, start: u32, length: u32| {
        // Ten times the same.
        let one = |step: u32| {
            format!(
                r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":0,"tid":7,"ts":{},"dur":{length},"args":{{"device":0,"stream":7}}}}"#,
                1_000 * step + start
            )
        };
        Vec::from_iter((0..10).map(one)).join(",")
    };
    let events = [
        event("kernel", "gemm", 0, 23),
        event("gpu_memcpy", "Memcpy DtoH", 23, 970),
        event("kernel", "gemm", 993, 7),
    ];
    std::fs::write(
        &trace,
        format!("{{\"traceEvents\":[{}]}}", events.join(",")),
    )
    .unwrap();
    let text = litctl(&["analyze", &trace, "--html", &html]);
    let page = std::fs::read_to_string(&html).unwrap();
    for shown in [&text, &page] {
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("copies with nothing beside them take 97.0 %")
                || words.contains("Copies with nothing beside them take 97.0 %"),
            "{words}"
        );
        assert!(
            words.contains("Memcpy DtoH") && !words.contains("Healthy"),
            "{words}"
        );
    }
    assert_eq!(page.matches("<svg").count(), 1);
}

#[test]
fn level_ranks_that_hardly_compute_are_not_called_healthy() {
    // Of 1000 us the copies take `copies`, computation the rest but for an all-reduce of 5 us.
    let verdict = |copies: u32| {
        let folder = TempDir::new().unwrap();
        for rank in 0..2 {
            let event = |category: &str, name: &str, at: u32, length: u32| {
                format!(
                    r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":{rank},"tid":7,"ts":{at},"dur":{length},"args":{{"device":{rank},"stream":7}}}}"#
                )
            };
            let events = Vec::from_iter((0..30).flat_map(|step| {
                let (start, gemm) = (1_000 * step, 995 - copies);
                [
                    event("kernel", "gemm", start, gemm),
                    event("gpu_memcpy", "Memcpy HtoD", start + gemm, copies),
                    event(
                        "kernel",
                        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                        start + 995,
                        5,
                    ),
                ]
            }));
            let info = format!(r#""distributedInfo":{{"rank":{rank},"world_size":2}}"#);
            let text = format!("{{{info},\"traceEvents\":[{}]}}", events.join(","));
            std::fs::write(folder.path().join(format!("rank{rank}.json")), text).unwrap();
        }
        in_a_line(folder.path().to_str().unwrap())
    };
    let little = verdict(20);
    assert!(
        little.contains("Healthy: no rank holds the others back."),
        "{little}"
    );
    let much = verdict(900);
    assert!(!much.contains("Healthy"), "{much}");
    let told = "No rank holds the others back. But copies with nothing beside them take 90.0 %";
    assert!(much.contains(told), "{much}");
}

#[test]
fn nobody_is_marked_where_nobody_is_late() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let folder = TempDir::new().unwrap();
    job(&folder, "tp2", 2, 9);
    let text = litctl(&["analyze", folder.path().to_str().unwrap()]);
    assert!(
        text.contains("Healthy: ") && text.contains("No straggler"),
        "{text}"
    );
    assert!(!text.lines().any(|line| line.starts_with('>')), "{text}");
}
