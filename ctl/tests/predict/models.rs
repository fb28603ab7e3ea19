//! Whole models: one configuration, a grid, and what is refused.

use std::fs;

use serde_json::Value;

use super::{json, litctl, refused, write};

fn run(more: &[&str]) -> Value {
    let base = ["run", "--model", "llama-3-70b", "--gpu", "a100"];
    json(&[&base[..], more].concat())
}

fn metric(report: &Value, name: &str) -> f64 {
    report["metrics"][name].as_f64().unwrap()
}

/// Section 5.1: larger batches cut the energy per token by an order of magnitude; the paper has 92.63 %.
#[test]
fn larger_batches_cut_energy_per_token() {
    let load = ["--tp", "8", "--input", "512", "--output", "4096"];
    let one = metric(&run(&[&load[..], &["--batch", "1"]].concat()), "epot_j");
    let many = metric(&run(&[&load[..], &["--batch", "16"]].concat()), "epot_j");
    assert!(many < 0.12 * one, "{many} {one}");
}

/// Section 5.1: at equal length, fewer GPUs prefill with less energy, as communication is less.
#[test]
fn communication_costs_more_on_more_gpus() {
    let of = |tp: &str| run(&["--tp", tp, "--batch", "4", "--input", "4096"]);
    let (two, eight) = (of("2"), of("8"));
    assert!(metric(&two, "etft_j") < metric(&eight, "etft_j"));
    assert!(metric(&two, "ttft_ms") > metric(&eight, "ttft_ms"));
    let communication = |report: &Value| -> f64 {
        let parts = report["prefill"].as_array().unwrap().iter();
        parts
            .map(|it| it["communication_j"].as_f64().unwrap())
            .sum()
    };
    assert!(communication(&eight) > 1.5 * communication(&two));
}

/// A cap that litd sets changes the prediction: prefill slows, memory-bound decode hardly.
#[test]
fn a_power_limit_slows_prefill_and_spares_decode() {
    let load = [
        "--tp", "4", "--batch", "8", "--input", "2048", "--output", "128",
    ];
    let (free, capped) = (
        run(&load),
        run(&[&load[..], &["--power-limit", "250"]].concat()),
    );
    let slower = |name: &str| metric(&capped, name) / metric(&free, name);
    assert!(slower("ttft_ms") > 1.1, "{}", slower("ttft_ms"));
    assert!(
        slower("tpot_ms") < slower("ttft_ms"),
        "{}",
        slower("tpot_ms")
    );
    assert!(metric(&capped, "prefill_w") <= 250.0);
}

#[test]
fn a_grid_has_a_front_and_counts_what_it_leaves_out() {
    let directory = tempfile::tempdir().unwrap();
    let (csv, html) = (
        directory.path().join("a.csv"),
        directory.path().join("a.html"),
    );
    let report = json(&[
        "sweep",
        "--model",
        "llama-3-70b",
        "--gpu",
        "a100",
        "--batch",
        "1,2,4,8,16",
        "--input",
        "4096",
        "--output",
        "256",
        "--tp",
        "1,2,4,8",
        "--csv",
        csv.to_str().unwrap(),
        "--html",
        html.to_str().unwrap(),
    ]);
    // An A100 does not hold 70 billion weights, whatever the batch is.
    assert!(report["too_large"].as_u64().unwrap() >= 5, "{report}");
    assert_eq!(report["configurations"], 20);
    let lines = fs::read_to_string(&csv).unwrap();
    let left = 20 - report["too_large"].as_u64().unwrap();
    assert_eq!(lines.lines().count() as u64, 1 + left);
    let front = report["prefill_front"].as_array().unwrap();
    let points: Vec<(f64, f64)> = front
        .iter()
        .map(|it| {
            (
                it["ttft_ms"].as_f64().unwrap(),
                it["etft_j"].as_f64().unwrap(),
            )
        })
        .collect();
    assert!(
        points
            .windows(2)
            .all(|it| it[0].0 < it[1].0 && it[0].1 > it[1].1),
        "{points:?}"
    );
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains("<svg") && !page.contains("<script"), "{page}");
}

#[test]
fn a_model_is_read_from_its_config() {
    let directory = tempfile::tempdir().unwrap();
    let text = r#"{"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu"}"#;
    let config = write(directory.path(), "config.json", text);
    let by_config = json(&["run", "--model", &config, "--gpu", "h100"]);
    let shipped = json(&["run", "--model", "llama-3-8b", "--gpu", "h100"]);
    assert_eq!(by_config["metrics"], shipped["metrics"]);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let error = refused(&[
        "run",
        "--model",
        "qwen3-30b-a3b",
        "--gpu",
        "a100",
        "--tp",
        "8",
    ]);
    assert!(
        error.contains("K = 4 does not divide by a degree of 8: K caps it at 4"),
        "{error}"
    );
    let error = refused(&["run", "--model", "gpt-17", "--gpu", "a100"]);
    assert!(error.contains("no model is called \"gpt-17\""), "{error}");
    let error = refused(&[
        "run",
        "--model",
        "llama-3-8b",
        "--gpu",
        "a100",
        "--batch",
        "0",
    ]);
    assert!(
        error.contains("the batch size is 0: 1 or more is needed"),
        "{error}"
    );
    let spec = write(
        directory.path(),
        "layer.txt",
        "x = [\n  op(\"bsm,mf->bsq\")\n]\n",
    );
    let error = refused(&[
        "run",
        "--model",
        "llama-3-8b",
        "--gpu",
        "a100",
        "--spec",
        &spec,
    ]);
    assert!(
        error.contains("line 2, column 17: 'q' is in the output but in no operand"),
        "{error}"
    );
    let error = refused(&[
        "run",
        "--model",
        "llama-3-8b",
        "--gpu",
        "a100",
        "--spec",
        "nothing",
    ]);
    assert!(
        error.contains("it is none of the listings fused-moe"),
        "{error}"
    );
    // A model without experts has no E.
    let error = refused(&[
        "run",
        "--model",
        "llama-3-8b",
        "--gpu",
        "a100",
        "--spec",
        "fused-moe",
    ]);
    assert!(error.contains("the symbol E has no value"), "{error}");
    let nan = litctl(&[
        "run",
        "--model",
        "llama-3-8b",
        "--gpu",
        "a100",
        "--power-limit",
        "nan",
    ]);
    assert_eq!(nan.status.code(), Some(2));
}

/// vLLM's arguments stand in for what is not given, and what is given counts.
#[test]
fn an_engines_arguments_say_how_it_is_deployed() {
    let line = "vllm serve meta-llama/Meta-Llama-3-70B-Instruct --tensor-parallel-size 4 --max-num-seqs 8 --quantization fp8";
    let by_engine = json(&["run", "--gpu", "h100", "--engine-args", line]);
    let by_hand = json(&[
        "run",
        "--gpu",
        "h100",
        "--model",
        "llama-3-70b",
        "--tp",
        "4",
        "--batch",
        "8",
        "--precision",
        "fp8",
    ]);
    assert_eq!(by_engine["metrics"], by_hand["metrics"]);
    let more = json(&["run", "--gpu", "h100", "--engine-args", line, "--tp", "8"]);
    assert_eq!(more["gpus"], 8);
    let error = refused(&["run", "--gpu", "h100", "--engine-args", "-tp 4"]);
    assert!(error.contains("no model is given"), "{error}");
}

/// Statistics of a functional run: the GPU whose experts get most sets the latency.
#[test]
fn routing_statistics_slow_the_fullest_gpu() {
    let directory = tempfile::tempdir().unwrap();
    let statistics = |share: fn(u32) -> u32| {
        let rows: String = (0..128).map(|it| format!("{it},{}\n", share(it))).collect();
        write(
            directory.path(),
            "routing.csv",
            &format!("expert,tokens\n{rows}"),
        )
    };
    let of = |path: &str| {
        let base = [
            "run",
            "--model",
            "qwen3-30b-a3b",
            "--gpu",
            "a100",
            "--tp",
            "4",
            "--batch",
            "4",
            "--input",
            "4096",
        ];
        metric(
            &json(&[&base[..], &["--routing-statistics", path]].concat()),
            "ttft_ms",
        )
    };
    let even = of(&statistics(|_| 10));
    let skewed = of(&statistics(|it| if it < 32 { 30 } else { 10 }));
    assert!(skewed > 1.1 * even, "{skewed} {even}");
    let wrong = write(directory.path(), "wrong.csv", "expert,tokens\n128,1\n");
    let error = refused(&[
        "run",
        "--model",
        "qwen3-30b-a3b",
        "--gpu",
        "a100",
        "--routing-statistics",
        &wrong,
    ]);
    assert!(
        error.contains("line 2: must be an expert of 0 to 127"),
        "{error}"
    );
    let dense = refused(&[
        "run",
        "--model",
        "llama-3-8b",
        "--gpu",
        "a100",
        "--routing-statistics",
        &wrong,
    ]);
    assert!(dense.contains("llama-3-8b has no experts"), "{dense}");
}
