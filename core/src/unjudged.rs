//! Devices of which nobody can say what they may hold, because their driver does not tell what their
//! cap may be. Such a device counts with the most that it could hold, no cap of the node rises
//! meanwhile, its driver is asked again every second, and nobody else's cap waits for it to go back.

use litd_api::EventKind;
use litd_power::PowerError;
use litd_units::Watts;

use crate::core::Core;
use crate::devices::Unit;
use crate::range::Range;
use crate::record::Note;
use crate::store::Store;

impl<S: Store> Core<S> {
    /// Brings what unjudged devices count with up to what is known of them now.
    pub(crate) fn judge_devices(&mut self) {
        for device in 0..self.devices.iter().count() {
            let most = self.could_hold(device);
            if let Some(unit) = self.devices.get_mut(device) {
                unit.device.range.judge(most);
                let unjudged = unit.device.range.unjudged();
                self.actuator.judge(device, unjudged);
            }
        }
    }

    /// The most that a device could hold, whatever its driver says now: the largest of what the undo
    /// journal, its last known range, its reading and the configured ceiling say; without any of
    /// them the highest of its peers.
    fn could_hold(&self, device: usize) -> Watts {
        let Some(unit) = self.devices.get(device) else {
            return Watts::ZERO;
        };
        let entry = self.entry(unit.address());
        let journaled = entry.map(|entry| {
            let ours = entry.ours.iter().copied();
            ours.fold(entry.found, Watts::max)
        });
        let last = unit.device.range.last().map(|range| range.highest);
        let ceiling = self.config.caps.gpu_ceiling.filter(|_| unit.is_gpu());
        let bounds = [journaled, last, ceiling].into_iter().flatten();
        let bound = bounds.reduce(Watts::max);
        let bound = bound.or_else(|| self.highest_of_peers(unit));
        // Nothing is known of it or of any other: nothing is left beside it.
        let bound = bound.unwrap_or(Range::NEVER_TOLD.unjudged().unwrap_or_default());
        let read = unit.device.reading.map(|reading| reading.cap);
        read.map_or(bound, |read| bound.max(read))
    }

    fn highest_of_peers(&self, unit: &Unit) -> Option<Watts> {
        let peers = self.devices.iter().map(|(_, peer)| peer);
        let alike = peers.filter(|peer| peer.is_gpu() == unit.is_gpu());
        let ranges = alike.filter_map(|peer| peer.device.range.last());
        ranges.map(|range| range.highest).reduce(Watts::max)
    }

    /// A driver was asked what its device's cap may be, and did not tell.
    pub(crate) fn range_refused(&mut self, device: usize, error: &PowerError) {
        self.count_error(device, error);
        let most = self.could_hold(device);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        if unit.device.range.known().is_none() {
            return;
        }
        unit.device.range.refused(most);
        let address = unit.address().to_owned();
        let text = format!(
            "its driver does not say what its cap may be: it counts with {most}, and no cap rises until the driver does ({error})"
        );
        self.note(Note::warning(EventKind::Fault, text).device(&address));
        self.standing_changed(device);
    }

    /// Why no cap may rise, if a device can't be judged. One that was let go of is not asked.
    pub(crate) fn unjudged(&self) -> Option<String> {
        let mut units = self.devices.iter().map(|(_, unit)| unit);
        let unjudged =
            |unit: &&Unit| unit.let_go.is_none() && unit.device.range.unjudged().is_some();
        let unit = units.find(unjudged)?;
        Some(format!(
            "the driver of {0} does not say what its cap may be; `litctl release {0}` ends that",
            unit.name
        ))
    }
}
