//! Effective quantities of experts (section 3.2): E, experts with a token on a GPU, and T, tokens of each after
//! its tile is filled; on the fullest GPU and on average.

use crate::kernel::{Routing, loads};
use crate::model::Experts;

/// Rows of the smallest tile of grouped products: T is at least this.
const TILE: f64 = 16.0;

/// E and T.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effective {
    /// On the GPU that all wait for.
    pub fullest: (f64, f64),
    /// On the average GPU.
    pub average: (f64, f64),
}

impl Effective {
    /// Of a step with so many tokens, on `ep` GPUs.
    #[must_use]
    pub fn of(experts: &Experts, tokens: f64, ep: f64, routing: Routing) -> Self {
        let Experts { count, top_k, .. } = *experts;
        match routing {
            Routing::Uniform | Routing::Balanced => {
                let mean = tokens * top_k / count;
                let active = match routing {
                    Routing::Balanced => mean.min(1.0),
                    // The chance that a token takes this expert, over all tokens.
                    _ => 1.0 - (1.0 - top_k / count).max(0.0).powf(tokens),
                };
                let both = (count / ep * active, tiled(mean / active));
                Self {
                    fullest: both,
                    average: both,
                }
            }
            Routing::PowerLaw(_) => Self {
                fullest: counted(&loads(tokens, top_k, count, ep, routing), 1.0),
                average: counted(&loads(tokens, top_k, count, 1.0, routing), ep),
            },
        }
    }
}

impl Effective {
    /// From routing statistics: which share of all assignments each expert got in a functional run of the
    /// model, in the order in which GPUs take them, the same number each.
    #[must_use]
    pub fn measured(experts: &Experts, tokens: f64, ep: f64, shares: &[f64]) -> Self {
        let loads: Vec<f64> = shares
            .iter()
            .map(|it| it * tokens * experts.top_k)
            .collect();
        let each = (loads.len() as f64 / ep).ceil().max(1.0) as usize;
        let gpus: Vec<(f64, f64)> = loads.chunks(each).map(|it| counted(it, 1.0)).collect();
        let rows = |it: &(f64, f64)| it.0 * it.1;
        let fullest = gpus
            .iter()
            .copied()
            .max_by(|a, b| rows(a).total_cmp(&rows(b)));
        let average = counted(&loads, ep);
        Self {
            fullest: fullest.unwrap_or(average),
            average,
        }
    }
}

fn tiled(tokens: f64) -> f64 {
    (tokens / TILE).ceil().max(1.0) * TILE
}

/// From each expert's expected tokens, on so many GPUs.
fn counted(loads: &[f64], gpus: f64) -> (f64, f64) {
    let chance = |load: f64| 1.0 - (-load).exp();
    let active: f64 = loads.iter().map(|&it| chance(it)).sum();
    let rows: f64 = loads.iter().map(|&it| chance(it) * tiled(it)).sum();
    (active / gpus, rows / active.max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QWEN: Experts = Experts {
        count: 128.0,
        top_k: 8.0,
        inter: 768.0,
    };

    /// A token activates its 8 experts, 2 of them on each of 4 GPUs, with one tile each (Figure 2b).
    #[test]
    fn one_token_activates_its_experts() {
        let effective = Effective::of(&QWEN, 1.0, 4.0, Routing::Uniform);
        assert!((effective.average.0 - 2.0).abs() < 1e-9);
        assert_eq!(effective.average.1, 16.0);
    }

    /// Of four GPUs the one whose experts got half of all tokens is waited for.
    #[test]
    fn statistics_show_the_fullest_gpu() {
        let mut shares = vec![0.5 / 96.0; 128];
        shares[..32].fill(0.5 / 32.0);
        let effective = Effective::measured(&QWEN, 16384.0, 4.0, &shares);
        let tokens = |(experts, tokens): (f64, f64)| experts * tokens;
        assert!(
            (tokens(effective.fullest) / (0.5 * 16384.0 * 8.0) - 1.0).abs() < 0.02,
            "{effective:?}"
        );
        assert!(
            tokens(effective.fullest) > 1.9 * tokens(effective.average),
            "{effective:?}"
        );
    }

    /// With many tokens all experts are active, and skew makes the fullest GPU fuller than the average (2a).
    #[test]
    fn skew_shows_on_the_fullest_gpu() {
        let even = Effective::of(&QWEN, 16384.0, 4.0, Routing::Uniform);
        assert_eq!(even.fullest, even.average);
        assert!((even.average.0 - 32.0).abs() < 1e-6);
        assert_eq!(even.average.1, 1024.0);
        let skewed = Effective::of(&QWEN, 16384.0, 4.0, Routing::PowerLaw(1.2));
        let tokens = |(experts, tokens): (f64, f64)| experts * tokens;
        assert!(
            tokens(skewed.fullest) > 1.02 * tokens(skewed.average),
            "{skewed:?}"
        );
    }
}
