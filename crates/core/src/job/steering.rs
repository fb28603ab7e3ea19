//! From a sample to caps: plans, decisions, shares of the budget, and the writes.

use litd_api::EventKind;
use litd_policies::config::Mitigation;
use litd_policies::{Cpu, Decision, Node, Plan, PlanError, Policy, State, Why};
use litd_units::{Celsius, Watts};

use crate::core::Core;
use crate::devices::Unit;
use crate::devices::identity::shared;
use crate::devices::standing::Standing;
use crate::job::{Job, Measured, Start};
use crate::record::Note;
use crate::store::Store;

impl<S: Store> Core<S> {
    /// All ranks of a job may be here: if so, its loop begins.
    pub(crate) fn gathered(&mut self, name: &str) {
        let Some(job) = self.jobs.get(name) else {
            return;
        };
        if job.ranks.is_whole() && !job.control.runs() {
            self.suspend_or_resume(name);
            self.plan_anew(name);
        }
        self.tell_hooks(name);
    }

    /// Ranks are missing for good: the remaining ones can't be levelled.
    pub(crate) fn broken_up(&mut self, name: &str) {
        if let Some(job) = self.jobs.get_mut(name) {
            job.control.ends();
            job.start_over();
            job.control.says("ranks of this node are missing");
            let note = Note::info(EventKind::Job, "ranks are missing: caps are restored").job(name);
            self.note(note);
        }
        self.fit_names(name);
        self.tell_hooks(name);
    }

    /// A GPU of the job may have become movable, or unmovable.
    pub(crate) fn suspend_or_resume(&mut self, name: &str) {
        let Some(job) = self.jobs.get(name) else {
            return;
        };
        let obstacle = self.obstacle(job);
        // In warm-up there are no caps to keep, and after a change of budget fewer.
        let harmed = self
            .authority
            .harms()
            .to(&self.hooks.tenant_of(job))
            .is_some();
        let keeps =
            !harmed && self.devices.lacks_let_go_only(job) && job.state() != Some(State::WarmUp);
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        if obstacle.is_some() && !keeps {
            job.control.asks_for_nothing();
        }
        if job.control.suspended() == obstacle.as_deref() {
            return;
        }
        job.control.suspend(obstacle.clone());
        if let Some(why) = obstacle {
            job.samples.show_nothing();
            job.control.says(&why);
            let text = match job.control.ask().is_some() {
                true => format!("not steered any more, its other devices keep their caps: {why}"),
                false => format!("not steered any more: {why}"),
            };
            self.note(Note::warning(EventKind::State, text).job(name));
        } else if job.control.runs() {
            self.plan_anew(name);
        }
        self.tell_hooks(name);
    }

    /// A job has not been heard of for too long.
    pub(crate) fn grown_stale(&mut self, name: &str) {
        let hold = self.config.jobs.on_stale == crate::config::OnStale::Keep;
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        job.control.says("no rank has sent anything for too long");
        if !hold {
            job.control.asks_for_nothing();
        }
        let held = if hold {
            "caps are held"
        } else {
            "caps are restored"
        };
        let text = format!(
            "no rank has sent anything for {} s: {held}",
            self.config.jobs.stale_seconds
        );
        self.note(Note::warning(EventKind::State, text).job(name));
    }

    /// A stale job was heard of again.
    pub(crate) fn fresh_again(&mut self, name: &str) {
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let restored = job.control.ask().is_none() && job.control.runs();
        self.note(Note::info(EventKind::State, "its ranks send again").job(name));
        if restored {
            self.plan_anew(name);
        }
    }

    /// The node as a job's plan sees it. CPU sockets belong to no job: their watts go to a job that is alone.
    fn node_of(&self, job: &Job, policy: Policy) -> (Node, Vec<usize>) {
        let caps = &self.config.caps;
        let units = job.gpus().filter_map(|device| self.devices.get(device));
        let limits = |unit: &Unit| {
            let mut limits = unit.limits(caps);
            if let Some(found) = unit.base().filter(|_| job.may_only_lose()) {
                limits.ceiling = limits.ceiling.min(found).max(limits.floor);
            }
            limits
        };
        let gpus = units.map(limits).collect();
        let alone = policy == Policy::CpuSlosh && self.jobs.len() == 1;
        let sockets = self
            .devices
            .cpus()
            .filter(|(_, unit)| alone && unit.is_ours() && unit.usage.lends(self.now()));
        let mut cpus = Vec::new();
        let mut devices = Vec::new();
        for (device, unit) in sockets {
            let draw = unit.readings.last().and_then(|reading| reading.power);
            // A socket that draws 0 W has no valid reading.
            if let Some(draw) = draw.filter(|draw| *draw > Watts::ZERO) {
                let limits = unit.limits(caps);
                cpus.push(Cpu { limits, draw });
                devices.push(device);
            }
        }
        (Node { gpus, cpus }, devices)
    }

    /// The plan for a job under the policy, budget and limits of now.
    fn plan(&self, job: &Job) -> (Result<Plan, PlanError>, Vec<usize>, Option<PlanError>) {
        let watched = job.control.suspended().is_some()
            || job.hearing.is_stale()
            || self.authority.is_stopping();
        let policy = match watched {
            true => Policy::Observe,
            false => self.policy_of(job),
        };
        let (node, cpus) = self.node_of(job, policy);
        let knobs = &self.knobs(job);
        match Plan::within(policy, &node, knobs, Some(self.share(job))) {
            Ok(plan) if matches!(policy, Policy::GpuRealloc | Policy::CpuSlosh) => {
                let begin = self.beginning(job);
                (Ok(plan.start_from(&begin)), cpus, None)
            }
            Ok(plan) => (Ok(plan), cpus, None),
            // The job can be observed all the same.
            Err(error) => {
                let plan = Plan::new(Policy::Observe, &node, knobs);
                (plan, Vec::new(), Some(error))
            }
        }
    }

    /// The law's parameters for a job. gpu-realloc and cpu-slosh begin with no less than the caps found, as far as
    /// the job's share of the budget allows: lowering all caps first, as the paper's experiments do from TDP,
    /// costs speed that levelling does not bring back.
    fn knobs(&self, job: &Job) -> Mitigation {
        let knobs = &self.config.law.mitigation;
        let units = job.gpus().filter_map(|device| self.devices.get(device));
        let found: Watts = units.filter_map(Unit::base).sum();
        let each = self.share(job).min(found) / job.ranks.len().max(1) as f64;
        Mitigation {
            initial_cap: knobs.initial_cap.max(each),
            ..knobs.clone()
        }
    }

    /// Where the GPUs of a job begin: each at its cap found, not at the mean of all. Until samples come nobody
    /// knows whether more would help.
    fn beginning(&self, job: &Job) -> Vec<Watts> {
        let least = self.config.law.mitigation.initial_cap;
        let found = |device: usize| self.devices.get(device).and_then(Unit::base);
        let begin = |device: usize| found(device).unwrap_or(least).max(least);
        job.gpus().map(begin).collect()
    }

    /// Starts a job's loop, or restarts it, under the present rules.
    pub(crate) fn plan_anew(&mut self, name: &str) {
        self.plan_with(name, Start::Anew);
    }

    /// Budget or policy have changed: every loop goes on under the new rules.
    pub(crate) fn replan_all(&mut self) {
        self.devices.try_refused(self.out.now());
        for name in self.jobs.with_a_loop() {
            self.plan_with(&name, Start::GoesOn);
        }
    }

    fn plan_with(&mut self, name: &str, start: Start) {
        let Some(job) = self.jobs.get(name) else {
            return;
        };
        let (plan, cpus, obstacle) = self.plan(job);
        let (knobs, asked) = (self.config.knobs(), self.policy());
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let (text, warning) = match plan {
            Ok(plan) => {
                let policy = plan.policy();
                let text = match &obstacle {
                    Some(why) => format!("observed only: {why}"),
                    // Status always adds why.
                    None if job.permitted(asked) != asked => format!("under {policy}"),
                    None => format!("warm-up under {policy}"),
                };
                job.start_over();
                job.control.takes(plan, cpus, obstacle, start, knobs);
                (text, false)
            }
            Err(error) => {
                job.control.has_no_plan(obstacle);
                (format!("can't be observed: {error}"), true)
            }
        };
        // A suspended job was told why, and status keeps showing it.
        if let Some(why) = job.control.suspended().map(str::to_owned) {
            job.control.says(&why);
            return self.tell_hooks(name);
        }
        job.control.says(&text);
        let note = match warning {
            true => Note::warning(EventKind::State, text),
            false => Note::info(EventKind::State, text),
        };
        self.note(note.job(name));
        self.tell_hooks(name);
    }

    /// Takes a job's measured iteration once all its GPUs have been read after it.
    pub(crate) fn step(&mut self, name: &str) {
        let Some(job) = self.jobs.get(name) else {
            return;
        };
        let Some(measured) = job.samples.measured() else {
            return;
        };
        let gpus: Vec<usize> = job.gpus().collect();
        let fresh = |&device: &usize| {
            let unit = self.devices.get(device);
            // A released GPU is not read, and its job is not steered.
            unit.is_some_and(|unit| unit.readings.asked() >= measured.at)
                || self.devices.is_released(device)
        };
        if !gpus.iter().all(fresh) {
            return;
        }
        // Caps are moving, or may not be moved: the iteration says nothing about any of them.
        let still = job
            .devices()
            .iter()
            .all(|&device| self.writer.account().is_settled(device) && !self.is_on_its_way(device));
        // While a trial holds other caps, the loop rests: it would take their effect for its own.
        let usable = still
            && !job.hearing.is_stale()
            && job.control.suspended().is_none()
            && job.trial.lab.is_none();
        let stopped = self.raises_stopped().filter(|_| job.is_steered());
        let Measured {
            iteration,
            duration,
            at,
            ..
        } = *measured;
        let settled = job
            .settling
            .is_over(&self.config.settle, iteration, at, duration);
        let readings = gpus
            .iter()
            .map(|&device| self.devices.gpu_reading(device))
            .collect();
        let aggregation = self.config.law.detection.aggregation;
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let Some(measured) = job.samples.take_measured() else {
            return;
        };
        let sample = job.samples.sample(&measured, readings, aggregation);
        self.begin_windows(&gpus);
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        if usable && !settled {
            return;
        }
        if stopped.is_some() && usable {
            return;
        }
        if !usable {
            job.samples.does_not_count();
            return;
        }
        if self.looked_elsewhere(name, &measured) {
            return;
        }
        self.recall(name);
        let heat = self.heat(name);
        let most = self.config.sampling.steady_temperature;
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let in_warm_up = job.state() == Some(State::WarmUp);
        if in_warm_up && job.watch.is_warming(&heat, most) {
            job.control.warms_up_again();
            job.watch.warms_up_again(heat);
            job.control
                .says("warm-up again: the GPUs are still warming up");
        }
        let Some((before, decision, adjusted)) = job.control.step(&sample) else {
            return;
        };
        if adjusted {
            self.out.count_adjustment();
        }
        self.decided(name, before, decision, &measured);
    }

    /// The part of a sample about other nodes, for a job on several. Returns whether the job's plan is another one
    /// now.
    fn looked_elsewhere(&mut self, name: &str, measured: &Measured) -> bool {
        let share = self.config.jobs.waits_share;
        let asked = self.policy();
        let Some(job) = self.jobs.get_mut(name) else {
            return false;
        };
        let Some(shares) = measured.elsewhere else {
            return false;
        };
        let before = job.permitted(asked);
        if !job.elsewhere.sampled(shares, share) {
            return false;
        }
        let text = job.elsewhere.words(asked);
        let changed = job.permitted(asked) != before;
        if changed {
            job.samples.counts();
        }
        self.note(Note::info(EventKind::State, text).job(name));
        if changed {
            self.plan_anew(name);
        }
        changed
    }

    /// Limiters of these GPUs are counted anew.
    fn begin_windows(&mut self, gpus: &[usize]) {
        for &gpu in gpus {
            if let Some(unit) = self.devices.get_mut(gpu) {
                unit.readings.begin_window();
            }
        }
    }

    fn decided(&mut self, name: &str, before: State, decision: Decision, measured: &Measured) {
        let heat = self.heat(name);
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        match decision.why {
            Why::BadSample(_) => job.samples.does_not_count(),
            _ => job.samples.counts(),
        }
        job.watch.sampled();
        let called = |gpu: usize| match job.gpus().nth(gpu).and_then(|it| self.devices.get(it)) {
            Some(unit) => unit.name.clone(),
            None => format!("GPU {gpu}"),
        };
        let text = decision.why.told(called);
        // The job's status keeps the last message that is more than "collecting".
        if !matches!(decision.why, Why::Collecting { .. }) {
            job.control.says(&text);
        }
        let state = decision.state;
        let settled = state == State::Converged && before != State::Converged;
        if settled {
            job.ticks.forget_reference();
            job.watch.converged(heat);
        }
        let moved = decision.apply.is_some();
        if moved || state != before {
            let kind = if moved {
                EventKind::Adjustment
            } else {
                EventKind::State
            };
            let text = format!("{state} at iteration {}: {text}", measured.iteration);
            let note = match state {
                State::Rollback => Note::warning(kind, text),
                _ => Note::info(kind, text),
            };
            self.note(note.job(name));
        }
        if settled {
            self.remember(name);
        }
        if state == State::Rollback && before != State::Rollback {
            self.unlearn(name);
        }
        self.tell_hooks(name);
    }

    fn heat(&self, name: &str) -> Vec<Option<Celsius>> {
        let Some(job) = self.jobs.get(name) else {
            return Vec::new();
        };
        let units = job.gpus().filter_map(|device| self.devices.get(device));
        units
            .map(|unit| unit.readings.last().and_then(|reading| reading.temperature))
            .collect()
    }

    /// A converged job whose iterations or temperatures are no longer what they were is sampled
    /// at the short period again, for a while.
    pub(crate) fn watch_for_drift(&mut self, name: &str) {
        let sampling = self.config.sampling.clone();
        let samples = self.config.law.detection.window.max(1) * 3;
        let heat = self.heat(name);
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let slower = job.ticks.drift(sampling.recheck_iteration_share);
        if job.state() != Some(State::Converged)
            || job.watch.looks_closer()
            || job.trial.lab.is_some()
        {
            return;
        }
        let hotter = job.watch.has_changed(&heat, sampling.recheck_temperature);
        let text = match (slower, hotter) {
            (Some(share), _) => format!(
                "iteration time has changed by {:+.1} % since convergence: litd profiles more often again",
                share * 100.0
            ),
            (None, Some(place)) => {
                let unit = job.gpus().nth(place).and_then(|it| self.devices.get(it));
                let name = unit.map_or("a GPU", |unit| unit.name.as_str());
                format!("the temperature of {name} has changed: litd profiles more often again")
            }
            (None, None) => return,
        };
        job.watch.look_closer(heat, samples);
        job.ticks.forget_reference();
        self.note(Note::info(EventKind::State, text).job(name));
        self.tell_hooks(name);
    }

    /// Once a second: whose jobs are steered again, and whose no more.
    pub(crate) fn check_moves(&mut self) {
        let now = self.now();
        if !self.jobs.moves_mut().look(now) {
            return;
        }
        for name in self.jobs.names() {
            self.suspend_or_resume(&name);
        }
    }

    /// Why a job can't be steered: one of its GPUs may not be moved, or steering did harm.
    pub(crate) fn obstacle(&self, job: &Job) -> Option<String> {
        let harm = self.authority.harms().to(&self.hooks.tenant_of(job));
        harm.or_else(|| self.not_ours(job))
            .or_else(|| self.why_it_rests(job))
    }

    fn not_ours(&self, job: &Job) -> Option<String> {
        let mut units = job.gpus().filter_map(|device| self.devices.get(device));
        let unit = units
            .find(|unit| !unit.is_ours() || unit.usage.has_opted_out() || shared(unit).is_some())?;
        let why = match unit.standing {
            Standing::Ours if unit.usage.has_opted_out() => "its job opted out of being steered",
            Standing::Ours if unit.is_ours() => shared(unit).unwrap_or_default(),
            Standing::Ours if unit.device.range.unjudged().is_some() => {
                "its driver reports no usable range of caps"
            }
            Standing::Ours => "its cap has not been read yet",
            Standing::Foreign(_) => "somebody else changed its cap",
            Standing::Released(it) if it.by_mode => "litd is off",
            Standing::Released(_) => "it was released",
            Standing::Faulty(_) => "it does not do what it is told",
        };
        Some(format!("{}: {why}", unit.name))
    }
}
