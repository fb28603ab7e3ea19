//! Announcements of the scheduler: a job begins or has ended, and litd is to leave its GPUs alone. A Slurm Prolog
//! and Epilog make them, through `litctl job`.
//!
//! Announcements may come twice, late, in the wrong order, or never: a job without a beginning is steered as any
//! other, and one without an end ends when its ranks are gone.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use litd_api::{AnnouncedJob, EventKind, Problem};
use litd_power::Holder;
use litd_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::authority::admin::problem;
use crate::core::Core;
use crate::devices::Unit;
use crate::hooks::cgroup::Home;
use crate::job::Job;
use crate::record::Note;
use crate::store::Store;
use crate::undo::progress::{Progress, Remains};

/// The longest name that a scheduler may give a job, in bytes.
const LONGEST_ID: usize = 128;

/// How many jobs are remembered, more than ever share a node. The oldest of those that did not opt out are
/// forgotten first.
const MOST: usize = 64;

/// A job without processes on its GPUs for longer than this has ended: before its first process it hardly waits so
/// long.
const BEGINS: Nanos = Nanos(600_000_000_000);

/// Two looks at a GPU's processes that are further apart say nothing of the time between them. A look comes every
/// ten seconds while the GPU is shared, and a driver may miss one.
const WATCHED: Nanos = Nanos(30_000_000_000);

/// The most GPUs that one announcement may name.
const MOST_GPUS: usize = 64;

/// For so long after its end a job's ranks are not let in: its processes may outlive its end.
const ENDED_FOR: Nanos = Nanos(60_000_000_000);

/// How many ended jobs are remembered.
const MOST_ENDED: usize = 256;

/// A job that has begun, as its scheduler says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// Seconds since 1970.
    since: f64,
    /// A number that is higher than that of every job begun before: the wall clock may be set back between two.
    /// Earlier versions of litd have written none; then `since` decides.
    #[serde(default)]
    turn: u64,
    /// Whether its GPUs are left alone: neither caps nor clocks are changed.
    #[serde(default)]
    pub opt_out: bool,
    /// Addresses of its GPUs, as far as the scheduler has told.
    #[serde(default)]
    gpus: BTreeSet<String>,
}

impl Begun {
    /// The order in which two jobs have begun.
    fn order(&self, other: &Self) -> Ordering {
        let turns = self.turn.cmp(&other.turn);
        turns.then(self.since.total_cmp(&other.since))
    }
}

/// A job that has opted out and has no processes on a GPU that another job uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Missed {
    /// Since when no look has found any of its processes.
    since: Nanos,
    /// The last look.
    looked: Nanos,
}

impl Missed {
    fn first(now: Nanos) -> Self {
        let (since, looked) = (now, now);
        Self { since, looked }
    }

    /// A further look has found none.
    fn again(&mut self, now: Nanos) {
        *self = match now <= self.looked + WATCHED {
            true => Self {
                looked: now,
                ..*self
            },
            false => Self::first(now),
        };
    }

    /// Whether no process was found for so long that the job must have ended.
    fn is_gone(self, now: Nanos) -> bool {
        now >= self.since + BEGINS
    }
}

/// A job that has ended, as its scheduler says.
#[derive(Debug)]
pub(crate) struct Ended {
    at: Nanos,
    devices: BTreeSet<usize>,
}

fn check_id(id: &str) -> Result<(), Problem> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if id.is_empty() || id.len() > LONGEST_ID || !id.bytes().all(fits) {
        return Err(problem(format!(
            "a job's name is slurm-ID, pod-UID or the like: 1 to {LONGEST_ID} letters, digits, \
             dots, dashes and underscores"
        )));
    }
    Ok(())
}

impl<S: Store> Core<S> {
    /// A scheduler says that a job begins.
    pub(crate) fn begin_job(
        &mut self,
        id: &str,
        gpus: &[String],
        opt_out: bool,
    ) -> Result<String, Problem> {
        check_id(id)?;
        let (devices, unknown) = self.gpus_named(gpus)?;
        let addresses = devices.iter().filter_map(|&device| {
            let unit = self.devices.get(device)?;
            Some(unit.address().to_owned())
        });
        let addresses: Vec<String> = addresses.collect();
        let since = self.out.unix_seconds();
        self.free_of_others(id, &addresses);
        // A job that begins again may have no processes yet.
        self.forget_missed(id);
        self.ended.remove(id);
        if !self.condition.begun.contains_key(id) {
            self.make_room_for_a_job()?;
        }
        let turns = self.condition.begun.values().map(|it| it.turn);
        let turn = turns.max().map_or(1, |latest| latest.saturating_add(1));
        let begun = self
            .condition
            .begun
            .entry(id.to_owned())
            .or_insert_with(|| Begun {
                since,
                turn,
                ..Begun::default()
            });
        // A job announced twice is still one job, and stays opted out if either announcement says so.
        begun.opt_out |= opt_out;
        begun.gpus.extend(addresses);
        let opted_out = begun.opt_out;
        let kept = self.save_condition();
        let mut said = format!("{id} has begun");
        if opted_out {
            said.push_str("; it opted out: its GPUs are not steered, nor their clocks locked");
        }
        if opted_out && !kept {
            said.push_str("; litd's disk takes no writes, so after a crash it would not know");
        }
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            said.push_str(&format!("; this node has no {unknown} (litctl status)"));
        }
        Ok(said)
    }

    /// A scheduler has given a GPU to a job, so an earlier job on it has ended, although its end was not
    /// announced. If the earlier job has opted out the two may share the GPU: then their processes decide
    /// ([`Self::free_of_gone`]).
    fn free_of_others(&mut self, id: &str, addresses: &[String]) {
        self.condition.begun.retain(|other, it| {
            let had = it.gpus.len();
            if other != id && !it.opt_out {
                it.gpus.retain(|gpu| !addresses.contains(gpu));
            }
            it.gpus.len() == had || !it.gpus.is_empty()
        });
    }

    /// GPUs that a scheduler has given both to a job that has opted out and to another.
    pub(crate) fn shared_with_a_spared_job(&self) -> Vec<usize> {
        let begun = || self.condition.begun.values();
        let spared = begun().filter(|it| it.opt_out).flat_map(|it| &it.gpus);
        let is_shared = |gpu: &&String| begun().filter(|it| it.gpus.contains(*gpu)).count() > 1;
        let shared = spared.filter(is_shared);
        shared.filter_map(|gpu| self.devices.called(gpu)).collect()
    }

    /// Jobs that have opted out and have no processes on this GPU, while a job that has begun since has.
    fn missing_from(&self, device: usize, holders: &[Holder]) -> BTreeSet<String> {
        let homes: Option<Vec<Home>> = holders.iter().map(|it| self.home_of(it)).collect();
        // A process outside any scheduler's job can't be attributed to one.
        let (Some(unit), Some(homes)) = (self.devices.get(device), homes) else {
            return BTreeSet::new();
        };
        let is_here = |id: &str| homes.iter().any(|home| home.belongs_to(id));
        let named = self.condition.begun.iter();
        let named = named.filter(|(_, it)| it.gpus.contains(unit.address()));
        let present = named.clone().filter(|(id, _)| is_here(id));
        let latest = present
            .map(|(_, it)| it)
            .max_by(|one, other| one.order(other));
        let missing = |(id, it): &(&String, &Begun)| {
            let is_earlier = latest.is_some_and(|latest| it.order(latest).is_lt());
            it.opt_out && is_earlier && !is_here(id)
        };
        named.filter(missing).map(|(id, _)| id.clone()).collect()
    }

    /// A driver has told the processes that use a GPU. A job that has opted out and has had none there for
    /// [`BEGINS`], while a job that has begun since has, has ended without an announcement.
    pub(crate) fn free_of_gone(&mut self, device: usize, holders: &[Holder]) {
        let missing = self.missing_from(device, holders);
        let now = self.now;
        self.missed
            .retain(|(of, id), _| *of != device || missing.contains(id));
        let mut gone = Vec::new();
        for id in missing {
            let missed = self.missed.entry((device, id.clone()));
            let missed = missed.and_modify(|it| it.again(now));
            if missed.or_insert_with(|| Missed::first(now)).is_gone(now) {
                self.missed.remove(&(device, id.clone()));
                gone.push(id);
            }
        }
        let unit = self.devices.get(device).filter(|_| !gone.is_empty());
        let Some(address) = unit.map(|unit| unit.address().to_owned()) else {
            return;
        };
        self.condition.begun.retain(|id, it| {
            let is_gone = gone.contains(id);
            !(is_gone && it.gpus.remove(&address) && it.gpus.is_empty())
        });
        let text = format!(
            "{} had opted out, and has ended unheard: another job's processes use its GPU, and none of its own",
            gone.join(", ")
        );
        self.note(Note::info(EventKind::Job, text).device(&address));
        self.save_condition();
    }

    fn forget_missed(&mut self, id: &str) {
        self.missed.retain(|(_, of), _| of != id);
    }

    /// The scheduler's job of a process, by its control groups or as its hook was told to be in.
    fn home_of(&self, holder: &Holder) -> Option<Home> {
        let is_its = |job: &&Job| job.ranks.values().any(|rank| rank.peer.pid == holder.pid);
        let told = || self.jobs.values().find(is_its)?.home.clone();
        Home::of(&holder.cgroup).or_else(told)
    }

    fn make_room_for_a_job(&mut self) -> Result<(), Problem> {
        while self.condition.begun.len() >= MOST {
            let spare = self.condition.begun.iter().filter(|(_, it)| !it.opt_out);
            let oldest = spare.min_by(|(_, one), (_, other)| one.order(other));
            let Some(id) = oldest.map(|(id, _)| id.clone()) else {
                return Err(problem(format!(
                    "{MOST} jobs have opted out and have not ended: `litctl job end` those that \
                     are gone"
                )));
            };
            self.condition.begun.remove(&id);
        }
        Ok(())
    }

    /// A scheduler says that a job has ended: its caps and clocks are restored without waiting for anything.
    pub(crate) fn finish_job(&mut self, id: &str, gpus: &[String]) -> Result<String, Problem> {
        check_id(id)?;
        let (mut devices, _) = self.gpus_named(gpus)?;
        let begun = self.condition.begun.remove(id);
        self.forget_missed(id);
        let known = begun.is_some();
        let named = begun.iter().flat_map(|it| &it.gpus);
        devices.extend(named.filter_map(|address| self.devices.called(address)));
        let over = self.jobs.values().filter(|job| match &job.home {
            Some(home) => home.belongs_to(id),
            // A job without a scheduler's id is ended if all its GPUs are among those that the scheduler calls
            // free.
            None => !job.ranks.is_empty() && job.gpus().all(|gpu| devices.contains(&gpu)),
        });
        let over: Vec<(String, Vec<usize>)> =
            over.map(|job| (job.name.clone(), job.devices())).collect();
        for (name, own) in &over {
            devices.extend(own);
            self.end_job(name, &format!("its scheduler says that {id} is over"));
        }
        for &device in &devices {
            if let Some(unit) = self.devices.get_mut(device)
                && unit.standing.let_go().is_none()
            {
                unit.clocks.free_once_more();
            }
            // Restoring waits for no GPU's sensor: these GPUs have stopped drawing power for the job.
            let idle = |unit: &Unit| unit.is_gpu() && unit.job.is_none();
            if self.devices.get(device).is_some_and(idle) {
                self.believe(device);
            }
        }
        let (at, nothing) = (self.now, devices.is_empty() && !known);
        self.ended.insert(id.to_owned(), Ended { at, devices });
        while self.ended.len() > MOST_ENDED {
            // More jobs have ended within a minute than are remembered: the oldest is forgotten.
            let oldest = self.ended.iter().min_by_key(|(_, it)| it.at);
            let Some(oldest) = oldest.map(|(id, _)| id.clone()) else {
                break;
            };
            self.ended.remove(&oldest);
            self.out.refuse("ended_jobs");
        }
        if known {
            self.save_condition();
        }
        Ok(match nothing {
            true => format!("{id} has ended; litd knew nothing of it"),
            false => format!("{id} has ended"),
        })
    }

    /// The GPUs that a scheduler names, by number, name, address or UUID, and the names that match no GPU.
    fn gpus_named(&self, names: &[String]) -> Result<(BTreeSet<usize>, Vec<String>), Problem> {
        if names.len() > MOST_GPUS {
            return Err(problem(format!("at most {MOST_GPUS} GPUs can be named")));
        }
        let mut devices = BTreeSet::new();
        let mut unknown = Vec::new();
        for name in names {
            let found = match name.parse::<usize>() {
                Ok(number) => self.devices.gpu_on_the_bus(number),
                Err(_) => self.devices.known_as(name),
            };
            let gpu = |device: &usize| self.devices.get(*device).is_some_and(Unit::is_gpu);
            match found.filter(gpu) {
                Some(device) => {
                    devices.insert(device);
                }
                None => unknown.push(format!("GPU {:.64}", name.escape_debug().to_string())),
            }
        }
        Ok((devices, unknown))
    }

    /// Whether a scheduler has ended a job and not begun it again.
    pub(crate) fn has_ended(&self, home: &Home) -> Option<&str> {
        let mut ended = self.ended.keys();
        ended.find(|id| home.belongs_to(id)).map(String::as_str)
    }

    /// Forgets jobs that ended long ago.
    pub(crate) fn check_ended(&mut self) {
        let now = self.now;
        self.ended.retain(|_, it| now < it.at + ENDED_FOR);
    }

    /// The devices whose jobs opted out.
    fn opted_out(&self) -> BTreeSet<usize> {
        let out = self.condition.begun.values().filter(|it| it.opt_out);
        let told = out.flat_map(|it| &it.gpus);
        let mut devices: BTreeSet<usize> =
            told.filter_map(|gpu| self.devices.called(gpu)).collect();
        let jobs = self.jobs.values();
        devices.extend(
            jobs.filter(|it| self.has_opted_out(it))
                .flat_map(|it| it.gpus()),
        );
        devices
    }

    fn has_opted_out(&self, job: &Job) -> bool {
        let home = job.home.as_ref();
        let mut begun = self.condition.begun.iter().filter(|(_, it)| it.opt_out);
        home.is_some_and(|home| begun.any(|(id, _)| home.belongs_to(id)))
    }

    /// Applies opt-outs before anything is decided: GPUs of jobs that opted out count as idle ones.
    pub(crate) fn follow_opt_outs(&mut self) {
        let out = self.opted_out();
        for device in 0..self.devices.iter().count() {
            let opted_out = out.contains(&device);
            let Some(unit) = self.devices.get_mut(device) else {
                continue;
            };
            if unit.opted_out == opted_out {
                continue;
            }
            unit.opted_out = opted_out;
            if opted_out && unit.standing.let_go().is_none() {
                unit.clocks.free_once_more();
            }
            let text = match opted_out {
                true => "its job opted out: not steered",
                false => "the job that opted out is over",
            };
            let note = Note::info(EventKind::State, text).device(unit.address());
            self.note(note);
            self.standing_changed(device);
        }
    }

    /// The progress of restoring the caps found on a job's devices.
    #[must_use]
    pub fn giving_back(&self, id: &str) -> Progress {
        let begun = self.condition.begun.get(id).filter(|it| it.opt_out);
        let spared = begun.iter().flat_map(|it| &it.gpus);
        let mut devices: BTreeSet<usize> = spared
            .filter_map(|address| self.devices.called(address))
            .collect();
        if let Some(ended) = self.ended.get(id) {
            devices.extend(&ended.devices);
        }
        let units = devices
            .into_iter()
            .filter_map(|device| Some((device, self.devices.get(device)?)));
        let each =
            units.map(|(device, unit)| (unit.name.as_str(), self.remains_to_give(device, unit)));
        Progress::of(each, "caps are as found, clocks are free")
    }

    fn remains_to_give(&self, device: usize, unit: &Unit) -> Remains {
        let held = self.actuator.held(device);
        if self.is_moved(device) {
            let job = unit.job.as_deref().unwrap_or("another job");
            return Remains::Others(format!("is steered for {job}"));
        }
        if self.may_be_locked(unit) {
            return Remains::Open("its clocks are not free yet".to_owned());
        }
        match (held, unit.found) {
            _ if unit.standing.is_kept() => {
                Remains::Others("holds what somebody else has set".to_owned())
            }
            (_, None) => Remains::Others("its cap was never read, nor set".to_owned()),
            (Some(held), Some(found)) if held.is_same_cap(found) => match self.is_journaled(device)
            {
                false if unit.clocks.are_free_for_now() => Remains::Others(format!(
                    "holds {held} as found and its clocks are free, but a lock of them that failed may be done after \
                     that: they are freed once more {}",
                    match unit.opted_out {
                        true => "when no job that opted out has it any more",
                        false => "within half a minute",
                    }
                )),
                false => Remains::Nothing,
                // A late write of a dead daemon may still turn up, for some seconds.
                true => Remains::Open(format!("holds {held} as found, and is watched still")),
            },
            (Some(held), Some(found))
                if self.actuator.is_settled(device) && self.set_budget().is_some() =>
            {
                let budget = self.gpu_budget();
                Remains::Others(format!(
                    "holds {held}, not the {found} found, because the budget is {budget}"
                ))
            }
            (Some(held), Some(found)) => {
                Remains::Open(format!("holds {held}, and {found} has to be restored"))
            }
            (None, Some(found)) => Remains::Open(format!(
                "its cap is not known, and {found} has to be restored"
            )),
        }
    }

    /// The jobs that schedulers have begun, for status.
    pub(crate) fn announced(&self) -> Vec<AnnouncedJob> {
        let begun = self.condition.begun.iter();
        let job = |(id, it): (&String, &Begun)| AnnouncedJob {
            id: id.clone(),
            since: it.since,
            opt_out: it.opt_out,
            gpus: it.gpus.iter().cloned().collect(),
        };
        begun.map(job).collect()
    }
}

/// Jobs that have begun, by the scheduler's name for them.
pub(crate) type AllBegun = BTreeMap<String, Begun>;
