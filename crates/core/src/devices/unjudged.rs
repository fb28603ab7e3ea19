//! Devices that can't be judged: nobody can say what they may hold, because their driver does not tell their
//! range, or contradicts itself. Such a device counts with the most that it could hold, its driver is asked again
//! every second, and no undo of other devices waits for it. While a driver does not tell, no cap of the node
//! rises.

use litd_api::EventKind;
use litd_power::PowerError;
use litd_units::Watts;

use crate::core::{Core, SLOW};
use crate::devices::Unit;
use crate::devices::range::Range;
use crate::journal::Entry;
use crate::record::Note;
use crate::store::Store;
use crate::undo::release::LetGo;

impl<S: Store> Core<S> {
    /// Updates the watts with which unjudged devices count.
    pub(crate) fn judge_devices(&mut self) {
        for device in 0..self.devices.iter().count() {
            let judged = |unit: &Unit| {
                let told = unit.was_read() && unit.device.range.known().is_some();
                told && !self.is_incredible(unit)
            };
            let judged = self.devices.get(device).is_some_and(judged);
            let most = (!judged).then(|| self.could_hold(device));
            if let (Some(unit), Some(most)) = (self.devices.get_mut(device), most) {
                unit.device.range.judge(most);
            }
            let most = most.or_else(|| {
                let unit = self.devices.get(device);
                let as_faulty = unit.and_then(|unit| unit.standing.not_in_force());
                let each = [self.once_reset(device), self.unread(device), as_faulty];
                each.into_iter().flatten().reduce(Watts::max)
            });
            self.writer.account_mut().judge(device, most);
        }
    }

    /// The cap that a released GPU gets when it is closed or reset, as its users intend, if its cap is restored or
    /// it is no longer read. Without a budget the others need not make room for it.
    pub(crate) fn once_reset(&self, device: usize) -> Option<Watts> {
        self.set_budget()?;
        let unit = self.devices.get(device)?;
        let is_unseen = |it: LetGo| {
            let since = it.unseen_since.is_some_and(|at| unit.readings.asked() < at);
            // At a stop it is opened once more: a reading since then makes its cap known.
            let unread = it.closed.is_some() || since || !self.authority.is_fresh(unit);
            (!it.held || unit.is_forgetful()) && (unread || !self.may_open(device))
        };
        let counts = unit.is_gpu() && unit.standing.let_go().is_some_and(is_unseen);
        let range = unit.device.range.last().filter(|_| counts)?;
        Some(range.default)
    }

    /// The cap of a failed GPU that was not read for long, if it was reset meanwhile. A GPU that answers again
    /// counts with it until it is trusted again.
    fn unread(&self, device: usize) -> Option<Watts> {
        self.set_budget()?;
        let unit = self.devices.get(device)?;
        let may_be_reset = self.may_be_reset(unit);
        let range = unit.device.range.last().filter(|_| may_be_reset)?;
        let held = self.writer.account().held(device).unwrap_or(Watts::ZERO);
        Some(range.default.max(held))
    }

    /// Whether a device's last reading is not believed and no other reading will soon decide: it contradicts the
    /// one before, or none has come since.
    fn is_incredible(&self, unit: &Unit) -> bool {
        let since = unit.readings.unbelieved.since();
        unit.readings.unbelieved.contradicts_itself()
            || since.is_some_and(|since| self.now() >= since + SLOW)
    }

    /// The most that a device could hold, whatever its driver says now: the largest of the caps in the undo
    /// journal, its last known range (without both: its peers'), its reading and the configured ceiling. The
    /// highest limit of a CPU socket is the most that its register holds, not what it could draw: it counts with
    /// the usual limit that its driver tells, or its peers' if that is more.
    fn could_hold(&self, device: usize) -> Watts {
        let Some(unit) = self.devices.get(device) else {
            return Watts::ZERO;
        };
        let entry = self.writer.entry(unit.address());
        let journaled = entry.map(Entry::most);
        let last = unit.device.range.last();
        let peers = self.highest_of_peers(unit);
        let told = match unit.is_gpu() {
            true => [last.map(|range| range.highest), None],
            false => [last.map(|range| range.default), peers],
        };
        let ceiling = self.config.caps.gpu_ceiling.filter(|_| unit.is_gpu());
        let known = told.into_iter().chain([journaled]);
        let known = known.flatten().reduce(Watts::max);
        // The configured ceiling bounds litd only; another program may have set more.
        let known = known.or(peers);
        let bound = [known, ceiling].into_iter().flatten().reduce(Watts::max);
        // Without any known range no watts are left to others.
        let bound = bound.unwrap_or(Range::NEVER_TOLD.unjudged().unwrap_or_default());
        let read = unit.readings.cap();
        let read = [read, unit.readings.unbelieved.impossible()]
            .into_iter()
            .flatten();
        read.fold(bound, Watts::max)
    }

    fn highest_of_peers(&self, unit: &Unit) -> Option<Watts> {
        let peers = self.devices.iter().map(|(_, peer)| peer);
        let alike = peers.filter(|peer| peer.is_gpu() == unit.is_gpu());
        let highest = |peer: &Unit| match peer.is_gpu() {
            true => peer.device.range.last().map(|range| range.highest),
            false => peer.found,
        };
        alike.filter_map(highest).reduce(Watts::max)
    }

    /// A driver was asked for its device's range, and did not tell. If it had told before and nothing contradicts
    /// that (a GPU of a job, asked regularly whether it is still divided as before), it is asked once more, in a
    /// second, and nothing is written meanwhile.
    pub(crate) fn range_refused(&mut self, device: usize, error: &PowerError) {
        self.devices.count_error(device, error, &mut self.out);
        match self.devices.get_mut(device) {
            Some(unit) if !unit.device.range.is_open() => unit.device.range.ask_anew(),
            _ => self.range_doubted(device, &error.to_string()),
        }
    }

    /// The range of a device is unknown from now on.
    pub(crate) fn range_doubted(&mut self, device: usize, why: &str) {
        let most = self.could_hold(device);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        if unit.device.range.known().is_none() {
            return;
        }
        unit.device.range.refused(most);
        self.say_untold(device, why);
        self.standing_changed(device);
    }

    /// Reports the devices whose drivers did not tell their range at the start.
    pub(crate) fn say_all_untold(&mut self) {
        for device in 0..self.devices.iter().count() {
            let unit = self.devices.get(device);
            if unit.is_some_and(|unit| unit.device.range.known().is_none()) {
                self.say_untold(device, "at the start");
            }
        }
    }

    fn say_untold(&mut self, device: usize, why: &str) {
        let most = self.could_hold(device);
        let Some(unit) = self.devices.get(device) else {
            return;
        };
        let until = match unit.is_gpu() {
            true => ", and no cap rises,",
            false => "",
        };
        let text = format!(
            "its driver reports no usable range of caps ({why}): it counts with {most}{until} until the driver does"
        );
        let note = Note::warning(EventKind::Fault, text).device(unit.address());
        self.note(note);
    }
}
