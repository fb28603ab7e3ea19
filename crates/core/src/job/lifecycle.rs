//! Announcements of the scheduler: a job begins or has ended, and litd is to leave its GPUs alone. A Slurm Prolog
//! and Epilog make them, through `litctl job`. What was announced is in [`Announced`](super::announced::Announced).
//!
//! A job without a beginning is steered as any other, and one without an end ends when its ranks are gone.

use std::collections::BTreeSet;

use litd_api::{EventKind, Problem};
use litd_power::Holder;

use crate::authority::admin::problem;
use crate::core::Core;
use crate::devices::Unit;
use crate::hooks::cgroup::Home;
use crate::job::Job;
use crate::job::announced::Beginning;
use crate::record::Note;
use crate::store::Store;
use crate::undo::progress::{Progress, Remains};

/// The longest name that a scheduler may give a job, in bytes.
const LONGEST_ID: usize = 128;

/// The most GPUs that one announcement may name.
const MOST_GPUS: usize = 64;

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
        let names_none = addresses.is_empty();
        let since = self.out.unix_seconds();
        let announced = &mut self.condition.announced;
        let homes = || self.jobs.values().filter_map(|job| job.whose.home.as_ref());
        let is_here = |id: &str| homes().any(|home| home.belongs_to(id));
        let begun = announced.begins(id, addresses, opt_out, since, is_here);
        let Beginning {
            opted_out,
            forgotten,
        } = begun.map_err(problem)?;
        if let Some(forgotten) = forgotten {
            let text = format!(
                "{forgotten} had opted out without naming a GPU, and is forgotten: too many such jobs have begun since, \
                 and none of its processes is known here"
            );
            self.note(Note::warning(EventKind::Job, text));
        }
        let kept = self.save_condition();
        let mut said = format!("{id} has begun");
        if opted_out {
            said.push_str("; it opted out: its GPUs are not steered, nor their clocks locked");
        }
        if opted_out && names_none {
            said.push_str("; it names no GPU, so that holds for those that its ranks use");
        }
        if opted_out && !kept {
            said.push_str(
                "; but litd can't save that, because its disk takes no writes: after a restart it may steer \
                 these GPUs",
            );
        }
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            said.push_str(&format!("; this node has no {unknown} (litctl status)"));
        }
        Ok(said)
    }

    /// A driver has told the processes that use a GPU: a job that has opted out may have ended without an announcement.
    pub(crate) fn free_of_gone(&mut self, device: usize, holders: &[Holder]) {
        // A process outside any scheduler's job can't be attributed to one.
        let homes: Option<Vec<Home>> = holders.iter().map(|it| self.home_of(it)).collect();
        let Some(unit) = self.devices.get(device) else {
            return;
        };
        let address = unit.address().to_owned();
        let announced = &mut self.condition.announced;
        let gone = announced.looked_at(device, &address, homes.as_deref(), self.out.now());
        if gone.is_empty() {
            return;
        }
        let text = format!(
            "{} had opted out; litd takes it for ended, although `litctl job end` did not come: its GPU was given to \
             another job, and none of its processes has used it for 10 minutes",
            gone.join(", ")
        );
        self.note(Note::info(EventKind::Job, text).device(&address));
        self.save_condition();
    }

    /// The scheduler's job of a process, by its control groups or as its hook was told to be in.
    fn home_of(&self, holder: &Holder) -> Option<Home> {
        let is_its = |job: &&Job| job.ranks.iter().any(|(_, rank)| rank.pid() == holder.pid);
        let told = || self.jobs.values().find(is_its)?.whose.home.clone();
        Home::of(&holder.cgroup).or_else(told)
    }

    /// A scheduler says that a job has ended: its caps and clocks are restored without waiting for anything.
    pub(crate) fn finish_job(&mut self, id: &str, gpus: &[String]) -> Result<String, Problem> {
        check_id(id)?;
        let (mut devices, _) = self.gpus_named(gpus)?;
        let begun = self.condition.announced.ends(id);
        let known = begun.is_some();
        let named = begun.iter().flatten();
        devices.extend(named.filter_map(|address| self.devices.called(address)));
        let over = self.jobs.values().filter(|job| match &job.whose.home {
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
                unit.clocks.lock.free_once_more();
            }
            // Restoring waits for no GPU's sensor: these GPUs have stopped drawing power for the job.
            let idle = |unit: &Unit| unit.is_gpu() && unit.usage.job().is_none();
            if self.devices.get(device).is_some_and(idle) {
                self.writer.believe(device, &mut self.devices);
            }
        }
        let nothing = devices.is_empty() && !known;
        if self.condition.announced.keep_ended(id, devices, self.now()) {
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

    /// The devices whose jobs opted out.
    fn opted_out(&self) -> BTreeSet<usize> {
        let told = self.condition.announced.spared_gpus();
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
        let home = job.whose.home.as_ref();
        home.is_some_and(|home| self.condition.announced.has_opted_out(home))
    }

    /// Applies opt-outs before anything is decided: GPUs of jobs that opted out count as idle ones.
    pub(crate) fn follow_opt_outs(&mut self) {
        let out = self.opted_out();
        for device in 0..self.devices.iter().count() {
            let opted_out = out.contains(&device);
            let Some(unit) = self.devices.get_mut(device) else {
                continue;
            };
            if !unit.usage.opts_out(opted_out) {
                continue;
            }
            if opted_out && unit.standing.let_go().is_none() {
                unit.clocks.lock.free_once_more();
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
        let (spared, ended) = self.condition.announced.to_be_restored(id);
        let spared = spared.into_iter();
        let spared = spared.filter_map(|address| self.devices.called(address));
        let devices: BTreeSet<usize> = spared.chain(ended.iter().copied()).collect();
        let units = devices
            .into_iter()
            .filter_map(|device| Some((device, self.devices.get(device)?)));
        let each =
            units.map(|(device, unit)| (unit.name.as_str(), self.remains_to_give(device, unit)));
        Progress::of(each, "caps are as found, clocks are unlocked")
    }

    fn remains_to_give(&self, device: usize, unit: &Unit) -> Remains {
        let held = self.writer.account().held(device);
        if self.is_moved(device) {
            let job = unit.usage.job().unwrap_or("another job");
            return Remains::Others(format!("is steered for {job}"));
        }
        if self.writer.may_be_locked(unit) {
            return Remains::Open("its clocks are not unlocked yet".to_owned());
        }
        match (held, unit.found) {
            _ if unit.standing.is_kept() => {
                Remains::Others("holds what somebody else has set".to_owned())
            }
            (_, None) => Remains::Others("its cap was never read, nor set".to_owned()),
            (Some(held), Some(found)) if held.is_same_cap(found) => {
                match self.writer.is_journaled(device) {
                    false if unit.clocks.lock.is_free_for_now() => Remains::Others(format!(
                        "holds the cap found, {held}, and its clocks are unlocked, but a lock of them that failed may \
                         still take effect: litd unlocks them once more {}",
                        match unit.usage.has_opted_out() {
                            true => "when no job that opted out has it any more",
                            false => "within half a minute",
                        }
                    )),
                    false => Remains::Nothing,
                    // A late write of a dead daemon may still turn up, for some seconds.
                    true => Remains::Open(format!(
                        "holds the cap found, {held}; a late write may still replace it, so litd goes on checking"
                    )),
                }
            }
            (Some(held), Some(found))
                if self.writer.account().is_settled(device) && self.set_budget().is_some() =>
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
}
