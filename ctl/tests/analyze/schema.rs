//! What `litctl --json analyze` prints is what docs/analyze.schema.json promises.
use crate::run::{litctl, litlab, shared};
use serde_json::Value;
use tempfile::TempDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// As much of JSON Schema as the file uses.
struct Schema {
    root: Value,
    /// Whether what is not described is a flaw. Programs that read a document must not think so:
    /// keys are added within a version of the schema.
    strict: bool,
}

impl Schema {
    fn load() -> Self {
        let text = std::fs::read_to_string(format!("{ROOT}/docs/analyze.schema.json")).unwrap();
        Self {
            root: serde_json::from_str(&text).unwrap(),
            strict: true,
        }
    }

    /// As any validator reads it.
    fn lenient() -> Self {
        Self {
            strict: false,
            ..Self::load()
        }
    }

    /// What is wrong with a value, each with its place.
    fn flaws(&self, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        let mut flaws = Vec::new();
        for (word, rule) in schema.as_object().unwrap() {
            match word.as_str() {
                "$ref" => {
                    let name = rule.as_str().unwrap().trim_start_matches("#/$defs/");
                    flaws.extend(self.flaws(&self.root["$defs"][name], value, at));
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
                            None if self.strict => {
                                flaws.push(format!("{at}: {key} is not described"));
                            }
                            None => {}
                        }
                    }
                }
                "const" | "enum" | "description" => {}
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

fn assert_fits(schema: &Schema, kind: &str, document: &str) -> Value {
    let document: Value = serde_json::from_str(document).unwrap();
    let flaws = schema.flaws(&schema.root["$defs"][kind], &document, kind);
    assert!(flaws.is_empty(), "{flaws:#?}");
    document
}

#[test]
fn documents_fit_the_schema() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let schema = Schema::load();
    let folder = TempDir::new().unwrap();
    let traces = folder.path().to_str().unwrap();
    let workload = format!("{ROOT}/tests/data/oracle/tiny-fsdp.json");
    litlab(&[
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
    for key in schema.root["$defs"]["report"]["properties"]
        .as_object()
        .unwrap()
        .keys()
    {
        assert!(report.get(key).is_some(), "{key} is never printed");
    }
    let one = format!("{traces}/rank0.json.gz");
    assert_fits(&schema, "report", &litctl(&["--json", "analyze", &one]));
    let waits =
        "tracelens/traces/mi300/llama_70b_fsdp/nccl_analysis_report_csvs/nccl_summary_long.csv";
    for (kind, path) in [("report", "param_dlrm_v100x8"), ("collectives", waits)] {
        let Some(path) = shared(path) else { return };
        let document = litctl(&["--json", "analyze", path.to_str().unwrap()]);
        assert_fits(&schema, kind, &document);
    }
}

/// The same document with a key more in each object.
fn extended(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let more = [("added_later".to_owned(), Value::from(1))];
            let known = object
                .iter()
                .map(|(key, value)| (key.clone(), extended(value)));
            Value::Object(known.chain(more).collect())
        }
        Value::Array(items) => items.iter().map(extended).collect(),
        other => other.clone(),
    }
}

#[test]
fn documents_of_later_versions_of_litctl_fit_the_schema() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let traces = folder.path().to_str().unwrap();
    let workload = format!("{ROOT}/tests/data/oracle/tiny-fsdp.json");
    let ranks = [
        "--speeds",
        "1,1.05,1.1",
        "--contention",
        "1.4",
        "--write-kineto",
        traces,
    ];
    litlab(&[&["simulate", "--workload", &workload], &ranks[..]].concat());
    let document: Value = serde_json::from_str(&litctl(&["--json", "analyze", traces])).unwrap();
    let extended = extended(&document);
    for root in ["report", "collectives"] {
        let rule = &Schema::load().root["$defs"][root];
        let fits = |schema: &Schema, value| schema.flaws(rule, value, "").is_empty();
        assert_eq!(fits(&Schema::lenient(), &extended), root == "report");
        assert!(!fits(&Schema::load(), &extended));
    }
}

#[test]
fn the_schema_finds_flaws() {
    let schema = Schema::load();
    let bad = serde_json::json!({ "schema": 1, "straggler_rank": "4", "ranks": [{}], "more": 0 });
    let flaws = schema.flaws(&schema.root["$defs"]["collectives"], &bad, "");
    assert_eq!(flaws.len(), 7, "{flaws:#?}");
}
