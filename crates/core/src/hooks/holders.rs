//! The users of a GPU: which processes use it, as its driver tells, and of which users. A hook is let in only as a
//! process and user that the driver names. A GPU that several users' processes use is not steered.

use std::collections::BTreeSet;

use litd_api::EventKind;
use litd_power::Holder;
use litd_proto::RefusalCode;
use litd_units::Nanos;

use crate::core::Core;
use crate::devices::identity::shared;
use crate::devices::usage::Users;
use crate::event::{DeviceId, Peer};
use crate::hooks::cgroup::Home;
use crate::hooks::tenant::Tenant;
use crate::hooks::{No, Waiting};
use crate::job::Job;
use crate::job::roster::Rank;
use crate::record::Note;
use crate::store::Store;

/// Every so many rounds (seconds) the drivers are asked who holds the GPUs of jobs.
const EVERY: u64 = 10;

/// The same for GPUs whose clocks a rank has locked: the next user's processes should not run long at the clock of
/// a rank that has gone.
const LOCKED_EVERY: u64 = 2;

/// Every so many rounds the drivers are asked how they divide those GPUs: newer ones switch to MIG without a
/// visible reset, and MPS can be started at any time.
const DIVIDED_EVERY: u64 = 60;

/// How many users of one GPU are named.
const NAMED: usize = 8;

/// Whether this process, of this user, is among them.
fn holds(holders: &[Holder], peer: Peer) -> bool {
    let Peer { pid, uid } = peer;
    let same = |it: &Holder| (it.pid, it.uid) == (pid, uid);
    holders.iter().any(same)
}

/// The users whose processes use a GPU. The same uid in two pods counts as two users. The GPU's job counts
/// besides, because it may not be visible on the GPU yet.
fn users_of(holders: &[Holder], job: Option<&Job>) -> BTreeSet<Tenant> {
    let user = |it: &Holder| Tenant::of(it.uid, Home::of(&it.cgroup).as_ref());
    let mut users: BTreeSet<Tenant> = holders.iter().map(user).collect();
    // For a job outside pods only the user is known: it may run in litd's own pod, too.
    let is_seen =
        |job: &&Job| job.whose.home.is_none() && holders.iter().any(|it| it.uid == job.whose.uid);
    let unseen = job.filter(|job| !is_seen(job));
    users.extend(unseen.map(|job| Tenant::of(job.whose.uid, job.whose.home.as_ref())));
    users
}

impl<S: Store> Core<S> {
    /// The driver has told which processes use a device.
    pub(crate) fn holders(&mut self, device: usize, asked: Nanos, holders: &[Holder]) {
        self.note_users(device, holders);
        self.free_of_gone(device, holders);
        self.evict(device, holders);
        let told = holders
            .iter()
            .map(|&Holder { pid, uid, .. }| Peer { pid, uid });
        self.hooks.told_holders(device, told.collect());
        for waiting in self.hooks.answered(device, asked) {
            let Waiting { id, peer, .. } = waiting;
            let outcome = match self.is_shared(device) {
                Some(no) => Err(no),
                None if holds(holders, peer) => self.attach(waiting, device),
                None => {
                    let (Peer { pid, uid }, gpu) = (peer, &waiting.hello.gpu);
                    let reason = format!("process {pid} of user {uid} does not use GPU {gpu}");
                    Err(No::new(RefusalCode::NotHolder, "not_holder", reason).for_now())
                }
            };
            if let Err(no) = outcome {
                self.refuse(id, no);
            }
        }
        // For a hello that came after the question the driver has to be asked again.
        if !self.hooks.waiting_for(device).is_empty() {
            self.devices.want_holders(device);
        }
    }

    /// Why a GPU that is shared admits no hook.
    fn is_shared(&self, device: usize) -> Option<No> {
        let unit = self.devices.get(device)?;
        let reason = format!(
            "{} is shared ({}): litd does not steer it",
            unit.name,
            shared(unit)?
        );
        Some(No::new(RefusalCode::GpuShared, "gpu_shared", reason).for_now())
    }

    /// A GPU is now used by several users, or by one again.
    fn note_users(&mut self, device: usize, holders: &[Holder]) {
        let job = self.devices.get(device).and_then(|unit| unit.usage.job());
        let owner = job.and_then(|name| self.jobs.get(name));
        let users = users_of(holders, owner);
        let now = match users.len() {
            0 | 1 => Users::One,
            _ => Users::Several,
        };
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        if !unit.usage.comes_to_be_used_by(now) {
            return;
        }
        let job = unit.usage.job().map(str::to_owned);
        let address = unit.address().to_owned();
        let note = match now {
            Users::One => Note::info(EventKind::Foreign, "is one user's again"),
            Users::Several => {
                let named: Vec<String> = users.iter().take(NAMED).map(Tenant::to_string).collect();
                let more = if users.len() > NAMED {
                    " and others"
                } else {
                    ""
                };
                let text = format!(
                    "processes of several users use it ({}{more}): litd neither steers it nor locks its clocks until \
                     one user is left",
                    named.join(", ")
                );
                Note::warning(EventKind::Foreign, text)
            }
        };
        // Nobody knows which of them came, and each can come and go as often as he likes.
        self.note(note.device(&address).caused_by(None));
        if let Some(name) = job {
            self.suspend_or_resume(&name);
        }
    }

    /// A rank whose process no longer uses its GPU speaks for it no longer, whoever has its
    /// connection now.
    fn evict(&mut self, device: usize, holders: &[Holder]) {
        let job = self.devices.get(device).and_then(|unit| unit.usage.job());
        let Some(job) = job.and_then(|name| self.jobs.get_mut(name)) else {
            return;
        };
        if let Some(id) = job.ranks.evict(device, |peer| holds(holders, peer)) {
            let reason = "its process no longer uses the GPU";
            self.refuse(
                id,
                No::new(RefusalCode::NotHolder, "holder_gone", reason).for_now(),
            );
        }
    }

    /// Asks the drivers now and then who holds the GPUs of jobs, and those that two jobs are said to have. GPUs
    /// whose rank has lost its connection and has locked clocks are asked about each time: locks must not outlive
    /// the process.
    pub(crate) fn check_holders(&mut self) {
        let in_turn = self.rounds.is_every(EVERY);
        let locked_in_turn = self.rounds.is_every(LOCKED_EVERY);
        let planned = |rank: &&Rank| {
            let unit = self.devices.get(rank.device());
            unit.is_some_and(|unit| unit.clocks.are_asked_by(rank.pid()))
        };
        let ranks = self.jobs.values().flat_map(|job| job.ranks.iter());
        let ranks = ranks.map(|(_, rank)| rank);
        let asked_for = ranks.filter(|rank| match rank.session() {
            Some(_) => in_turn || locked_in_turn && planned(rank),
            None => planned(rank),
        });
        let mut asked_for: Vec<usize> = asked_for.map(Rank::device).collect();
        if in_turn {
            let shared = self.condition.announced.shared_with_spared();
            asked_for.extend(shared.filter_map(|gpu| self.devices.called(gpu)));
        }
        for device in asked_for {
            // Asking would open a released device again.
            if !self.devices.is_released(device) {
                self.devices.want_holders(device);
                if self.rounds.is_every(DIVIDED_EVERY) {
                    self.devices.want_identity(device);
                }
            }
        }
    }

    /// Has all drivers asked who holds their GPUs, for processes that may be ranks although they have no hook. They are
    /// asked with the next event.
    pub fn look_for_holders(&mut self) {
        // Asking would open a released device again.
        if self.authority.is_off() {
            return;
        }
        let gpus = self.devices.gpus().map(|(device, _)| device);
        let gpus: Vec<usize> = gpus.filter(|&it| !self.devices.is_released(it)).collect();
        for device in gpus {
            self.devices.want_holders(device);
        }
    }

    /// The GPUs that a process held when their drivers told last, with their addresses.
    #[must_use]
    pub fn held_by(&self, peer: Peer) -> Vec<(DeviceId, String)> {
        let gpus = self.devices.gpus();
        let held = gpus.filter(|&(device, _)| self.hooks.is_known_holder(peer, device));
        held.map(|(device, unit)| (DeviceId(device), unit.address().to_owned()))
            .collect()
    }

    /// The processes that held GPUs when their drivers told last; one that holds several comes several times.
    pub fn known_holders(&self) -> impl Iterator<Item = Peer> {
        self.hooks.known_holders()
    }

    /// The driver can't tell holders: then no hook is let in.
    pub(crate) fn holders_unknown(&mut self, device: usize, cause: &str) {
        for id in self.hooks.waiting_for(device) {
            let reason = format!("the driver does not report which processes use it: {cause}");
            self.refuse(
                id,
                No::new(RefusalCode::NotHolder, "holders_unknown", reason).for_now(),
            );
        }
    }
}
