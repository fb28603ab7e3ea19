//! What `litctl --json analyze` prints is what docs/analyze.schema.json promises.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn litctl(args: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_litctl"))
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    output.stdout
}

/// As much of JSON Schema as the file uses.
struct Schema(Value);

impl Schema {
    fn load() -> Self {
        let text = std::fs::read_to_string(format!("{ROOT}/docs/analyze.schema.json")).unwrap();
        Self(serde_json::from_str(&text).unwrap())
    }

    /// What is wrong with a value, each with its place.
    fn flaws(&self, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        let mut flaws = Vec::new();
        for (word, rule) in schema.as_object().unwrap() {
            match word.as_str() {
                "$ref" => {
                    let name = rule.as_str().unwrap().trim_start_matches("#/$defs/");
                    flaws.extend(self.flaws(&self.0["$defs"][name], value, at));
                }
                "type" => {
                    let types = rule
                        .as_array()
                        .cloned()
                        .unwrap_or_else(|| vec![rule.clone()]);
                    if !types.iter().any(|kind| is(value, kind.as_str().unwrap())) {
                        flaws.push(format!("{at}: {value} is not {rule}"));
                    }
                }
                "const" if value != rule => flaws.push(format!("{at}: {value} is not {rule}")),
                "enum" if !rule.as_array().unwrap().contains(value) => {
                    flaws.push(format!("{at}: {value} is none of {rule}"));
                }
                "anyOf" => {
                    let ways = rule.as_array().unwrap().iter();
                    let ways = ways.map(|way| self.flaws(way, value, at));
                    let fewest = ways.min_by_key(Vec::len).unwrap();
                    flaws.extend(fewest);
                }
                "items" => {
                    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                        flaws.extend(self.flaws(rule, item, &format!("{at}[{i}]")));
                    }
                }
                "required" => {
                    let keys = rule
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|key| key.as_str().unwrap());
                    let missing = keys.filter(|key| value.get(key).is_none());
                    flaws.extend(missing.map(|key| format!("{at}: {key} is missing")));
                }
                "properties" => {
                    for (key, value) in value.as_object().into_iter().flatten() {
                        match rule.get(key) {
                            Some(rule) => {
                                flaws.extend(self.flaws(rule, value, &format!("{at}.{key}")));
                            }
                            None => flaws.push(format!("{at}: {key} is not described")),
                        }
                    }
                }
                "const" | "enum" | "description" | "additionalProperties" => {}
                "$schema" | "title" | "$defs" => {}
                other => panic!("the schema uses {other}, which this test does not know"),
            }
        }
        flaws
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("{other} is no type"),
    }
}

fn assert_fits(schema: &Schema, kind: &str, document: &[u8]) -> Value {
    let document: Value = serde_json::from_slice(document).unwrap();
    let flaws = schema.flaws(&schema.0["$defs"][kind], &document, kind);
    assert!(flaws.is_empty(), "{flaws:#?}");
    document
}

#[test]
fn documents_fit_the_schema() {
    let schema = Schema::load();
    let folder = TempDir::new().unwrap();
    let traces = folder.path().to_str().unwrap();
    let workload = format!("{ROOT}/testdata/oracle/tiny-fsdp.json");
    litctl(&[
        "simulate",
        "--workload",
        &workload,
        "--speeds",
        "1,1.05",
        "--contention",
        "1.4",
        "--write-kineto",
        traces,
    ]);
    let report = assert_fits(&schema, "report", &litctl(&["--json", "analyze", traces]));
    // Everything that is described is there.
    for key in schema.0["$defs"]["report"]["properties"]
        .as_object()
        .unwrap()
        .keys()
    {
        assert!(report.get(key).is_some(), "{key} is never printed");
    }
    let one = format!("{traces}/rank0.json.gz");
    assert_fits(&schema, "report", &litctl(&["--json", "analyze", &one]));
    let dlrm = format!("{ROOT}/../shared/traces/param_dlrm_v100x8");
    let waits = format!(
        "{ROOT}/../shared/traces/tracelens/traces/mi300/llama_70b_fsdp/nccl_analysis_report_csvs/nccl_summary_long.csv"
    );
    for (kind, path) in [("report", dlrm), ("collectives", waits)] {
        if Path::new(&path).exists() {
            assert_fits(&schema, kind, &litctl(&["--json", "analyze", &path]));
        } else {
            let why = b"SKIPPED: ../shared/traces is absent\n";
            let _ = std::io::Write::write_all(&mut std::io::stderr(), why);
        }
    }
}

#[test]
fn the_schema_finds_flaws() {
    let schema = Schema::load();
    let bad = serde_json::json!({ "schema": 1, "straggler_rank": "4", "ranks": [{}], "more": 0 });
    let flaws = schema.flaws(&schema.0["$defs"]["collectives"], &bad, "");
    assert_eq!(flaws.len(), 7, "{flaws:#?}");
}
