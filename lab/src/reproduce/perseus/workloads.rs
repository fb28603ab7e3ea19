//! The pipelines of Perseus's evaluation: who does how much (appendix B), on which GPU.

use litd_profiles::synthetic::Gpu;

/// A model as the paper's tables name it, divided as its Table 7 says.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    pub name: &'static str,
    /// Where stages begin, in layers; the head counts as the last layer.
    pub bounds: &'static [u32],
    /// How each layer and the head compare with the first layer.
    pub layers: Layers,
    /// The paper's ratio of the longest stage's forward to the shortest's.
    pub imbalance: f64,
}

/// The times of a model's layers, relative to the first.
#[derive(Debug, Clone, Copy)]
pub enum Layers {
    /// Equal layers, and a head.
    Equal { head: f64 },
    /// T5: so many encoders, then decoders, which attend once more, and a head.
    Decoders { from: u32, decoder: f64, head: f64 },
    /// Nothing is known but the ratio of the longest stage to the shortest: stages are taken to rise evenly
    /// from the first to the last.
    Unknown,
}

/// What was trained or emulated.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub model: Model,
    pub gpu: Gpu,
    pub microbatches: u32,
}

impl Model {
    /// The stages' forwards, relative to their mean.
    pub fn weights(&self) -> Vec<f64> {
        let stages = self.bounds.len() - 1;
        let last = self.bounds[stages] - 1;
        let layer = |layer: u32| match self.layers {
            Layers::Equal { head } | Layers::Decoders { head, .. } if layer == last => head,
            Layers::Decoders { from, decoder, .. } if layer >= from => decoder,
            _ => 1.0,
        };
        let times: Vec<f64> = match self.layers {
            Layers::Unknown => (0..stages)
                .map(|it| 1.0 + (self.imbalance - 1.0) * it as f64 / (stages - 1) as f64)
                .collect(),
            _ => self
                .bounds
                .windows(2)
                .map(|pair| (pair[0]..pair[1]).map(layer).sum())
                .collect(),
        };
        let mean = times.iter().sum::<f64>() / stages as f64;
        times.into_iter().map(|it| it / mean).collect()
    }

    /// The ratio of the longest stage to the shortest.
    pub fn ratio(&self) -> f64 {
        let weights = self.weights();
        let longest = weights.iter().copied().fold(0.0, f64::max);
        longest / weights.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub fn stages(&self) -> usize {
        self.bounds.len() - 1
    }
}

const fn equal(name: &'static str, bounds: &'static [u32], head: f64, imbalance: f64) -> Model {
    let layers = Layers::Equal { head };
    Model {
        name,
        bounds,
        layers,
        imbalance,
    }
}

const EIGHT_OF_GPT: &[u32] = &[0, 12, 24, 36, 48, 60, 72, 84, 97];
const EIGHT_OF_BLOOM: &[u32] = &[0, 9, 18, 27, 36, 45, 54, 63, 71];

/// Table 6 and Figures 7 and 8: model, on A100 and on A40. A head's time is what the paper's ratio says:
/// Bloom's last stage has seven layers and a head, and is the shortest.
pub const LARGE: [[Model; 2]; 2] = [
    [
        equal("GPT-3 175B", EIGHT_OF_GPT, 0.36, 1.03),
        equal("GPT-3 175B", EIGHT_OF_GPT, 0.24, 1.02),
    ],
    [
        equal("Bloom 176B", EIGHT_OF_BLOOM, 1.18, 1.10),
        equal("Bloom 176B", EIGHT_OF_BLOOM, 1.49, 1.06),
    ],
];

const T5_DECODER: f64 = 1.45;
const T5_ENCODERS: u32 = 24;

const fn t5(bounds: &'static [u32], head: f64, imbalance: f64) -> Model {
    let layers = Layers::Decoders {
        from: T5_ENCODERS,
        decoder: T5_DECODER,
        head,
    };
    Model {
        name: "T5 3B",
        bounds,
        layers,
        imbalance,
    }
}

const fn resnet(bounds: &'static [u32], imbalance: f64) -> Model {
    Model {
        name: "Wide-ResNet 1.5B",
        bounds,
        layers: Layers::Unknown,
        imbalance,
    }
}

/// Tables 3a and 4a: four stages on A100 PCIe (Tables 7a and 10).
pub const FOUR_STAGES: [(Model, u32); 5] = [
    (equal("GPT-3 1.3B", &[0, 6, 12, 19, 25], 1.5, 1.17), 128),
    (equal("BERT 1.3B", &[0, 7, 13, 19, 25], 1.5, 1.17), 32),
    (t5(&[0, 15, 28, 38, 49], 0.9, 1.06), 32),
    (equal("Bloom 3B", &[0, 9, 17, 25, 31], 3.5, 1.13), 128),
    (resnet(&[0, 8, 17, 26, 35], 1.09), 24),
];

/// Tables 3b and 4b: eight stages on A40 (Tables 7b and 9).
pub const EIGHT_STAGES: [(Model, u32); 5] = [
    (
        equal("GPT-3 2.7B", &[0, 4, 8, 12, 16, 20, 24, 28, 33], 0.84, 1.21),
        256,
    ),
    (
        equal("BERT 1.3B", &[0, 3, 6, 9, 12, 15, 18, 22, 25], 1.5, 1.33),
        32,
    ),
    (t5(&[0, 8, 15, 23, 28, 33, 38, 43, 49], 0.7, 1.17), 32),
    (
        equal("Bloom 3B", &[0, 5, 9, 13, 17, 21, 25, 29, 31], 3.5, 1.25),
        128,
    ),
    (resnet(&[0, 4, 8, 12, 16, 21, 26, 31, 35], 1.25), 48),
];

/// Figure 9c: four stages of a pipeline on A40, with two pipelines and tensors on two GPUs (Table 8).
pub const THREE_D: (Model, u32) = (equal("GPT-3 6.7B", &[0, 8, 16, 24, 33], 0.64, 1.08), 128);

/// Table 5: GPUs, pipelines and microbatches of each.
pub const SCALES: [(u32, u32, u32); 4] = [
    (1024, 16, 96),
    (2048, 32, 48),
    (4096, 64, 24),
    (8192, 128, 12),
];
