//! Caps nearest to the wanted ones, within limits and a budget.

use litd_policies::{CapVector, Envelope, EnvelopeError, Limits};
use litd_units::Watts;

use super::view::DeviceView;

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

/// The caps nearest to `wanted` within limits and budget, and no less than planned clocks need; where the budget
/// is too small for that, all keep the same share of it. `devices` are indices into `all`.
pub(crate) fn project_kept(
    all: &[DeviceView],
    devices: &[usize],
    limits: &[Limits],
    budget: Watts,
    wanted: &[Watts],
) -> Option<CapVector> {
    let raised = devices.iter().zip(limits).map(|(&device, own)| {
        let unit = all.get(device).filter(|unit| unit.is_gpu);
        let kept = unit.map_or(own.floor, |unit| unit.planned_floor);
        (kept.min(own.ceiling.cut_to(own.resolution)) - own.floor).max(Watts::ZERO)
    });
    let raised: Vec<Watts> = raised.collect();
    let with = |share: f64| -> Vec<Limits> {
        let limits = limits.iter().zip(&raised).map(|(own, &more)| Limits {
            floor: own.floor + more * share,
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
    let share = match most > Watts::ZERO {
        true => ((budget - floors) / most).clamp(0.0, 1.0),
        false => 0.0,
    };
    project(&with(share), budget, wanted)
}

/// A loop's demands of these devices, but no less than planned clocks need. `share` is the job's part of the GPUs'
/// budget: a loop may leave watts of it unused.
pub(crate) fn kept(
    all: &[DeviceView],
    devices: &[usize],
    caps: &CapVector,
    share: Watts,
) -> CapVector {
    let wanted = caps.to_watts();
    let units = devices.iter().filter_map(|&device| all.get(device));
    let units: Vec<&DeviceView> = units.collect();
    let is_less = |(unit, cap): (&&DeviceView, &Watts)| unit.is_gpu && *cap < unit.planned_floor;
    if units.len() != wanted.len() || !units.iter().zip(&wanted).any(is_less) {
        return caps.clone();
    }
    let own = |(unit, &cap): (&&DeviceView, &Watts)| match unit.is_gpu {
        true => unit.limits,
        // Watts that a CPU socket lends are the loop's to decide.
        false => Limits {
            floor: cap,
            ceiling: cap,
            ..unit.limits
        },
    };
    let own: Vec<Limits> = units.iter().zip(&wanted).map(own).collect();
    let lent = units.iter().zip(&wanted);
    let lent: Watts = lent
        .filter(|(unit, _)| !unit.is_gpu)
        .map(|(_, &cap)| cap)
        .sum();
    let budget = caps.budget().max(share + lent);
    let kept = project_kept(all, devices, &own, budget, &wanted);
    kept.unwrap_or_else(|| caps.clone())
}
