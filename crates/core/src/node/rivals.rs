//! Rivals: other programs that set caps on this node (foreign caps), such as DCGM policies, NVIDIA DPS, Slurm prologs
//! and BMCs. litd does not fight them. After one foreign change no cap of the node rises; after a second the node is
//! only observed, until an administrator resumes it.

use litd_api::EventKind;
use litd_units::{Nanos, Watts};
use serde::{Deserialize, Serialize};

use crate::core::Core;
use crate::record::Note;
use crate::store::Store;

/// Two foreign changes within this time are one too many.
const WITHIN: Nanos = Nanos(600_000_000_000);

/// Recent foreign changes of caps, and whether the node has yielded to who makes them. The latter outlives litd.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Rivals {
    /// Why the node is only observed until it is resumed.
    yielded: Option<String>,
    /// When caps were changed.
    #[serde(skip)]
    changes: Vec<Nanos>,
}

impl Rivals {
    /// Somebody else has changed the cap of this device. If that is one change too many the node yields; returns why
    /// then.
    pub fn change(&mut self, device: &str, now: Nanos) -> Option<&str> {
        self.changes.retain(|&at| now < at + WITHIN);
        self.changes.push(now);
        let changes = self.changes.len();
        if changes < 2 || self.yielded.is_some() {
            return None;
        }
        let minutes = WITHIN.as_secs_f64() / 60.0;
        self.yielded = Some(format!(
            "somebody else sets caps here too: {changes} changes within {minutes:.0} minutes, the last on {device}"
        ));
        self.why_yielded()
    }

    /// Why the node is only observed until it is resumed; `None` while it is not.
    pub fn why_yielded(&self) -> Option<&str> {
        self.yielded.as_deref()
    }

    /// An administrator resumes the node. Returns whether it had yielded.
    pub fn resume(&mut self) -> bool {
        self.changes.clear();
        self.yielded.take().is_some()
    }
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
        let name = unit.map_or("", |unit| &unit.name);
        let Some(why) = self.condition.rivals.change(name, self.now()) else {
            return;
        };
        let text = format!("{why}; litd only observes until `litctl resume`");
        self.note(Note::warning(EventKind::Foreign, text));
        self.save_condition();
        self.replan_all();
    }

    /// An administrator resumes the node. Returns whether that was needed.
    pub(crate) fn forget_rivals(&mut self) -> bool {
        let had_yielded = self.condition.rivals.resume();
        if had_yielded {
            self.save_condition();
            self.replan_all();
        }
        had_yielded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Nanos {
        Nanos(minutes * 60_000_000_000)
    }

    #[test]
    fn the_second_change_within_ten_minutes_is_one_too_many_and_said_once() {
        let mut rivals = Rivals::default();
        assert_eq!(rivals.change("gpu0", at(0)), None);
        assert_eq!(rivals.change("gpu0", at(10)), None);
        let why = rivals.change("gpu1", at(19)).unwrap();
        assert!(why.contains("2 changes within 10 minutes, the last on gpu1"));
        assert_eq!(rivals.change("gpu2", at(19)), None);
        assert!(rivals.why_yielded().unwrap().contains("gpu1"));
    }

    #[test]
    fn a_node_that_is_resumed_counts_anew() {
        let mut rivals = Rivals::default();
        assert!(!rivals.resume());
        rivals.change("gpu0", at(0));
        rivals.change("gpu0", at(1));
        assert!(rivals.resume());
        assert_eq!(rivals.why_yielded(), None);
        assert_eq!(rivals.change("gpu0", at(2)), None);
        assert!(rivals.change("gpu0", at(3)).is_some());
    }

    #[test]
    fn what_outlives_litd_is_why_the_node_has_yielded() {
        let mut rivals = Rivals::default();
        rivals.change("gpu0", at(0));
        assert_eq!(serde_json::to_string(&rivals).unwrap(), "null");
        rivals.change("gpu0", at(1));
        let kept = serde_json::to_string(&rivals).unwrap();
        assert!(kept.starts_with("\"somebody else"), "{kept}");
        let read: Rivals = serde_json::from_str(&kept).unwrap();
        assert_eq!(read.why_yielded(), rivals.why_yielded());
    }
}
