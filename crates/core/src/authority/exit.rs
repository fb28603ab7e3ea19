//! Caps that litd leaves behind when it stops or is off: the caps found or, with `caps.on_exit = "hold"`, caps
//! within the safe budget.

use litd_api::EventKind;
use litd_units::Watts;

use crate::core::Core;
use crate::devices::Unit;
use crate::devices::hardware::FAILURES;
use crate::devices::range::Range;
use crate::journal::Entry;
use crate::plan::DUST;
use crate::record::Note;
use crate::store::Store;

/// GPUs may hold more than the safe budget that litd is to leave behind.
#[derive(Debug, Clone, PartialEq)]
pub struct AboveSafe {
    /// The most that all GPUs together may hold.
    pub sum: Watts,
    /// The safe budget.
    pub safe: Watts,
    /// The GPUs whose drivers set their default caps once nobody has them open.
    pub forgetful: Vec<String>,
}

impl std::fmt::Display for AboveSafe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            sum,
            safe,
            forgetful,
        } = self;
        write!(f, "GPUs may hold {sum}, above the safe budget of {safe}")?;
        match forgetful.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", without_persistence(forgetful)),
        }
    }
}

/// What becomes of the caps of these GPUs, and what to do.
fn without_persistence(gpus: &[String]) -> String {
    format!(
        "persistence mode is off on {}: once no program has such a GPU open its driver sets the default cap. \
         Switch it on: nvidia-smi -pm 1",
        gpus.join(", ")
    )
}

impl<S: Store> Core<S> {
    /// Whether a device holds the cap that it is to be left with, as far as its driver lets it, by a reading since
    /// litd began to stop.
    pub(crate) fn is_left(&self, device: usize, unit: &Unit) -> bool {
        let target = self.writer.account().target(device);
        self.left_view(device, unit).is_left(target)
    }

    /// Whether all GPUs that obey are within the safe budget. A GPU that may still answer is waited for if it has
    /// not been read since litd began to stop, or was reset and has not told its range since: nobody knows what it
    /// may hold.
    pub(crate) fn is_within(&self) -> bool {
        let may_answer = |device: usize, unit: &Unit| {
            unit.answering.failures() < FAILURES
                && !unit.answering.is_overdue()
                && self.may_open(device)
        };
        let mut gpus = self.devices.gpus();
        gpus.all(|(device, unit)| {
            // A first reading is believed once a second one agrees.
            let found = unit.found.is_some() || unit.is_beyond_judging();
            let range = !matches!(unit.device.range, Range::Asked(_));
            let told = self.authority.is_fresh(unit) && found && range;
            let looked_at = told || !may_answer(device, unit);
            looked_at
                && (!self.device_view(device, unit).may_move()
                    || self.writer.account().is_settled(device))
        })
    }

    /// Whether GPUs may hold more than the safe budget that litd is to leave behind: because they do not obey,
    /// hold somebody else's cap, or a write could not be put on record.
    #[must_use]
    pub fn above_on_exit(&self) -> Option<AboveSafe> {
        let safe = self
            .config
            .caps
            .budget_on_exit()
            .filter(|_| self.authority.is_leaving())?;
        let gpus = self.devices.gpus();
        let most = |(device, unit): (usize, &Unit)| {
            let most = self.writer.account().most_of(device);
            self.comes_to_hold(unit).map_or(most, |late| late.max(most))
        };
        let sum: Watts = gpus.map(most).sum();
        let sum = sum + self.unmanaged_hold();
        (sum > safe + DUST).then(|| AboveSafe {
            sum,
            safe,
            forgetful: self.forgetful(),
        })
    }

    fn forgetful(&self) -> Vec<String> {
        let gpus = self.devices.gpus().filter(|(_, unit)| unit.is_forgetful());
        gpus.map(|(_, unit)| unit.name.clone()).collect()
    }

    /// Says, once for the same GPUs, that no safe budget can be left behind on GPUs that forget their caps.
    pub(crate) fn check_forgetful(&mut self) {
        let gpus = match self.config.caps.budget_on_exit() {
            Some(_) => self.forgetful(),
            None => Vec::new(),
        };
        if self.authority.finds_forgetful(&gpus) && !gpus.is_empty() {
            let text = format!(
                "caps.on_exit = \"hold\" can't hold these caps once litd is stopped or off: {}",
                without_persistence(&gpus)
            );
            self.note(Note::warning(EventKind::Fault, text));
        }
    }

    /// The number of devices present that are in the undo journal and do not yet hold the caps that they are to be
    /// left with. Only reading the journal is needed to undo: if it can't be written, a device that was restored
    /// or is somebody else's does not count, although its entry stays.
    pub(crate) fn owed_entries(&self) -> usize {
        let uncrossed = self.writer.journal_trouble().is_some();
        let owed = |entry: &&Entry| {
            let device = self.devices.called(&entry.address);
            let unit = device.and_then(|device| Some((device, self.devices.get(device)?)));
            unit.is_some_and(|(device, unit)| {
                let theirs = unit.standing.is_kept();
                // A foreign cap stays, and its entry with it while a late write may be done on top.
                let stays =
                    theirs && self.authority.is_fresh(unit) && self.may_be_overwritten(unit);
                let done = stays || uncrossed && (theirs || self.is_back(device, unit));
                let let_go = self.is_back_for_now(device, unit);
                !done && !let_go && !self.is_left(device, unit)
            })
        };
        self.writer.entries().iter().filter(owed).count()
    }

    /// The devices, by address, whose entries stay in the undo journal on purpose: they hold caps within the safe
    /// budget.
    #[must_use]
    pub fn held_on_exit(&self) -> Vec<String> {
        if !self.authority.holds(&self.config) {
            return Vec::new();
        }
        let units = self.devices.iter();
        let left = units.filter(|&(device, unit)| {
            self.writer.is_journaled(device) && self.is_left(device, unit)
        });
        left.map(|(_, unit)| unit.address().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand::{Stand, address};
    use crate::{Config, Event};

    /// litd is to leave 900 W behind on two GPUs that were found at 600 W, and stops; these refuse every write.
    fn stopped(refuse: Vec<usize>) -> Stand {
        let mut config = Config::default();
        config.caps.safe_budget = Some(Watts(900.0));
        config.caps.on_exit = crate::config::OnExit::Hold;
        let mut node = Stand::new(config, &[600.0, 600.0]);
        node.core.authority.set_budget(Some(Watts(1200.0)));
        node.refuse = refuse;
        node.pass(3);
        node.tell(Event::Stop);
        node.pass(20);
        node
    }

    #[test]
    fn what_litd_leaves_behind_is_within_the_safe_budget_and_in_the_journal() {
        let node = stopped(Vec::new());
        assert_eq!(node.caps(), [450.0, 450.0]);
        assert_eq!(node.core.above_on_exit(), None);
        assert_eq!(node.core.held_on_exit(), [address(0), address(1)]);
    }

    #[test]
    fn others_make_room_for_a_gpu_that_takes_no_cap_and_what_cant_be_kept_is_told() {
        let node = stopped(vec![1]);
        assert!(node.caps()[0] <= 300.0 && node.caps()[1] == 600.0);
        assert_eq!(node.core.above_on_exit(), None);
        let node = stopped(vec![0, 1]);
        let above = node.core.above_on_exit().unwrap();
        // No less than they hold: once they are not read any more they may have been reset.
        assert!(above.sum >= Watts(1200.0) && above.safe == Watts(900.0));
    }
}
