//! A training job as its owner describes it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A model of Transformer blocks with gated MLPs, in the words of Hugging Face's `config.json`: that file's
/// other keys are not read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The width of the residual stream.
    pub hidden_size: u64,
    /// How many Transformer blocks there are.
    pub num_hidden_layers: u32,
    /// How many heads queries have.
    pub num_attention_heads: u64,
    /// How many heads keys and values have; as many as queries where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_key_value_heads: Option<u64>,
    /// The width of a head; the hidden size divided by the number of heads where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_dim: Option<u64>,
    /// The width of the MLP.
    pub intermediate_size: u64,
    /// How many tokens there are to choose from.
    pub vocab_size: u64,
}

/// How it is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// GPUs that share each tensor.
    #[serde(default = "one")]
    pub tensor_parallel: u32,
    /// GPUs that share each sequence.
    #[serde(default = "one")]
    pub context_parallel: u32,
    /// Pipeline stages.
    #[serde(default = "one")]
    pub pipeline_parallel: u32,
    /// Sequences in a microbatch. It is even: a nanobatch is half a microbatch.
    pub microbatch: u64,
    /// Microbatches in an iteration of one pipeline.
    pub microbatches: u32,
    /// Tokens in a sequence.
    pub sequence: u64,
    /// Whether blocks are computed again before their backward pass (activation checkpointing).
    #[serde(default)]
    pub recompute: bool,
    /// How many blocks each stage has; as even as possible where it is absent, the first stages with one more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<u32>>,
}

fn one() -> u32 {
    1
}

/// A model and how it is trained, checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Description", into = "Description")]
pub struct Workload {
    model: Model,
    training: Training,
    layers: Vec<u32>,
}

/// A [`Workload`] as it is written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    model: Model,
    training: Training,
}

/// Why a description is no workload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum WorkloadError {
    #[error("{name} is {size}; 1 to {most} is possible")]
    Size {
        name: &'static str,
        size: u64,
        most: u64,
    },
    #[error("{what} ({number}) is no multiple of {by} ({divisor})")]
    Uneven {
        what: &'static str,
        number: u64,
        by: &'static str,
        divisor: u64,
    },
    #[error(
        "training.microbatch is {0}, which is odd: partitioned overlap splits a microbatch into two equal nanobatches"
    )]
    OddMicrobatch(u64),
    #[error(
        "training.tensor_parallel and training.context_parallel are both 1: such blocks communicate nothing, so there is nothing to overlap"
    )]
    NoCommunication,
    #[error(
        "training.layers gives blocks to {given} stages that make {sum} together; there are {stages} stages and {layers} blocks, and each stage has at least one"
    )]
    Layers {
        given: usize,
        sum: u64,
        stages: u32,
        layers: u32,
    },
}

/// No size of a model or job is larger, and products of four such sizes are finite numbers.
const LARGEST: u64 = 1 << 32;
/// No model has more blocks, and so no pipeline more stages; how often partitions are executed stays countable.
const MOST_BLOCKS: u64 = 1 << 16;

impl Workload {
    /// Checks a description.
    ///
    /// # Errors
    /// If a size is 0 or beyond all reason, or something can't be divided as the job divides it.
    pub fn new(model: Model, training: Training) -> Result<Self, WorkloadError> {
        check_sizes(&model, &training)?;
        check_division(&model, &training)?;
        let layers = layers(&model, &training)?;
        Ok(Self {
            model,
            training,
            layers,
        })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// How it is trained.
    #[must_use]
    pub fn training(&self) -> &Training {
        &self.training
    }

    /// How many blocks each pipeline stage has.
    #[must_use]
    pub fn layers(&self) -> &[u32] {
        &self.layers
    }
}

impl TryFrom<Description> for Workload {
    type Error = WorkloadError;

    fn try_from(it: Description) -> Result<Self, WorkloadError> {
        Self::new(it.model, it.training)
    }
}

impl From<Workload> for Description {
    fn from(it: Workload) -> Self {
        Self {
            model: it.model,
            training: it.training,
        }
    }
}

impl Model {
    pub(crate) fn head_dim(&self) -> u64 {
        let even = || self.hidden_size / self.num_attention_heads;
        self.head_dim.unwrap_or_else(even)
    }

    pub(crate) fn key_value_heads(&self) -> u64 {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }
}

fn check_sizes(model: &Model, training: &Training) -> Result<(), WorkloadError> {
    let sizes = [
        ("model.hidden_size", model.hidden_size),
        ("model.num_hidden_layers", model.num_hidden_layers.into()),
        ("model.num_attention_heads", model.num_attention_heads),
        ("model.num_key_value_heads", model.key_value_heads()),
        ("model.intermediate_size", model.intermediate_size),
        ("model.vocab_size", model.vocab_size),
        ("training.tensor_parallel", training.tensor_parallel.into()),
        (
            "training.context_parallel",
            training.context_parallel.into(),
        ),
        (
            "training.pipeline_parallel",
            training.pipeline_parallel.into(),
        ),
        ("training.microbatch", training.microbatch),
        ("training.microbatches", training.microbatches.into()),
        ("training.sequence", training.sequence),
    ];
    let check = |name, size: u64, most| match (1..=most).contains(&size) {
        true => Ok(()),
        false => Err(WorkloadError::Size { name, size, most }),
    };
    for (name, size) in sizes {
        check(name, size, LARGEST)?;
    }
    let blocks = model.num_hidden_layers.into();
    check("model.num_hidden_layers", blocks, MOST_BLOCKS)?;
    // Only now the number of heads is known not to be 0.
    check("model.head_dim", model.head_dim(), LARGEST)
}

fn check_division(model: &Model, training: &Training) -> Result<(), WorkloadError> {
    let tensor = u64::from(training.tensor_parallel);
    let heads = model.key_value_heads();
    let by_tensor = ("training.tensor_parallel", tensor);
    let context = u64::from(training.context_parallel);
    let wanted = [
        (
            "model.num_attention_heads",
            model.num_attention_heads,
            by_tensor,
        ),
        (
            "model.intermediate_size",
            model.intermediate_size,
            by_tensor,
        ),
        (
            "training.sequence",
            training.sequence,
            ("training.context_parallel", context),
        ),
    ];
    for (what, number, (by, divisor)) in wanted {
        if !number.is_multiple_of(divisor) {
            return Err(WorkloadError::Uneven {
                what,
                number,
                by,
                divisor,
            });
        }
    }
    // Fewer heads than GPUs are replicated.
    if !heads.is_multiple_of(tensor) && !tensor.is_multiple_of(heads) {
        return Err(WorkloadError::Uneven {
            what: "model.num_key_value_heads",
            number: heads,
            by: by_tensor.0,
            divisor: tensor,
        });
    }
    if !training.microbatch.is_multiple_of(2) {
        return Err(WorkloadError::OddMicrobatch(training.microbatch));
    }
    if tensor == 1 && context == 1 {
        return Err(WorkloadError::NoCommunication);
    }
    Ok(())
}

fn layers(model: &Model, training: &Training) -> Result<Vec<u32>, WorkloadError> {
    let (stages, all) = (training.pipeline_parallel, model.num_hidden_layers);
    let wrong = |given, sum| WorkloadError::Layers {
        given,
        sum,
        stages,
        layers: all,
    };
    let Some(given) = &training.layers else {
        if stages > all {
            return Err(wrong(stages as usize, all.into()));
        }
        let more = |stage| u32::from(stage < all % stages);
        return Ok((0..stages)
            .map(|stage| all / stages + more(stage))
            .collect());
    };
    let sum: u64 = given.iter().map(|&count| u64::from(count)).sum();
    let fits = given.len() == stages as usize && sum == u64::from(all) && !given.contains(&0);
    match fits {
        true => Ok(given.clone()),
        false => Err(wrong(given.len(), sum)),
    }
}
