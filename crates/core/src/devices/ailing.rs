//! GPUs that need a higher cap than the others of their job for hours. Steering makes up for a part that fails,
//! and must not hide it: such GPUs are listed for repair, and the list outlives restarts.

use std::collections::BTreeMap;
use std::io;

use litd_api::EventKind;
use litd_units::{Nanos, Watts};
use serde::{Deserialize, Serialize};

use crate::core::{Core, TELEMETRY};
use crate::devices::Unit;
use crate::job::Job;
use crate::job::announced::Announced;
use crate::node::rivals::Rivals;
use crate::record::Note;
use crate::store::Store;
use crate::undo::left_alone::LeftAlone;

/// The version written, and the only one read.
const VERSION: u64 = 1;

/// With fewer GPUs than this the median says nothing.
const FEWEST: usize = 3;

/// For so many seconds of steering a GPU must not have been above the others before its time above them is
/// forgotten.
const CALM: f64 = 600.0;

/// How often the list is written to disk.
const SAVED: Nanos = Nanos(600_000_000_000);

/// A round takes no longer than this. A longer gap is a pause of the daemon, and does not count.
const LONGEST: f64 = 5.0;

/// How long one GPU has needed more than the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Need {
    /// Seconds of steering in which it needed more than the others.
    pub seconds: f64,
    /// Seconds of steering since it last did.
    #[serde(default)]
    calm: f64,
    /// Since when a person should look at it, in seconds since 1970.
    #[serde(default)]
    pub since: Option<f64>,
}

/// The node's condition, as kept on disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Condition {
    #[serde(rename = "litd-condition")]
    version: u64,
    /// Whether the node is only observed because others set caps here.
    #[serde(default, rename = "yielded")]
    pub rivals: Rivals,
    /// By serial number, or address where there is none.
    #[serde(default)]
    gpus: BTreeMap<String, Need>,
    /// Jobs that have begun, as their schedulers say, until the node boots.
    #[serde(default, rename = "begun")]
    pub announced: Announced,
    /// Devices that litd leaves alone until it is told to take them again, by address and serial number, until the
    /// node boots.
    #[serde(default)]
    pub left_alone: BTreeMap<String, LeftAlone>,
    #[serde(default)]
    boot: String,
    #[serde(skip)]
    saved: Nanos,
    #[serde(skip)]
    looked: Nanos,
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
            condition.left_alone.clear();
            boot_id.clone_into(&mut condition.boot);
        }
        (condition, flaw)
    }

    fn read(bytes: &[u8]) -> (Self, Option<String>) {
        if bytes.is_empty() {
            return (Self::default(), None);
        }
        match serde_json::from_slice::<Self>(bytes) {
            Ok(read) if read.version == VERSION => (read, None),
            Ok(read) => {
                let text = format!("version {} is not known", read.version);
                (Self::default(), Some(text))
            }
            Err(error) => (Self::default(), Some(error.to_string())),
        }
    }

    fn save(&mut self, store: &mut impl Store) -> io::Result<()> {
        self.version = VERSION;
        self.gpus
            .retain(|_, need| need.seconds > 0.0 || need.since.is_some());
        store.replace_condition(&serde_json::to_vec(self)?)
    }

    /// How long this GPU has needed more than the others.
    pub fn of(&self, unit: &Unit) -> Need {
        self.gpus.get(part(unit)).copied().unwrap_or_default()
    }
}

/// Takes over the condition that another litd has kept in another place in this boot, when it had the devices:
/// devices left alone, jobs that have begun, and whether the node is only observed. The entry there is then
/// removed.
///
/// # Errors
/// Either can't be read, or the own one can't be written.
pub fn adopt_condition(
    own: &mut impl Store,
    other: &mut impl Store,
    boot_id: &str,
) -> io::Result<()> {
    let theirs = other.load_condition()?;
    let (theirs, _) = Condition::read(&theirs);
    if theirs.boot != boot_id {
        return Ok(());
    }
    let (mut mine, _) = Condition::load(&own.load_condition()?, boot_id);
    (mine.announced, mine.left_alone) = (theirs.announced, theirs.left_alone);
    mine.rivals = theirs.rivals;
    for (part, need) in theirs.gpus {
        mine.gpus.entry(part).or_insert(need);
    }
    mine.save(own)?;
    other.replace_condition(&[])
}

fn part(unit: &Unit) -> &str {
    let identity = &unit.device.identity;
    identity.serial.as_deref().unwrap_or(&identity.address)
}

/// The middle cap; of an even number the lower one of the two in the middle.
fn median(mut caps: Vec<Watts>) -> Option<Watts> {
    caps.sort_by(|one, other| one.0.total_cmp(&other.0));
    caps.get(caps.len().checked_sub(1)? / 2).copied()
}

impl<S: Store> Core<S> {
    /// Once a second: which GPUs hold more than the others of their job.
    pub(crate) fn check_needs(&mut self) {
        let passed = (self.now - self.condition.looked).as_secs_f64();
        self.condition.looked = self.now;
        let passed = if passed > LONGEST {
            TELEMETRY.as_secs_f64()
        } else {
            passed
        };
        let share = 1.0 + self.config.ailing.above;
        let mut seen = Vec::new();
        for job in self.jobs.values().filter(|job| job.is_steered()) {
            let held: Vec<(usize, Watts)> = self.caps_of(job);
            let middle = median(held.iter().map(|&(_, cap)| cap).collect());
            let Some(middle) = middle.filter(|_| held.len() >= FEWEST) else {
                continue;
            };
            let above = |&(device, cap): &(usize, Watts)| (device, cap > middle * share);
            seen.extend(held.iter().map(above));
        }
        let mut changed = false;
        for (device, above) in seen {
            changed |= self.needs(device, above, passed);
        }
        let is_old = self.now >= self.condition.saved + SAVED;
        if changed || is_old || self.condition.is_unkept {
            self.save_condition();
        }
    }

    fn caps_of(&self, job: &Job) -> Vec<(usize, Watts)> {
        let held = |device: usize| Some((device, self.actuator.held(device)?));
        job.gpus().filter_map(held).collect()
    }

    /// A GPU needs more than the others, or does not, for some seconds more. Returns whether it enters or leaves
    /// the list of GPUs to repair.
    fn needs(&mut self, device: usize, above: bool, seconds: f64) -> bool {
        let patience = self.config.ailing.hours * 3600.0;
        let unix = self.out.unix_seconds();
        let Some(unit) = self.devices.get(device) else {
            return false;
        };
        let (name, address) = (part(unit).to_owned(), unit.address().to_owned());
        if !above && !self.condition.gpus.contains_key(&name) {
            return false;
        }
        let need = self.condition.gpus.entry(name).or_default();
        if above {
            need.seconds += seconds;
            need.calm = 0.0;
        } else {
            need.calm += seconds;
        }
        let opens = need.since.is_none() && need.seconds >= patience;
        let well = need.calm >= CALM.min(patience);
        // A GPU leaves the repair list after as long (24 h by default) of normal demand as it took to enter it.
        let closes = need.since.is_some() && need.calm >= patience;
        if well && need.since.is_none() {
            need.seconds = 0.0;
        }
        let share = self.config.ailing.above * 100.0;
        let hours = self.config.ailing.hours;
        if opens {
            need.since = Some(unix);
            let text = format!(
                "look at this hardware: it has needed more than {share:.0} % above the median of its job's GPUs for {hours} h (cooling, seating, supply, silicon)"
            );
            self.note(Note::warning(EventKind::Fault, text).device(&address));
        } else if closes {
            *need = Need::default();
            let text = format!("needs no more than the others since {hours} h");
            self.note(Note::info(EventKind::Fault, text).device(&address));
        }
        opens || closes
    }

    /// Keeps the node's condition for the next start.
    /// Returns whether it is kept.
    pub(crate) fn save_condition(&mut self) -> bool {
        self.condition.saved = self.now;
        let nothing = Condition {
            boot: self.condition.boot.clone(),
            ..Condition::default()
        };
        if self.condition == nothing {
            return true;
        }
        let outcome = self.condition.save(self.writer.store_mut());
        let kept = outcome.is_ok();
        let was_unkept = std::mem::replace(&mut self.condition.is_unkept, !kept);
        if let Err(error) = outcome {
            self.out.error("condition", "");
            // The write is tried again each second, and its failure is reported once.
            if !was_unkept {
                let text = format!("the node's condition can't be kept: {error}");
                self.note(Note::warning(EventKind::Fault, text));
            }
        }
        kept
    }
}
