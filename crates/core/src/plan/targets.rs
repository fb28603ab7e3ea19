//! The targets in force: the last view, the plan that was made from it, and how far devices that rise may have come.

use litd_policies::Actuator;
use litd_units::{Nanos, Watts};

use crate::plan::waits::Waits;
use crate::plan::{Plan, View, Why, plan};
use crate::ramp::{Climb, Ramp};

/// The last plan, and how fast caps rise to it.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    /// The last plan, and the view that it was made from.
    planned: Option<(View, Plan)>,
    ramp: Ramp,
    /// Whether restored caps wait for other devices.
    pub(super) waits: Waits,
}

impl Targets {
    /// The state is seen like this now. If that differs from the last view all targets are worked out anew, and the
    /// account aims at them.
    pub fn follow(&mut self, view: View, account: &mut Actuator) {
        if self.view() != Some(&view) {
            let plan = plan(&view);
            plan.aim(account);
            self.planned = Some((view, plan));
        }
    }

    /// The last view; `None` before the first.
    pub fn view(&self) -> Option<&View> {
        self.planned.as_ref().map(|(view, _)| view)
    }

    /// The cap that the plan has for a device.
    pub fn planned(&self, device: usize) -> Option<Watts> {
        let (_, plan) = self.planned.as_ref()?;
        plan.aims.get(device)?.target
    }

    /// The reason for that, or for leaving the device alone.
    pub fn why(&self, device: usize) -> Option<Why> {
        let (_, plan) = self.planned.as_ref()?;
        Some(plan.aims.get(device)?.why)
    }

    /// Rises are not bounded: devices that were on their way are aimed at their planned caps.
    pub fn rise_at_once(&mut self, account: &mut Actuator) {
        if self.ramp.lift()
            && let Some((_, plan)) = &self.planned
        {
            plan.aim(account);
        }
    }

    /// All caps together may rise by so many watts a second, and these devices are to rise: each is aimed at its next
    /// step. A device that was on its way and is not among them rises at once from now on, or has arrived.
    pub fn rise(&mut self, per_second: f64, climbs: &[Climb], account: &mut Actuator, now: Nanos) {
        for device in self.ramp.devices() {
            if let Some(cap) = self.planned(device)
                && !climbs.iter().any(|climb| climb.device == device)
            {
                account.pace(device, cap);
            }
        }
        for (device, step) in self.ramp.climb(per_second, climbs, now) {
            account.pace(device, step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Doing;
    use super::super::tests::{gpu, view};
    use super::*;

    /// An account of two GPUs that hold so much, and targets for them under this budget.
    fn stand(held: f64, budget: f64) -> (Targets, Actuator) {
        let held = (Some(Watts(held)), Watts(held));
        let mut account = Actuator::new(&[held; 2], Watts(10_000.0));
        let mut targets = Targets::default();
        follow(&mut targets, &mut account, held.1.0, budget);
        (targets, account)
    }

    fn follow(targets: &mut Targets, account: &mut Actuator, held: f64, budget: f64) {
        let devices = vec![gpu(held), gpu(held)];
        targets.follow(view(Doing::Moving, Some(budget), devices), account);
    }

    fn climb(target: f64) -> Climb {
        Climb {
            device: 0,
            from: Watts(500.0),
            target: Watts(target),
            floor: Watts(300.0),
            unit: Watts(1.0),
            is_busy: false,
        }
    }

    #[test]
    fn the_same_view_aims_at_nothing_anew() {
        let (mut targets, mut account) = stand(500.0, 1000.0);
        assert_eq!(targets.planned(0), Some(Watts(500.0)));
        assert!(targets.why(0).is_some() && targets.why(2).is_none());
        account.leave(0);
        follow(&mut targets, &mut account, 500.0, 1000.0);
        assert_eq!(account.target(0), None);
        follow(&mut targets, &mut account, 500.0, 1200.0);
        assert_eq!(account.target(0), Some(Watts(600.0)));
        assert_eq!(targets.view().unwrap().set_budget, Some(Watts(1200.0)));
    }

    #[test]
    fn a_device_that_rises_is_aimed_at_its_step_and_at_its_cap_once_it_is_not_among_them() {
        let (mut targets, mut account) = stand(500.0, 1400.0);
        targets.rise(50.0, &[climb(700.0)], &mut account, Nanos(0));
        assert_eq!(account.target(0), Some(Watts(550.0)));
        assert_eq!(account.target(1), Some(Watts(700.0)));
        targets.rise(50.0, &[], &mut account, Nanos(1));
        assert_eq!(account.target(0), Some(Watts(700.0)));
    }

    #[test]
    fn where_rises_are_not_bounded_any_more_devices_go_to_their_caps_at_once() {
        let (mut targets, mut account) = stand(500.0, 1400.0);
        targets.rise(50.0, &[climb(700.0)], &mut account, Nanos(0));
        targets.rise_at_once(&mut account);
        assert_eq!(account.target(0), Some(Watts(700.0)));
        // No device is on its way: nothing is aimed at anew.
        account.leave(0);
        targets.rise_at_once(&mut account);
        assert_eq!(account.target(0), None);
    }
}
