//! Trials: caps found and balanced caps alternate on a job, and the difference is reported. The permanent hold-out
//! is the same with little time for the caps found. Either may find [harm](crate::authority::harm).
//!
//! - [`lab`]: the caps of devices meanwhile;
//! - [`meter`]: one block;
//! - `run`: a trial that was asked for;
//! - `hold_out`: the permanent one.

mod hold_out;
mod lab;
mod meter;
mod run;
mod told;

use litd_api::EventKind;
use litd_trial::Report;
use litd_units::Nanos;
use serde::{Deserialize, Serialize};

pub(crate) use hold_out::HeldOut;
pub(crate) use lab::Lab;
use meter::Gauge;
pub(crate) use run::Run;

use crate::authority::harm::Harms;
use crate::core::Core;
use crate::job::Job;
use crate::record::Note;
use crate::store::Store;

/// The part that is kept on disk.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    report: Option<Report>,
    harms: Harms,
}

impl<S: Store> Core<S> {
    /// Takes over the last daemon's trial and harms.
    pub(crate) fn recall_trial(&mut self) {
        let bytes = match self.writer.store_mut().load_trial() {
            Ok(bytes) if bytes.is_empty() => return,
            Ok(bytes) => bytes,
            Err(error) => {
                let text = format!("the last trial's report can't be read: {error}");
                return self.note(Note::warning(EventKind::Trial, text));
            }
        };
        let Ok(kept) = serde_json::from_slice::<Kept>(&bytes) else {
            let text = "the last trial's report is damaged and not used";
            return self.note(Note::warning(EventKind::Trial, text));
        };
        *self.authority.harms_mut() = kept.harms;
        let mut report = kept.report;
        if let Some(report) = report.as_mut().filter(|it| !it.state.is_over()) {
            report.abort("litd ended while it ran; the caps found went back");
            let text = "a trial was aborted: litd ended while it ran";
            self.note_trial(&report.job, Note::warning(EventKind::Trial, text));
        }
        self.jobs.has_tried(report);
        if let Some(why) = self.authority.harms().in_words() {
            let text = format!(
                "steering of these users' jobs stays stopped for harm, until `litctl resume`: {why}"
            );
            self.note(Note::warning(EventKind::Trial, text));
        }
    }

    fn keep_trial(&mut self) {
        let running = self.jobs.trial().map(Run::report);
        let kept = Kept {
            report: running.or(self.jobs.tried()).cloned(),
            harms: self.authority.harms().clone(),
        };
        let kept = serde_json::to_vec(&kept).map_err(std::io::Error::other);
        if let Err(error) = kept.and_then(|bytes| self.writer.store_mut().replace_trial(&bytes)) {
            self.out.error("trial", "");
            let text = format!("the trial's report can't be kept: {error}");
            self.note(Note::warning(EventKind::Fault, text));
        }
    }

    /// A rank reports how long an iteration took.
    pub(crate) fn trial_tick(&mut self, name: &str, tick: litd_proto::Tick) {
        if let Some(run) = self.jobs.trial_mut() {
            run.tick(name, tick);
        }
        if let Some(job) = self.jobs.get_mut(name) {
            job.trial.held_out.tick(tick);
        }
    }

    /// A job counts its iterations anew: the block under way is dropped.
    pub(crate) fn trial_restarted(&mut self, name: &str) {
        let now = self.now();
        if let Some(run) = self.jobs.trial_mut() {
            run.disturb(name, now);
        }
        if let Some(job) = self.jobs.get_mut(name) {
            job.trial.held_out.disturb(now);
        }
    }

    /// Records what an administrator's trial of a job, or the finding that steering harms it, has come to. Neither is
    /// its user's doing, whose other events are not to push this one out.
    fn note_trial(&mut self, name: &str, note: Note) {
        self.note(note.job(name).by_the_node());
    }

    /// Steering has made a job slower: no job of its user is steered until an administrator resumes it.
    fn declare_harm(&mut self, name: &str, why: &str) {
        let Some(whose) = self.jobs.get(name).map(|job| self.hooks.tenant_of(job)) else {
            return self.keep_trial();
        };
        let text = format!(
            "harm: {why}; caps found are restored for the jobs of {whose}, and none of them is steered until `litctl resume`"
        );
        self.note_trial(name, Note::warning(EventKind::Trial, text));
        self.authority.harms_mut().add(whose, name, why);
        self.keep_trial();
        self.judge_jobs_anew();
    }

    /// An administrator resumes steering. Returns whether any harm was known.
    pub(crate) fn forgive_harm(&mut self) -> bool {
        if !self.authority.harms_mut().forgive() {
            return false;
        }
        for job in self.jobs.values_mut() {
            job.trial.held_out = HeldOut::default();
        }
        self.keep_trial();
        self.judge_jobs_anew();
        true
    }

    fn judge_jobs_anew(&mut self) {
        for name in self.jobs.names() {
            self.suspend_or_resume(&name);
        }
    }

    /// Readings of a job's devices, GPUs first, and the number of GPUs.
    fn gauges(&self, job: &Job) -> (Vec<Gauge>, usize) {
        let gauge = |device: usize| {
            let unit = self.devices.get(device);
            let reading = unit.and_then(|unit| unit.readings.last());
            let settled = self.writer.account().is_settled(device);
            Gauge {
                energy: reading.and_then(|reading| reading.energy),
                power: reading.and_then(|reading| reading.power),
                at: unit.map_or(Nanos::ZERO, |unit| unit.readings.asked()),
                held: self.writer.account().held(device).filter(|_| settled),
            }
        };
        let gauges = job.devices().into_iter().map(gauge).collect();
        (gauges, job.gpus().count())
    }

    /// Why no trial can run on this job now.
    fn not_now(&self, name: &str) -> Option<String> {
        let Some(job) = self.jobs.get(name) else {
            return Some("its job has ended".to_owned());
        };
        if self.authority.is_stopping() {
            return Some("litd is stopping".to_owned());
        }
        if let Some(why) = job.control.suspended() {
            return Some(format!("its job is not steered any more: {why}"));
        }
        if job.hearing.is_stale() {
            return Some("no rank of its job has sent anything for too long".to_owned());
        }
        if !job.control.runs() {
            return Some("ranks of its job are missing".to_owned());
        }
        // While power is short neither arm could be reached from the other.
        self.short_of_power()
    }
}
