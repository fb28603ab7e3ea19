//! The node's condition: what outlives litd besides journal, log and learned caps, in one file. What its parts mean is
//! decided in their own modules (such as `rivals` and `announced`); this one reads and writes the file, and takes over
//! that of a dead daemon with another state directory.

use std::collections::BTreeMap;
use std::io;

use litd_api::EventKind;
use litd_units::{Nanos, Watts};
use serde::{Deserialize, Serialize};

use crate::authority::Orders;
use crate::core::Core;
use crate::devices::ailing::Needs;
use crate::devices::not_in_force::NotInForce;
use crate::job::announced::Announced;
use crate::node::rivals::Rivals;
use crate::outbox::Outbox;
use crate::record::Note;
use crate::store::Store;
use crate::undo::left_alone::AllLeftAlone;

/// The version written, and the only one read.
const VERSION: u64 = 1;

/// How often the condition is written to disk although nothing is known to have changed: times that count up do.
const SAVED: Nanos = Nanos(600_000_000_000);

/// The consequence while it can't be written.
pub(crate) const LOST: &str = "until that is possible, a restart of litd would lose opt-outs and what `litctl \
    budget`, `policy`, `release` and `resume` have set since; litd does not start itself anew meanwhile";

/// The node's condition, as kept on disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Condition {
    #[serde(rename = "litd-condition")]
    version: u64,
    /// Whether the node is only observed because others set caps here.
    #[serde(default, rename = "yielded")]
    pub rivals: Rivals,
    /// How long GPUs have needed more than others.
    #[serde(default, rename = "gpus")]
    pub needs: Needs,
    /// Jobs that have begun, as their schedulers say, until the node boots.
    #[serde(default, rename = "begun")]
    pub announced: Announced,
    /// Devices that litd leaves alone until it is told to take them again, until the node boots.
    #[serde(default)]
    pub left_alone: AllLeftAlone,
    /// What administrators have set by commands, until litd is stopped or the node boots.
    #[serde(default, skip_serializing_if = "Orders::is_none")]
    pub orders: Orders,
    /// The measured power of all parts of the node other than GPUs and CPUs, until it boots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Watts>,
    /// GPUs whose caps were seen not to be in force, until the node boots.
    #[serde(default, skip_serializing_if = "NotInForce::is_none")]
    pub not_in_force: NotInForce,
    /// The limits on the node that its BMC and other sources have told, by source, until litd is stopped or the node
    /// boots.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Watts>,
    /// What the parts of the node other than GPUs and CPUs draw at least, for as long as such a limit, or a budget of
    /// the node, depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<Watts>,
    #[serde(default)]
    boot: String,
    #[serde(skip)]
    saved: Nanos,
    /// Whether the last write to disk failed: the list of devices left alone has to outlive litd.
    #[serde(skip)]
    is_unkept: bool,
}

impl Condition {
    /// Reads what [`Condition::save`] wrote. A file that can't be read is started anew, and the second value says
    /// why.
    pub fn load(bytes: &[u8], boot_id: &str) -> (Self, Option<String>) {
        let (mut condition, flaw) = Self::read(bytes);
        if condition.boot != boot_id {
            // After a boot those jobs have ended, and resets, upgrades and caps that were set are gone.
            condition.announced = Announced::default();
            condition.left_alone = AllLeftAlone::default();
            condition.orders = Orders::default();
            condition.reserve = None;
            condition.not_in_force = NotInForce::default();
            condition.limits = BTreeMap::new();
            condition.least = None;
            boot_id.clone_into(&mut condition.boot);
        }
        // The file may have been changed by others.
        let is_possible = |it: &Watts| (Watts::ZERO..=Watts(100_000.0)).contains(it);
        condition.reserve = condition.reserve.filter(is_possible);
        condition.least = condition.least.filter(is_possible);
        condition.limits.retain(|_, it| is_possible(it));
        (condition, flaw)
    }

    fn read(bytes: &[u8]) -> (Self, Option<String>) {
        if bytes.is_empty() {
            return (Self::default(), None);
        }
        match serde_json::from_slice::<Self>(bytes) {
            Ok(read) if read.version == VERSION => (read, None),
            Ok(read) => {
                let text = format!(
                    "its file is of version {}, which this litd does not know",
                    read.version
                );
                (Self::default(), Some(text))
            }
            Err(error) => (Self::default(), Some(error.to_string())),
        }
    }

    /// Forgets what is out of date: what it says of devices that another litd had since, and of the node if that holds
    /// for all of these `devices`. `had` says whether the litd with this condition had a device last, where that is
    /// known.
    fn forget_what_others_had(&mut self, devices: &[&str], had: impl Fn(&str) -> Option<bool>) {
        let counts = |address: &str| had(address) != Some(false);
        let known: Vec<bool> = devices.iter().filter_map(|address| had(address)).collect();
        let is_of_the_node = known.is_empty() || known.contains(&true);
        self.left_alone.keep(counts);
        self.not_in_force.keep(counts);
        self.announced.keep(is_of_the_node, counts);
        if !is_of_the_node {
            *self = Self {
                left_alone: std::mem::take(&mut self.left_alone),
                not_in_force: std::mem::take(&mut self.not_in_force),
                announced: std::mem::take(&mut self.announced),
                boot: std::mem::take(&mut self.boot),
                ..Self::default()
            };
        }
    }

    /// Takes in another litd's condition. What was taken in before, from a third one with other devices of this node,
    /// holds as well.
    fn adopt(&mut self, theirs: Self) {
        self.announced.adopt(theirs.announced);
        self.left_alone.adopt(theirs.left_alone);
        self.not_in_force.adopt(theirs.not_in_force);
        if theirs.rivals.why_yielded().is_some() {
            self.rivals = theirs.rivals;
        }
        if !theirs.orders.is_none() {
            self.orders = theirs.orders;
        }
        self.reserve = theirs.reserve.or(self.reserve);
        self.limits.extend(theirs.limits);
        self.least = theirs.least.or(self.least);
        self.needs.adopt(theirs.needs);
    }

    fn save(&mut self, store: &mut impl Store) -> io::Result<()> {
        self.version = VERSION;
        self.needs.tidy();
        store.replace_condition(&serde_json::to_vec(self)?)
    }

    /// Whether it is to be written now although nothing is known to have changed.
    pub fn is_due(&self, now: Nanos) -> bool {
        now >= self.saved + SAVED || self.is_unkept
    }

    /// Whether the last write to disk failed, so that the next litd would not know what has changed since.
    pub fn is_unkept(&self) -> bool {
        self.is_unkept
    }

    /// Keeps it for the next start. A write that fails is tried again each second, and reported once, as is the first
    /// one that succeeds then. Returns whether it is kept.
    pub fn keep(&mut self, store: &mut impl Store, out: &mut Outbox) -> bool {
        self.saved = out.now();
        let nothing = Self {
            boot: self.boot.clone(),
            ..Self::default()
        };
        if *self == nothing {
            return true;
        }
        let outcome = self.save(store);
        let kept = outcome.is_ok();
        let was_unkept = std::mem::replace(&mut self.is_unkept, !kept);
        match outcome {
            Err(error) => {
                out.error("condition", "");
                if !was_unkept {
                    let text = format!("the node's condition can't be kept: {error}; {LOST}");
                    out.note(Note::warning(EventKind::Fault, text));
                }
            }
            Ok(()) if was_unkept => {
                let text = "the node's condition is kept again";
                out.note(Note::info(EventKind::Fault, text));
            }
            Ok(()) => {}
        }
        kept
    }
}

/// The condition that had a device last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HadLast {
    /// The own one.
    Own,
    /// The one with this number among the others.
    Other(usize),
    /// Neither, or nobody knows.
    Unknown,
}

/// Takes over the conditions that other litds have kept in other places in this boot, when they had devices of this
/// litd: devices left alone, jobs that have begun, whether the node is only observed, what administrators have set by
/// commands, what is known of the power of the rest of the node, limits on the node, and GPUs whose caps are not in
/// force. What one says of a device that another one had since is out of date, and so is all that it says of the node
/// if that holds for each of these `devices` that anybody is known to have had: `had_last` says who had a device last.
/// Returns which of the others were taken over: those of this boot.
///
/// # Errors
/// The own one can't be read or written.
pub fn adopt_conditions(
    own: &mut impl Store,
    others: &[Vec<u8>],
    boot_id: &str,
    devices: &[&str],
    had_last: impl Fn(&str) -> HadLast,
) -> io::Result<Vec<usize>> {
    let others = others.iter().map(|bytes| Condition::read(bytes).0);
    let of_this_boot = others.enumerate().filter(|(_, it)| it.boot == boot_id);
    let others: Vec<(usize, Condition)> = of_this_boot.collect();
    let adopted: Vec<usize> = others.iter().map(|(number, _)| *number).collect();
    if adopted.is_empty() {
        return Ok(adopted);
    }
    // Where the one that had a device last is lost, the others' word is the best there is.
    let had = |address: &str, which: HadLast| match had_last(address) {
        HadLast::Unknown => None,
        HadLast::Other(number) if !adopted.contains(&number) => None,
        last => Some(last == which),
    };
    let (mut mine, _) = Condition::load(&own.load_condition()?, boot_id);
    mine.forget_what_others_had(devices, |address| had(address, HadLast::Own));
    for (number, mut theirs) in others {
        theirs.forget_what_others_had(devices, |it| had(it, HadLast::Other(number)));
        mine.adopt(theirs);
    }
    mine.save(own)?;
    Ok(adopted)
}

impl<S: Store> Core<S> {
    /// Keeps what the devices' standings have come to for the next start, where that has changed, before any cap is
    /// written. A litd that stops leaves it as it is, and `litd restore` keeps none.
    pub(crate) fn keep_standings(&mut self) {
        if self.authority.is_stopping() {
            return;
        }
        let mut changed = false;
        for (device, unit) in self.devices.iter() {
            let held = self.writer.account().held(device);
            changed |= self.condition.left_alone.follow(unit, held);
            changed |= self.condition.not_in_force.follow(unit);
        }
        if changed {
            self.save_condition();
        }
    }

    /// Once a second: a condition that somebody has removed or changed on the disk is written anew. A restart would
    /// forget it otherwise, and with it budgets, opt-outs and devices left alone.
    pub(crate) fn check_condition(&mut self) {
        if self.authority.is_stopping() || self.condition.is_unkept() {
            return;
        }
        if !self.writer.store_mut().condition_is_there() {
            let text = "somebody has removed or changed the file with the node's condition: litd writes it anew";
            self.note(Note::warning(EventKind::Fault, text));
            self.save_condition();
        }
    }

    /// Keeps the node's condition for the next start. Returns whether it is kept.
    pub(crate) fn save_condition(&mut self) -> bool {
        self.condition.orders = self.authority.orders();
        let store = self.writer.store_mut();
        self.condition.keep(store, &mut self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    /// A file as litd writes it.
    const FILE: &str = r#"{"litd-condition":1,"yielded":"others","gpus":{"a":{"seconds":9.0,"calm":0.0,"since":null}},"begun":{"slurm-1":{"since":5.0,"turn":1,"opt_out":true,"gpus":["a"]}},"left_alone":{"a":"released"},"boot":"one"}"#;

    fn load(bytes: &str, boot: &str) -> (Condition, Option<String>) {
        Condition::load(bytes.as_bytes(), boot)
    }

    #[test]
    fn the_form_on_disk_is_kept() {
        let (mut condition, flaw) = load(FILE, "one");
        assert_eq!(flaw, None);
        let mut store = MemoryStore::default();
        let mut out = Outbox::new(Nanos(1), 0.0);
        assert!(condition.keep(&mut store, &mut out));
        assert_eq!(String::from_utf8(store.condition).unwrap(), FILE);
    }

    #[test]
    fn a_boot_ends_jobs_and_frees_devices_and_nothing_else() {
        let (condition, _) = load(FILE, "two");
        assert!(condition.announced.status().is_empty());
        assert_eq!(condition.left_alone, AllLeftAlone::default());
        assert_eq!(condition.rivals.why_yielded(), Some("others"));
    }

    #[test]
    fn a_file_that_is_damaged_or_newer_is_begun_anew_with_the_reason() {
        let (condition, flaw) = load("{", "one");
        assert!(flaw.is_some() && condition.rivals.why_yielded().is_none());
        let (_, flaw) = load(&FILE.replace(":1,\"yielded", ":2,\"yielded"), "one");
        assert_eq!(
            flaw.as_deref(),
            Some("its file is of version 2, which this litd does not know")
        );
        assert_eq!(load("", "one").1, None);
    }

    /// The condition after others were taken over by the litd that kept `own`, on the devices a and b, of which each
    /// one had been had last as told.
    fn taken_over(own: &str, others: &[&str], last: [HadLast; 2]) -> (String, Vec<usize>) {
        let mut store = MemoryStore {
            condition: own.as_bytes().to_vec(),
            ..Default::default()
        };
        let others: Vec<Vec<u8>> = others.iter().map(|it| it.as_bytes().to_vec()).collect();
        let had_last = |address: &str| match address {
            "a" => last[0],
            _ => last[1],
        };
        let adopted = adopt_conditions(&mut store, &others, "one", &["a", "b"], had_last);
        (
            String::from_utf8(store.condition).unwrap(),
            adopted.unwrap(),
        )
    }

    const UNKNOWN: [HadLast; 2] = [HadLast::Unknown; 2];

    /// The same as [`FILE`], of a later litd and of the device b.
    fn of_b() -> String {
        FILE.replace("\"a\"", "\"b\"").replace("slurm-1", "slurm-2")
    }

    #[test]
    fn what_another_litd_kept_is_taken_over_in_this_boot_only() {
        let (kept, adopted) = taken_over("", &[FILE], UNKNOWN);
        assert_eq!((kept.is_empty(), adopted), (false, vec![0]));
        let of_another_boot = FILE.replace(":\"one\"", ":\"two\"");
        let (kept, adopted) = taken_over("", &[&of_another_boot], UNKNOWN);
        assert_eq!((kept.is_empty(), adopted), (true, Vec::new()));
    }

    #[test]
    fn what_two_other_litds_kept_is_taken_over_from_both() {
        let (kept, adopted) = taken_over("", &[FILE, &of_b()], UNKNOWN);
        assert_eq!(adopted, [0, 1]);
        for it in [
            "\"left_alone\":{\"a\":\"released\",\"b\":\"released\"}",
            "slurm-1",
            "slurm-2",
        ] {
            assert!(kept.contains(it), "{kept}");
        }
    }

    #[test]
    fn what_was_kept_before_another_litd_had_a_device_does_not_count_again() {
        let own = FILE.replace(
            "\"boot\"",
            "\"orders\":{\"budget\":1400.0},\"limits\":{\"bmc\":900.0},\"boot\"",
        );
        let counts = |kept: &str| {
            ["released", "slurm-1", "others", "1400", "bmc"].map(|it| kept.contains(it))
        };
        let empty = r#"{"litd-condition":1,"boot":"one"}"#;
        // The other one had both devices since, and had nothing to keep in the end.
        let (kept, _) = taken_over(&own, &[empty], [HadLast::Other(0); 2]);
        assert_eq!(counts(&kept), [false; 5], "{kept}");
        // It had another device only: what the own one says of the node is one of the two latest words on it.
        let (kept, _) = taken_over(&own, &[empty], [HadLast::Own, HadLast::Other(0)]);
        assert_eq!(counts(&kept), [true; 5], "{kept}");
        // It had this device only.
        let (kept, _) = taken_over(&own, &[empty], [HadLast::Other(0), HadLast::Own]);
        assert_eq!(counts(&kept), [false, false, true, true, true], "{kept}");
        // It is the other one that is out of date.
        let (kept, _) = taken_over(empty, &[&own], [HadLast::Own; 2]);
        assert_eq!(counts(&kept), [false; 5], "{kept}");
        // The other one's condition is lost.
        let (kept, adopted) = taken_over(&own, &[""], [HadLast::Other(0); 2]);
        assert_eq!((counts(&kept), adopted), ([true; 5], Vec::new()), "{kept}");
    }

    #[test]
    fn it_is_written_again_after_ten_minutes() {
        let (mut condition, _) = load(FILE, "one");
        let at = |seconds: i64| Nanos(seconds * 1_000_000_000);
        let mut out = Outbox::new(at(5), 0.0);
        condition.keep(&mut MemoryStore::default(), &mut out);
        assert!(!condition.is_due(at(604)) && condition.is_due(at(605)));
    }
}
