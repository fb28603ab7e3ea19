//! Announcements of a scheduler, and their rules: a job that opted out is not steered, whatever else happens and
//! over crashes; two jobs of one name and one user are two; and a cap that is reported as restored is.

use litd_api::Command;
use litd_core::Home;
use litd_power::Holder;

use crate::fault::Fault;
use crate::hardware::{MILLI, SECOND};
use crate::rng::Rng;
use crate::world::{Ev, World};

/// The name that all jobs of schedulers give themselves.
pub const SAME: &str = "train";

/// A job's GPUs are not litd's to touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spared {
    pub job: usize,
    /// The disk took it, so that the next daemon knows.
    kept: bool,
}

/// Where a scheduler has put a process.
#[derive(Debug, Clone)]
pub struct Put {
    /// The scheduler's id of the job.
    pub id: String,
    /// As `/proc/PID/cgroup` has it.
    pub cgroup: String,
}

impl Put {
    /// The job as litd sees it.
    pub fn home(&self) -> Option<Home> {
        Home::of(&self.cgroup)
    }

    /// In a pod with this number.
    pub fn in_pod(number: usize) -> Self {
        let uid = format!("0b9c7f1e-0000-4000-8000-00000000000{number}");
        let slice = uid.replace('-', "_");
        let path = format!("/kubepods.slice/kubepods-pod{slice}.slice/cri-containerd-x.scope");
        Self {
            id: format!("pod-{uid}"),
            cgroup: format!("0::{path}\n"),
        }
    }

    fn in_slurms_job(number: usize) -> Self {
        let path = format!("/system.slice/slurmstepd.scope/job_{number}/step_0/user/task_0");
        Self {
            id: format!("slurm-{number}"),
            cgroup: format!("0::{path}\n"),
        }
    }
}

/// A process with its user and control group.
pub fn holder(pid: u32, uid: u32, put: Option<&Put>) -> Holder {
    let cgroup = put.map_or_else(String::new, |put| put.cgroup.clone());
    Holder {
        cgroup,
        ..Holder::new(pid, uid)
    }
}

/// Where a scheduler has put a job's processes; some have none.
pub fn home(job: usize, rng: &Rng) -> Option<Put> {
    let mut own = rng.clone();
    let shape = (own.next(), own.next(), own.below(4)).2;
    match shape {
        0 => None,
        1 => Some(Put::in_pod(job)),
        _ => Some(Put::in_slurms_job(job)),
    }
}

impl World {
    /// The scheduler's id of a job.
    fn id_of(&self, job: usize) -> String {
        let home = self.hooks.jobs[job].home.as_ref();
        home.map_or_else(|| format!("other-{job}"), |put| put.id.clone())
    }

    pub fn scheduler(&mut self, fault: Fault) {
        if self.core.is_none() || self.hooks.jobs.is_empty() || self.stop_sent.is_some() {
            return;
        }
        let mut job = self.rng.below(self.hooks.jobs.len());
        let spared = self.hw.iter().find_map(|hw| hw.spared);
        match fault {
            Fault::JobEnds => job = spared.map_or(job, |it| it.job),
            Fault::JobBegins => job = self.said_to_end.pop().unwrap_or(job),
            _ => {}
        }
        let devices: Vec<usize> = self.hooks.jobs[job]
            .ranks
            .iter()
            .map(|&rank| self.hooks.ranks[rank].device)
            .collect();
        let told = self.rng.chance(0.7);
        let gpus = devices.iter().filter(|_| told);
        // Numbers count what is on the bus: here those that the daemon found.
        let number = |device: usize| self.here.iter().position(|&here| here == device);
        let numbers: Vec<Option<usize>> = gpus.clone().map(|&device| number(device)).collect();
        let gpus: Vec<String> = gpus
            .zip(numbers)
            .map(
                |(&device, number)| match number.filter(|_| self.rng.chance(0.5)) {
                    Some(number) => number.to_string(),
                    None => self.hw[device].identity.address.clone(),
                },
            )
            .collect();
        let id = self.id_of(job);
        let ends = fault == Fault::JobEnds;
        let opt_out = fault == Fault::OptOut;
        let command = match ends {
            true => Command::EndJob { job: id, gpus },
            false => Command::BeginJob {
                job: id,
                gpus,
                opt_out,
            },
        };
        let before = self.limit();
        let Some(Ok(_)) = self.ask(&command) else {
            return self.act();
        };
        self.seen.mark(fault);
        if !ends && told {
            // A GPU is the later of two jobs', until processes of the earlier are found there.
            for &device in &devices {
                let hw = &mut self.hw[device];
                hw.spared = hw.spared.filter(|it| it.job == job);
            }
        }
        if ends {
            self.has_ended(job);
        } else if opt_out && told {
            let kept = self
                .disk
                .with(|disk| !disk.stuck && !disk.read_only && !disk.dead);
            // A device that the daemon does not know is not on its list of opted-out ones.
            for device in devices.into_iter().filter(|it| self.here.contains(it)) {
                self.hw[device].spared = Some(Spared { job, kept });
            }
        }
        self.was_reconfigured(before);
        if opt_out {
            let later = self.rng.between(3, 40) * SECOND;
            self.after(later, Ev::Fault(Fault::JobEnds));
        }
        self.check_given_back(job);
        self.act();
    }

    fn has_ended(&mut self, job: usize) {
        for hw in &mut self.hw {
            hw.spared = hw.spared.filter(|it| it.job != job);
        }
        // The processes end, and so does their power.
        for &rank in &self.hooks.jobs[job].ranks {
            self.hw[self.hooks.ranks[rank].device].owes = 0;
        }
        // Or it is put back into the queue and begins again here.
        self.said_to_end.push(job);
        let later = self.rng.between(500, 9000) * MILLI;
        self.after(later, Ev::Fault(Fault::JobBegins));
        for part in 1..8 {
            let epoch = self.epoch;
            self.after(part * 200 * MILLI, Ev::GivenBack { job, epoch });
        }
    }

    /// A device that is reported as restored holds its cap found.
    pub fn check_given_back(&mut self, job: usize) {
        let Some(core) = &self.core else { return };
        let answer = core.giving_back(&self.id_of(job));
        let first = answer.said.lines().next().unwrap_or_default();
        let Some((names, _)) = first.split_once(": caps are as found") else {
            return;
        };
        for name in names.split(", ") {
            let number = name.strip_prefix("gpu").and_then(|it| it.parse().ok());
            let device = number.and_then(|it: usize| self.here.get(it).copied());
            let Some(device) = device else {
                continue;
            };
            let hw = &self.hw[device];
            let sure = !hw.misbehaves(self.now) && hw.trouble_until < self.now && hw.op.is_none();
            if sure && !self.ledger.rotten && !hw.natural.contains(&hw.cap) {
                let text = format!("device {device} holds {} µW: {answer:?}", hw.cap);
                return self.broke("15 given back", text);
            }
        }
    }

    /// A job that opted out: what was there before it is put back, and nothing else is done, but
    /// what a budget asks for. A budget asks for as much of it as of
    /// an idle GPU, and no other GPU has less for it: the second model compares nodes with and without opt-outs
    /// (adversary/opted_out.rs). Its cap never rises above the one found.
    pub fn check_spared(&mut self, device: usize, [cap, found]: [i64; 2], give_back: bool) {
        let hw = &self.hw[device];
        if hw.spared.is_some() && !give_back && cap > hw.cap.max(found) {
            let text = format!("device {device} goes to {cap} µW, and {found} µW was found");
            self.broke("15 opted out", text);
        }
        let short = self.budget_set().is_some() || !self.is_calm();
        if self.hw[device].spared.is_some() && !give_back && !short {
            self.broke("15 opted out", format!("device {device}"));
        }
    }

    /// Two jobs of one name and one user are two, and a GPU is the job's that its scheduler says.
    pub fn check_names(&mut self, jobs: &[litd_api::JobStatus]) {
        if self.jobs_end {
            // A new hook finds every rank free.
            return;
        }
        for (at, job) in self.hooks.jobs.iter().enumerate() {
            let Some(Put { id, .. }) = &job.home else {
                continue;
            };
            let name = format!("{id}/{SAME}");
            let Some(said) = jobs.iter().find(|it| it.name == name) else {
                continue;
            };
            let theirs = |address: &str| {
                let of = |&rank: &usize| {
                    let device = self.hooks.ranks[rank].device;
                    self.hw[device].identity.address == address
                };
                job.ranks.iter().any(of)
            };
            if let Some(rank) = said.ranks.iter().find(|rank| !theirs(&rank.device)) {
                let text = format!("job {at} has {}", rank.device);
                return self.broke("15 whose", text);
            }
        }
    }

    /// A new daemon knows what the disk kept, until the node boots.
    pub fn recall_spared(&mut self, booted: bool) {
        for hw in &mut self.hw {
            hw.spared = hw.spared.filter(|it| it.kept && !booted);
        }
        self.said_to_end.clear();
    }
}
