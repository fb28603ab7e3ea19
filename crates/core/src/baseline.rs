//! The caps that devices have when nobody steers them: published whenever one changes, for programs that check the
//! node without litd.

use litd_power::DeviceKind;
use litd_units::Watts;

use crate::core::Core;
use crate::devices::Unit;
use crate::store::Store;

/// The caps that were found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Baseline {
    /// Whether devices without a job may hold less than they were found with.
    pub lower: Lower,
    /// The devices whose caps litd answers for.
    pub devices: Vec<Found>,
}

/// Whether devices without a job may hold less than they were found with.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Lower {
    /// Devices without a job hold the caps found.
    #[default]
    No,
    /// While litd runs devices may hold less, because a budget was set that is less than they may come to hold, or
    /// because caps rise slowly (`caps.max_rise_w_per_s`).
    ForBudget,
    /// Also after litd has ended devices may hold less: litd leaves GPUs within this safe budget.
    ForGood(Watts),
}

/// A device and the cap found on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// GPU or CPU socket.
    pub kind: DeviceKind,
    /// The device's address.
    pub address: String,
    /// The cap that is restored.
    pub cap: Watts,
}

impl<S: Store> Core<S> {
    /// Publishes the baseline if it has changed, before any cap is written.
    pub(crate) fn tell_baseline(&mut self) {
        let lower = match (self.config.caps.budget_on_exit(), self.set_budget()) {
            (Some(safe), _) => Lower::ForGood(safe),
            // One that all caps found fit in lowers nothing: what is lower then is stranded.
            (None, Some(budget)) if budget < self.come_to_hold() => Lower::ForBudget,
            // Nor is it stranded while it returns as slowly as the administrator wants.
            (None, _) if self.rises_slowly() => Lower::ForBudget,
            (None, _) => Lower::No,
        };
        let told = self.out.baseline().devices.iter();
        let told = told.map(|it| (it.kind, it.address.as_str(), it.cap));
        if self.out.baseline().lower == lower && self.all_found().eq(told) {
            return;
        }
        let devices = self.all_found().map(|(kind, address, cap)| Found {
            kind,
            address: address.to_owned(),
            cap,
        });
        let devices = devices.collect();
        self.out.publish(Baseline { lower, devices });
    }

    /// Whether litd answers for the cap that a device holds now: not for a cap that somebody else has set, nor for
    /// a device that its users had released, once its cap is restored.
    fn answers_for(&self, device: usize, unit: &Unit) -> bool {
        let is_let_go = unit.standing.let_go().is_some_and(|it| !it.by_mode);
        !unit.standing.is_kept() && (!is_let_go || self.writer.is_journaled(device))
    }

    /// The devices whose caps litd answers for. A device that a predecessor left with a cap of litd's and that is
    /// not visible here is included: other programs may see it.
    fn all_found(&self) -> impl Iterator<Item = (DeviceKind, &str, Watts)> {
        let here = self.devices.iter().filter_map(|(device, unit)| {
            let cap = unit.found.filter(|_| self.answers_for(device, unit))?;
            Some((unit.device.identity.kind, unit.address(), cap))
        });
        let left = self.writer.entries_of_this_boot();
        let gone = left.filter(|entry| self.devices.called(&entry.address).is_none());
        here.chain(gone.map(|entry| {
            let is_socket = entry.address.starts_with("cpu");
            let kind = if is_socket {
                DeviceKind::Cpu
            } else {
                DeviceKind::Gpu
            };
            (kind, entry.address.as_str(), entry.found)
        }))
    }
}
