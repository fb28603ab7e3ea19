//! Caps nearest to the wanted ones, within limits and a budget.

use litd_policies::{CapVector, Envelope, EnvelopeError, Limits};
use litd_units::Watts;

/// The caps nearest to `wanted` within limits and budget; all floors, if those exceed it.
pub(crate) fn project(limits: &[Limits], budget: Watts, wanted: &[Watts]) -> Option<CapVector> {
    if limits.is_empty() {
        return None;
    }
    let envelope = match Envelope::new(limits, budget) {
        Err(EnvelopeError::BudgetTooSmall { floors, .. }) => Envelope::new(limits, floors),
        envelope => envelope,
    };
    Some(envelope.ok()?.project(wanted, wanted))
}

/// The caps nearest to `wanted` within limits and budget, with floors raised by so much; where the budget is too small
/// for that, all raises are cut to the same part.
pub(super) fn project_raised(
    limits: &[Limits],
    raised: &[Watts],
    budget: Watts,
    wanted: &[Watts],
) -> Option<CapVector> {
    let with = |part: f64| -> Vec<Limits> {
        let limits = limits.iter().zip(raised).map(|(own, &more)| Limits {
            floor: own.floor + more * part,
            ..*own
        });
        limits.collect()
    };
    if let Ok(envelope) = Envelope::new(&with(1.0), budget) {
        return Some(envelope.project(wanted, wanted));
    }
    // Rounding up to driver units may make the floors a little higher.
    let floors: Watts = limits.iter().map(|own| own.floor + own.resolution).sum();
    let most: Watts = raised.iter().copied().sum();
    let part = match most > Watts::ZERO {
        true => ((budget - floors) / most).clamp(0.0, 1.0),
        false => 0.0,
    };
    project(&with(part), budget, wanted)
}
