//! What every device is to hold when nobody steers it: told to the shell whenever that changes, for
//! programs that check the node without litd.

use litd_power::DeviceKind;
use litd_units::Watts;

use crate::core::Core;
use crate::devices::Unit;
use crate::event::Effect;
use crate::store::Store;

/// The caps that were found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Baseline {
    /// Whether a budget was set: devices without a job may hold less than they were found with.
    pub budget: bool,
    /// The devices whose caps litd answers for.
    pub devices: Vec<Found>,
}

/// One device.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// GPU or CPU socket.
    pub kind: DeviceKind,
    /// Its address.
    pub address: String,
    /// The cap that goes back.
    pub cap: Watts,
}

/// The cap found at a device, if litd answers for what it holds now.
fn found(unit: &Unit) -> Option<Watts> {
    unit.found.filter(|_| !unit.standing.is_kept())
}

impl<S: Store> Core<S> {
    /// Tells the baseline if it has changed, before anything is written.
    pub(crate) fn tell_baseline(&mut self) {
        let budget = self.set_budget().is_some();
        let told = self.baseline.devices.iter();
        let told = told.map(|it| (it.kind, it.address.as_str(), it.cap));
        if self.baseline.budget == budget && self.all_found().eq(told) {
            return;
        }
        let devices = self.all_found().map(|(kind, address, cap)| Found {
            kind,
            address: address.to_owned(),
            cap,
        });
        let devices = devices.collect();
        self.baseline = Baseline { budget, devices };
        self.out.push(Effect::Baseline(self.baseline.clone()));
    }

    /// The devices whose caps litd answers for. One that was left with a cap of litd's and is not here is one of
    /// them: it may be there for others.
    fn all_found(&self) -> impl Iterator<Item = (DeviceKind, &str, Watts)> {
        let here = self.devices.iter().filter_map(|(_, unit)| {
            let cap = found(unit)?;
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
