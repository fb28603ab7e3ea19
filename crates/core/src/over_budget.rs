//! A budget that was set and is not kept. GPUs that litd may not move, or does not read, can hold so much that
//! the others, at their floors, are above what is left. Nobody but an administrator can mend that, so it is told.

use litd_api::EventKind;
use litd_units::{Nanos, Watts};

use crate::core::Core;
use crate::devices::Unit;
use crate::record::Note;
use crate::store::Store;

/// Caps that come down take a while, also where a driver fails twice.
const PATIENCE: Nanos = Nanos(10_000_000_000);

/// A sum of caps that were rounded to whole microwatts is no higher than its budget by less than that.
const MARGIN: Watts = Watts(1.0);

/// Whether what the GPUs may hold is within the budget that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Keeping {
    /// It is, or there is no budget.
    #[default]
    Kept,
    /// It has not been since then.
    ExceededSince(Nanos),
    /// It is not, and that was told.
    Told,
}

impl<S: Store> Core<S> {
    /// What all GPUs hold, as far as that is known. One that nobody can judge, that nobody has read of late, that
    /// was let go of or is being written counts with the most that it may hold, as do those that are not litd's.
    pub(crate) fn caps_on_gpus(&self) -> Watts {
        let caps = self.devices.gpus().map(|(device, unit)| {
            let is_open = unit.standing.let_go().is_none_or(|it| it.closed.is_none());
            let is_read = is_open && self.fresh_reading(unit).is_some();
            let is_in_force = unit.standing.not_in_force().is_none();
            let is_settled = is_in_force && !self.actuator.is_writing(device);
            let is_known = is_read && is_settled && unit.device.range.known().is_some();
            let most = self.counts_with(device, unit);
            let held = self.actuator.held(device).filter(|_| is_known);
            held.map_or(most, |held| held.min(most))
        });
        caps.sum::<Watts>() + self.unmanaged_hold()
    }

    /// Tells once that the budget is not kept and which GPUs litd can't lower for it, and once that it is again.
    pub(crate) fn check_budget_kept(&mut self) {
        if self.is_leaving() {
            // What litd leaves behind is another budget, and so is what comes after.
            self.keeping = Keeping::Kept;
            return;
        }
        let exceeded = self
            .set_budget()
            .filter(|budget| self.caps_on_gpus() > *budget + self.lent() + MARGIN);
        let (next, note) = match (self.keeping, exceeded) {
            (Keeping::Kept, None) | (Keeping::ExceededSince(_), None) => (Keeping::Kept, None),
            (Keeping::Kept, Some(_)) => (Keeping::ExceededSince(self.now), None),
            (Keeping::ExceededSince(since), Some(budget)) if self.now >= since + PATIENCE => (
                Keeping::Told,
                Some(Note::warning(EventKind::Fault, self.why_exceeded(budget))),
            ),
            (keeping, Some(_)) => (keeping, None),
            // One that comes and goes is not told of each time.
            (Keeping::Told, None) if self.is_any_distrusted() => (Keeping::Told, None),
            (Keeping::Told, None) => {
                let text = "the GPUs' caps are within the budget again";
                (Keeping::Kept, Some(Note::info(EventKind::Fault, text)))
            }
        };
        self.keeping = next;
        if let Some(note) = note {
            self.note(note);
        }
    }

    fn why_exceeded(&self, budget: Watts) -> String {
        let view = self.view();
        let is_movable = |device: usize| {
            let target = self.actuator.target(device);
            let unit = view.devices.get(device);
            unit.is_some_and(|unit| unit.movable(&view, target).is_some())
        };
        let immovable = self
            .devices
            .gpus()
            .filter(|&(device, _)| !is_movable(device));
        let named = |(device, unit): (usize, &Unit)| {
            format!(
                "{} ({}, counts with {})",
                unit.name,
                unit.standing.state().name(),
                self.counts_with(device, unit)
            )
        };
        let mut others: Vec<String> = immovable.map(named).collect();
        others.extend(
            self.unmanaged
                .iter()
                .map(|address| format!("{address} (came up after the start)")),
        );
        let why = match others.is_empty() {
            true => "all are litd's to lower and do not go down, or are at their floors".to_owned(),
            false => format!("litd may not lower {}", others.join(", ")),
        };
        format!(
            "the budget of {budget} is not kept: the GPUs may hold {}; {why}",
            self.caps_on_gpus()
        )
    }
}
