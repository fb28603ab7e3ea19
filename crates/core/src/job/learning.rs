//! What a job has learned, kept for the next run of the same job on the same GPUs: where its loop begins, once it has
//! told its workload, and what is kept once it has converged.

use litd_api::EventKind;
use litd_policies::Policy;
use litd_units::Watts;

use crate::core::Core;
use crate::devices::Unit;
use crate::learned::{Confidence, Key};
use crate::plan::DUST;
use crate::record::Note;
use crate::store::Store;

impl<S: Store> Core<S> {
    /// The key of a job's learned distribution.
    fn learned_key(&self, name: &str) -> Option<Key> {
        let job = self.jobs.get(name)?;
        let units = || job.gpus().filter_map(|device| self.devices.get(device));
        let part = |unit: &Unit| {
            let identity = &unit.device.identity;
            identity
                .serial
                .clone()
                .unwrap_or_else(|| identity.address.clone())
        };
        Some(Key {
            gpus: units().map(part).collect(),
            tenant: self.hooks.tenant_of(job),
            driver: units().next()?.device.identity.driver.clone(),
            workload: job.samples.workload()?,
        })
    }

    /// Looks a job's workload up among the learned distributions, once.
    pub(super) fn recall(&mut self, name: &str) {
        let Some(key) = self.learned_key(name) else {
            return;
        };
        let asked = self.policy();
        let seconds = self.out.unix_seconds();
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        if !job.control.may_recall() {
            return;
        }
        let policy = job.permitted(asked);
        let hint = self.jobs.learned().recall(&key, policy, seconds);
        let job = self.jobs.get_mut(name).filter(|job| job.control.runs());
        let Some((job, hint)) = job.zip(hint) else {
            return;
        };
        // gpu-red leaves watts unused, and has learned how many.
        let caps = |budget: Watts| match policy {
            Policy::GpuRed => hint.caps(budget.min(hint.learned_budget)),
            _ => hint.caps(budget),
        };
        let fraction = match hint.confidence {
            Confidence::Full => 1.0,
            Confidence::Half => 0.5,
        };
        job.control.hint(caps, fraction, hint.from.clone());
        let text = "steering starts from learned caps";
        self.note(Note::info(EventKind::State, text).job(name));
    }

    /// Learns a job's converged caps, if its loop moved any.
    pub(super) fn remember(&mut self, name: &str) {
        let Some(key) = self.learned_key(name) else {
            return;
        };
        let Some(job) = self.jobs.get(name) else {
            return;
        };
        let controller = job.control.controller();
        let moved = controller.is_some_and(|it| it.adjustments() > 0);
        let caps = job.gpus().map(|device| self.writer.account().held(device));
        let Some(caps) = caps.collect::<Option<Vec<Watts>>>().filter(|_| moved) else {
            return;
        };
        let policy = self.jobs.get(name).map(|job| self.policy_of(job));
        let policy = policy.unwrap_or(self.policy());
        if policy == Policy::GpuRed && self.is_short(name) {
            return;
        }
        let seconds = self.out.unix_seconds();
        if !self
            .jobs
            .learned_mut()
            .remember(key, &caps, policy, seconds)
        {
            return;
        }
        self.jobs
            .save_learned(self.writer.store_mut(), &mut self.out);
    }

    /// A job was rolled back. If it had started from learned caps, those are not used again for a while, nor are those
    /// that it has learned since.
    pub(super) fn unlearn(&mut self, name: &str) {
        let own = self.learned_key(name);
        let asked = self.policy();
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let policy = job.permitted(asked);
        let Some((key, learned_under)) = job.control.started_from() else {
            return;
        };
        let seconds = self.out.unix_seconds();
        let learned = self.jobs.learned_mut();
        learned.unlearn(&key, learned_under, seconds);
        if let Some(own) = own {
            learned.unlearn(&own, policy, seconds);
        }
        let text = "the learned caps that it started from are forgotten: no job starts from them within 7 days";
        self.note(Note::info(EventKind::State, text).job(name));
        self.jobs
            .save_learned(self.writer.store_mut(), &mut self.out);
    }

    /// Whether a budget keeps a job's GPUs below their caps found. gpu-red learns how many watts it can leave
    /// unused: those of a budget would be among them, and outlive it.
    fn is_short(&self, name: &str) -> bool {
        let Some(job) = self.jobs.get(name) else {
            return false;
        };
        let units = job.gpus().filter_map(|device| self.devices.get(device));
        let found: Watts = units.filter_map(|unit| unit.base()).sum();
        let plan = job.control.controller().map(|it| it.plan().gpu_budget());
        plan.is_some_and(|budget| budget < found - DUST)
    }
}
