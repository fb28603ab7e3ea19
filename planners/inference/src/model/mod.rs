//! Models: the sizes that symbols stand for, shipped for those that the paper and the tables name, or from
//! a Hugging Face config.json.

mod config;
mod engine_args;
mod shipped;

use serde::Serialize;
use thiserror::Error;

pub use engine_args::{EngineArgs, EngineArgsError};

/// The experts of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Experts {
    /// How many.
    pub count: f64,
    /// How many a token takes.
    pub top_k: f64,
    /// FFN dimension of each.
    pub inter: f64,
}

/// A decoder-only transformer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Model {
    /// The model's name.
    pub name: String,
    /// Layers.
    pub layers: f64,
    /// Model dimension, m.
    pub hidden: f64,
    /// Query heads, H.
    pub heads: f64,
    /// Key and value heads, K.
    pub kv_heads: f64,
    /// Head dimension, h.
    pub head_dim: f64,
    /// FFN dimension, f, of dense layers.
    pub ffn: f64,
    /// Vocabulary.
    pub vocabulary: f64,
    /// Whether a gate multiplies the up projection: F = 2f instead of f.
    pub gated: bool,
    /// Whether embedding and head are one matrix.
    pub tied: bool,
    /// The experts, where layers have them.
    pub experts: Option<Experts>,
}

/// Why a model can't be used.
#[derive(Debug, Error, Clone, PartialEq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ModelError {
    #[error("no model is called {name:?}; there are {known}, or give a config.json")]
    Unknown { name: String, known: String },
    #[error("is no config.json: {0}")]
    Json(String),
    #[error("config.json has no {0}: it is not a decoder-only transformer's")]
    Missing(&'static str),
    #[error("{key} is {value}: {what}")]
    Nonsense {
        key: &'static str,
        value: String,
        what: &'static str,
    },
}

impl Model {
    /// A shipped model; case and the publisher's name before a slash do not matter.
    ///
    /// # Errors
    /// No such model is shipped.
    pub fn named(name: &str) -> Result<Self, ModelError> {
        shipped::named(name)
    }

    /// A model from the text of a Hugging Face config.json.
    ///
    /// # Errors
    /// It is none, lacks a size, or its sizes contradict each other.
    pub fn from_config(name: &str, text: &str) -> Result<Self, ModelError> {
        config::parse(name, text)?.checked()
    }

    /// The names of shipped models.
    pub fn names() -> impl Iterator<Item = &'static str> {
        shipped::names()
    }

    /// The same model, if its sizes are possible.
    fn checked(self) -> Result<Self, ModelError> {
        let nonsense = |key, value: f64, what| {
            Err(ModelError::Nonsense {
                key,
                value: value.to_string(),
                what,
            })
        };
        let sizes = [
            ("num_hidden_layers", self.layers, 1e4),
            ("hidden_size", self.hidden, 1e6),
            ("num_attention_heads", self.heads, 1e5),
            ("num_key_value_heads", self.kv_heads, 1e5),
            ("head_dim", self.head_dim, 1e5),
            ("intermediate_size", self.ffn, 1e7),
            ("vocab_size", self.vocabulary, 1e8),
        ];
        for (key, value, most) in sizes {
            if !(1.0..=most).contains(&value) || value.fract() != 0.0 {
                return nonsense(key, value, "a whole size of 1 or more is needed");
            }
        }
        if self.heads % self.kv_heads != 0.0 {
            return nonsense(
                "num_attention_heads",
                self.heads,
                "it is no multiple of num_key_value_heads",
            );
        }
        if let Some(Experts {
            count,
            top_k,
            inter,
        }) = self.experts
        {
            if !(1.0..=1e5).contains(&count) {
                return nonsense("num_experts", count, "1 or more are needed");
            }
            if !(1.0..=count).contains(&top_k) {
                return nonsense(
                    "num_experts_per_tok",
                    top_k,
                    "it must be 1 to the number of experts",
                );
            }
            if !(1.0..=1e7).contains(&inter) {
                return nonsense(
                    "moe_intermediate_size",
                    inter,
                    "a size of 1 or more is needed",
                );
            }
        }
        Ok(self)
    }

    /// Query heads per KV head, r.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.heads / self.kv_heads
    }

    /// Weights of one layer's attention.
    #[must_use]
    pub fn attention_weights(&self) -> f64 {
        self.hidden * self.head_dim * (2.0 * self.heads + 2.0 * self.kv_heads)
    }

    /// Weights of one layer's FFN, or of all its experts.
    #[must_use]
    pub fn ffn_weights(&self) -> f64 {
        let matrices = if self.gated { 3.0 } else { 2.0 };
        match self.experts {
            Some(Experts { count, inter, .. }) => count * matrices * self.hidden * inter,
            None => matrices * self.hidden * self.ffn,
        }
    }

    /// All weights.
    #[must_use]
    pub fn weights(&self) -> f64 {
        let ends = if self.tied { 1.0 } else { 2.0 };
        self.layers * (self.attention_weights() + self.ffn_weights())
            + ends * self.vocabulary * self.hidden
    }

    /// Numbers that a token leaves in the KV cache.
    #[must_use]
    pub fn cache_per_token(&self) -> f64 {
        self.layers * 2.0 * self.kv_heads * self.head_dim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters as the publishers count them, to 2 %.
    #[test]
    fn shipped_models_have_their_published_sizes() {
        for (name, billions) in [
            ("llama-3-8b", 8.03),
            ("llama-3-70b", 70.6),
            ("qwen3-30b-a3b", 30.5),
            ("mixtral-8x7b", 46.7),
            ("mistral-7b", 7.25),
            ("gemma-2-9b", 9.24),
            ("phi-3-mini", 3.82),
        ] {
            let weights = Model::named(name).unwrap().weights() / 1e9;
            assert!((weights / billions - 1.0).abs() < 0.02, "{name}: {weights}");
        }
    }

    #[test]
    fn every_shipped_model_is_possible() {
        for name in Model::names() {
            assert!(
                Model::named(name).is_ok_and(|it| it.checked().is_ok()),
                "{name}"
            );
        }
    }

    #[test]
    fn a_config_is_read_and_nonsense_is_refused() {
        let text = |heads: &str, extra: &str| {
            format!(
                "{{\"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": {heads}, \
                 \"num_key_value_heads\": 2, \"intermediate_size\": 128, \"vocab_size\": 100, \
                 \"hidden_act\": \"silu\"{extra}}}"
            )
        };
        let model = Model::from_config("x", &text("4", "")).unwrap();
        assert_eq!(
            (model.head_dim, model.ratio(), model.gated),
            (16.0, 2.0, true)
        );
        let moe = ", \"num_local_experts\": 8, \"num_experts_per_tok\": 2";
        let model = Model::from_config("x", &text("4", moe)).unwrap();
        assert_eq!(
            model.experts.map(|it| (it.count, it.inter)),
            Some((8.0, 128.0))
        );
        let error = |text: &str| Model::from_config("x", text).unwrap_err().to_string();
        assert!(error(&text("3", "")).contains("num_attention_heads is 3"));
        assert!(error(&text("-4", "")).contains("num_attention_heads is -4"));
        assert!(error("{}").contains("config.json has no num_hidden_layers"));
        assert!(error("[1").contains("is no config.json"));
        let greedy = ", \"num_local_experts\": 2, \"num_experts_per_tok\": 8";
        assert!(error(&text("4", greedy)).contains("num_experts_per_tok is 8"));
    }
}
