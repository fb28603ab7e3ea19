//! Memory of a configuration on each GPU.

use super::{Configuration, Deployment};

/// Share of the memory that engines use for all of it; vLLM's default.
const USABLE: f64 = 0.9;

/// Bytes on each GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Footprint {
    /// Weights.
    pub weights: f64,
    /// KV cache at its largest: of all input and output tokens.
    pub cache: f64,
    /// Activations of a prefill.
    pub activations: f64,
    /// The part of a GPU's memory that engines use.
    pub usable: f64,
}

impl Footprint {
    /// All together.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.weights + self.cache + self.activations
    }

    /// Whether it fits.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.total() <= self.usable
    }
}

impl Deployment<'_> {
    /// The memory of a configuration on each GPU.
    #[must_use]
    pub fn footprint(&self, configuration: &Configuration) -> Footprint {
        let model = self.model;
        let degrees = configuration.degrees;
        let (tp, ep, cp) = (
            f64::from(degrees.tp),
            f64::from(degrees.ep),
            f64::from(degrees.cp),
        );
        let ffn = match model.experts {
            Some(_) => ep.max(1.0),
            None => tp,
        };
        let layer = model.attention_weights() / tp + model.ffn_weights() / ffn;
        let ends = if model.tied { 1.0 } else { 2.0 };
        let weights = model.layers * layer * self.precision.weight_bytes()
            + ends * model.vocabulary * model.hidden * 2.0 / tp;
        let batch = f64::from(configuration.batch);
        let tokens = f64::from(configuration.input) + f64::from(configuration.output);
        // A KV head is on one GPU at least.
        let heads = (model.kv_heads / (tp * cp)).max(1.0) / model.kv_heads;
        let each = f64::from(self.cache_bits) / 8.0;
        let width = 4.0 * model.hidden + 3.0 * model.ffn / tp;
        Footprint {
            weights,
            cache: batch * tokens * model.cache_per_token() * heads * each,
            // Engines prefill long batches in chunks of this many tokens.
            activations: 2.0 * (batch * f64::from(configuration.input)).min(16384.0) * width,
            usable: USABLE * self.kernels.gpu().memory,
        }
    }
}
