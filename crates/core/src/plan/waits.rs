//! Restored caps that wait for other devices. A device that is to be lowered goes first, but no undo waits longer than
//! [`PATIENCE`] for it: so a device that fails does not keep the others from their caps found, unless a budget that is in force
//! leaves no room.

use litd_policies::Actuator;
use litd_units::Nanos;

use crate::devices::{Devices, Unit};
use crate::plan::{DUST, Doing, Targets, Why};

/// How long devices whose caps are restored wait for others to be lowered. Less than a release may take.
const PATIENCE: Nanos = Nanos(1_500_000_000);

/// Whether restored caps wait for other devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Waits {
    /// Since when; kept until nothing is above the caps found any more.
    since: Option<Nanos>,
    /// Whether it was reported that the others no longer wait.
    is_told: bool,
}

impl Waits {
    /// When the others stop waiting; `None` while none does.
    fn until(self) -> Option<Nanos> {
        self.since.map(|since| since + PATIENCE)
    }

    /// Whether the others have waited long enough.
    fn is_over(self, now: Nanos) -> bool {
        self.until().is_some_and(|until| until <= now)
    }
}

impl Targets {
    /// When the others stop waiting for restored caps; `None` while none does.
    pub fn wait_until(&self) -> Option<Nanos> {
        self.waits.until()
    }

    /// Whether the others have waited long enough for restored caps.
    pub fn wait_is_over(&self, now: Nanos) -> bool {
        self.waits.is_over(now)
    }

    /// Looks at whether restored caps wait for other devices, after all writes that may go out have gone out.
    pub fn look_at_waits(
        &mut self,
        devices: &Devices,
        account: &Actuator,
        is_budget_set: bool,
        now: Nanos,
    ) {
        let is_undoing = match self.view().map(|view| view.doing) {
            Some(Doing::GivingBack) => true,
            // A budget that is in force is kept.
            Some(Doing::Moving) => !is_budget_set,
            _ => false,
        };
        let is_above = account.most() > account.budget() + DUST;
        let waits = |(device, unit)| self.waits_for_others(device, unit, account);
        let waits = is_undoing && devices.iter().any(waits);
        match is_undoing && (waits || is_above && self.waits.since.is_some()) {
            true => _ = self.waits.since.get_or_insert(now),
            false => self.waits = Waits::default(),
        }
    }

    /// Whether a device could be raised to the cap found right now, but for others.
    fn waits_for_others(&self, device: usize, unit: &Unit, account: &Actuator) -> bool {
        let is_moving = self.view().is_some_and(|view| view.doing == Doing::Moving);
        let is_restored = !is_moving || unit.standing.let_go().is_some();
        let is_undo = is_restored && self.why(device) == Some(Why::Found);
        is_undo && account.is_held_up(device)
    }

    /// That devices which are not lowered are no longer waited for, and what they hold: to be said once.
    pub fn waited_in_vain(
        &mut self,
        devices: &Devices,
        account: &Actuator,
        now: Nanos,
    ) -> Option<String> {
        if self.waits.is_told || !self.waits.is_over(now) {
            return None;
        }
        self.waits.is_told = true;
        let above = devices.iter().filter_map(|(device, unit)| {
            let (most, found) = (account.counts(device), unit.back()?);
            let name = &unit.name;
            (most > found + DUST).then(|| format!("{name} may hold {most}, and {found} was found"))
        });
        let above: Vec<String> = above.collect();
        Some(match above.is_empty() {
            true => "the caps found are restored without waiting for other devices any longer"
                .to_owned(),
            false => format!(
                "{}; that could not be lowered in {:.1} s, and the caps of the other devices are restored all the same",
                above.join(", "),
                PATIENCE.as_secs_f64()
            ),
        })
    }

    /// Why a cap that is to be restored is not yet, in words; `None` where it is, or nothing hinders that.
    pub fn why_not_restored(
        &self,
        device: usize,
        unit: &Unit,
        account: &Actuator,
    ) -> Option<String> {
        let is_undo = self.why(device) == Some(Why::Found);
        let found = self.planned(device).filter(|_| is_undo)?;
        let held = account.held(device);
        let fails = account.has_failed(device) || unit.answering.failures() > 0;
        let is_back = held.is_some_and(|held| held.is_same_cap(found));
        let why = match unit.answering.is_overdue() {
            _ if is_back => return None,
            true => "its driver does not answer",
            false if fails => "its driver fails",
            false if self.waits_for_others(device, unit, account) => "others are lowered first",
            false => return None,
        };
        Some(format!(
            "the cap found is not restored yet: {why}; it may hold {}, and {found} was found",
            account.most_of(device)
        ))
    }
}

#[cfg(test)]
mod tests {
    use litd_power::DeviceKind;
    use litd_units::Watts;

    use super::*;
    use crate::devices::all::tests::device;
    use crate::event::Device;
    use crate::plan::tests::{gpu, view};

    /// Two GPUs that came with 700 W: one has to be lowered to that before the other may be raised to it.
    fn stand() -> (Targets, Actuator, Devices) {
        let held = [900.0, 500.0];
        let account = held.map(|it| (Some(Watts(it)), Watts(it)));
        let mut account = Actuator::new(&account, Watts(10_000.0));
        let mut targets = Targets::default();
        let views = held.map(gpu).to_vec();
        targets.follow(view(Doing::GivingBack, None, views), &mut account);
        let inventory = [0, 1].map(|number| Device {
            number,
            ..device(DeviceKind::Gpu, &number.to_string())
        });
        let mut devices = Devices::new(inventory.to_vec());
        for (_, unit) in devices.iter_mut() {
            unit.found = Some(Watts(700.0));
        }
        (targets, account, devices)
    }

    #[test]
    fn a_restored_cap_waits_for_a_device_to_be_lowered_and_then_no_longer() {
        let (mut targets, mut account, devices) = stand();
        let unit = devices.get(1).unwrap();
        let why = targets.why_not_restored(1, unit, &account).unwrap();
        assert!(why.contains("others are lowered first"), "{why}");
        targets.look_at_waits(&devices, &account, false, Nanos(5));
        assert_eq!(targets.wait_until(), Some(PATIENCE + Nanos(5)));
        // The wait goes on from when it began.
        targets.look_at_waits(&devices, &account, false, Nanos(9));
        assert!(!targets.wait_is_over(PATIENCE) && targets.wait_is_over(PATIENCE + Nanos(5)));
        account.observe(0, Watts(700.0));
        assert_eq!(targets.why_not_restored(1, unit, &account), None);
        targets.look_at_waits(&devices, &account, false, Nanos(10));
        assert_eq!(targets.wait_until(), None);
    }

    #[test]
    fn a_wait_in_vain_is_told_once_with_what_is_held() {
        let (mut targets, account, devices) = stand();
        targets.look_at_waits(&devices, &account, false, Nanos(0));
        assert_eq!(targets.waited_in_vain(&devices, &account, Nanos(1)), None);
        let told = targets
            .waited_in_vain(&devices, &account, PATIENCE)
            .unwrap();
        assert!(
            told.starts_with("gpu0 may hold 900 W, and 700 W was found;"),
            "{told}"
        );
        assert_eq!(targets.waited_in_vain(&devices, &account, PATIENCE), None);
    }

    #[test]
    fn others_wait_for_so_long() {
        let mut waits = Waits::default();
        assert!(!waits.is_over(Nanos(i64::MAX)) && waits.until().is_none());
        waits.since = Some(Nanos(5));
        assert!(!waits.is_over(PATIENCE) && waits.is_over(PATIENCE + Nanos(5)));
    }
}
