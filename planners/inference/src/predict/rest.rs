//! Operators that the listings leave out, by name: norms, rotary embedding, activation, embedding, head.

use serde::Serialize;

use super::{Configuration, Deployment, Share};
use crate::kernel::{Kernel, Precision};

/// The operators that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Extras {
    /// Two norms with their residual sums in each layer.
    pub norms: bool,
    /// The rotary embedding of queries and keys.
    pub rope: bool,
    /// The activation between the FFN's projections.
    pub activation: bool,
    /// Looking tokens up, once a step.
    pub embedding: bool,
    /// The logits of each request's last token, once a step.
    pub head: bool,
}

impl Extras {
    /// The whole model, with all operators.
    pub const ALL: Self = Self {
        norms: true,
        rope: true,
        activation: true,
        embedding: true,
        head: true,
    };
    /// The listings as they are.
    pub const NONE: Self = Self {
        norms: false,
        rope: false,
        activation: false,
        embedding: false,
        head: false,
    };
}

impl Deployment<'_> {
    /// Adds the extras of `steps` steps to the last share. Prefill needs the logits of one token of a request, a
    /// step that checks proposals those of all.
    pub(super) fn rest(
        &self,
        configuration: &Configuration,
        new: f64,
        (steps, logits): (f64, f64),
        shares: &mut [Share],
    ) {
        let Some(share) = shares.last_mut() else {
            return;
        };
        let model = self.model;
        let degrees = configuration.degrees;
        let tp = f64::from(degrees.tp);
        let batch = f64::from(configuration.batch);
        let tokens = batch * new / f64::from(degrees.cp);
        let gpus = f64::from(degrees.gpus());
        let moved = |read: f64, written: f64| Kernel::Memory {
            read: 2.0 * tokens * read,
            written: 2.0 * tokens * written,
        };
        let rotated = (model.heads + model.kv_heads) * model.head_dim / tp;
        let (width, times) = match model.experts {
            Some(experts) => (experts.inter * experts.top_k / f64::from(degrees.ep), 1.0),
            None => (model.ffn / tp, 1.0),
        };
        let gates = if model.gated { 2.0 } else { 1.0 };
        let head = Kernel::Gemm {
            groups: 1.0,
            m: batch * logits,
            n: (model.vocabulary / tp).ceil(),
            k: model.hidden,
            precision: Precision::BF16,
        };
        let extras = self.extras;
        for (counts, kernel, count) in [
            (
                extras.norms,
                moved(2.0 * model.hidden, 2.0 * model.hidden),
                2.0 * model.layers,
            ),
            (extras.rope, moved(rotated, rotated), model.layers),
            (
                extras.activation,
                moved(gates * width, width),
                times * model.layers,
            ),
            (extras.embedding, moved(model.hidden, model.hidden), 1.0),
            (extras.head, head, 1.0),
        ] {
            if counts {
                let once = self.kernels.predict(&kernel, &configuration.setting);
                share.compute += steps * count * once.latency.0;
                share.compute_energy += steps * count * once.energy().0 * gpus;
            }
        }
    }
}
