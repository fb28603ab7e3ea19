//! Models whose sizes are shipped, from their published configurations.

use super::{Experts, Model, ModelError};

/// Sizes of a model.
struct Sizes {
    name: &'static str,
    /// Layers, hidden, heads, KV heads, head dimension, FFN, vocabulary.
    sizes: [u32; 7],
    gated: bool,
    tied: bool,
    /// Experts, experts per token, FFN dimension of each; zeros where there are none.
    experts: [u32; 3],
}

const fn dense(name: &'static str, sizes: [u32; 7]) -> Sizes {
    Sizes {
        name,
        sizes,
        gated: true,
        tied: false,
        experts: [0; 3],
    }
}

const fn tied(name: &'static str, sizes: [u32; 7]) -> Sizes {
    Sizes {
        tied: true,
        ..dense(name, sizes)
    }
}

const fn plain(name: &'static str, sizes: [u32; 7], tied: bool) -> Sizes {
    Sizes {
        gated: false,
        tied,
        ..dense(name, sizes)
    }
}

const fn moe(name: &'static str, sizes: [u32; 7], experts: [u32; 3]) -> Sizes {
    Sizes {
        experts,
        ..dense(name, sizes)
    }
}

#[rustfmt::skip]
const MODELS: [Sizes; 43] = [
    dense("llama-2-7b", [32, 4096, 32, 32, 128, 11008, 32000]),
    dense("llama-2-13b", [40, 5120, 40, 40, 128, 13824, 32000]),
    dense("llama-2-70b", [80, 8192, 64, 8, 128, 28672, 32000]),
    dense("llama-3-8b", [32, 4096, 32, 8, 128, 14336, 128_256]),
    dense("llama-3-70b", [80, 8192, 64, 8, 128, 28672, 128_256]),
    dense("llama-3.1-405b", [126, 16384, 128, 8, 128, 53248, 128_256]),
    tied("llama-3.2-1b", [16, 2048, 32, 8, 64, 8192, 128_256]),
    tied("llama-3.2-3b", [28, 3072, 24, 8, 128, 8192, 128_256]),
    dense("codellama-7b", [32, 4096, 32, 32, 128, 11008, 32016]),
    dense("codellama-13b", [40, 5120, 40, 40, 128, 13824, 32016]),
    dense("codellama-34b", [48, 8192, 64, 8, 128, 22016, 32000]),
    dense("codellama-70b", [80, 8192, 64, 8, 128, 28672, 32016]),
    dense("mistral-7b", [32, 4096, 32, 8, 128, 14336, 32768]),
    dense("mistral-nemo", [40, 5120, 32, 8, 128, 14336, 131_072]),
    dense("mistral-large", [88, 12288, 96, 8, 128, 28672, 32768]),
    dense("codestral-22b", [56, 6144, 48, 8, 128, 16384, 32768]),
    dense("deepseek-coder-33b", [62, 7168, 56, 8, 128, 19200, 32256]),
    dense("yi-34b", [60, 7168, 56, 8, 128, 20480, 64000]),
    moe("mixtral-8x7b", [32, 4096, 32, 8, 128, 14336, 32000], [8, 2, 14336]),
    moe("mixtral-8x22b", [56, 6144, 48, 8, 128, 16384, 32768], [8, 2, 16384]),
    tied("gemma-2b", [18, 2048, 8, 1, 256, 16384, 256_000]),
    tied("gemma-7b", [28, 3072, 16, 16, 256, 24576, 256_000]),
    tied("gemma-2-2b", [26, 2304, 8, 4, 256, 9216, 256_000]),
    tied("gemma-2-9b", [42, 3584, 16, 8, 256, 14336, 256_000]),
    tied("gemma-2-27b", [46, 4608, 32, 16, 128, 36864, 256_000]),
    tied("codegemma-1.1-2b", [18, 2048, 8, 1, 256, 16384, 256_000]),
    tied("codegemma-7b", [28, 3072, 16, 16, 256, 24576, 256_000]),
    dense("phi-3-mini", [32, 3072, 32, 32, 96, 8192, 32064]),
    tied("phi-3-small", [32, 4096, 32, 8, 128, 14336, 100_352]),
    dense("phi-3-medium", [40, 5120, 40, 10, 128, 17920, 32064]),
    plain("starcoder2-3b", [30, 3072, 24, 2, 128, 12288, 49152], true),
    plain("starcoder2-7b", [32, 4608, 36, 4, 128, 18432, 49152], true),
    plain("starcoder2-15b", [40, 6144, 48, 4, 128, 24576, 49152], false),
    dense("qwen-72b", [80, 8192, 64, 64, 128, 24576, 152_064]),
    dense("qwen2-7b", [28, 3584, 28, 4, 128, 18944, 152_064]),
    dense("qwen2-72b", [80, 8192, 64, 8, 128, 29568, 152_064]),
    dense("qwen2.5-32b", [64, 5120, 40, 8, 128, 27648, 152_064]),
    dense("qwen3-8b", [36, 4096, 32, 8, 128, 12288, 151_936]),
    dense("qwen3-32b", [64, 5120, 64, 8, 128, 25600, 151_936]),
    moe("qwen3-30b-a3b", [48, 2048, 32, 4, 128, 6144, 151_936], [128, 8, 768]),
    moe("qwen3-235b-a22b", [94, 4096, 64, 4, 128, 12288, 151_936], [128, 8, 1536]),
    dense("internlm-20b", [60, 5120, 40, 40, 128, 13824, 103_168]),
    plain("phi-2", [32, 2560, 32, 32, 80, 10240, 51200], false),
];

/// Prefixes and suffixes that publishers put around the names above.
const AROUND: [&str; 9] = [
    "meta-",
    "-instruct",
    "-it",
    "-hf",
    "-chat",
    "-4k",
    "-8k",
    "-128k",
    "-base",
];

/// The name without its publisher and what follows a size.
fn short(name: &str) -> String {
    let mut name = name
        .rsplit('/')
        .next()
        .unwrap_or(name)
        .to_lowercase()
        .replace('_', "-");
    for around in AROUND {
        name = name.replace(around, "");
    }
    for ending in ["-v0.1", "-v0.2", "-v0.3", "-2407", "-2411"] {
        name = name.replace(ending, "");
    }
    // Llama 3, 3.1 and 3.3 share sizes, and Qwen 2 and 2.5 most.
    let renamed = name
        .replace("llama-3.1-8b", "llama-3-8b")
        .replace("llama-3.1-70b", "llama-3-70b");
    let renamed = renamed
        .replace("llama-3.3-70b", "llama-3-70b")
        .replace("llama3-", "llama-3-");
    let renamed = renamed.replace("llama3.1-405b", "llama-3.1-405b");
    renamed
        .replace("qwen2.5-7b", "qwen2-7b")
        .replace("qwen2.5-72b", "qwen2-72b")
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    MODELS.iter().map(|it| it.name)
}

pub(super) fn named(name: &str) -> Result<Model, ModelError> {
    let short = short(name);
    let found = MODELS.iter().find(|it| it.name == short || it.name == name);
    let sizes = found.ok_or_else(|| ModelError::Unknown {
        name: name.to_owned(),
        known: names().collect::<Vec<_>>().join(", "),
    })?;
    let [layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary] = sizes.sizes.map(f64::from);
    let [count, top_k, inter] = sizes.experts.map(f64::from);
    Ok(Model {
        name: sizes.name.to_owned(),
        layers,
        hidden,
        heads,
        kv_heads,
        head_dim,
        ffn,
        vocabulary,
        gated: sizes.gated,
        tied: sizes.tied,
        experts: (count > 0.0).then_some(Experts {
            count,
            top_k,
            inter,
        }),
    })
}
