//! Restored caps that wait for other devices. A device that is to be lowered goes first, but no undo waits longer than
//! [`PATIENCE`] for it: so a device that fails does not keep the others from their caps found, unless a budget that is
//! in force leaves no room.

use litd_api::EventKind;
use litd_units::Nanos;

use crate::core::Core;
use crate::devices::Unit;
use crate::plan::{DUST, Doing, Why};
use crate::record::Note;
use crate::store::Store;

/// How long devices whose caps are restored wait for others to be lowered. Less than a release may take.
const PATIENCE: Nanos = Nanos(1_500_000_000);

/// Whether restored caps wait for other devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Waits {
    /// Since when; kept until nothing is above the caps found any more.
    since: Option<Nanos>,
    /// Whether it was reported that the others no longer wait.
    is_told: bool,
}

impl Waits {
    /// When the others stop waiting; `None` while none does.
    pub fn until(self) -> Option<Nanos> {
        self.since.map(|since| since + PATIENCE)
    }

    /// Whether the others have waited long enough.
    pub fn is_over(self, now: Nanos) -> bool {
        self.until().is_some_and(|until| until <= now)
    }
}

impl<S: Store> Core<S> {
    /// Looks at whether restored caps wait for other devices, after all writes that may go out have gone out.
    pub(crate) fn look_at_waits(&mut self) {
        let doing = self.targets.view().map(|view| view.doing);
        let is_undoing = match doing {
            Some(Doing::GivingBack) => true,
            // A budget that is in force is kept.
            Some(Doing::Moving) => self.set_budget().is_none(),
            _ => false,
        };
        let is_above = self.actuator.most() > self.actuator.budget() + DUST;
        let waits = is_undoing && self.devices.iter().any(|(it, unit)| self.waits(it, unit));
        match is_undoing && (waits || is_above && self.waits.since.is_some()) {
            true => _ = self.waits.since.get_or_insert(self.out.now()),
            false => self.waits = Waits::default(),
        }
    }

    /// Whether a device could be raised to the cap found right now, but for others.
    fn waits(&self, device: usize, unit: &Unit) -> bool {
        let view = self.targets.view();
        let is_moving = view.is_some_and(|view| view.doing == Doing::Moving);
        let is_restored = !is_moving || unit.standing.let_go().is_some();
        let is_undo = is_restored && self.targets.why(device) == Some(Why::Found);
        is_undo && self.actuator.is_held_up(device)
    }

    /// Says once that devices which are not lowered are no longer waited for, and what they hold.
    pub(crate) fn tell_waits(&mut self) {
        if self.waits.is_told || !self.waits.is_over(self.now()) {
            return;
        }
        self.waits.is_told = true;
        let above = self.devices.iter().filter_map(|(device, unit)| {
            let (most, found) = (self.actuator.counts(device), unit.back()?);
            let name = &unit.name;
            (most > found + DUST).then(|| format!("{name} may hold {most}, and {found} was found"))
        });
        let above: Vec<String> = above.collect();
        let text = match above.is_empty() {
            true => "the caps found are restored without waiting for other devices any longer"
                .to_owned(),
            false => format!(
                "{}; that could not be lowered in {:.1} s, and the caps of the other devices are restored all the same",
                above.join(", "),
                PATIENCE.as_secs_f64()
            ),
        };
        self.note(Note::warning(EventKind::Restore, text));
    }

    /// Why a cap that is to be restored is not yet, in words; `None` where it is, or nothing hinders that.
    pub(crate) fn why_not_restored(&self, device: usize) -> Option<String> {
        let unit = self.devices.get(device)?;
        let is_undo = self.targets.why(device) == Some(Why::Found);
        let found = self.targets.planned(device).filter(|_| is_undo)?;
        let held = self.actuator.held(device);
        let fails = self.actuator.has_failed(device) || unit.answering.failures() > 0;
        let is_back = held.is_some_and(|held| held.is_same_cap(found));
        let why = match unit.answering.is_overdue() {
            _ if is_back => return None,
            true => "its driver does not answer",
            false if fails => "its driver fails",
            false if self.waits(device, unit) => "others are lowered first",
            false => return None,
        };
        Some(format!(
            "the cap found is not restored yet: {why}; it may hold {}, and {found} was found",
            self.actuator.most_of(device)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_wait_for_so_long() {
        let mut waits = Waits::default();
        assert!(!waits.is_over(Nanos(i64::MAX)) && waits.until().is_none());
        waits.since = Some(Nanos(5));
        assert!(!waits.is_over(PATIENCE) && waits.is_over(PATIENCE + Nanos(5)));
    }
}
