//! Tables as nvidia-smi, amd-smi and people write them.

use crate::made::write;
use crate::{close, estimate, mistake};

#[test]
fn nvidia_smi_needs_no_word_about_columns() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "timestamp, index, power.draw [W], clocks.current.sm [MHz], temperature.gpu, \
                    enforced.power.limit [W], clocks_throttle_reasons.sw_power_cap, \
                    clocks_throttle_reasons.hw_thermal_slowdown\n"
        .to_owned();
    for minute in 0..10 {
        for (gpu, clock) in [(0, 1410), (1, 1400), (2, 1350)] {
            let heat = if minute == 9 { "Active" } else { "Not Active" };
            text += &format!(
                "2024/05/08 00:{minute:02}:00.123, {gpu}, 688.{gpu}0 W, {clock} MHz, {}, 700.00 W, Active, {heat}\n",
                60 + gpu
            );
        }
    }
    let path = write(folder.path(), "gpu-node-7.csv", &text);
    let report = estimate(&["--csv", &path]);
    let node = &report["nodes"][0];
    assert_eq!(
        (node["node"].as_str(), node["samples"].as_u64()),
        (Some("gpu-node-7"), Some(30))
    );
    close(&node["limiter_share"]["power"], 0.9, 1e-9);
    close(&node["limiter_share"]["heat"], 0.1, 1e-9);
    close(&node["spread_pct"], 100.0 * (1410.0 / 1350.0 - 1.0), 1e-6);
    assert_eq!(node["hottest_is_slowest"], true);
    let named = estimate(&["--csv", &path, "--node", "a"]);
    assert_eq!(named["nodes"][0]["node"], "a");
    // The GPU's cap is the highest that it can have: power can't be moved to it.
    let full = estimate(&["--csv", &path, "--max-cap-w", "700"]);
    assert_eq!(full["nodes"][0]["bound"]["gpu_realloc_throughput_pct"], 0.0);
    assert!(
        full["nodes"][0]["why"]["bound"]
            .as_str()
            .unwrap()
            .contains("highest")
    );
}

#[test]
fn amd_smi_writes_its_head_again_and_a_clock_for_each_die() {
    let folder = tempfile::tempdir().unwrap();
    let head = "timestamp,gpu,socket_power,gfx_0_clk,gfx_0_max_clk,gfx_1_clk,mem_0_clk,edge,hotspot,\
                ppt_violation_status\n";
    let mut text = String::new();
    for second in 0..6 {
        text += head;
        for (gpu, clock) in [(0, 1800), (1, 1700)] {
            let (low, high) = (clock - 10, clock + 10);
            text += &format!(
                "{},{gpu},745,{low},2100,{high},1300,N/A,{},ACTIVE\n",
                1_715_126_400 + second,
                80 - gpu
            );
        }
    }
    let report = estimate(&["--csv", &write(folder.path(), "n.csv", &text)]);
    let node = &report["nodes"][0];
    assert_eq!(node["samples"], 12);
    close(&node["spread_pct"], 100.0 * (18.0 / 17.0 - 1.0), 1e-6);
    close(&node["limiter_share"]["power"], 1.0, 0.0);
    assert_eq!(node["hottest_is_slowest"], false);
    assert!(node["persistence"].is_null() && node["why"]["persistence"].is_string());
}

#[test]
fn any_table_is_read_with_columns() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "rack;box;card;when;draw;ms\n".to_owned();
    for day in 1..5 {
        for (at, pace) in [2.0, 2.1, 2.0].iter().enumerate() {
            text += &format!("r1;b2;c{at};2024-05-0{day}T00:00:00Z;296.5;{pace}\n");
        }
    }
    let path = write(folder.path(), "runs.csv", &text);
    let columns = "node=rack+box,gpu=card,time=when,power_w=draw,pace=ms";
    let report = estimate(&["--csv", &path, "--columns", columns, "--cap-w", "300"]);
    let node = &report["nodes"][0];
    assert_eq!(node["node"], "r1/b2");
    close(&node["spread_pct"], 5.0, 1e-4);
    close(&node["slowest_vs_median_pct"], 5.0, 1e-4);
    close(&node["bound"]["gpu_realloc_throughput_pct"], 5.0, 1e-4);
    // Without a cap nobody knows whether power limits them.
    let report = estimate(&["--csv", &path, "--columns", columns]);
    let node = &report["nodes"][0];
    close(&node["spread_pct"], 5.0, 1e-4);
    assert!(
        node["bound"]["gpu_realloc_throughput_pct"].is_null() && node["limiter_share"].is_null()
    );
    assert!(
        node["why"]["bound"].as_str().unwrap().contains("--cap-w"),
        "{node}"
    );
}

#[test]
fn what_is_asked_wrongly_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.csv", "when,card,draw\n1,2,3\n");
    for (args, words) in [
        (
            &["--csv", &path][..],
            "no column names the GPU: say which with --columns gpu=...; there are when, card, draw",
        ),
        (
            &["--csv", &path, "--columns", "gpu=gpu"],
            "there is no column \"gpu\"; there are when, card, draw",
        ),
        (
            &["--csv", &path, "--columns", "speed=draw"],
            "is not a key; there are node, gpu, time",
        ),
        (&["--csv", "/nowhere.csv"], "/nowhere.csv: No such file"),
        (
            &["--csv", &path, "--cap-w=-1"],
            "must be between 1 and 10000 W",
        ),
        (
            &["--csv", &path, "--price", "0.14"],
            "kwh=0.14,gpu_hour=2.50",
        ),
        (&["--csv", "/dev/null"], "must be a regular file"),
        (&["--prometheus", "localhost:9090"], "must be http://HOST"),
        (&[], "--csv"),
    ] {
        let said = mistake(args);
        assert!(said.contains(words), "{args:?}: {said}");
    }
}
