//! What limits a kernel, as far as its name tells.

/// What a kernel's length depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Arithmetic: it follows the clock.
    Compute,
    /// Memory: it follows the clock little.
    Memory,
}

/// Norms and their like within attention are no attention.
const FIRST_OF_ALL_MEMORY: [&str; 3] = ["norm", "silu_mul", "rope"];
const COMPUTE: [&str; 16] = [
    "gemm",
    "cijk_",
    "proj",
    "attention",
    "attn_fa",
    "flash",
    "fmha",
    "conv",
    "cutlass",
    "matmul",
    "xmma",
    "nvjet",
    "mfma",
    "wgrad",
    "dgrad",
    "_mm",
];
const MEMORY: [&str; 22] = [
    "norm",
    "rope",
    "rotary",
    "silu",
    "swiglu",
    "gelu",
    "relu",
    "elementwise",
    "softmax",
    "dropout",
    "embedding",
    "copy",
    "cat",
    "reduce",
    "foreach",
    "multi_tensor",
    "adam",
    "add",
    "cast",
    "transpose",
    "fill",
    "mul_",
];

/// What limits kernels of this name; `None` where it doesn't tell.
#[must_use]
pub fn limit_of(name: &str) -> Option<Limit> {
    let name = name.to_ascii_lowercase();
    let holds = |word: &&str| memchr::memmem::find(name.as_bytes(), word.as_bytes()).is_some();
    let has = |words: &[&str]| words.iter().any(holds);
    match () {
        () if has(&FIRST_OF_ALL_MEMORY) => Some(Limit::Memory),
        () if has(&COMPUTE) => Some(Limit::Compute),
        () if has(&MEMORY) => Some(Limit::Memory),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_limits_kernels() {
        for (name, limit) in [
            ("Cijk_Ailk_Bljk_BBS_BH_Bias", Some(Limit::Compute)),
            ("void flash::fwd_kernel<half>", Some(Limit::Compute)),
            ("f.3.attn_norm", Some(Limit::Memory)),
            (
                "void at::native::vectorized_elementwise_kernel<4>",
                Some(Limit::Memory),
            ),
            ("triton_poi_0", None),
        ] {
            assert_eq!(limit_of(name), limit, "{name}");
        }
    }
}
