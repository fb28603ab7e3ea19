//! A budget that is set and not kept. GPUs that litd may not move, or does not read, can hold so much that the
//! others exceed the rest even at their floors. Only an administrator can mend that, so it is reported.

use litd_api::EventKind;
use litd_units::{Nanos, Watts};

use crate::core::Core;
use crate::devices::Unit;
use crate::record::Note;
use crate::store::Store;

/// How long lowering caps may take, also where a driver fails twice.
const PATIENCE: Nanos = Nanos(10_000_000_000);

/// Tolerance: caps that were rounded to whole microwatts add up to no more than this above their budget.
const MARGIN: Watts = Watts(1.0);

/// Whether what the GPUs may hold is within the budget that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Keeping {
    /// The budget is kept, or there is none.
    #[default]
    Kept,
    /// The budget has been exceeded since then.
    ExceededSince(Nanos),
    /// The budget is exceeded, and that was reported.
    Told,
}

impl<S: Store> Core<S> {
    /// The sum of all GPUs' caps, as far as known. A GPU that can't be judged, was not read of late, was released
    /// or is being written counts with the most that it may hold, as does one that litd may not move.
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

    /// Reports once that the budget is not kept and which GPUs litd can't lower for it, and once that it is kept
    /// again.
    pub(crate) fn check_budget_kept(&mut self) {
        if self.is_leaving() {
            // The budget on leaving is another one, and so is the next litd's.
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
            // While a distrusted GPU comes and goes this is not reported each time.
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
