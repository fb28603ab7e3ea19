//! The rules, checked on what the hardware holds after every single change. What litd believes
//! counts only where a rule is about its own account of itself.

use std::rc::Rc;

use litd_api::{Command, DeviceState, Mode, Status};
use litd_core::journal::{Entry, Recovered};
use litd_core::{Core, Operation};
use litd_policies::Policy;
use litd_power::CapRange;
use litd_units::Watts;

use crate::audit::Log;
use crate::fault::Fault;
use crate::hardware::{Hw, SECOND, Tells, micro};
use crate::matrix::Phase;
use crate::world::World;

mod budget;
mod ending;
mod excuse;
mod foreign;
mod hold;
mod kept;
mod observe;
mod ramp;
mod rest;
mod waits;

pub use excuse::Excused;
pub use rest::LOOKED_AT;

/// A lowered budget counts in full after so long.
const LOWERED: i64 = SECOND;

/// How long making room for a foreign raise may take.
pub const ROOM: i64 = 4 * SECOND;

/// A device that fails is known as such, and worked around, after so long.
const KNOWN_FAULTY: i64 = 8 * SECOND;

/// The model's memory.
#[derive(Debug, Default)]
pub struct Ledger {
    pub broken: Option<String>,
    /// Any rank was let in.
    pub welcomed: bool,
    /// The journal lost what nobody can know.
    pub rotten: bool,
    /// Foreign raises of devices' caps, and until when each excuses the sum.
    excess: Vec<(usize, i64, i64)>,
    /// Limits that were in force, and until when they still count.
    old: Vec<(i64, i64)>,
    /// How much of its time a history excuses.
    pub excused: Excused,
    pub rest: rest::Rest,
    last_limit: Option<i64>,
    rises: ramp::Rises,
    waits: waits::Waits,
    /// When a daemon died last.
    pub died: Option<i64>,
    budget: Option<Watts>,
    policy: Option<Policy>,
    /// Whether anything but a job may have made writes necessary.
    pub reason: bool,
    lowered: Option<Lowered>,
    /// The node's power.
    pub node: crate::node::Heard,
    /// The published baseline.
    pub baseline: litd_core::Baseline,
    /// The contents of the audit log.
    pub log: Log,
    /// Until when no cap may rise, by the daemon's clock.
    pub braked_until: i64,
    /// How often others have set caps that litd had moved.
    pub hands: u32,
    /// When the clock has jumped last.
    pub jumped: i64,
    /// Until when the journal may hold what the disk did not take out.
    pub unsure_until: i64,
    /// When others have set any cap last.
    pub last_hand: i64,
    /// Since when litd only watches, and all is well.
    pub watching: Option<i64>,
    /// Since when litd is off and is to leave the safe budget behind.
    off: Option<hold::Off>,
    /// When the daemon was sure of that, by its clock.
    known_hands: Vec<i64>,
}

/// The budget came down by command while one device was not well.
#[derive(Debug, Clone, Copy)]
struct Lowered {
    at: i64,
    device: usize,
    /// Failures of the disk until then.
    failures: (u32, u32, u32),
}

impl Ledger {
    /// A cap above the known one is litd's to lower, in a while.
    pub fn excuse(&mut self, device: usize, more: i64, now: i64) {
        self.excess.push((device, now + ROOM, more));
    }

    /// An event has happened since the budget came down.
    pub fn nothing_lowered(&mut self) {
        self.lowered = None;
    }
}

/// litd's status of a device, in the model's units.
struct Said {
    found: Option<i64>,
    state: DeviceState,
}

/// The limits of a device by the rules.
pub struct Bounds {
    pub floor: i64,
    pub ceiling: i64,
    pub unit: i64,
}

/// litd's status of all devices, also of those that it does not know.
fn said(status: &Status, here: &[usize], devices: usize) -> Vec<Said> {
    let unknown = || Said {
        found: None,
        state: DeviceState::Faulty,
    };
    let mut all: Vec<Said> = (0..devices).map(|_| unknown()).collect();
    for (&device, it) in here.iter().zip(&status.devices) {
        all[device] = Said {
            found: it.found.map(micro),
            state: it.state,
        };
    }
    all
}

impl World {
    /// litd's status of all devices.
    fn all_said(&self) -> Option<Vec<Said>> {
        let status = self.status()?;
        Some(said(&status, &self.here, self.hw.len()))
    }

    pub fn broke(&mut self, rule: &str, text: String) {
        self.note(|| format!("BROKEN: {rule}: {text}"));
        if self.ledger.broken.is_none() {
            let at = self.now as f64 / 1e9;
            self.ledger.broken = Some(format!("rule {rule} at {at:.3} s: {text}"));
        }
    }

    /// Records that something other than a job may have made writes necessary.
    pub fn needs_no_rank(&mut self) {
        self.ledger.reason = true;
    }

    /// The file's budget is another one: the administrator's newest word, where it says less.
    pub fn has_new_budget(&mut self, new: Option<Watts>) {
        let lower = self
            .ledger
            .budget
            .zip(new)
            .is_some_and(|(own, new)| new < own);
        if lower && new != self.config.caps.budget {
            self.ledger.budget = None;
        }
    }

    pub fn policy(&self) -> Policy {
        match self.mode() {
            Mode::Steer if self.core.as_ref().is_some_and(Core::has_yielded) => Policy::Observe,
            Mode::Steer if self.only_undoes() => Policy::Observe,
            Mode::Steer => self.ledger.policy.unwrap_or(self.config.policy),
            _ => Policy::Observe,
        }
    }

    /// Whether steering has done harm to the user whose job has a device. Whether what a job's ticks say
    /// is harm is litd's to judge; what follows is not.
    fn is_harmed(&self, device: usize) -> bool {
        let harm = self.status().and_then(|it| it.node.harm.clone());
        let has = |job: &&crate::hooks::Job| {
            job.ranks
                .iter()
                .any(|&rank| self.hooks.ranks[rank].device == device)
        };
        let job = self.hooks.jobs.iter().find(has);
        harm.zip(job)
            .is_some_and(|(harm, job)| harm.contains(&format!("of user {}:", job.uid)))
    }

    /// Whether the daemon has not been able to write the journal since it started, and no budget makes
    /// it hold caps down: what a predecessor left goes back then, and nothing else is moved.
    fn only_undoes(&self) -> bool {
        let unwritten = self
            .disk
            .with(|disk| !disk.written && !disk.journal.is_empty());
        let troubled = self
            .core
            .as_ref()
            .is_some_and(|core| core.journal_trouble().is_some());
        unwritten && troubled && self.accepted().is_none()
    }

    /// Whether a loop may move caps here at all.
    pub fn may_steer(&self) -> bool {
        self.policy() != Policy::Observe && self.hooks.jobs.iter().any(|job| job.ranks.len() > 1)
    }

    pub fn bounds(&self, device: usize, found: Option<i64>) -> Bounds {
        self.bounds_of(device, self.hw[device].range, found)
    }

    /// The same by the range that the daemon was told last, where that is not the device's.
    pub fn bounds_as_told(&self, device: usize, found: i64) -> Option<Bounds> {
        let hw = &self.hw[device];
        let told = hw.range_told.filter(|&told| told != hw.range)?;
        Some(self.bounds_of(device, told, Some(found)))
    }

    fn bounds_of(&self, device: usize, range: CapRange, found: Option<i64>) -> Bounds {
        let hw = &self.hw[device];
        let caps = &self.config.caps;
        let found = found.unwrap_or(micro(range.default));
        let highest = micro(range.highest);
        let (floor, ceiling) = match hw.is_gpu() {
            true => {
                let usual = micro(range.default).max(found);
                (caps.gpu_floor, caps.gpu_ceiling.map_or(usual, micro))
            }
            false => (caps.cpu_floor, found),
        };
        let ceiling = ceiling.min(highest);
        Bounds {
            floor: micro(range.lowest).max(micro(floor)).min(ceiling),
            ceiling,
            unit: micro(range.resolution).max(1),
        }
    }

    /// A device can't be counted on for so long, and a while after.
    pub fn trouble(&mut self, device: usize, lasts: i64) {
        let until = self.now + lasts + ROOM;
        let hw = &mut self.hw[device];
        hw.trouble_until = hw.trouble_until.max(until);
        self.excuses(device, KNOWN_FAULTY);
    }

    /// A foreign program sets a cap.
    pub fn foreign(&mut self, device: usize, cap: i64) {
        let (now, hw) = (self.now, &self.hw[device]);
        let entry = self.entry(device);
        // Between its look and its write nobody can notice.
        let writing = hw.op.is_some_and(|op| {
            let at = now - op.since;
            matches!(op.operation, Operation::Set(_)) && at >= op.looks && at <= op.lands
        });
        // A disk that fails may hold entries that the daemon knows nothing of.
        let sound = self.disk.with(|disk| disk.was_sound());
        let well = !hw.misbehaves(now) && now >= hw.trouble_until;
        // A cap above the driver's range counts as a wrong reading.
        let believed = |told: CapRange| cap <= micro(told.highest + told.resolution);
        let believed = hw.range_told.is_none_or(believed);
        let clear = sound && !writing && well && hw.looked_at && believed;
        let default = micro(hw.range.default);
        let theirs = entry.as_ref().is_some_and(|entry| {
            let ours = entry.ours.iter().copied().chain([entry.found]).map(micro);
            let under_way = hw.op.map(|op| op.operation);
            let wanted = match under_way {
                Some(Operation::Set(cap)) => micro(cap),
                _ => hw.cap,
            };
            let limits = [hw.range.lowest, hw.range.highest].map(micro);
            // A driver may have made that of what was wanted, at once or later.
            let near = (cap - wanted).abs() <= micro(hw.range.resolution)
                || matches!(under_way, Some(Operation::Set(_))) && limits.contains(&cap);
            // litd is about to write for the first time, and what was found was all there was.
            let unmoved =
                matches!(under_way, Some(Operation::Set(_))) && micro(entry.found) == hw.cap;
            let new = !ours.chain([hw.cap]).any(|own| own == cap);
            cap != default && !near && !unmoved && new
        });
        self.note(|| {
            format!(
                "device {device} is set to {} W by another",
                cap as f64 / 1e6
            )
        });
        self.ledger.reason = true;
        self.ledger.last_hand = now;
        self.ledger.nothing_lowered();
        let hw = &mut self.hw[device];
        self.ledger.hands += u32::from(theirs);
        if cap > hw.cap {
            self.ledger.excess.push((device, now + ROOM, cap - hw.cap));
            hw.excused_until = hw.excused_until.max(now + ROOM);
        }
        (hw.foreign, hw.foreign_seen) = (theirs && clear, false);
        hw.report_due = (theirs && clear).then_some(now + foreign::REPORTED);
        (hw.foreign_known, hw.foreign_counted) = (false, false);
        // A foreign cap is waited for by nobody.
        (hw.touched, hw.owes) = (false, 0);
        hw.take_over(cap);
        if let Some(entry) = entry.filter(|_| !theirs) {
            // The cap equals one of litd's own, so the cap found stays as it was.
            hw.natural.push(micro(entry.found));
        }
    }

    /// The journal's contents on disk.
    pub fn recovered(&self) -> Rc<Recovered> {
        self.disk.with(crate::disk::Platter::recovered)
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.recovered().entries.clone()
    }

    pub fn entry(&self, device: usize) -> Option<Entry> {
        let address = &self.hw[device].identity.address;
        let known = self.recovered();
        let mut entries = known.entries.iter();
        entries.find(|it| it.address == *address).cloned()
    }

    /// litd is about to have a device set to this.
    pub fn issue(&mut self, device: usize, cap: i64) {
        let Some(said) = self.all_said() else { return };
        let Some(found) = said[device].found else {
            return self.broke("4 found", format!("device {device} was never read"));
        };
        let give_back = self.gives_back(device, cap, found);
        let by_hand = self.is_by_hand(device, cap);
        self.check_whose(device, cap, give_back || by_hand, &said[device]);
        self.check_spared(device, [cap, found], give_back || by_hand);
        self.check_ramp(device, cap);
        if !by_hand {
            self.check_bounds(device, cap, found);
            self.check_socket(device, cap, found);
            self.check_unpaid(device, cap, found);
            self.check_award(device, cap, found, &said);
            self.check_journal(device, cap, found);
            let back = if give_back { cap } else { found };
            self.check_short(device, cap, back);
        }
        // The cap found need not be a whole number of driver units.
        let bounds = self.bounds(device, Some(found));
        let goes_back =
            found - bounds.unit < cap && cap <= found || self.is_on_its_way(device, cap, found);
        if !by_hand && !goes_back {
            let tight = self.is_tight(&said);
            self.check_planned(device, (cap, found), &bounds, tight);
        }
        self.check_recorded(device, cap, give_back);
        self.check_baseline(device, found);
        let hw = &self.hw[device];
        if cap > hw.cap.max(hw.known) {
            let held = self.left_within().is_some() && cap <= found;
            self.check_all_judged(device, give_back || by_hand || held, &said);
            let hw = &self.hw[device];
            // Freed watts may be spent once power was seen to follow. Undoing waits for no GPU's sensor.
            let lets_go = self.hw.iter().any(|hw| hw.let_go);
            let undoes = lets_go || self.policy() == Policy::Observe || self.stop_sent.is_some();
            let (patience, clock) = (self.patience(), self.clock().0);
            // A stop waits for no sensor at all.
            let stops = self.stop_sent.is_some();
            let late = |hw: &Hw| {
                hw.is_gpu()
                    && (undoes || clock >= hw.lowered_clock + patience.min(hw.lowered_patience))
            };
            let waited = |hw: &Hw| stops || late(hw);
            let owes = |hw: &Hw| if waited(hw) { 0 } else { hw.owes };
            let under_way = |at: usize| {
                let hw = &self.hw[at];
                match hw.op.map(|op| op.operation) {
                    _ if hw.absent => 0,
                    Some(Operation::Set(asked)) => micro(asked).max(hw.cap).max(owes(hw)),
                    _ => self.weight(at).max(owes(hw)),
                }
            };
            let rise = (cap - hw.cap.max(owes(hw))).max(0);
            let each: Vec<i64> = (0..self.hw.len()).map(under_way).collect();
            let sum = each.iter().sum::<i64>() + rise;
            let allowed = self.limit_of(&said) + self.excess();
            // What a socket was found with is its own, whatever GPUs hold that litd can't lower.
            let is_own = !hw.is_gpu() && cap <= found;
            if sum > allowed && !(is_own && self.all_low()) {
                let text = format!(
                    "device {device} is to rise to {} W, and the sum to {} W of {} W: {each:?} µW",
                    cap as f64 / 1e6,
                    sum as f64 / 1e6,
                    allowed as f64 / 1e6
                );
                self.broke("2 rise", text);
            }
        }
        let hw = &mut self.hw[device];
        hw.touched = true;
        if !hw.asked.contains(&cap) {
            hw.asked.push(cap);
        }
    }

    /// Whether a cap gives the one found back: in full, as far as the driver lets it go, or as a step of the way.
    fn gives_back(&self, device: usize, cap: i64, found: i64) -> bool {
        cap == found
            || self.is_all_that_it_takes(device, cap, found)
            || self.is_on_its_way(device, cap, found)
    }

    /// Where a driver's highest cap is below what was found, that goes back, if it is a cap at all.
    fn is_all_that_it_takes(&self, device: usize, cap: i64, found: i64) -> bool {
        let hw = &self.hw[device];
        let shrunk = |range: CapRange| micro(range.highest) < found;
        // Up, and never down, to be nearer.
        let nearer = (hw.cap..found).contains(&cap) && hw.range_told.is_some_and(shrunk);
        nearer && cap >= self.least(device).min(hw.cap)
    }

    /// No cap goes below this, whatever a driver says of its range.
    fn least(&self, device: usize) -> i64 {
        let caps = &self.config.caps;
        micro(match self.hw[device].is_gpu() {
            true => caps.gpu_floor,
            false => caps.cpu_floor,
        })
    }

    /// While a GPU can't be judged no GPU's cap rises, except to be restored.
    fn check_all_judged(&mut self, device: usize, undoes: bool, said: &[Said]) {
        let unjudged = |&other: &usize| {
            let hw = &self.hw[other];
            let never = !hw.was_judged && said[other].found.is_none();
            // A released device is not asked.
            let here = hw.is_gpu() && !hw.absent && !hw.let_go;
            here && never && hw.range_unknown_since.is_some()
        };
        let other = (0..self.hw.len()).find(unjudged);
        if let Some(other) = other.filter(|_| !undoes && self.hw[device].is_gpu()) {
            let text = format!("device {device} rises while nobody knows what {other} holds");
            self.broke("12 unjudged", text);
        }
    }

    /// Whether all that is held is as litd may know it.
    pub fn is_calm(&self) -> bool {
        self.excess() == 0 && !self.is_any_excused() && !self.ledger.rotten
    }

    fn check_whose(&mut self, device: usize, cap: i64, give_back: bool, said: &Said) {
        let hw = &self.hw[device];
        let observing = self.policy() == Policy::Observe || self.stop_sent.is_some();
        let observing = observing || self.is_harmed(device);
        let asked = hw.hand.open.map(|(asked, _)| asked);
        let found = said.found.unwrap_or(0) as f64 / 1e6;
        let text = format!(
            "device {device}, {:?}: to {} W from {} W, and {found} W was found",
            said.state,
            cap as f64 / 1e6,
            hw.cap as f64 / 1e6
        );
        let unread = self.stop_sent.is_some_and(|since| hw.read_asked < since);
        if unread {
            self.broke("5 read before", text);
        } else if self.life == Phase::Restore && !give_back && self.left_within().is_none() {
            self.broke("19 restore", text);
        } else if observing && !give_back && !self.may_watch(cap, said.found, asked) {
            self.broke("3 observe", text);
        } else if hw.foreign && hw.foreign_seen
            || said.state == DeviceState::Foreign && !hw.overwritten.contains(&cap)
        {
            self.broke("6 foreign", text);
        } else if said.state != DeviceState::Ours
            && !give_back
            && !self.is_held_off(device, said)
            && !self.is_enforced_on(device, cap, said)
        {
            self.broke("6 left alone", text);
        } else if !self.ledger.welcomed && !self.ledger.reason && self.budget_set().is_none() {
            self.broke("8 no rank", text);
        }
    }

    /// A budget is kept also on a GPU that has failed, as far as it obeys: downwards, or up to what was found.
    fn is_enforced_on(&self, device: usize, cap: i64, said: &Said) -> bool {
        let hw = &self.hw[device];
        let lower = cap < hw.cap.max(hw.known) || said.found.is_some_and(|found| cap < found);
        let bound = self.budget_set().is_some() || self.left_within().is_some();
        said.state == DeviceState::Faulty && hw.is_gpu() && bound && lower
    }

    fn check_bounds(&mut self, device: usize, cap: i64, found: i64) {
        let hw = &self.hw[device];
        let bounds = self.bounds(device, Some(found));
        if !self.ledger.rotten && !hw.natural.contains(&found) {
            let text = format!("device {device}: {} W", found as f64 / 1e6);
            return self.broke("5 found was litd's", text);
        }
        let within = |it: &Bounds| (it.floor..=it.ceiling).contains(&cap) && cap % it.unit == 0;
        // The driver's range may be another's: it refuses caps outside its own.
        let told = self.bounds_as_told(device, found);
        let told = told.is_some_and(|it| within(&it)) && cap >= self.least(device);
        let back = self.gives_back(device, cap, found);
        if !back && !within(&bounds) && !told {
            let text = format!(
                "device {device}: {} W is not within {} to {} W; {} W was found",
                cap as f64 / 1e6,
                bounds.floor as f64 / 1e6,
                bounds.ceiling as f64 / 1e6,
                found as f64 / 1e6
            );
            self.broke("1 range", text);
        }
    }

    /// The baseline names a device's cap before the device holds less.
    fn check_baseline(&mut self, device: usize, found: i64) {
        let address = &self.hw[device].identity.address;
        let devices = &self.ledger.baseline.devices;
        let told = devices.iter().find(|it| it.address == *address);
        let told = told.map(|it| micro(it.cap));
        if told != Some(found) {
            let text = format!("device {device}: {told:?} is told, {found} was found");
            self.broke("13 baseline", text);
        }
    }

    /// For so long a rise may wait for a device's power; what was given back is not waited for any
    /// longer.
    fn patience(&self) -> i64 {
        (self.config.caps.follow_seconds * 1e9) as i64
    }

    /// A GPU gets more than its cap found only if power limits it, and no rule stops raises.
    fn check_award(&mut self, device: usize, cap: i64, found: i64, said: &[Said]) {
        let hw = &self.hw[device];
        // A device found below its floor goes up to it when a loop takes it.
        let floor = self.bounds(device, Some(found)).floor;
        if !hw.is_gpu() || cap <= hw.cap.max(hw.known).max(found).max(floor) {
            return;
        }
        let initial = micro(self.config.law.mitigation.initial_cap);
        let new = cap > hw.most_held.max(initial);
        let text = format!("device {device} is to rise to {} W", cap as f64 / 1e6);
        if hw.throttle_told.is_some() {
            self.broke("12 throttles", text);
        } else if self.clock().0 < self.ledger.braked_until {
            self.broke("12 brake", text);
        } else if self.has_a_rival(said) {
            self.broke("12 rival", text);
        } else if hw.sharing_told != litd_power::Sharing::Whole || hw.users_told {
            self.broke("12 shared", text);
        } else if hw.tells == Tells::Nothing && new && self.policy() != Policy::GpuRed {
            self.broke("12 unknown", text);
        }
    }

    /// Somebody sets caps here. A device that was left at its default may have been reset once too often: that is
    /// nobody's hand, and whoever has his GPU reset keeps no other GPU from its watts.
    fn has_a_rival(&self, said: &[Said]) -> bool {
        let is_rivals = |(hw, said): (&Hw, &Said)| {
            let defaults = [Some(hw.range), hw.range_told].map(|it| it.map(|it| micro(it.default)));
            let at_default = said.found.is_some() && defaults.contains(&said.found);
            said.state == DeviceState::Foreign && !at_default
        };
        self.hw.iter().zip(said).any(is_rivals)
    }

    /// The daemon knows of foreign hands: after the second one it only observes.
    fn check_rivals(&mut self) {
        let now = self.clock().0;
        for hw in &mut self.hw {
            if hw.foreign_known && !std::mem::replace(&mut hw.foreign_counted, true) {
                self.ledger.known_hands.push(now);
            }
        }
        let recent = |at: &&i64| now - **at < 590 * SECOND;
        let hands = self.ledger.known_hands.iter().filter(recent).count();
        let yielded = self.core.as_ref().is_some_and(Core::has_yielded);
        if hands >= 2 && !yielded && self.stop_sent.is_none() {
            self.broke(
                "7 rivals",
                format!("{hands} foreign changes, and it steers"),
            );
        }
    }

    fn check_journal(&mut self, device: usize, cap: i64, found: i64) {
        let Some(entry) = self.entry(device) else {
            return self.broke("4 journal", format!("device {device} is not in it"));
        };
        let known = cap == found || entry.ours.iter().any(|&ours| micro(ours) == cap);
        if micro(entry.found) != found && !self.ledger.rotten {
            let text = format!("device {device}: found {} in it", entry.found);
            self.broke("4 journal", text);
        } else if !known {
            self.broke("4 intent", format!("device {device}: {cap} µW"));
        }
    }

    /// A write has landed.
    pub fn hold(&mut self, device: usize, holds: i64, asked: i64, late: bool) {
        let now = self.now;
        let (patience, clock) = (self.patience(), self.clock().0);
        let hw = &mut self.hw[device];
        if holds < hw.cap {
            if hw.is_gpu() && clock > hw.lowered_clock + patience {
                // Waited for long enough, that time.
                hw.owes = 0;
            }
            hw.lowered_patience = patience;
            let by_hand = hw.hand.open.is_some_and(|(asked, _)| asked == holds);
            hw.lower(now, (!by_hand).then_some(clock));
        }
        let before = std::mem::replace(&mut hw.cap, holds);
        hw.most_held = hw.most_held.max(holds);
        if late && hw.natural.contains(&before) {
            hw.overwritten.push(before);
        } else if hw.overwritten.contains(&holds) {
            hw.overwritten.clear();
        }
        (hw.foreign, hw.foreign_seen) = (false, false);
        let over_theirs = late && hw.was_taken;
        if (holds != asked && holds != before) || over_theirs {
            // After the daemon's death this can't be told from a foreign change.
            hw.natural.push(holds);
        }
        if holds > asked {
            let until = self.now + ROOM;
            self.ledger.excess.push((device, until, holds - asked));
            self.trouble(device, 0);
        }
        if holds > before && over_theirs {
            // To the daemon that began it this was no rise: somebody lowered the cap meanwhile.
            self.ledger.excuse(device, holds - before, now);
        }
        if holds > before {
            self.check_sum("a rise landed");
        }
    }

    /// Twice a second: what time alone brings.
    pub fn look(&mut self) {
        for device in 0..self.hw.len() {
            if self.hw[device].misbehaves(self.now) {
                let until = self.now + ROOM;
                let hw = &mut self.hw[device];
                hw.trouble_until = hw.trouble_until.max(until);
            }
        }
        if self.disk.with(|disk| disk.is_failing()) {
            self.disk_excuses();
        }
        let Some(core) = &self.core else { return };
        let trials = core.trials();
        let Some(status) = self.status() else { return };
        if status.jobs.len() > self.hw.len() {
            self.broke("10 bounds", format!("{} jobs", status.jobs.len()));
        }
        self.saw(&status.jobs);
        self.check_names(&status.jobs);
        self.saw_trials(&trials);
        self.check_rivals();
        self.watch_failed();
        self.check_node();
        self.check_reported();
        self.check_judged();
        self.check_watching();
        self.check_off();
        self.watch_waits();
        self.check_waits();
        self.check_rest();
        let watches = self.policy() == Policy::Observe;
        if watches || self.hw.iter().any(|hw| hw.let_go) {
            // Given back, or about to be.
            let gpus = self.hw.iter_mut().filter(|hw| hw.is_gpu());
            gpus.for_each(|hw| hw.owes = 0);
        }
        // Where litd lets go it makes no room, and goes up only if there is some.
        let bound = !watches || self.enforces();
        if bound && self.stop_sent.is_none() {
            self.count_excused();
            self.check_sum("time passed");
        }
    }

    pub fn before_start(&mut self) {
        let now = self.now;
        let sum: i64 = self.hw.iter().map(Hw::counts).sum();
        let was = self.ledger.last_limit.unwrap_or(0).max(sum);
        self.ledger.old = vec![(now + 2 * SECOND, was)];
        for (_, until, _) in &mut self.ledger.excess {
            if *until + 3 * SECOND > now {
                *until = now + ROOM;
            }
        }
        self.disk.with(|disk| disk.written = false);
        // Clocks that others unlocked meanwhile still have to be unlocked by the next litd, if the journal names
        // them.
        let locked = self.recovered();
        for hw in &mut self.hw {
            hw.clocks_taken &= locked.may_be_locked(&hw.identity.address);
        }
        self.node_unheard();
        self.ledger.watching = None;
        (self.ledger.budget, self.ledger.policy) = self.orders_kept();
        self.ledger.braked_until = 0;
        self.ledger.known_hands.clear();
        // The kill switch is looked for again once litd runs, and there is none for a moment.
        (self.rule.killed, self.rule.lease) = (None, None);
        self.ledger.nothing_lowered();
        let left = self.disk.with(|disk| !disk.journal.is_empty());
        let unreadable = self.seen.has(Fault::Unreadable);
        let budget = self.budget_set().is_some();
        self.ledger.reason |= left || unreadable || budget;
    }

    /// The administrator's budget and policy that are in force again at a start: those in the node's condition, which a
    /// stop has emptied, but for a budget where the file has a lower one by now.
    fn orders_kept(&self) -> (Option<Watts>, Option<Policy>) {
        let condition = self.disk.with(|disk| disk.condition.clone());
        let condition: serde_json::Value = serde_json::from_slice(&condition).unwrap_or_default();
        if condition["boot"] != format!("boot-{}", self.boot) {
            return (None, None);
        }
        let budget = condition["orders"]["budget"].as_f64().map(Watts);
        let of_file = self.config.caps.budget;
        let policy = condition["orders"]["policy"].as_str();
        (
            budget.filter(|&budget| of_file.is_none_or(|of_file| budget <= of_file)),
            policy.and_then(|policy| policy.parse().ok()),
        )
    }

    pub fn before_stop(&mut self) {
        let limit = self.limit();
        self.was_reconfigured(limit);
    }

    /// The devices that a command means.
    fn named(&self, address: Option<&str>) -> Vec<usize> {
        let all = self.hw.iter().enumerate();
        let meant = all.filter(|(_, hw)| address.is_none_or(|it| it == hw.identity.address));
        meant.map(|(device, _)| device).collect()
    }

    /// A device is litd's to move again.
    pub fn was_taken_back(&mut self, device: usize) {
        let until = self.now + ROOM;
        // A device that litd may move again takes a moment to come down.
        self.excuses(device, LOWERED);
        let hw = &mut self.hw[device];
        for at in self.ledger.excess.iter_mut().filter(|at| at.0 == device) {
            if hw.let_go {
                at.1 = at.1.max(until);
            }
        }
        (hw.foreign, hw.foreign_seen) = (false, false);
        (hw.let_go, hw.looked_at) = (false, !hw.let_go && hw.looked_at);
        hw.let_go_for_good = false;
        self.ledger.reason = true;
    }

    /// Whether the journal on the disk names a device.
    pub fn is_in_journal(&self, device: usize) -> bool {
        let address = &self.hw[device].identity.address;
        let known = self.recovered();
        let caps = known.entries.iter().any(|it| it.address == *address);
        caps || known.may_be_locked(address)
    }

    /// An administrator was obeyed.
    pub fn obeyed(&mut self, command: &Command, before: i64) {
        match command {
            Command::SetBudget { watts } => {
                self.ledger.budget = *watts;
                self.ledger.reason = true;
            }
            Command::SetCap { .. } => self.ledger.reason = true,
            Command::SetPolicy { policy } => self.ledger.policy = policy.parse().ok(),
            Command::Release { device } => {
                for at in self.named(device.as_deref()) {
                    self.was_let_go(at);
                    self.hw[at].let_go_for_good = true;
                }
            }
            Command::Resume { device } => {
                self.ledger.known_hands.clear();
                for at in self.named(device.as_deref()) {
                    self.was_taken_back(at);
                }
            }
            _ => {}
        }
        self.was_reconfigured(before);
        if matches!(command, Command::SetBudget { .. }) {
            self.budget_was_set(before);
        }
    }
}
