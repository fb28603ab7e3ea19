//! The daemon's state at one moment, for people and for metrics.

use litd_api::{
    BuildInfo, DeviceRole, DeviceStatus, GpusStatus, JobState, JobStatus, Mode, NodeStatus,
    RankStatus, Status,
};
use litd_policies::{Controller, Policy, State};
use litd_traces::live::Shows;
use litd_units::{Nanos, Watts};

use crate::condition::LOST;
use crate::core::Core;
use crate::devices::Unit;
use crate::devices::limits::limiter;
use crate::job::Job;
use crate::job::roster::Rank;
use crate::store::Store;

impl<S: Store> Core<S> {
    /// The state now.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            build: BuildInfo {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                configuration: String::new(),
            },
            hostname: String::new(),
            uptime_seconds: (self.now() - self.rounds.started()).as_secs_f64(),
            simulated: self.devices.is_simulated(),
            node: self.node_status(),
            gpus: self.gpus_status(),
            devices: self
                .devices
                .iter()
                .map(|(device, unit)| self.device_status(device, unit))
                .collect(),
            jobs: self.jobs.values().map(|job| self.job_status(job)).collect(),
            announced: self.condition.announced.status(),
            totals: self.out.totals(self.hooks.frames()),
        }
    }

    fn node_status(&self) -> NodeStatus {
        let policy = self.policy();
        let (mode, mode_reason) = self.authority.rule(&self.config);
        NodeStatus {
            mode: match policy {
                Policy::Observe if mode == Mode::Steer => Mode::Observe,
                _ => mode,
            },
            mode_reason,
            lease: self.authority.lease_status(self.now()),
            policy: policy.name().to_owned(),
            harm: self.authority.harms().in_words(),
            yielded: self.has_yielded(),
            unmanaged: self.devices.unmanaged().iter().cloned().collect(),
            power: self.node_told(),
            summary: self.summary(),
        }
    }

    /// The GPUs' budget as others are told it. Without one nobody makes room for GPUs that are not litd's to move: what
    /// these hold beyond their caps found exceeds nothing.
    fn told_budget(&self) -> Watts {
        let budget = self.gpu_budget();
        if self.set_budget().is_some() || self.authority.is_leaving() {
            return budget;
        }
        let gpus = self.devices.gpus();
        let each = gpus.map(|(device, unit)| self.device_view(device, unit).without_budget());
        budget.max(each.sum())
    }

    fn gpus_status(&self) -> GpusStatus {
        let power = |(_, unit): (usize, &Unit)| self.fresh_reading(unit)?.power;
        GpusStatus {
            budget: self.told_budget(),
            lent: self.lent(),
            caps: self.caps_on_gpus(),
            power: self.devices.gpus().map(power).sum(),
        }
    }

    fn summary(&self) -> String {
        if self.authority.is_stopping() {
            return match self.authority.holds(&self.config) {
                true => "stopping: caps go where the safe budget allows".to_owned(),
                false => "stopping: caps are restored".to_owned(),
            };
        }
        if let (true, Err(why)) = (
            self.authority.is_off(),
            self.authority.check_mode(&self.config),
        ) {
            return match self.not_held() {
                Some(not_held) => format!("{why}; {not_held}"),
                None => why,
            };
        }
        if let Some(text) = self.writer.why_only_restores() {
            return text;
        }
        let lost: Vec<&str> = self
            .devices
            .iter()
            .filter(|(_, unit)| !unit.is_ours())
            .map(|(_, unit)| unit.name.as_str())
            .collect();
        let out = self
            .devices
            .iter()
            .filter(|(_, unit)| unit.usage.has_opted_out());
        let out: Vec<&str> = out.map(|(_, unit)| unit.name.as_str()).collect();
        let mut text = match (self.policy(), self.condition.rivals.why_yielded()) {
            (_, Some(why)) => format!("observing until `litctl resume`: {why}"),
            (Policy::Observe, None) => "observing".to_owned(),
            (policy, None) => format!("steering with {policy}"),
        };
        match self.devices.unmanaged().len() {
            0 => {}
            1 => text.push_str(", 1 GPU is unmanaged (not found at start: `litctl events`)"),
            gpus => text.push_str(&format!(
                ", {gpus} GPUs are unmanaged (not found at start: `litctl events`)"
            )),
        }
        match self.jobs.len() {
            0 => text.push_str(", no job"),
            1 => text.push_str(", 1 job"),
            jobs => text.push_str(&format!(", {jobs} jobs")),
        }
        for job in self.jobs.values() {
            text.push_str(&format!("; {}: {}", job.name, job_state(job).1));
        }
        if !lost.is_empty() {
            text.push_str(&format!("; left alone: {}", lost.join(", ")));
        }
        if !out.is_empty() {
            let jobs: Vec<&str> = self.condition.announced.opted_out().collect();
            let (out, jobs) = (out.join(", "), jobs.join(", "));
            text.push_str(&format!("; opted out: {out} (of {jobs})"));
        }
        if self.authority.harms().in_words().is_some() {
            text.push_str(
                "; until `litctl resume`, no job of a user to whom steering did harm is steered (see `litctl trial \
                 status`)",
            );
        }
        if self.condition.is_unkept() {
            text.push_str(&format!("; the node's condition can't be kept: {LOST}"));
        }
        text
    }

    fn device_status(&self, device: usize, unit: &Unit) -> DeviceStatus {
        let identity = &unit.device.identity;
        // A released device is not read, so its state is unknown; nor is one that litd has left closed with a cap of its
        // own, which others may have changed since.
        let is_unread = unit
            .standing
            .let_go()
            .is_some_and(|it| it.closed.is_some() || !self.writer.is_journaled(device));
        let reading = self.fresh_reading(unit).filter(|_| !is_unread);
        let reading = reading.unwrap_or_default();
        let limits = unit.limits(&self.config.caps);
        let job = unit.usage.job().and_then(|name| self.jobs.get(name));
        let place = job.and_then(|job| job.gpus().position(|gpu| gpu == device));
        let shown = job.map(|job| job.samples.shown());
        let lead = place.and_then(|at| shown?.leads.get(at));
        DeviceStatus {
            name: unit.name.clone(),
            address: identity.address.clone(),
            uuid: identity.uuid.clone(),
            serial: identity.serial.clone(),
            model: identity.model.clone(),
            backend: identity.backend.clone(),
            state: unit.standing.told(),
            opted_out: unit.usage.has_opted_out(),
            role: match job {
                _ if !unit.is_gpu() => DeviceRole::Host,
                None => DeviceRole::Idle,
                Some(job) => role(job, lead.copied()),
            },
            job: unit.usage.job().map(str::to_owned),
            found: unit.found,
            cap: self.writer.account().held(device).filter(|_| !is_unread),
            in_force: reading.enforced,
            floor: limits.floor,
            ceiling: limits.ceiling,
            power: reading.power,
            energy: reading.energy,
            temperature: reading.temperature,
            clock: reading.clock,
            power_limited: reading.power_limited,
            why: self
                .targets
                .why_not_restored(device, unit, self.writer.account())
                .unwrap_or_else(|| self.reason(device).text),
            limiter: limiter(&reading),
            ailing_since: self.condition.needs.of(unit).since,
            needs_more_seconds: self.condition.needs.of(unit).seconds,
            throttled: reading.throttle.is_some(),
            lead: lead.map(|lead| lead.to_millis()),
            lead_per_kernel: lead
                .zip(shown)
                .map(|(lead, shown)| lead.to_millis() / f64::from(shown.summands)),
            busy: place.and_then(|at| shown?.busy.get(at).copied()),
            plan: self.plan_status(unit),
        }
    }

    /// Why a job's loop is in its state.
    fn why(&self, job: &Job) -> String {
        let stopped = self.raises_stopped().filter(|_| job.is_steered());
        let mut why = stopped.map_or_else(
            || job.control.why().to_owned(),
            |why| format!("caps are held: {why}"),
        );
        if job.samples.shown().shows == Shows::Pieces {
            why.push_str(
                "; its hooks time modules, and these times include waits: the law knows leads, but no pace",
            );
        }
        if job.ranks.is_alone() {
            why.push_str(
                "; only observed: no other GPU of this node does the same work as this stage's",
            );
        }
        match job.leaves_the_node() {
            true => format!("{why}; {}", job.elsewhere.words(self.policy())),
            false => why,
        }
    }

    fn job_status(&self, job: &Job) -> JobStatus {
        let mean = job.ticks.mean();
        let rank = |(rank, known): (u32, &Rank)| RankStatus {
            rank,
            device: self
                .devices
                .get(known.device())
                .map(|unit| unit.address().to_owned())
                .unwrap_or_default(),
            connected: known.session().is_some(),
            iteration: known.iteration(),
        };
        JobStatus {
            name: job.name.clone(),
            uid: job.whose.uid,
            state: job_state(job).0,
            why: self.why(job),
            trial: self.trial_words(job),
            ranks: job.ranks.iter().map(rank).collect(),
            budget: self.share(job),
            iteration_time: mean,
            throughput: mean.map(|mean| 1e3 / mean.0),
            adjustments: job.control.adjustments(),
            samples: job.samples.used(),
            bad_samples: job.samples.unused(),
            sampling_period: job.directive.period,
            measured: None,
            sampling_overhead: job.sampling_overhead(),
            iteration_histogram: job.ticks.histogram(),
            iteration_seconds_sum: job.ticks.seconds(),
        }
    }
}

/// The state of a job, and how people read it.
fn job_state(job: &Job) -> (JobState, &'static str) {
    match job.state() {
        _ if job.control.suspended().is_some() => (JobState::Suspended, "suspended"),
        _ if job.hearing.is_stale() => (JobState::Stale, "stale"),
        // Either ranks are missing, or there is no plan for those that are here, as `why` says then.
        None => (JobState::Gathering, "gathering"),
        Some(State::Observe) => (JobState::Observe, "observe"),
        Some(State::WarmUp) => (JobState::WarmUp, "warm-up"),
        Some(State::Adjusting) => (JobState::Adjusting, "adjusting"),
        Some(State::Converged) => (JobState::Converged, "converged"),
        Some(State::Drift) => (JobState::Drift, "drift"),
        Some(State::Rollback) => (JobState::Rollback, "rollback"),
    }
}

/// The role of a GPU in its job. On a level node one of the GPUs starts last, too, but none waits for it.
fn role(job: &Job, lead: Option<Nanos>) -> DeviceRole {
    let leads = &job.samples.shown().leads;
    let least = leads.iter().min().copied();
    let most = leads.iter().max().copied();
    let is_level = job.control.controller().is_some_and(Controller::is_level);
    match lead {
        Some(_) if is_level || least == most => DeviceRole::Member,
        lead @ Some(_) if lead == least => DeviceRole::Straggler,
        lead @ Some(_) if lead == most => DeviceRole::Leader,
        _ => DeviceRole::Member,
    }
}
