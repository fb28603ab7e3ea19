//! The permanent hold-out: for a small share of the time a job that is steered in production
//! holds the caps found. Each such block is compared with the mean of the two around it, so that
//! linear drift cancels; when it comes is drawn anew each time, so that it keeps no step with
//! anything that the job does.

use std::collections::VecDeque;

use litd_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::design::mixed;
use crate::estimate::Estimate;
use crate::power::{quads_to_stop, upper_bound};
use crate::{CONFIDENCE, HARM, LOOK};

/// So many of the latest differences are kept: what was long ago was another job.
const KEPT: usize = 96;

/// Fewer say nothing.
const LEAST: usize = 4;

/// The results of the hold-out for one job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HoldOut {
    /// Natural logarithm of throughput, B minus A.
    throughput: VecDeque<f64>,
    /// The same of power.
    power: VecDeque<f64>,
}

impl HoldOut {
    /// Takes a block of the balanced caps, one of those found, and one of the balanced again.
    pub fn add(&mut self, before: &Block, found: &Block, after: &Block) {
        let throughput = |block: &Block| block.log_throughput();
        let power = |block: &Block| Some(block.power?.0.ln()).filter(|it| it.is_finite());
        push(
            &mut self.throughput,
            contrast(throughput, before, found, after),
        );
        push(&mut self.power, contrast(power, before, found, after));
    }

    /// Differences so far, of those that are kept.
    #[must_use]
    pub fn count(&self) -> usize {
        self.throughput.len()
    }

    /// By which share throughput is higher with the balanced caps.
    #[must_use]
    pub fn throughput(&self, confidence: f64) -> Option<Estimate> {
        estimate(&self.throughput, confidence)
    }

    /// By which share power is higher with the balanced caps.
    #[must_use]
    pub fn power(&self, confidence: f64) -> Option<Estimate> {
        estimate(&self.power, confidence)
    }

    /// Whether it shows harm: an interval wholly below minus [`HARM`], at the confidence that
    /// allows for looking after every block.
    #[must_use]
    pub fn harm(&self) -> Option<Estimate> {
        self.throughput(LOOK).filter(|it| it.high < -HARM)
    }

    /// After how many differences, from the first, a loss of this share is found.
    #[must_use]
    pub fn to_find(&self, loss: f64) -> Option<u32> {
        let it = self.throughput(CONFIDENCE)?;
        quads_to_stop(upper_bound(it.deviation, it.count), loss)
    }
}

fn push(kept: &mut VecDeque<f64>, difference: Option<f64>) {
    if let Some(difference) = difference {
        kept.push_back(difference);
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
}

fn contrast(
    of: impl Fn(&Block) -> Option<f64>,
    before: &Block,
    found: &Block,
    after: &Block,
) -> Option<f64> {
    Some((of(before)? + of(after)?) / 2.0 - of(found)?)
}

fn estimate(kept: &VecDeque<f64>, confidence: f64) -> Option<Estimate> {
    if kept.len() < LEAST {
        return None;
    }
    let differences: Vec<f64> = kept.iter().copied().collect();
    Some(Estimate::of(&differences, confidence)?.exponential())
}

/// How long the balanced caps are held between two blocks of the hold-out, such that those found
/// are held for `share` of the time: drawn between half and one and a half of the mean. `None`
/// where there is no hold-out. `away` is what one block takes, with its settling.
#[must_use]
pub fn pause(share: f64, away: Nanos, seed: u64, round: u32) -> Option<Nanos> {
    if !(share > 0.0 && share < 1.0) {
        return None;
    }
    let mean = away.as_secs_f64() * (1.0 - share) / share;
    // 53 bits are all that a float holds.
    let unit = (mixed(seed ^ mixed(u64::from(round))) >> 11) as f64 / (1_u64 << 53) as f64;
    Some(Nanos((mean * (0.5 + unit) * 1e9) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Times;
    use crate::design::Arm;
    use litd_units::{Millis, Watts};

    fn block(arm: Arm, millis: f64) -> Block {
        Block {
            arm,
            times: Times {
                mean: Millis(millis),
                counted: 100,
                excluded: 0,
                profiled: 0,
            },
            power: Some(Watts(700.0)),
            node_power: None,
        }
    }

    #[test]
    fn the_share_of_time_is_kept() {
        let away = Nanos(360_000_000_000);
        let pauses = (0..2000).map(|round| pause(0.05, away, 3, round).unwrap().as_secs_f64());
        let mean = pauses.sum::<f64>() / 2000.0;
        let share = 360.0 / (360.0 + mean);
        assert!((share - 0.05).abs() < 0.001, "{share}");
        assert_eq!(pause(0.0, away, 3, 0), None);
        assert_eq!(pause(f64::NAN, away, 3, 0), None);
    }

    #[test]
    fn harm_is_told_from_noise_and_from_too_little_harm() {
        let run = |slower: f64| {
            let mut out = HoldOut::default();
            let mut found = None;
            for round in 0..60_u32 {
                let noise = |salt: u64| (mixed(u64::from(round) * 3 + salt) % 100) as f64 / 1e5;
                let slow = 1000.0 * (1.0 + slower + noise(0));
                out.add(
                    &block(Arm::Balanced, slow),
                    &block(Arm::Found, 1000.0 * (1.0 + noise(1))),
                    &block(Arm::Balanced, 1000.0 * (1.0 + slower + noise(2))),
                );
                if out.harm().is_some() && found.is_none() {
                    found = Some(round + 1);
                }
            }
            (found, out)
        };
        assert!(run(0.005).0.is_some_and(|rounds| rounds <= 8));
        assert_eq!(run(0.0005).0, None);
        assert_eq!(run(-0.01).0, None);
        let (_, out) = run(-0.01);
        let shown = out.throughput(CONFIDENCE).unwrap();
        assert!((shown.mean - 0.01).abs() < 0.001, "{shown:?}");
        assert!(out.power(CONFIDENCE).unwrap().holds_zero());
        assert!(out.to_find(0.01).is_some_and(|rounds| rounds < 10));
    }
}
