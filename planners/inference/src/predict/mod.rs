//! Aggregation (section 3.4, equations 1 and 2): kernels of a layer to the latency and energy of prefill and
//! decode, on the GPUs that share it, with what each operator has of both.

mod experts;
mod layer;
mod memory;
mod rest;

use litd_units::{Joules, Millis, Watts};
use serde::Serialize;
use thiserror::Error;

use crate::interpret::{Degrees, InterpretError, Program};
use crate::kernel::{KernelModel, Library, Precision, Routing, Setting};
use crate::model::Model;
use crate::spec::Symbols;

pub use experts::Effective;
pub use memory::Footprint;
pub use rest::Extras;

/// A model with the rest of its deployment.
pub struct Deployment<'a> {
    /// The model.
    pub model: &'a Model,
    /// The model's layer, interpreted.
    pub program: &'a Program,
    /// The GPU's kernels.
    pub kernels: &'a dyn KernelModel,
    /// Of weights and activations.
    pub precision: Precision,
    /// Bits of a number in the KV cache.
    pub cache_bits: u8,
    /// How tokens choose experts.
    pub routing: Routing,
    /// Routing statistics, which count before `routing`: each expert's share of all assignments.
    pub shares: Option<&'a [f64]>,
    /// The operators that the listings leave out.
    pub extras: Extras,
    /// Whether prefill attention computes only what is before each token.
    pub causal: bool,
    /// The library that runs all-reduces.
    pub library: Library,
}

impl<'a> Deployment<'a> {
    /// As the paper evaluates: bf16, tokens spread evenly over experts, causal prefill, NCCL's all-reduce.
    #[must_use]
    pub fn of_the_paper(
        model: &'a Model,
        program: &'a Program,
        kernels: &'a dyn KernelModel,
    ) -> Self {
        Self {
            model,
            program,
            kernels,
            precision: Precision::BF16,
            cache_bits: 16,
            routing: Routing::Uniform,
            shares: None,
            extras: Extras::ALL,
            causal: true,
            library: Library::Nccl,
        }
    }
}

/// A configuration of a deployment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Configuration {
    /// Requests side by side.
    pub batch: u32,
    /// Input tokens of each.
    pub input: u32,
    /// Output tokens of each.
    pub output: u32,
    /// GPUs that share the model.
    pub degrees: Degrees,
    /// Tokens that a decode step proposes and checks besides the next one (speculative decoding).
    pub speculated: u32,
    /// Chance that a proposed token is kept.
    pub accepted: f64,
    /// Power limit and clock of each GPU.
    pub setting: Setting,
}

/// Why a configuration can't be predicted.
#[derive(Debug, Error, Clone, PartialEq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PredictError {
    #[error(transparent)]
    Interpret(#[from] InterpretError),
    #[error("{what} is {value}: {needed} is needed")]
    Size {
        what: &'static str,
        value: f64,
        needed: &'static str,
    },
}

impl PredictError {
    /// Whether a degree does not divide the model: another degree may.
    #[must_use]
    pub fn is_indivisible(&self) -> bool {
        matches!(self, Self::Interpret(InterpretError::Indivisible { .. }))
    }
}

/// An operator's share of a phase. Energies are of all GPUs together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Share {
    /// Time in computing.
    pub compute: f64,
    /// Time in communication that nothing hides.
    pub communication: f64,
    /// Energy while it computes, J.
    pub compute_energy: f64,
    /// Energy while it communicates, J.
    pub communication_energy: f64,
}

impl Share {
    /// The time of both, ms.
    #[must_use]
    pub fn latency(self) -> f64 {
        self.compute + self.communication
    }

    /// The energy of both, J.
    #[must_use]
    pub fn energy(self) -> f64 {
        self.compute_energy + self.communication_energy
    }

    fn add(&mut self, other: Self, times: f64) {
        self.compute += times * other.compute;
        self.communication += times * other.communication;
        self.compute_energy += times * other.compute_energy;
        self.communication_energy += times * other.communication_energy;
    }
}

/// A phase: prefill, or all decode steps. Shares follow the program's operators; the last is of what the
/// listings leave out.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Of each operator over all layers, then of the extras.
    pub shares: Vec<Share>,
}

impl Phase {
    /// From its begin to its end.
    #[must_use]
    pub fn latency(&self) -> Millis {
        Millis(self.shares.iter().map(|it| it.latency()).sum())
    }

    /// Of all GPUs, for the whole batch.
    #[must_use]
    pub fn energy(&self) -> Joules {
        Joules(self.shares.iter().map(|it| it.energy()).sum())
    }
}

/// Both phases, normalised as section 3.5 does: energies per request, of all GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Metrics {
    /// Time to first token, ms.
    pub ttft_ms: f64,
    /// Energy to first token, J per request.
    pub etft_j: f64,
    /// Time per output token, ms.
    pub tpot_ms: f64,
    /// Energy per output token, J per request.
    pub epot_j: f64,
    /// Energy of a request from its first input to its last output token, J.
    pub request_j: f64,
    /// Output tokens per second of all requests while they decode.
    pub tokens_per_s: f64,
    /// Mean power of one GPU in prefill, W.
    pub prefill_w: f64,
    /// The same in decode, W.
    pub decode_w: f64,
}

impl Configuration {
    fn checked(&self) -> Result<(), PredictError> {
        let positive = |what, value: u32| match value {
            0 => Err(PredictError::Size {
                what,
                value: 0.0,
                needed: "1 or more",
            }),
            _ => Ok(()),
        };
        positive("the batch size", self.batch)?;
        positive("the input length", self.input)?;
        positive("tensor parallelism", self.degrees.tp)?;
        positive("expert parallelism", self.degrees.ep)?;
        positive("context parallelism", self.degrees.cp)?;
        match (0.0..=1.0).contains(&self.accepted) {
            true => Ok(()),
            false => Err(PredictError::Size {
                what: "the chance of acceptance",
                value: self.accepted,
                needed: "0 to 1",
            }),
        }
    }

    /// Tokens that a decode step yields on average: the next one, and proposals up to the first that is
    /// not kept.
    fn yielded(&self) -> f64 {
        let kept = |token: u32| self.accepted.powi(i32::try_from(token).unwrap_or(i32::MAX));
        1.0 + (1..=self.speculated.min(64)).map(kept).sum::<f64>()
    }
}

/// Places (from 0 to 1) and weights of Gauss and Legendre's rule of four points: decode steps between the
/// first and the last are integrated by it, as attention grows almost linearly with the cache.
const STEPS: [(f64, f64); 4] = [
    (0.069_431_844_202_973_71, 0.173_927_422_568_726_93),
    (0.330_009_478_207_571_87, 0.326_072_577_431_273_07),
    (0.669_990_521_792_428_1, 0.326_072_577_431_273_07),
    (0.930_568_155_797_026_3, 0.173_927_422_568_726_93),
];

impl Deployment<'_> {
    /// The symbols of a phase in which each request has `new` tokens and `seen` in all.
    fn symbols(
        &self,
        configuration: &Configuration,
        new: f64,
        seen: f64,
        fullest: bool,
    ) -> Symbols {
        let model = self.model;
        let mut symbols = Symbols::default();
        let batch = f64::from(configuration.batch);
        let ratio = model.ratio();
        let gates = if model.gated { 2.0 } else { 1.0 };
        let ffn = model.experts.map_or(model.ffn, |it| it.inter);
        for (letter, value) in [
            ('b', batch),
            ('s', new),
            ('z', seen),
            ('h', model.head_dim),
            ('H', model.heads),
            ('K', model.kv_heads),
            ('r', ratio),
            ('t', self.precision.activation_bytes()),
            ('m', model.hidden),
            ('f', ffn),
            ('F', gates * ffn),
            ('i', 2.0 + ratio),
        ] {
            symbols.set(letter, value);
        }
        if let Some(experts) = &model.experts {
            let ep = f64::from(configuration.degrees.ep);
            let effective = match self.shares {
                Some(shares) => Effective::measured(experts, batch * new, ep, shares),
                None => Effective::of(experts, batch * new, ep, self.routing),
            };
            let (active, tokens) = if fullest {
                effective.fullest
            } else {
                effective.average
            };
            symbols.set('A', experts.top_k);
            symbols.set('E', active);
            symbols.set('T', tokens);
        }
        symbols
    }

    /// Prefill of a batch.
    ///
    /// # Errors
    /// The configuration does not fit the model or its specification.
    pub fn prefill(&self, configuration: &Configuration) -> Result<Phase, PredictError> {
        configuration.checked()?;
        let input = f64::from(configuration.input);
        let mut shares = vec![Share::default(); self.program.operators.len() + 1];
        let _ = self.layer(configuration, input, input, self.model.layers, &mut shares)?;
        self.rest(configuration, input, (1.0, 1.0), &mut shares);
        Ok(Phase { shares })
    }

    /// All decode steps of a batch: from the first output token on, whose cache has the input, to the last.
    ///
    /// # Errors
    /// As [`Self::prefill`].
    pub fn decode(&self, configuration: &Configuration) -> Result<Phase, PredictError> {
        configuration.checked()?;
        let mut shares = vec![Share::default(); self.program.operators.len() + 1];
        let output = f64::from(configuration.output);
        if configuration.output == 0 {
            return Ok(Phase { shares });
        }
        let steps = output / configuration.yielded();
        let new = 1.0 + f64::from(configuration.speculated);
        let input = f64::from(configuration.input);
        let times = self.model.layers * steps;
        let middle = input + 0.5 * output;
        let symbols = self.layer(configuration, new, middle, times, &mut shares)?;
        self.attention_steps(configuration, &symbols, times, &mut shares);
        self.rest(configuration, new, (steps, new), &mut shares);
        Ok(Phase { shares })
    }

    /// Attention's share again, over caches from the first step's to the last's.
    fn attention_steps(
        &self,
        configuration: &Configuration,
        symbols: &Symbols,
        times: f64,
        shares: &mut [Share],
    ) {
        let (input, output) = (
            f64::from(configuration.input),
            f64::from(configuration.output),
        );
        let attention = self.program.operators.iter().enumerate();
        let attention = attention.filter(|it| it.1.is_attention());
        for (at, operator) in attention {
            let mut share = Share::default();
            for (place, weight) in STEPS {
                let mut symbols = *symbols;
                if !self.program.overrides('z') {
                    symbols.set('z', (input + 1.0 + place * (output - 1.0)).round());
                }
                let once = self.operator(operator, at, configuration, &symbols, &symbols);
                share.add(once, weight * times);
            }
            shares[at] = share;
        }
    }

    /// Both phases' metrics.
    ///
    /// # Errors
    /// As [`Self::prefill`].
    pub fn metrics(&self, configuration: &Configuration) -> Result<Metrics, PredictError> {
        let prefill = self.prefill(configuration)?;
        let decode = self.decode(configuration)?;
        Ok(Metrics::of(configuration, &prefill, &decode))
    }
}

impl Metrics {
    /// Of two phases of a configuration.
    #[must_use]
    pub fn of(configuration: &Configuration, prefill: &Phase, decode: &Phase) -> Self {
        let (batch, output) = (
            f64::from(configuration.batch),
            f64::from(configuration.output),
        );
        let gpus = f64::from(configuration.degrees.gpus());
        let each = |total: f64, count: f64| if count > 0.0 { total / count } else { 0.0 };
        let (first, rest) = (prefill.energy().0, decode.energy().0);
        let (ttft, decoding) = (prefill.latency().0, decode.latency().0);
        Self {
            ttft_ms: ttft,
            etft_j: first / batch,
            tpot_ms: each(decoding, output),
            epot_j: each(rest / batch, output),
            request_j: (first + rest) / batch,
            tokens_per_s: each(batch * output, decoding * 1e-3),
            prefill_w: each(first / gpus, ttft * 1e-3),
            decode_w: each(rest / gpus, decoding * 1e-3),
        }
    }
}

/// The power that an idle GPU draws while others work.
fn idle(kernels: &dyn KernelModel) -> Watts {
    kernels.gpu().idle
}
