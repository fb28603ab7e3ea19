//! Measured tables: which kind they are, how far predictions are off, and what is refused.

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{json, litctl, measured, refused, write};

const GEMM: &str = "m,n,k,latency_ms,power_w,power_limit_w\n\
                    8192,4096,4096,0.42,690,700\n16,4096,4096,0.0125,387,700\n";

#[test]
fn a_table_is_predicted_row_by_row() {
    let directory = tempfile::tempdir().unwrap();
    let table = write(directory.path(), "t.csv", GEMM);
    let report = json(&["evaluate", "--gpu", "h200", "--table", &table]);
    assert_eq!(report["rows"], 2);
    // The rows are near an H200's: a prediction that is off by half would be a broken model.
    assert!(report["latency_mape"].as_f64().unwrap() < 30.0, "{report}");
    // Only the first is long enough for steady power.
    assert_eq!(report["power_rows"], 1);
    assert!(report["power_mape"].as_f64().unwrap() < 10.0, "{report}");
}

#[test]
fn gzip_and_the_order_of_columns_make_no_difference() {
    let directory = tempfile::tempdir().unwrap();
    let plain = write(
        directory.path(),
        "t.csv",
        "m,n,k,latency_ms\n64,4096,4096,0.02\n",
    );
    let packed = directory.path().join("t.csv.gz");
    let mut encoder = GzEncoder::new(std::fs::File::create(&packed).unwrap(), Compression::fast());
    encoder
        .write_all(b"latency_ms,k,n,m\r\n0.02,4096,4096,64\r\n")
        .unwrap();
    encoder.finish().unwrap();
    let plain = json(&["evaluate", "--gpu", "a100", "--table", &plain]);
    let packed = json(&[
        "evaluate",
        "--gpu",
        "a100",
        "--table",
        packed.to_str().unwrap(),
    ]);
    assert_eq!(plain["latency_mape"], packed["latency_mape"]);
    assert_eq!(plain["power_mape"], serde_json::Value::Null);
}

#[test]
fn attention_tables_are_told_apart_by_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let rows = "batch_size,isl,step,num_heads,num_key_value_heads,head_dim,latency_ms\n1,1,4095,32,8,128,0.014\n";
    let unnamed = write(directory.path(), "t.csv", rows);
    let error = refused(&["evaluate", "--gpu", "h200", "--table", &unnamed]);
    assert!(
        error.contains("may be context-attention or generation-attention"),
        "{error}"
    );
    assert!(error.contains("give --kind"), "{error}");
    let said = [
        "evaluate",
        "--gpu",
        "h200",
        "--table",
        &unnamed,
        "--kind",
        "generation-attention",
    ];
    assert_eq!(json(&said)["kind"], "generation-attention");
    let named = write(directory.path(), "attn_context.csv", rows);
    let report = json(&["evaluate", "--gpu", "h200", "--table", &named]);
    assert_eq!(report["kind"], "context-attention");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let error = |text: &str| {
        let table = write(directory.path(), "t.csv", text);
        refused(&["evaluate", "--gpu", "h200", "--table", &table])
    };
    let head = "m,n,k,latency_ms\n1,2,3,0.1\n";
    assert!(error(&format!("{head}x,2,3,0.1\n")).contains("line 3, column m: \"x\" is no number"));
    assert!(error(&format!("{head}0,2,3,0.1\n")).contains("line 3, column m: \"0\" is no size"));
    assert!(error(&format!("{head}1,2,3\n")).contains("line 3: has 3 cells, the head has 4"));
    assert!(error("a,b\n1,2\n").contains("columns of no known kind: a, b"));
    assert!(error("m,n,k,latency_ms\n").contains("has no row below its head"));
    assert!(error("m,n,k,latency_ms\n1,2,3,0\n").contains("has no row with a latency above zero"));
    assert!(error("").contains("columns of no known kind"));
    assert!(error("PAR1\0\0").contains("is Parquet"));
    let moe = "num_tokens,hidden_size,inter_size,topk,num_experts,distribution,latency_ms\n1,64,64,1,8,zipf,1\n";
    assert!(error(moe).contains("line 2, column distribution: \"zipf\""));
    let table = write(directory.path(), "t.csv", head);
    let error = refused(&[
        "evaluate", "--gpu", "h200", "--table", &table, "--kind", "moe",
    ]);
    assert!(
        error.contains("is no table of kind moe: the column num_tokens is missing"),
        "{error}"
    );
    let error = refused(&["evaluate", "--gpu", "v100", "--table", &table]);
    assert!(error.contains("no GPU is called \"v100\""), "{error}");
}

/// Shapes beyond all sense are predicted: the errors are finite, and nothing panics.
#[test]
fn extremes_are_predicted() {
    let directory = tempfile::tempdir().unwrap();
    let rows = "m,n,k,latency_ms\n1,1,1,0.002\n1e9,1e9,1e9,1\n1,1e300,1,1\n";
    let table = write(directory.path(), "t.csv", rows);
    for gpu in ["a100", "h100", "h200", "mi300x", "b200", "l40s"] {
        let report = json(&["evaluate", "--gpu", gpu, "--table", &table]);
        assert!(
            report["latency_mape"].as_f64().is_some_and(f64::is_finite),
            "{report}"
        );
    }
}

/// Rows of a made-up GPU that is three times as slow: constants follow, and held-out shapes with them.
#[test]
fn a_calibration_learns_what_the_rows_show() {
    let directory = tempfile::tempdir().unwrap();
    let mut rows = "m,n,k,latency_ms\n".to_owned();
    for n in [
        1024.0,
        2048.0,
        4096.0,
        6144.0,
        8192.0,
        12288.0,
        16384.0,
        28672.0_f64,
    ] {
        for m in [64.0, 256.0, 1024.0, 4096.0, 8192.0_f64] {
            let time =
                0.02 + 6.0 * m * n * 4096.0 / 600e12 * 1e3 + 3.0 * n * 4096.0 * 2.0 / 4e12 * 1e3;
            rows += &format!("{m},{n},4096,{time}\n");
        }
    }
    let table = write(directory.path(), "synthetic.csv", &rows);
    let fitted = directory.path().join("fitted.json");
    let fitted = fitted.to_str().unwrap();
    let fit = [
        "calibrate",
        "--gpu",
        "h200",
        "--table",
        &table,
        "--half",
        "train",
        "--output",
        fitted,
    ];
    let seen = json(&fit);
    assert!(
        seen[0]["hash"].as_str().unwrap().starts_with("fnv1a64:"),
        "{seen}"
    );
    let test = [
        "evaluate", "--gpu", "h200", "--table", &table, "--half", "test",
    ];
    let before = json(&test)["latency_mape"].as_f64().unwrap();
    let with = [&test[..], &["--fitted", fitted]].concat();
    let after = json(&with);
    assert!(
        before > 40.0 && after["latency_mape"].as_f64().unwrap() < 12.0,
        "{before} {after}"
    );
    assert_eq!(after["notes"], serde_json::json!([]));
    // Evaluated on what was fitted, it says so.
    let train = [
        "evaluate", "--gpu", "h200", "--table", &table, "--half", "train", "--fitted", fitted,
    ];
    assert!(
        json(&train)["notes"][0]
            .as_str()
            .unwrap()
            .contains("fitted on these very rows")
    );
    // A calibration belongs to its GPU, and a broken one is refused.
    let error = refused(&[
        "evaluate", "--gpu", "a100", "--table", &table, "--fitted", fitted,
    ]);
    assert!(
        error.contains("was fitted on h200, and a100 was asked for"),
        "{error}"
    );
    let broken = write(directory.path(), "broken.json", "{}");
    let error = refused(&[
        "evaluate", "--gpu", "a100", "--table", &table, "--fitted", &broken,
    ]);
    assert!(error.contains("is no calibration"), "{error}");
}

/// facts/energylens.md: the better of its two right-hand columns, on halves held out by shape group.
#[test]
fn held_out_shapes_of_measured_tables_are_within_the_targets() {
    let directory = tempfile::tempdir().unwrap();
    let fitted = directory.path().join("fitted.json");
    let fitted = fitted.to_str().unwrap();
    for (gpu, name, target) in [
        ("a100", "a100_sxm_attn_context_vllm0.14.csv.gz", 21.0),
        ("a100", "a100_sxm_attn_generation_vllm0.14.csv.gz", 16.0),
        ("a100", "a100_sxm_nccl2.27.3.csv", 9.0),
        ("h200", "h200_sxm_nccl2.29.2.csv", 9.0),
    ] {
        let Some(table) = measured(name) else {
            continue;
        };
        let fit = [
            "calibrate",
            "--gpu",
            gpu,
            "--table",
            &table,
            "--half",
            "train",
            "--output",
            fitted,
        ];
        assert!(litctl(&fit).status.success());
        let test = [
            "evaluate", "--gpu", gpu, "--table", &table, "--half", "test", "--fitted", fitted,
        ];
        let error = json(&test)["latency_mape"].as_f64().unwrap();
        assert!(error <= target, "{name}: {error} %, target {target} %");
    }
}

/// Public specifications and shipped constants alone: 30 % or less on every measured table of kernels.
#[test]
fn measured_tables_are_near_without_calibration() {
    for (gpu, name) in [
        ("a100", "a100_sxm_gemm_trtllm1.0.csv.gz"),
        ("a100", "a100_sxm_moe_vllm0.14.csv.gz"),
        ("a100", "vidur_a100_Qwen-72B_mlp.csv.gz"),
        ("h200", "h200_sxm_nccl2.29.2.csv"),
    ] {
        let Some(table) = measured(name) else {
            continue;
        };
        let report = json(&["evaluate", "--gpu", gpu, "--table", &table]);
        assert!(
            report["latency_mape"].as_f64().unwrap() <= 30.0,
            "{name}: {report}"
        );
    }
}

/// Measured here, after the constants were frozen: a GPU and kernels that none of them has seen.
#[test]
fn an_h100_that_nothing_was_fitted_on_is_predicted() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let table = |name| top.join("lab/measured").join(name).display().to_string();
    let report = json(&[
        "evaluate",
        "--gpu",
        "h100",
        "--table",
        &table("h100_gemm.csv"),
    ]);
    assert_eq!(
        (&report["rows"], &report["model"]),
        (&42.into(), &"uncalibrated".into())
    );
    assert!(report["latency_mape"].as_f64().unwrap() <= 10.0, "{report}");
    assert!(report["power_mape"].as_f64().unwrap() <= 10.0, "{report}");
    // Short sequences without grouped queries are badly predicted, and make it this much.
    let attention = table("h100_attention.csv");
    let kind = ["--kind", "context-attention"];
    let report = json(
        &[
            &["evaluate", "--gpu", "h100", "--table", &attention],
            &kind[..],
        ]
        .concat(),
    );
    assert!(report["latency_mape"].as_f64().unwrap() <= 35.0, "{report}");
}

/// The GPU is in the table's name; the half that was fitted is named by its hash.
#[test]
fn a_folder_of_tables_is_halved_and_predicted() {
    let directory = tempfile::tempdir().unwrap();
    let mut rows = "op_name,num_gpus,bytes,latency_ms\n".to_owned();
    for size in (9..28).map(|it| f64::from(1_u32 << it)) {
        rows += &format!("all_reduce,8,{size},{}\n", 0.02 + size * 1.75 / 200e9 * 1e3);
    }
    write(directory.path(), "h100_sxm_nccl.csv", &rows);
    let lines = json(&["accuracy", directory.path().to_str().unwrap()]);
    let line = &lines[0];
    assert_eq!(
        (line["gpu"].as_str(), line["rows_of"].as_str()),
        (Some("h100"), Some("collectives"))
    );
    // Every second size is held out.
    assert_eq!(
        (
            line["fitted_rows"].as_u64(),
            line["tested"]["rows"].as_u64()
        ),
        (Some(10), Some(9))
    );
    assert!(
        line["fitted_hash"]
            .as_str()
            .unwrap()
            .starts_with("fnv1a64:")
    );
    let after = line["tested"]["latency_mape"].as_f64().unwrap();
    assert!(
        after < line["uncalibrated_mape"].as_f64().unwrap() && after < 10.0,
        "{line}"
    );
    let unnamed = write(directory.path(), "nccl.csv", &rows);
    assert!(refused(&["accuracy", &unnamed]).contains("the file's name has no GPU in it"));
}

/// Requests of models that are shipped are predicted with their energy; the others are counted.
#[test]
fn requests_are_predicted_where_the_model_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let head = "Model,GPU,TP,PP,Energy/req (J),Avg TPOT (s),Token tput (tok/s),Avg Output Tokens,Avg BS (reqs)";
    let rows = format!(
        "{head}\nmeta-llama/Meta-Llama-3.1-8B-Instruct,NVIDIA A100-SXM4-40GB,1,1,59.6,0.079,1516,480,127\n\
         nobody/unheard-of,NVIDIA A100-SXM4-40GB,1,1,59.6,0.079,1516,480,127\n\
         meta-llama/Meta-Llama-3.1-8B-Instruct,NVIDIA H100 80GB HBM3,1,1,40,0.05,2500,480,127\n"
    );
    let table = write(directory.path(), "t.csv", &rows);
    let report = json(&["evaluate", "--gpu", "a100", "--table", &table]);
    assert_eq!(
        (&report["kind"], &report["rows"], &report["skipped"]),
        (&"request".into(), &1.into(), &1.into())
    );
    assert!(report["energy_mape"].as_f64().unwrap() < 30.0, "{report}");
    assert!(
        report["notes"][0]
            .as_str()
            .unwrap()
            .starts_with("1 row of models that are not shipped")
    );
    let error = refused(&["evaluate", "--gpu", "b200", "--table", &table]);
    assert!(error.contains("has no row of a b200"), "{error}");
}
