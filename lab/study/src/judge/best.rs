//! The best caps that a plant has, found by somebody who may look inside: the noise-free steady
//! state says what any caps lead to.
//!
//! Every GPU's own time is asked for first: how long an iteration takes when it alone has a lower
//! cap and all others the highest. From these curves follow the caps under which all GPUs are as
//! slow, which is nearly it, because all wait for the slowest. What the curves don't know (heat
//! that neighbours bring, contention that depends on who waits) is found by moving one cap after
//! the other, against all others or alone, in ever smaller steps.

use litd_units::Watts;

use crate::StudyError;
use crate::optimum::{Best, Outcome};
use crate::steered::Steered;

/// What is best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// The shortest iteration.
    Fast,
    /// The least power with an iteration of at most this part longer than at the start.
    Frugal {
        /// The part.
        slower: f64,
    },
}

/// The caps among which it is looked for.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// The lowest and the highest cap of each GPU.
    pub range: Vec<(Watts, Watts)>,
    /// What all may add up to.
    pub budget: Watts,
}

/// Points of each GPU's own curve.
const POINTS: usize = 7;
/// The curve reaches down to this part of the starting cap, or to the floor; below it goes on as it
/// ends.
const DOWN: f64 = 0.6;
/// Relative steps of the search, one after the other, and rounds with each at most.
const STEPS: [f64; 4] = [0.012, 0.004, 0.0013, 0.0004];
const ROUNDS: usize = 12;
/// What a part of time too much counts in parts of power: more than any plant's exchange.
const PENALTY: f64 = 200.0;
/// A round that gains less ends the rounds.
const NOTHING: f64 = 5e-6;

/// The best caps of `plant` within the bounds, and its outcome under them; never worse than the
/// start's.
///
/// # Errors
/// The plant refuses a cap.
pub fn best(
    plant: &impl Steered,
    start: &[Watts],
    bounds: &Bounds,
    goal: Goal,
) -> Result<Best, StudyError> {
    let before = plant.steady(start)?;
    let mut search = Search {
        plant,
        bounds,
        goal,
        slowest: match goal {
            Goal::Fast => f64::INFINITY,
            Goal::Frugal { slower } => before.time.0 * (1.0 + slower),
        },
    };
    let caps: Vec<f64> = start.iter().map(|cap| cap.0).collect();
    let level = search.level(&caps)?;
    let mut found = search.polish(search.at(level)?)?;
    if !(found.value < search.value(&before) - 1e-9) {
        found = search.polish(search.at(caps)?)?;
    }
    search.made_quick_enough(&mut found)?;
    let keeps = found.outcome.time.0 <= search.slowest * (1.0 + 1e-9);
    let better = match goal {
        Goal::Fast => found.outcome.time < before.time,
        Goal::Frugal { .. } => found.outcome.power < before.power,
    };
    Ok(match keeps && better {
        true => Best {
            caps: found.caps.into_iter().map(Watts).collect(),
            outcome: found.outcome,
        },
        false => Best {
            caps: start.to_vec(),
            outcome: before,
        },
    })
}

/// Caps, what they lead to, and what that is worth: less is better.
#[derive(Debug, Clone)]
struct Found {
    caps: Vec<f64>,
    outcome: Outcome,
    value: f64,
}

struct Search<'a, S> {
    plant: &'a S,
    bounds: &'a Bounds,
    goal: Goal,
    slowest: f64,
}

impl<S: Steered> Search<'_, S> {
    fn value(&self, outcome: &Outcome) -> f64 {
        let (time, power) = (outcome.time.0.ln(), outcome.power.0.ln());
        match self.goal {
            // Between equals in time, the one that draws less: a hair of weight.
            Goal::Fast => time + 1e-7 * power,
            Goal::Frugal { .. } => power + PENALTY * (time - self.slowest.ln()).max(0.0),
        }
    }

    fn clamp(&self, gpu: usize, cap: f64) -> f64 {
        let (lowest, highest) = self.bounds.range[gpu];
        cap.clamp(lowest.0, highest.0)
    }

    /// These caps, all lowered by the same part as far as ranges and budget want it.
    fn fit(&self, caps: &[f64]) -> Vec<f64> {
        let shifted = |by: f64| -> Vec<f64> {
            let caps = caps.iter().enumerate();
            caps.map(|(gpu, cap)| self.clamp(gpu, cap * by.exp()))
                .collect()
        };
        let budget = self.bounds.budget.0;
        let sum = |by: f64| shifted(by).iter().sum::<f64>();
        // Who wants speed spends what there is, where it does not suffice for everybody.
        let most: f64 = self.bounds.range.iter().map(|it| it.1.0).sum();
        let spends = self.goal == Goal::Fast && most > budget;
        if !spends && sum(0.0) <= budget {
            return shifted(0.0);
        }
        let (mut low, mut high) = (-1.0, if spends { 1.0 } else { 0.0 });
        for _ in 0..40 {
            let middle = 0.5 * (low + high);
            match sum(middle) <= budget {
                true => low = middle,
                false => high = middle,
            }
        }
        shifted(low)
    }

    fn at(&self, caps: Vec<f64>) -> Result<Found, StudyError> {
        let caps = self.fit(&caps);
        let watts: Vec<Watts> = caps.iter().map(|&cap| Watts(cap)).collect();
        let outcome = self.plant.steady(&watts)?;
        Ok(Found {
            value: self.value(&outcome),
            caps,
            outcome,
        })
    }

    /// How long an iteration takes, in logarithms of caps and times, when one GPU alone has less
    /// than the highest cap.
    fn own(&self, gpu: usize, start: f64) -> Result<Vec<(f64, f64)>, StudyError> {
        let highest: Vec<Watts> = self.bounds.range.iter().map(|it| it.1).collect();
        let (lowest, most) = (self.bounds.range[gpu].0.0, highest[gpu].0);
        let least = lowest.max(DOWN * start).min(most);
        let mut points = Vec::with_capacity(POINTS);
        for point in 0..POINTS {
            let part = point as f64 / (POINTS - 1) as f64;
            let cap = least * (most / least).powf(part);
            let mut caps = highest.clone();
            caps[gpu] = Watts(cap);
            points.push((cap.ln(), self.plant.steady(&caps)?.time.0.ln()));
            if most <= least {
                break;
            }
        }
        Ok(points)
    }

    /// The caps under which, by their own curves, no GPU is slower than the others: as slow as the
    /// budget wants it (gpu-realloc) or as time allows (gpu-red).
    fn level(&mut self, start: &[f64]) -> Result<Vec<f64>, StudyError> {
        let gpus = self.bounds.range.len();
        let curves = (0..gpus).map(|gpu| self.own(gpu, start[gpu]));
        let curves = curves.collect::<Result<Vec<_>, _>>()?;
        let caps = |time: f64| -> Vec<f64> {
            let caps = curves.iter().enumerate();
            caps.map(|(gpu, curve)| self.clamp(gpu, cap_for(curve, time).exp()))
                .collect()
        };
        if let Goal::Frugal { .. } = self.goal {
            return Ok(caps(self.slowest.ln()));
        }
        let times = curves.iter().flatten().map(|it| it.1);
        let (mut fast, mut slow) = times.fold((f64::INFINITY, f64::NEG_INFINITY), |it, time| {
            (it.0.min(time), it.1.max(time))
        });
        for _ in 0..50 {
            let middle = 0.5 * (fast + slow);
            match caps(middle).iter().sum::<f64>() <= self.bounds.budget.0 {
                true => slow = middle,
                false => fast = middle,
            }
        }
        Ok(caps(slow))
    }

    /// The moves of one round: a GPU alone, a GPU against all others, and all together, which is
    /// only for gpu-red, whose caps need not spend the budget.
    fn moves(&self) -> Vec<(usize, f64)> {
        let gpus = self.bounds.range.len();
        let others = 1.0 / (gpus.max(2) - 1) as f64;
        let each = (0..gpus).flat_map(|gpu| [(gpu, 0.0), (gpu, -others)]);
        match self.goal {
            // Alone is against all others: the budget is spent.
            Goal::Fast => (0..gpus).map(|gpu| (gpu, 0.0)).collect(),
            Goal::Frugal { .. } => each.chain([(0, 1.0)]).collect(),
        }
    }

    fn polish(&self, begin: Found) -> Result<Found, StudyError> {
        let mut best = begin;
        let moves = self.moves();
        for step in STEPS {
            for _ in 0..ROUNDS {
                let before = best.value;
                for &(gpu, others) in &moves {
                    for signed in [-step, step] {
                        let caps = best.caps.iter().enumerate();
                        let moved = caps.map(|(it, cap)| {
                            let share = if it == gpu { 1.0 } else { others };
                            cap * (signed * share).exp()
                        });
                        let tried = self.at(moved.collect())?;
                        if tried.value < best.value - 1e-9 {
                            best = tried;
                            break;
                        }
                    }
                }
                if before - best.value < NOTHING {
                    break;
                }
            }
        }
        Ok(best)
    }

    /// A penalty leaves a hair too much time: caps rise alike until it is gone.
    fn made_quick_enough(&self, found: &mut Found) -> Result<(), StudyError> {
        let mut by = 1e-5;
        let begin = found.caps.clone();
        while found.outcome.time.0 > self.slowest && by < 0.1 {
            *found = self.at(begin.iter().map(|cap| cap * (1.0 + by)).collect())?;
            by *= 2.0;
        }
        Ok(())
    }
}

/// The lowest cap on a curve that takes no longer than this, between points as straight lines.
fn cap_for(curve: &[(f64, f64)], time: f64) -> f64 {
    let slower = curve.iter().rposition(|it| it.1 > time).unwrap_or(0);
    match curve.get(slower..slower + 2) {
        Some(&[a, b]) if b.1 < a.1 => a.0 + (b.0 - a.0) * (a.1 - time) / (a.1 - b.1),
        _ => curve.get(slower).map_or(0.0, |it| it.0),
    }
}
