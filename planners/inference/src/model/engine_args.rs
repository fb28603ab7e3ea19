//! Reads a deployment from vLLM's arguments: a command line as people write it, or a JSON object of the same.

use serde_json::Value;
use thiserror::Error;

use crate::kernel::Precision;

/// The arguments that count; the rest is ignored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EngineArgs {
    /// The model, a name or a path.
    pub model: Option<String>,
    /// Tensor parallelism.
    pub tp: Option<u32>,
    /// Whether experts are shared among the same GPUs.
    pub expert_parallel: bool,
    /// Of weights and activations.
    pub precision: Option<Precision>,
    /// Bits of a number in the KV cache.
    pub cache_bits: Option<u8>,
    /// Requests side by side, at most.
    pub batch: Option<u32>,
    /// Proposed tokens per decode step.
    pub speculated: Option<u32>,
}

/// Why arguments can't be read.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum EngineArgsError {
    #[error("--{key} is {value:?}: {needed} is needed")]
    Value {
        key: String,
        value: String,
        needed: &'static str,
    },
    #[error("--{0} has no value")]
    Missing(String),
    #[error("is neither a command line nor a JSON object: {0}")]
    Json(String),
}

/// Arguments with a value that are looked at; a short form stands beside.
const WITH_VALUE: [(&str, &str); 9] = [
    ("model", ""),
    ("tensor-parallel-size", "tp"),
    ("quantization", "q"),
    ("dtype", ""),
    ("kv-cache-dtype", ""),
    ("max-num-seqs", ""),
    ("num-speculative-tokens", ""),
    ("pipeline-parallel-size", "pp"),
    ("enable-expert-parallel", ""),
];

impl EngineArgs {
    /// Reads arguments.
    ///
    /// # Errors
    /// A value that matters is not what its key says.
    pub fn parse(text: &str) -> Result<Self, EngineArgsError> {
        let mut args = Self::default();
        for (key, value) in pairs(text)? {
            args.take(&key, value)?;
        }
        Ok(args)
    }

    fn take(&mut self, key: &str, value: Option<String>) -> Result<(), EngineArgsError> {
        let key = key.replace('_', "-");
        let known = WITH_VALUE
            .iter()
            .find(|it| it.0 == key || (!it.1.is_empty() && it.1 == key));
        let Some((key, _)) = known else { return Ok(()) };
        if *key == "enable-expert-parallel" {
            self.expert_parallel = value.is_none_or(|it| it != "false");
            return Ok(());
        }
        let value = value.ok_or_else(|| EngineArgsError::Missing((*key).to_owned()))?;
        let wrong = |needed| EngineArgsError::Value {
            key: (*key).to_owned(),
            value: value.clone(),
            needed,
        };
        let whole = || match value.parse() {
            Ok(number @ 1..=1_000_000) => Ok(Some(number)),
            _ => Err(wrong("a whole number of 1 or more")),
        };
        match *key {
            "model" => self.model = Some(value),
            "tensor-parallel-size" => self.tp = whole()?,
            "max-num-seqs" => self.batch = whole()?,
            "num-speculative-tokens" => self.speculated = whole()?,
            "pipeline-parallel-size" if value != "1" => {
                return Err(wrong("1, as stages of a pipeline are not predicted: it"));
            }
            "kv-cache-dtype" => {
                self.cache_bits = Some(if value.starts_with("fp8") || value == "int8" {
                    8
                } else {
                    16
                });
            }
            "quantization" => {
                let weights_of_4 = [
                    "awq",
                    "awq_marlin",
                    "gptq",
                    "gptq_marlin",
                    "bitsandbytes",
                    "w4a16",
                ];
                self.precision = Some(match value.as_str() {
                    "fp8" | "int8" | "w8a8" | "fbgemm_fp8" | "ptpc_fp8" => Precision::both(8),
                    "modelopt_fp4" | "nvfp4" | "mxfp4" => Precision::both(4),
                    it if weights_of_4.contains(&it) => Precision {
                        weights: 4,
                        activations: 16,
                    },
                    "none" | "null" => Precision::BF16,
                    _ => return Err(wrong("fp8, int8, awq, gptq, bitsandbytes, nvfp4 or mxfp4")),
                });
            }
            _ => {}
        }
        Ok(())
    }
}

/// Keys and values, of a JSON object or of a command line.
fn pairs(text: &str) -> Result<Vec<(String, Option<String>)>, EngineArgsError> {
    if text.trim_start().starts_with('{') {
        let object: serde_json::Map<String, Value> =
            serde_json::from_str(text).map_err(|it| EngineArgsError::Json(it.to_string()))?;
        let plain = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        return Ok(object
            .into_iter()
            .map(|(key, value)| (key, Some(plain(value))))
            .collect());
    }
    let mut pairs: Vec<(String, Option<String>)> = Vec::new();
    let mut words = text.split_whitespace().filter(|it| *it != "\\").peekable();
    while let Some(word) = words.next() {
        let word = word.trim_matches(['"', '\'']);
        if let Some(key) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) {
            let (key, value) = match key.split_once('=') {
                Some((key, value)) => (key, Some(value.to_owned())),
                None => (
                    key,
                    words.next_if(|it| !it.starts_with('-')).map(str::to_owned),
                ),
            };
            pairs.push((key.to_owned(), value));
        } else if word == "serve" {
            // vllm serve MODEL
            let model = words.next_if(|it| !it.starts_with('-'));
            pairs.extend(model.map(|it| ("model".to_owned(), Some(it.to_owned()))));
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_and_json_say_the_same() {
        let line = "vllm serve meta-llama/Meta-Llama-3-70B-Instruct --tensor-parallel-size 4 --quantization=fp8 \\\n \
                    --kv-cache-dtype fp8_e4m3 --max-num-seqs 64 --port 8000 --enable-expert-parallel";
        let json = r#"{"model": "meta-llama/Meta-Llama-3-70B-Instruct", "tensor_parallel_size": 4, "quantization": "fp8",
            "kv_cache_dtype": "fp8_e4m3", "max_num_seqs": 64, "enable_expert_parallel": true}"#;
        let read = EngineArgs::parse(line).unwrap();
        assert_eq!(read, EngineArgs::parse(json).unwrap());
        assert_eq!(
            (read.tp, read.cache_bits, read.batch),
            (Some(4), Some(8), Some(64))
        );
        assert_eq!(read.precision, Some(Precision::both(8)));
        assert!(read.expert_parallel);
    }

    #[test]
    fn what_matters_and_is_wrong_is_refused() {
        let error = |text: &str| EngineArgs::parse(text).unwrap_err().to_string();
        assert!(error("-tp zero").contains("--tensor-parallel-size is \"zero\""));
        assert!(error("--quantization").contains("--quantization has no value"));
        assert!(error("--quantization magic").contains("fp8, int8, awq"));
        assert!(error("--pipeline-parallel-size 2").contains("stages of a pipeline"));
        assert!(error("{").contains("neither a command line nor a JSON object"));
        assert_eq!(EngineArgs::parse("").unwrap(), EngineArgs::default());
    }
}
