//! The paper's law: Algorithm 2 (INCPowerGPU) and Algorithm 3 (ADJPowerNode), bare.
//!
//! A bare law knows neither floors nor driver units; [`crate::envelope`] does.

use litd_units::{Millis, Watts};
use thiserror::Error;

use crate::config::Scale;

/// A lead value per GPU (Algorithm 1's output), each finite and not negative. Values of a broken profiler or a
/// lost rank are refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Leads(Vec<Millis>);

/// Why a row of numbers is no [`Leads`].
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum LeadError {
    /// No GPU at all.
    #[error("no GPU has a lead value")]
    Empty,
    /// A rank sent nothing.
    #[error("GPU {gpu} has no lead value")]
    Missing {
        /// The GPU, counted from 0.
        gpu: usize,
    },
    /// NaN, infinite or negative.
    #[error(
        "GPU {gpu} has a lead value of {}, which is not possible: it must be finite and not negative", lead.0
    )]
    NotALead {
        /// The GPU, counted from 0.
        gpu: usize,
        /// The invalid value.
        lead: Millis,
    },
}

impl Leads {
    /// Checks that every GPU has a lead, and that it is one.
    pub fn new(leads: impl IntoIterator<Item = Option<Millis>>) -> Result<Self, LeadError> {
        let leads: Vec<Millis> = leads
            .into_iter()
            .enumerate()
            .map(|(gpu, lead)| match lead {
                None => Err(LeadError::Missing { gpu }),
                Some(lead) if lead.is_finite() && lead >= Millis::ZERO => Ok(lead),
                Some(lead) => Err(LeadError::NotALead { gpu, lead }),
            })
            .collect::<Result<_, _>>()?;
        if leads.is_empty() {
            return Err(LeadError::Empty);
        }
        Ok(Self(leads))
    }

    /// The lead values, one per GPU.
    #[must_use]
    pub fn values(&self) -> &[Millis] {
        &self.0
    }

    /// The lead of the GPU that is furthest ahead.
    #[must_use]
    pub fn largest(&self) -> Millis {
        self.0.iter().copied().fold(Millis::ZERO, Millis::max)
    }

    /// The lead of the straggler.
    #[must_use]
    pub fn smallest(&self) -> Millis {
        self.0
            .iter()
            .copied()
            .fold(Millis(f64::INFINITY), Millis::min)
    }

    /// How far apart the first and the last GPU are. On a level node all leads are alike: each
    /// GPU is now and then ahead of the latest by as much as noise makes it, and the largest
    /// lead alone would not tell that from a straggler.
    #[must_use]
    pub fn spread(&self) -> Millis {
        self.largest() - self.smallest()
    }

    /// The straggler: the GPU with the smallest lead, the first of them where several share it.
    #[must_use]
    pub fn latest(&self) -> usize {
        let smallest = self.smallest();
        let straggler = self.0.iter().position(|&lead| lead == smallest);
        straggler.unwrap_or(0)
    }
}

/// Algorithm 2: how much each cap should rise, in proportion to how late its GPU is, and the
/// updated largest lead. The straggler gets the most, the first leader nothing. Where all leads
/// are equal there is nothing to correct and every increase is zero (the paper's line 5 would
/// divide by zero). [`Scale::Local`] drops line 6's global factor, as Table II's knob does.
#[must_use]
pub fn inc_power_gpu(
    leads: &Leads,
    max_adjustment: Watts,
    scale: Scale,
    global_max: Millis,
) -> (Vec<Watts>, Millis) {
    let (most, least) = (leads.largest(), leads.smallest());
    let global_max = global_max.max(most);
    if most == least {
        return (vec![Watts::ZERO; leads.values().len()], global_max);
    }
    let factor = match scale {
        Scale::Global => most / global_max,
        Scale::Local => 1.0,
    };
    let increase = |lead: &Millis| {
        let relative = 1.0 - (*lead - least) / (most - least);
        max_adjustment * relative * factor
    };
    (leads.values().iter().map(increase).collect(), global_max)
}

/// Algorithm 3: the new caps. Every cap moves by the same amount after its increase, so that
/// the sum comes down (or up) to the node's budget and no cap exceeds its GPU's `tdp`. The
/// paper has one TDP for all; with one per GPU the largest excess decides, which is the same
/// where they are equal.
#[must_use]
pub fn adj_power_node(
    increase: &[Watts],
    caps: &[Watts],
    tdp: &[Watts],
    budget: Watts,
) -> Vec<Watts> {
    let raised: Vec<Watts> = caps.iter().zip(increase).map(|(&p, &i)| p + i).collect();
    let node: Watts = raised.iter().copied().sum();
    // Line 5's ceiling keeps the sum on the safe side of the budget.
    let share = Watts(((node - budget) / raised.len() as f64).0.ceil());
    let shifted = raised.into_iter().map(|p| p - share);
    let excess = shifted
        .clone()
        .zip(tdp)
        .map(|(p, &tdp)| p - tdp)
        .fold(Watts::ZERO, Watts::max);
    shifted.map(|p| p - excess).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(values: &[f64]) -> Leads {
        Leads::new(values.iter().map(|&l| Some(Millis(l)))).unwrap()
    }

    #[test]
    fn equal_leads_ask_for_nothing() {
        let (increase, global) =
            inc_power_gpu(&leads(&[4.0; 8]), Watts(15.0), Scale::Local, Millis::ZERO);
        assert_eq!(increase, vec![Watts::ZERO; 8]);
        assert_eq!(global, Millis(4.0));
    }

    #[test]
    fn the_straggler_gets_the_most_and_the_first_leader_nothing() {
        let (increase, _) = inc_power_gpu(
            &leads(&[10.0, 0.0, 5.0]),
            Watts(15.0),
            Scale::Global,
            Millis(20.0),
        );
        assert_eq!(increase, vec![Watts(0.0), Watts(7.5), Watts(3.75)]);
    }

    #[test]
    fn a_lead_is_finite_and_not_negative() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9] {
            let error = Leads::new([Some(Millis(1.0)), Some(Millis(bad))]).unwrap_err();
            assert!(
                matches!(error, LeadError::NotALead { gpu: 1, .. }),
                "{error}"
            );
        }
        assert_eq!(
            Leads::new([None, Some(Millis(1.0))]),
            Err(LeadError::Missing { gpu: 0 })
        );
        assert_eq!(Leads::new([]), Err(LeadError::Empty));
    }

    #[test]
    fn the_bare_law_has_no_floor() {
        // Why the envelope exists: a far leader on a small budget is asked down to 46 W.
        let caps = [Watts(400.0), Watts(60.0)];
        let new = adj_power_node(
            &[Watts(15.0), Watts(0.0)],
            &caps,
            &[Watts(401.0); 2],
            Watts(800.0),
        );
        assert!(new[1] < Watts(100.0), "{new:?}");
    }
}
