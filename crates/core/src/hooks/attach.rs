//! A hook introduces itself, and becomes a rank of a job once its GPU's driver has said that its process holds it.

use litd_api::EventKind;
use litd_proto::{Hello, RefusalCode, ToHook, Welcome};

use super::tell::let_go_of;
use super::{No, Waiting};
use crate::core::Core;
use crate::devices::identity::divided;
use crate::event::{Peer, SessionId};
use crate::hooks::cgroup::{Home, job_name, of_user};
use crate::job::Job;
use crate::job::roster::{Arrival, NoPlace};
use crate::record::Note;
use crate::store::Store;

/// The hello of the group that a rank is of, where its job's ranks do unequal work: each group is a job of its own, with
/// a loop and a share of the budget.
fn group_of(whole: &Hello) -> Option<Hello> {
    let group = &whole.group;
    (!group.is_empty()).then(|| Hello {
        job: format!("{}/{group}", whole.job),
        ..whole.clone()
    })
}

impl<S: Store> Core<S> {
    /// A hook introduces itself: the driver is asked whether its process holds that GPU.
    pub(super) fn hello(&mut self, id: SessionId, mut hello: Hello) {
        let Some(session) = self.hooks.get(id) else {
            return;
        };
        // The control group determines the job; the hook's own name for it is only a label.
        hello.job = job_name(session.home(), session.peer().uid, &hello.job);
        if let Some(over) = session
            .home()
            .and_then(|home| self.condition.announced.has_ended(home))
        {
            let reason = format!("its scheduler says that {over} is over");
            let no = No::new(RefusalCode::Busy, "job_ended", reason);
            return self.refuse(id, no.for_now());
        }
        let device = match self.check_hello(&hello) {
            Ok(device) => device,
            Err(no) => return self.refuse(id, no),
        };
        self.devices.want_holders(device);
        if let Some(session) = self.hooks.get_mut(id) {
            session.is_checked(hello, device, self.out.now());
        }
    }

    fn check_hello(&self, hello: &Hello) -> Result<usize, No> {
        if self.authority.is_off() {
            // Asking whether the process holds its GPU would open a released device.
            return Err(No::new(RefusalCode::Busy, "off", "litd is off").for_now());
        }
        if litd_proto::negotiate(hello.protocol).is_none() {
            let reason = format!(
                "no common protocol: the hook speaks {}, this daemon up to {}",
                hello.protocol,
                litd_proto::PROTOCOL
            );
            return Err(No::new(RefusalCode::Protocol, "protocol", reason));
        }
        let unknown = || {
            let reason = format!("this node has no GPU {}", hello.gpu);
            No::new(RefusalCode::GpuUnknown, "gpu_unknown", reason)
        };
        let device = self.devices.called(&hello.gpu).ok_or_else(unknown)?;
        let unit = self.devices.get(device).filter(|unit| unit.is_gpu());
        let unit = unit.ok_or_else(unknown)?;
        if unit.standing.let_go().is_some() {
            return Err(let_go_of(&unit.name));
        }
        if let Some(how) = divided(unit) {
            let reason = format!("{} is shared ({how}): litd does not steer it", unit.name);
            return Err(No::new(RefusalCode::GpuShared, "gpu_shared", reason));
        }
        let gpus = self.devices.gpus().count();
        if hello.local_world_size as usize > gpus {
            let reason = format!(
                "{} ranks on this node, which has {gpus} GPUs: one rank per GPU",
                hello.local_world_size
            );
            return Err(No::new(RefusalCode::GpuShared, "gpu_shared", reason));
        }
        Ok(device)
    }

    /// The driver has confirmed that a hook's process holds its GPU: it is a rank of its job.
    pub(crate) fn attach(&mut self, from: Waiting, device: usize) -> Result<(), No> {
        let now = self.now();
        let Waiting {
            id,
            peer,
            home,
            hello,
        } = from;
        let hello = hello.as_ref();
        let own = self.own_name(peer.uid, home.as_ref(), &hello.job);
        let own = own.map(|job| Hello {
            job,
            ..hello.clone()
        });
        let whole = own.as_ref().unwrap_or(hello);
        let group = group_of(whole);
        let hello = group.as_ref().unwrap_or(whole);
        self.check_place(peer, hello, device)?;
        let gpus = self.devices.gpus().count();
        let new = || Job::new(hello, peer.uid, home, gpus, now);
        let job = self.jobs.joined(&hello.job, new);
        let Arrival {
            replaced,
            has_restarted: restarted,
        } = job.ranks.arrives(hello.rank, device, peer, id);
        let part_of = group.is_some().then_some(whole.job.as_str());
        job.ranks.becomes_part_of(part_of);
        if restarted {
            job.count_anew();
        }
        job.samples.drop_pending();
        job.elsewhere.arrived(hello);
        job.hearing.waits(now);
        let name = job.name.clone();
        let protocol = litd_proto::negotiate(hello.protocol).unwrap_or(litd_proto::PROTOCOL);
        let mut welcome = Welcome {
            protocol,
            daemon: env!("CARGO_PKG_VERSION").to_owned(),
            directive: job.directive,
            ..Welcome::default()
        };
        self.tell_of_profiler(id, whole, &mut welcome);
        if let Some(session) = self.hooks.get_mut(id) {
            session.attaches(name.clone(), hello.rank, protocol, gpus);
        }
        if let Some(old) = replaced {
            self.hooks.close(old, &mut self.out);
        }
        if let Some(unit) = self.devices.get_mut(device) {
            unit.usage.attaches(&name);
            let text = format!("rank {} attached on {}", hello.rank, unit.name);
            let note = Note::info(EventKind::Job, text)
                .job(&name)
                .device(unit.address());
            self.note(note);
        }
        self.fit_names(&name);
        self.hooks
            .send(id, &ToHook::Welcome(welcome), &mut self.out);
        if restarted {
            self.trial_restarted(&name);
        }
        if group.is_some() {
            self.count_groups(&whole.job);
        }
        self.gathered(&name);
        Ok(())
    }

    /// Once all ranks of a job on this node have come, each of its groups is complete, and its loop may begin.
    fn count_groups(&mut self, whole: &str) {
        let is_part = |job: &Job| job.ranks.part_of() == Some(whole);
        let parts = self.jobs.values().filter(|job| is_part(job));
        let (mut come, mut here) = (0, 0);
        for part in parts {
            come += part.ranks.len();
            here = here.max(part.ranks.here());
        }
        if come < here {
            return;
        }
        let mut gathered = Vec::new();
        for part in self.jobs.values_mut().filter(|job| is_part(job)) {
            part.ranks.completes();
            gathered.push(part.name.clone());
        }
        for name in gathered {
            self.gathered(&name);
        }
    }

    /// The name of this user's job where another user's job has its name, or had it when this job came. A job
    /// keeps its name until it ends, and taking a name first keeps nobody else out.
    fn own_name(&self, uid: u32, home: Option<&Home>, name: &str) -> Option<String> {
        let own = of_user(uid, name);
        let has_own = |job: &Job| job.whose.uid == uid && job.whose.home.as_ref() == home;
        let called = |name: &str| self.jobs.values().find(|job| job.whole() == name);
        let is_own = match called(name) {
            Some(job) => job.whose.uid != uid,
            None => called(&own).is_some_and(has_own),
        };
        is_own.then_some(own)
    }

    /// Whether this rank of this job may attach: one user per job, one job per GPU, one rank per GPU.
    fn check_place(&self, peer: Peer, hello: &Hello, device: usize) -> Result<(), No> {
        let taken = |reason: String| No::new(RefusalCode::GpuTaken, "gpu_taken", reason).for_now();
        let unit = self.devices.get(device);
        let owner = unit.and_then(|unit| unit.usage.job());
        if let Some(owner) = owner.filter(|&owner| owner != hello.job) {
            // A user is not shown the name of another user's job.
            let theirs = self
                .jobs
                .get(owner)
                .is_some_and(|job| job.whose.uid != peer.uid);
            let owner = if theirs { "another user" } else { owner };
            return Err(taken(format!(
                "GPU {} is used by {owner} already",
                hello.gpu
            )));
        }
        let Some(job) = self.jobs.get(&hello.job) else {
            return Ok(());
        };
        if job.whose.uid != peer.uid {
            let reason = "a job of this name runs under another user";
            let no = No::new(RefusalCode::OtherUser, "other_user", reason);
            return Err(no.for_now());
        }
        let place = job.ranks.has_place(hello, device);
        place.map_err(|why| match why {
            NoPlace::Disagrees(here) => {
                let reason = format!(
                    "the job's other ranks say that {here} of them run here, this one says {}",
                    hello.local_world_size
                );
                No::new(RefusalCode::Malformed, "malformed", reason)
            }
            NoPlace::Taken => taken(format!(
                "in this job rank {} already has another GPU, or GPU {} another rank: one rank per GPU",
                hello.rank, hello.gpu
            )),
            NoPlace::Full(ranks) => taken(format!("all {ranks} ranks of this job are connected already")),
        })
    }
}
