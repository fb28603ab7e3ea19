//! Rivals: other programs that set caps on this node, such as DCGM policies, NVIDIA DPS, Slurm prologs and BMCs.
//! litd does not fight them. After one foreign change no cap of the node rises; after a second the node is only
//! observed, until an administrator resumes it.

use litd_api::EventKind;
use litd_units::{Nanos, Watts};

use crate::core::Core;
use crate::devices::Unit;
use crate::record::Note;
use crate::store::Store;

/// Two foreign changes within this time are one too many.
const WITHIN: Nanos = Nanos(600_000_000_000);

/// Recent foreign changes of caps.
#[derive(Debug, Default)]
pub(crate) struct Rivals {
    /// When caps were changed.
    changes: Vec<Nanos>,
}

impl<S: Store> Core<S> {
    /// A foreign change, to this cap, of one that litd steers or that was taken from litd before. The default counts as
    /// nobody's: it may be one reset too many, and a user who can have his GPU reset must not end steering for the
    /// whole node.
    pub(crate) fn foreign_change(&mut self, device: usize, cap: Watts) {
        let unit = self.devices.get(device);
        if unit.is_some_and(|unit| unit.is_default(cap)) {
            return;
        }
        let now = self.now;
        self.rivals.changes.retain(|&at| now < at + WITHIN);
        self.rivals.changes.push(now);
        let changes = self.rivals.changes.len();
        if changes < 2 || self.condition.yielded.is_some() {
            return;
        }
        let name = self.devices.get(device).map_or("", |unit| &unit.name);
        let why = format!(
            "somebody else sets caps here too: {changes} changes within {:.0} minutes, the last on {name}",
            WITHIN.as_secs_f64() / 60.0
        );
        let text = format!("{why}; litd only observes until `litctl resume`");
        self.condition.yielded = Some(why);
        self.note(Note::warning(EventKind::Foreign, text));
        self.save_condition();
        self.replan_all();
    }

    /// Whether the node is only observed because others set caps here.
    #[must_use]
    pub fn has_yielded(&self) -> bool {
        self.condition.yielded.is_some()
    }

    /// A device with a foreign cap that was not resumed. One at its default counts as nobody's, as in
    /// [`Core::foreign_change`]: it takes its watts of the budget, and stops nobody's raises besides.
    pub(crate) fn foreign_device(&self) -> Option<&Unit> {
        let at_default = |unit: &Unit| unit.found.is_some_and(|cap| unit.is_default(cap));
        let foreign = |unit: &&Unit| unit.standing.is_foreign() && !at_default(unit);
        self.devices.iter().map(|(_, unit)| unit).find(foreign)
    }

    /// An administrator resumes the node. Returns whether that was needed.
    pub(crate) fn forget_rivals(&mut self) -> bool {
        self.rivals.changes.clear();
        let yielded = self.condition.yielded.take().is_some();
        if yielded {
            self.save_condition();
            self.replan_all();
        }
        yielded
    }
}
