//! The deployment by the command line: model, specification, GPU, precision.

use std::path::{Path, PathBuf};

use litd_inference::gpu::Gpu;
use litd_inference::interpret::Program;
use litd_inference::kernel::{
    Analytic, Backend, Baseline, KernelModel, Library, Precision, Routing,
};
use litd_inference::model::{EngineArgs, Model};
use litd_inference::predict::{Deployment, Extras};
use litd_inference::spec::{Overlap, Spec, Symbol, listings};

use super::files::{self, Fallible};

/// No specification and no config.json is longer, bytes.
const LONGEST_TEXT: u64 = 4 << 20;

/// The deployment.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub struct Deploy {
    /// A shipped model, such as llama-3-70b, qwen3-30b-a3b, mixtral-8x7b, or a Hugging Face config.json
    #[arg(long, value_name = "NAME|config.json", group = "what")]
    model: Option<String>,
    /// vLLM's arguments, as text or as a file of text or JSON. Model, tensor and expert
    /// parallelism, quantization, KV cache, sequences and speculation come from them, unless an
    /// option here gives them
    #[arg(
        long,
        value_name = "TEXT|FILE",
        group = "what",
        allow_hyphen_values = true
    )]
    engine_args: Option<String>,
    /// The GPU, such as a100, h100, h200, mi300x
    #[arg(long, value_parser = files::gpu)]
    gpu: Gpu,
    /// The layer: fused-dense, unfused-dense, fused-moe, context-dense (the paper's listings), or a file of einsums
    /// as op("bsm,mf->bsf", parallel="f", label="…") lists or TOML [default: fused-moe for models with experts, else
    /// fused-dense]
    #[arg(long, value_name = "LISTING|FILE")]
    spec: Option<String>,
    /// The file of a calibration, written by `litctl predict calibrate` [default: none; predictions rest
    /// on public specifications]
    #[arg(long, value_name = "FITTED.json")]
    fitted: Option<PathBuf>,
    /// How the latency and power of kernels are predicted
    #[arg(long, value_enum, default_value_t = super::evaluate::Way::Analytic, conflicts_with = "fitted")]
    backend: super::evaluate::Way,
    /// The precision of weights and activations [default: bf16]
    #[arg(long, value_enum)]
    precision: Option<Numbers>,
    /// Bits of a number in the KV cache, 8 to 16 [default: 16]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u8).range(8..=16))]
    cache_bits: Option<u8>,
    /// How tokens choose experts: uniform, balanced or power_law_EXPONENT
    #[arg(long, default_value = "uniform", value_parser = routing)]
    routing: Routing,
    /// In place of --routing, statistics from a functional run of the model: CSV with expert and
    /// tokens
    #[arg(long, value_name = "FILE.csv", conflicts_with = "routing")]
    routing_statistics: Option<PathBuf>,
    /// Leave out parts that are not in the paper's listings: norms, rope, activation, embedding,
    /// head, or all of these
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = ["norms", "rope", "activation", "embedding", "head", "all"])]
    without: Vec<String>,
    /// Count all of prefill attention, as the listings do; engines compute only what precedes each
    /// token
    #[arg(long)]
    full_attention: bool,
    /// Use the engine's own all-reduce over peer memory where that is faster than NCCL
    #[arg(long)]
    custom_all_reduce: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Numbers {
    /// 16 bits throughout
    Bf16,
    /// 8 bits throughout
    Fp8,
    /// Weights of 8 bits
    W8a16,
    /// Weights of 4 bits
    W4a16,
    /// 4 bits throughout
    Fp4,
}

impl Numbers {
    fn precision(self) -> Precision {
        let (weights, activations) = match self {
            Self::Bf16 => (16, 16),
            Self::Fp8 => (8, 8),
            Self::W8a16 => (8, 16),
            Self::W4a16 => (4, 16),
            Self::Fp4 => (4, 4),
        };
        Precision {
            weights,
            activations,
        }
    }
}

fn routing(text: &str) -> Result<Routing, String> {
    Routing::parse(text).ok_or_else(|| "must be uniform, balanced or power_law_EXPONENT".to_owned())
}

/// The deployment, read.
pub struct Deployed {
    pub model: Model,
    /// The engine's arguments.
    pub engine: EngineArgs,
    pub spec: Spec,
    pub kernels: Box<dyn KernelModel>,
    /// The basis of predictions: a calibration, or public specifications.
    pub rests_on: String,
    precision: Precision,
    cache_bits: u8,
    routing: Routing,
    shares: Option<Vec<f64>>,
    extras: Extras,
    causal: bool,
    library: Library,
}

impl Deploy {
    /// Reads what the arguments name.
    pub fn read(&self) -> Fallible<Deployed> {
        let engine = self.engine()?;
        let name = self.model.as_ref().or(engine.model.as_ref());
        let model = model(name.ok_or("no model is given: --model, or one in --engine-args")?)?;
        let spec = self.specification(&model)?;
        let (kernels, rests_on) = self.kernels()?;
        let counts = |name: &str| !self.without.iter().any(|it| it == name || it == "all");
        let statistics = self.routing_statistics.as_deref();
        let shares = statistics.map(|path| shares(path, &model)).transpose()?;
        Ok(Deployed {
            shares,
            precision: match self.precision {
                Some(numbers) => numbers.precision(),
                None => engine.precision.unwrap_or(Precision::BF16),
            },
            cache_bits: self.cache_bits.or(engine.cache_bits).unwrap_or(16),
            model,
            engine,
            spec,
            kernels,
            rests_on,
            routing: self.routing,
            extras: Extras {
                norms: counts("norms"),
                rope: counts("rope"),
                activation: counts("activation"),
                embedding: counts("embedding"),
                head: counts("head"),
            },
            causal: !self.full_attention,
            library: match self.custom_all_reduce {
                true => Library::Custom,
                false => Library::Nccl,
            },
        })
    }

    fn engine(&self) -> Fallible<EngineArgs> {
        let Some(given) = &self.engine_args else {
            return Ok(EngineArgs::default());
        };
        let path = Path::new(given);
        let text = match path.is_file() {
            true => {
                litd_files::text(path, LONGEST_TEXT).map_err(|error| format!("{given}: {error}"))?
            }
            false => given.clone(),
        };
        Ok(EngineArgs::parse(&text).map_err(|error| format!("--engine-args: {error}"))?)
    }

    fn specification(&self, model: &Model) -> Fallible<Spec> {
        let default = match model.experts {
            Some(_) => "fused-moe",
            None => "fused-dense",
        };
        let name = self.spec.as_deref().unwrap_or(default);
        let text = match listings::named(name) {
            Some(text) => text.to_owned(),
            None => litd_files::text(Path::new(name), LONGEST_TEXT).map_err(|error| {
                let known: Vec<&str> = listings::ALL.iter().map(|it| it.0).collect();
                format!(
                    "{name}: {error}; it is none of the listings {}",
                    known.join(", ")
                )
            })?,
        };
        Ok(Spec::parse(&text).map_err(|error| format!("{name}: {error}"))?)
    }

    fn kernels(&self) -> Fallible<(Box<dyn KernelModel>, String)> {
        if let Some(path) = &self.fitted {
            let fitted = files::fitted(path, &self.gpu)?;
            return Ok((fitted.model(), format!("calibrated by {}", path.display())));
        }
        let analytic = Analytic::uncalibrated(self.gpu.clone());
        let model: Box<dyn KernelModel> = match self.backend.backend() {
            Backend::Analytic => Box::new(analytic),
            other => Box::new(Baseline::new(analytic, other)),
        };
        Ok((model, "uncalibrated: public specifications".to_owned()))
    }
}

/// Each expert's share of all assignments.
fn shares(path: &Path, model: &Model) -> Fallible<Vec<f64>> {
    let wrong = |what: String| -> Box<dyn std::error::Error> {
        format!("{}: {what}", path.display()).into()
    };
    let Some(experts) = model.experts else {
        return Err(wrong(format!("{} has no experts", model.name)));
    };
    let text = litd_files::text(path, LONGEST_TEXT).map_err(|error| wrong(error.to_string()))?;
    let mut tokens = vec![0.0; experts.count as usize];
    for (number, line) in text
        .lines()
        .enumerate()
        .skip(1)
        .filter(|it| !it.1.trim().is_empty())
    {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let row = match cells.as_slice() {
            [expert, count] => expert.parse::<usize>().ok().zip(count.parse::<f64>().ok()),
            _ => None,
        };
        let known = row.filter(|it| it.0 < tokens.len() && it.1.is_finite() && it.1 >= 0.0);
        let Some((expert, count)) = known else {
            let what = format!(
                "line {}: must be an expert of 0 to {} and its tokens",
                number + 1,
                tokens.len() - 1
            );
            return Err(wrong(what));
        };
        tokens[expert] += count;
    }
    let all: f64 = tokens.iter().sum();
    match all > 0.0 {
        true => Ok(tokens.into_iter().map(|it| it / all).collect()),
        false => Err(wrong("no expert has a token".to_owned())),
    }
}

fn model(name: &str) -> Fallible<Model> {
    if !name.ends_with(".json") {
        return Ok(Model::named(name)?);
    }
    let path = Path::new(name);
    let text = litd_files::text(path, LONGEST_TEXT).map_err(|error| format!("{name}: {error}"))?;
    // Config files lie in folders that are called as the model is.
    let folder = path.parent().and_then(Path::file_name);
    let called = folder.map_or_else(|| name.into(), |it| it.to_string_lossy());
    Ok(Model::from_config(&called, &text).map_err(|error| format!("{name}: {error}"))?)
}

impl Deployed {
    /// The layer, with all-reduced products overlapped or not.
    pub fn program(&self, overlap: Option<Overlap>) -> Fallible<Program> {
        let plain = Program::new(&self.spec)?;
        if overlap.is_none() {
            return Ok(plain);
        }
        let reducing = plain
            .operators
            .iter()
            .filter(|it| it.reduces && !it.is_movement());
        let labels: Vec<&str> = reducing.map(|it| it.label.as_str()).collect();
        Ok(Program::new(
            &self.spec.clone().with_overlap(&labels, overlap),
        )?)
    }

    /// The deployment with a program.
    pub fn with<'a>(
        &'a self,
        program: &'a Program,
        kernels: &'a dyn KernelModel,
    ) -> Deployment<'a> {
        Deployment {
            model: &self.model,
            program,
            kernels,
            precision: self.precision,
            cache_bits: self.cache_bits,
            routing: self.routing,
            shares: self.shares.as_deref(),
            extras: self.extras,
            causal: self.causal,
            library: self.library,
        }
    }
}

/// Stages and multiprocessors as an overlap along the sequence; one stage is none.
pub fn overlap(stages: u32, sms: u32) -> Option<Overlap> {
    let along = Symbol::new('s')?;
    (stages > 1).then_some(Overlap { stages, sms, along })
}
