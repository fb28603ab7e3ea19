//! The experts of a layer: two grouped products over those that get tokens, and what moves activations.
//!
//! The paper's effective quantities (section 3.2) come out of the loads: E is how many local experts get
//! a token at all, T how many tokens each has after its tile is filled.

use serde::{Deserialize, Serialize};

use super::constants::MoeConstants;
use super::gemm::sustained;
use super::{Kernel, Work};
use crate::gpu::Gpu;

/// How tokens choose experts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// As evenly as it goes: what a load-balanced benchmark makes.
    Balanced,
    /// Each token chooses at random, all experts alike: uniform routing.
    Uniform,
    /// Loads follow a power law with this exponent.
    PowerLaw(f64),
}

impl Routing {
    /// From a table's column: "balanced", "uniform" or "`power_law_1.2`".
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "balanced" => Some(Self::Balanced),
            "uniform" | "random" | "" => Some(Self::Uniform),
            law => {
                let exponent = law.strip_prefix("power_law_")?.parse().ok()?;
                (exponent > 0.0_f64 && exponent < 10.0).then_some(Self::PowerLaw(exponent))
            }
        }
    }
}

/// Rows of the tiles that grouped products have.
const TILES: [f64; 4] = [16.0, 32.0, 64.0, 128.0];
/// Experts are grouped into so many at most: more are counted by samples.
const MOST: f64 = 1024.0;

/// Expected tokens of each expert of the fullest GPU, largest first, and the share of the experts that one
/// entry stands for. `tokens` are those of the whole group.
#[must_use]
pub fn loads(tokens: f64, top_k: f64, experts: f64, ep: f64, routing: Routing) -> Vec<f64> {
    let local = local(experts, ep);
    let mean = tokens * top_k / experts;
    match routing {
        Routing::Balanced => {
            // Whole tokens: some experts have one more than others, and with few tokens some none.
            let (floor, rest) = (mean.floor(), mean.fract());
            let fuller = (rest * local as f64).ceil() as usize;
            let load = |it| if it < fuller { floor + 1.0 } else { floor };
            (0..local).map(load).collect()
        }
        Routing::Uniform => vec![mean; local],
        Routing::PowerLaw(exponent) => {
            let all = experts.clamp(1.0, MOST);
            let weight =
                |it: f64| power_law(1.0 - (it + 0.5) / all, exponent, (0.8 * tokens).max(2.0));
            let total: f64 = (0..all as usize).map(|it| weight(it as f64)).sum();
            // Every ep-th from the top: the group that has the fullest expert.
            let stride = all / local as f64;
            let share = |it: usize| weight(it as f64 * stride) / total;
            let load = |it| (share(it) * tokens * top_k).min(tokens);
            (0..local).map(load).collect()
        }
    }
}

fn local(experts: f64, ep: f64) -> usize {
    (experts.min(MOST) / ep).ceil().clamp(1.0, MOST) as usize
}

/// The quantile of a power law between 1 and `most`.
fn power_law(quantile: f64, exponent: f64, most: f64) -> f64 {
    let power = 1.0 - exponent;
    match power.abs() < 1e-6 {
        true => most.powf(quantile),
        false => ((most.powf(power) - 1.0) * quantile + 1.0).powf(1.0 / power),
    }
}

pub(super) fn work(gpu: &Gpu, constants: &MoeConstants, kernel: &Kernel, sms: u32) -> Work {
    let Kernel::Moe {
        tokens,
        hidden,
        inter,
        top_k,
        experts,
        tp,
        ep,
        routing,
        precision,
    } = *kernel
    else {
        return super::attention::NOTHING;
    };
    let positive = |size: f64| size.clamp(1.0, 1e12);
    let (tokens, hidden, experts) = (positive(tokens), positive(hidden), positive(experts));
    let (tp, ep, top_k) = (
        positive(tp),
        positive(ep).min(experts),
        positive(top_k).min(experts),
    );
    // Columns are padded to the narrowest tile.
    let inter = (positive(inter / tp) / 64.0).ceil() * 64.0;
    let loads = loads(tokens, top_k, experts, ep, routing);
    // With few tokens an expected load below 1 is the chance that the expert is read at all.
    let chance = |load: f64| match routing {
        Routing::Balanced => load.min(1.0),
        Routing::Uniform | Routing::PowerLaw(_) => 1.0 - (-load).exp(),
    };
    let active: f64 = loads.iter().map(|&it| chance(it)).sum();
    let assigned: f64 = loads.iter().sum();
    let sms = f64::from(sms);
    let peak = precision.peak(gpu);
    let compute = peak * sustained(gpu.architecture) * constants.compute * sms / f64::from(gpu.sms);
    let per_row = 6.0 * hidden * inter;
    let padded = |tile: f64| -> f64 {
        let rows: f64 = loads
            .iter()
            .map(|&it| chance(it) * (it / tile).ceil() * tile)
            .sum();
        rows * (tile + constants.rows) / tile
    };
    let rows = TILES
        .iter()
        .map(|&it| padded(it))
        .fold(f64::INFINITY, f64::min);
    let computing = rows * per_row / compute * 1e3;
    let weights = active * 3.0 * hidden * inter * precision.weight_bytes();
    // Blocks that read weights: each takes 128 columns of the gate and up projection.
    let blocks = active * (2.0 * inter / 128.0).ceil() / sms;
    let saturated = blocks / (blocks + constants.saturation);
    let reading = weights / (gpu.bandwidth * constants.bandwidth * saturated) * 1e3;
    // The products' own operands; what engines activate and sum they do for all tokens, not the local ones.
    let all = tokens * top_k;
    let activations = 2.0
        * (assigned * (2.0 * hidden + 3.0 * inter)
            + all * (hidden + 3.0 * inter)
            + tokens * hidden);
    let moving = activations / (gpu.bandwidth * constants.moving) * 1e3;
    let scheduling = active * constants.expert / sms * 1e-3;
    let exposed = constants.exposed.min(1.0) * computing.min(reading);
    Work {
        latency: constants.launch * 1e-3 + computing.max(reading) + exposed + moving + scheduling,
        clocked: if computing > reading {
            computing
        } else {
            exposed
        },
        flops: assigned * per_row,
        bytes: weights + activations,
        peaks: [peak, gpu.bandwidth],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_add_up_to_all_assignments() {
        for routing in [Routing::Balanced, Routing::Uniform, Routing::PowerLaw(1.2)] {
            let total: f64 = loads(4096.0, 8.0, 128.0, 1.0, routing).iter().sum();
            assert!(
                (total / (4096.0 * 8.0) - 1.0).abs() < 0.01,
                "{routing:?} {total}"
            );
        }
    }

    /// The fullest of four GPUs has more than a quarter where routing is skewed, and a quarter otherwise.
    #[test]
    fn skew_fills_one_gpu_more() {
        let share =
            |routing| loads(4096.0, 8.0, 128.0, 4.0, routing).iter().sum::<f64>() / (4096.0 * 8.0);
        assert!((share(Routing::Uniform) - 0.25).abs() < 1e-9);
        assert!(share(Routing::PowerLaw(1.2)) > 0.255);
    }

    #[test]
    fn routing_is_read_as_tables_write_it() {
        assert_eq!(
            Routing::parse("power_law_1.01"),
            Some(Routing::PowerLaw(1.01))
        );
        assert_eq!(Routing::parse("balanced"), Some(Routing::Balanced));
        assert_eq!(Routing::parse("power_law_x"), None);
        assert_eq!(Routing::parse("zipf"), None);
    }
}
