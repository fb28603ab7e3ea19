//! A cap that somebody else has set on top of failed writes of litd's, which may still replace it.

use litd_units::Watts;

use crate::core::Core;
use crate::store::Store;

impl<S: Store> Core<S> {
    /// The journal has somebody else's cap as the one found from now on, and the late writes that may replace it.
    pub(crate) fn journal_over(&mut self, device: usize, found: Option<Watts>, theirs: Watts) {
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let address = unit.address().to_owned();
        self.writer.cross_out(&address, &mut self.out);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        unit.landing = unit.landing.take().and_then(|it| it.over(found));
        let Some(landing) = &unit.landing else {
            return;
        };
        let late = landing.caps().iter().filter(|cap| !cap.is_same_cap(theirs));
        let late: Vec<(usize, Watts)> = late.map(|&cap| (device, cap)).collect();
        unit.found = Some(theirs);
        for write in late {
            self.writer
                .journal_writes(&[write], &self.devices, &mut self.out);
        }
    }

    /// A device has another cap found, which failed writes of before may replace.
    pub(crate) fn found_under_late(&mut self, device: usize, found: Watts) {
        let unit = self.devices.get(device);
        if unit.is_some_and(|it| it.landing.is_some()) {
            self.journal_over(device, None, found);
        }
    }
}
