//! Hugging Face's config.json.

use serde_json::Value;

use super::{Experts, Model, ModelError};

/// Activations that come with a gate, where no key says so.
const GATED: [&str; 5] = ["silu", "swish", "swiglu", "gelu_pytorch_tanh", "gegelu"];

pub(super) fn parse(name: &str, text: &str) -> Result<Model, ModelError> {
    let whole: Value = serde_json::from_str(text).map_err(|it| ModelError::Json(it.to_string()))?;
    // Models that also see or hear keep the language model's sizes apart.
    let config = whole.get("text_config").unwrap_or(&whole);
    let find = |keys: &[&str]| keys.iter().find_map(|it| config.get(*it)?.as_f64());
    let needed = |keys: &[&'static str]| {
        find(keys).ok_or(ModelError::Missing(
            keys.first().copied().unwrap_or_default(),
        ))
    };
    let layers = needed(&["num_hidden_layers", "n_layer", "num_layers"])?;
    let hidden = needed(&["hidden_size", "n_embd", "d_model"])?;
    let heads = needed(&["num_attention_heads", "n_head", "num_heads"])?;
    let kv_heads = find(&["num_key_value_heads", "n_head_kv", "num_kv_heads"]).unwrap_or(heads);
    let head_dim = find(&["head_dim"]).unwrap_or((hidden / heads.max(1.0)).floor());
    let ffn = find(&["intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"]);
    let inter = find(&["moe_intermediate_size", "intermediate_size"]);
    let count = find(&["num_experts", "num_local_experts", "n_routed_experts"]);
    let experts = match count.filter(|it| *it > 1.0) {
        Some(count) => Some(Experts {
            count,
            top_k: find(&[
                "num_experts_per_tok",
                "num_experts_per_token",
                "moe_topk",
                "top_k",
            ])
            .ok_or(ModelError::Missing("num_experts_per_tok"))?,
            inter: inter.ok_or(ModelError::Missing("moe_intermediate_size"))?,
        }),
        None => None,
    };
    let activation = config
        .get("hidden_act")
        .or_else(|| config.get("hidden_activation"));
    let activation = activation.and_then(Value::as_str).unwrap_or("silu");
    Ok(Model {
        name: name.to_owned(),
        layers,
        hidden,
        heads,
        kv_heads,
        head_dim,
        ffn: ffn.or(inter).unwrap_or(4.0 * hidden),
        vocabulary: needed(&["vocab_size", "padded_vocab_size"])?,
        gated: GATED.contains(&activation),
        tied: config
            .get("tie_word_embeddings")
            .and_then(Value::as_bool)
            .unwrap_or(false),
        experts,
    })
}
