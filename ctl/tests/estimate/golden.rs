//! Against golden.py, which has exact lists and no sketches.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::made::{self, Row};
use crate::{close, estimate, said};

/// Share of time in which power limits, spread, against the median, bounds of gpu-realloc and cpu-slosh; %.
const GOLDEN: [(usize, [f64; 5]); 3] = [
    (0, [50.0, 1.486, 0.6878, 0.3568, 0.743]),
    (3, [80.0, 8.1499, 6.1319, 4.9055, 6.5199]),
    (6, [60.0, 4.2426, 2.1536, 1.2922, 2.5456]),
];

fn whole(folder: &std::path::Path) -> String {
    made::write(folder, "fleet.csv", &made::csv(Row::all()))
}

/// The parts of a node's report, without its worth.
const KEYS: [&str; 10] = [
    "node",
    "gpus",
    "samples",
    "limiter_share",
    "spread_pct",
    "slowest_vs_median_pct",
    "persistence",
    "hottest_is_slowest",
    "bound",
    "repair",
];

#[test]
fn a_fleet_is_what_another_program_makes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let report = estimate(&[
        "--csv",
        &whole(folder.path()),
        "--price",
        "kwh=0.14,gpu_hour=2.5",
    ]);
    let nodes = report["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), made::NODES as usize);
    for (node, [share, spread, versus, realloc, slosh]) in GOLDEN {
        let node = &nodes[node];
        assert_eq!(
            (node["gpus"].as_u64(), node["samples"].as_u64()),
            (Some(4), Some(480))
        );
        close(&node["limiter_share"]["power"], share / 100.0, 1e-9);
        close(&node["limiter_share"]["none"], 1.0 - share / 100.0, 1e-9);
        close(&node["spread_pct"], spread, 1e-4);
        close(&node["slowest_vs_median_pct"], versus, 1e-4);
        close(&node["bound"]["gpu_realloc_throughput_pct"], realloc, 1e-4);
        close(&node["bound"]["cpu_slosh_throughput_pct"], slosh, 1e-4);
        close(
            &node["value_per_node_hour"],
            slosh / 100.0 * 4.0 * 2.5,
            1e-5,
        );
        let interval = &node["intervals"]["spread_pct"];
        assert!(
            interval[0].as_f64() < Some(spread) && interval[1].as_f64() > Some(spread),
            "{interval}"
        );
    }
    // The fourth GPU is the hottest in all nodes, and the slowest but in node 3.
    close(&report["fleet"]["hottest_is_slowest"], 0.98, 1e-9);
    close(&report["fleet"]["hottest_is_slowest_by_chance"], 0.25, 1e-9);
    assert!(report["fleet"]["persistence"].as_f64() > Some(0.99));
    let repair = report["fleet"]["repair"].as_array().unwrap();
    assert_eq!(
        (repair.len(), &repair[0]["gpu"]),
        (1, &Value::from("GPU-03-2"))
    );
    assert_eq!(nodes[3]["repair"], Value::from(vec!["GPU-03-2"]));
    assert_eq!(nodes[4]["repair"], Value::Array(Vec::new()));
}

/// A table shuffled, cut into three and packed is the same table.
#[test]
fn neither_order_nor_files_matter() {
    let folder = tempfile::tempdir().unwrap();
    let plain = estimate(&["--csv", &whole(folder.path())]);
    let mut rows = Vec::from_iter(Row::all());
    rows.sort_by_key(|it| {
        (it.clock() * 7_919 + it.step * 104_729 + it.node * 31 + it.gpu) % 10_007
    });
    let third = rows.len() / 3;
    let one = made::write(
        folder.path(),
        "1.csv",
        &made::csv(rows[..third].iter().copied()),
    );
    let two = made::write(
        folder.path(),
        "2.csv",
        &made::csv(rows[third..2 * third].iter().copied()),
    );
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed
        .write_all(made::csv(rows[2 * third..].iter().copied()).as_bytes())
        .unwrap();
    let three = folder.path().join("3.csv.gz");
    std::fs::write(&three, packed.finish().unwrap()).unwrap();
    let split = estimate(&["--csv", &two, &three.to_string_lossy(), "--csv", &one]);
    for (a, b) in plain["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .zip(split["nodes"].as_array().unwrap())
    {
        for key in KEYS {
            assert_eq!(a[key], b[key], "{key} of {}", a["node"]);
        }
    }
    assert!(split["input"]["earlier"].as_u64() > Some(0));
}

/// The keys that were agreed on, and a reason wherever there is no value.
#[test]
fn json_has_every_key_or_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let report = estimate(&["--csv", &whole(folder.path())]);
    let node = &report["nodes"][0];
    for key in KEYS.into_iter().chain(["value_per_node_hour"]) {
        assert!(node.get(key).is_some(), "{key}");
    }
    for key in [
        "gpu_red_power_pct",
        "gpu_realloc_throughput_pct",
        "cpu_slosh_throughput_pct",
    ] {
        assert!(
            node["bound"][key].is_f64() && report["fleet"]["bound"][key].is_f64(),
            "{key}"
        );
    }
    assert!(node["value_per_node_hour"].is_null());
    assert!(
        node["why"]["value_per_node_hour"]
            .as_str()
            .unwrap()
            .contains("--price")
    );
}

#[test]
fn people_get_the_verdict_first_and_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("fleet.html");
    let page = html.to_string_lossy();
    let text = said(&[
        "--csv",
        &whole(folder.path()),
        "--price",
        "kwh=0.14,gpu_hour=2.5",
        "--html",
        &page,
    ]);
    assert!(
        text.starts_with("verdict   50 nodes with 200 GPUs could gain at most: "),
        "{text}"
    );
    assert!(
        text.contains("GPU-03-2: 6.") && text.contains("What the data can't tell"),
        "{text}"
    );
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let page = std::fs::read_to_string(html).unwrap();
    for part in [
        "<svg",
        "node03",
        "GPU-03-2",
        "What could this fleet gain at most?",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for network in ["<script", "http:", "https:", "<link", "@import"] {
        assert!(!page.contains(network), "{network}");
    }
}

#[test]
fn prices_may_be_litds() {
    let folder = tempfile::tempdir().unwrap();
    let config = made::write(
        folder.path(),
        "litd.toml",
        "[prices]\nenergy_per_kwh = 0.14\ngpu_hour = 2.5\n",
    );
    let csv = whole(folder.path());
    let one = estimate(&["--csv", &csv, "--config", &config]);
    let other = estimate(&["--csv", &csv, "--price", "gpu_hour=2.5,kwh=0.14"]);
    assert_eq!(one, other);
    // An hour of four GPUs is 10; of gpu-red only the watts count.
    let node = &one["nodes"][3];
    let watts = node["watts"]["gpu_red"].as_f64().unwrap();
    close(&node["values"]["gpu_red"], watts / 1_000.0 * 0.14, 1e-9);
    assert_eq!(node["watts"]["gpu_realloc"], 0.0);
}
