//! Minimum-imbalance pipeline partitioning (appendix B.1).

use litd_units::Millis;
use serde::Serialize;
use thiserror::Error;

/// The layers of each stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Partition {
    /// Stage n has the layers from `bounds[n]` to before `bounds[n + 1]`.
    pub bounds: Vec<usize>,
    /// The longest stage's time over the shortest's: 1 is perfect balance.
    pub imbalance: f64,
}

/// Why layers can't be divided.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PartitionError {
    #[error("{layers} layers can't be divided among {stages} stages: each needs one at least")]
    TooFew { layers: usize, stages: usize },
    #[error("layer {0}: its time must be more than 0")]
    Time(usize),
}

/// Divides layers, in their order, among stages so that the ratio of the longest to the shortest
/// stage is the least; among equals, the one whose longest stage is shortest.
///
/// For a given shortest stage the least longest one is found stage by stage; the candidates for
/// the shortest are the sums of neighbouring layers, the largest first, until even perfect
/// balance of the rest could not win.
///
/// # Errors
/// If there are fewer layers than stages, no stage, or a time is not positive.
pub fn partition(layers: &[Millis], stages: usize) -> Result<Partition, PartitionError> {
    if stages == 0 || layers.len() < stages {
        let layers = layers.len();
        return Err(PartitionError::TooFew { layers, stages });
    }
    let possible = |time: &Millis| time.is_finite() && *time > Millis::ZERO;
    if let Some(layer) = layers.iter().position(|time| !possible(time)) {
        return Err(PartitionError::Time(layer));
    }
    let mut until = vec![0.0];
    until.extend(layers.iter().scan(0.0, |sum, time| {
        *sum += time.0;
        Some(*sum)
    }));
    let mean = until[layers.len()] / stages as f64;
    let mut candidates: Vec<f64> = (0..layers.len())
        .flat_map(|first| until[first + 1..].iter().map(move |end| (first, end)))
        .map(|(first, end)| end - until[first])
        .filter(|time| *time <= mean * (1.0 + TOLERANCE))
        .collect();
    candidates.sort_by(|a, b| b.total_cmp(a));
    candidates.dedup_by(|a, b| (*a - *b).abs() <= TOLERANCE * mean);
    let mut best: Option<Partition> = None;
    for least in candidates {
        if best
            .as_ref()
            .is_some_and(|best| mean / least >= best.imbalance)
        {
            break;
        }
        let Some(bounds) = balance(&until, stages, least) else {
            continue;
        };
        let imbalance = imbalance(&until, &bounds);
        if best
            .as_ref()
            .is_none_or(|best| imbalance < best.imbalance * (1.0 - TOLERANCE))
        {
            best = Some(Partition { bounds, imbalance });
        }
    }
    // The shortest stage of any division is a candidate, so there is one.
    best.ok_or(PartitionError::TooFew {
        layers: layers.len(),
        stages,
    })
}

/// Times closer than this, relatively, are equal: they are sums of the same layers.
const TOLERANCE: f64 = 1e-12;

/// The bounds with the least longest stage, if no stage may be shorter than `least`.
fn balance(until: &[f64], stages: usize, least: f64) -> Option<Vec<usize>> {
    let layers = until.len() - 1;
    let least = least * (1.0 - TOLERANCE);
    // Of the first n layers in so many stages: the least longest stage, and where the last begins.
    let mut longest = vec![f64::INFINITY; layers + 1];
    longest[0] = 0.0;
    let mut begins = Vec::with_capacity(stages);
    for _ in 0..stages {
        let mut next = vec![f64::INFINITY; layers + 1];
        let mut begin = vec![0; layers + 1];
        for end in 1..=layers {
            for first in (0..end).rev() {
                let time = until[end] - until[first];
                // Stages that begin earlier are only longer.
                if time >= next[end] {
                    break;
                }
                let most = longest[first].max(time);
                if time >= least && most < next[end] {
                    next[end] = most;
                    begin[end] = first;
                }
            }
        }
        longest = next;
        begins.push(begin);
    }
    if longest[layers].is_infinite() {
        return None;
    }
    let mut bounds = vec![layers];
    for begin in begins.iter().rev() {
        bounds.push(begin[bounds[bounds.len() - 1]]);
    }
    bounds.reverse();
    Some(bounds)
}

fn imbalance(until: &[f64], bounds: &[usize]) -> f64 {
    let times = || {
        bounds
            .windows(2)
            .map(|pair| until[pair[1]] - until[pair[0]])
    };
    times().fold(0.0, f64::max) / times().fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many equal layers, and a head that takes as long as so many of them.
    fn model(layers: usize, head: f64) -> Vec<Millis> {
        let mut times = vec![Millis(1.0); layers];
        times.push(Millis(head));
        times
    }

    /// Table 7 of the paper, where the head's time does not matter for the ratio.
    #[test]
    fn the_papers_ratios_come_out() {
        for (layers, head, stages, ratio) in [
            (24, 1.5, 4, 7.0 / 6.0),
            (24, 1.5, 8, 4.0 / 3.0),
            (32, 1.0, 4, 9.0 / 8.0),
            (32, 1.0, 8, 5.0 / 4.0),
            (12, 1.0, 8, 2.0),
        ] {
            let partition = partition(&model(layers, head), stages).unwrap();
            assert!(
                (partition.imbalance - ratio).abs() < 1e-9,
                "{layers}: {partition:?}"
            );
            assert_eq!(partition.bounds.len(), stages + 1);
        }
    }

    #[test]
    fn a_heavy_last_layer_makes_the_last_stage_short() {
        let found = partition(&model(24, 1.5), 4).unwrap();
        assert_eq!(found.bounds[3..], [19, 25]);
        let found = partition(&model(96, 0.5), 8).unwrap();
        assert_eq!(found.bounds, [0, 12, 24, 36, 48, 60, 72, 84, 97]);
    }

    #[test]
    fn what_can_not_be_divided_is_refused() {
        assert!(partition(&model(2, 1.0), 4).is_err());
        assert!(partition(&model(2, 1.0), 0).is_err());
        assert_eq!(
            partition(&model(2, f64::NAN), 2),
            Err(PartitionError::Time(2))
        );
    }
}
