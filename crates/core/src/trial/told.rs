//! Trials and the hold-out each second, and what people are told of them.

use litd_api::Trials;

use crate::core::Core;
use crate::job::Job;
use crate::store::Store;

impl<S: Store> Core<S> {
    /// The round of trials, once a second.
    pub(crate) fn check_trials(&mut self) {
        self.raise_labs();
        self.check_run();
        self.check_hold_outs();
    }

    /// Trials and the hold-out, for `litctl trial`.
    #[must_use]
    pub fn trials(&self) -> Trials {
        let running = self.jobs.trial().map(|run| self.report_of(run));
        let jobs = self.jobs.values();
        Trials {
            report: running.or_else(|| self.jobs.tried().cloned()),
            hold_outs: jobs.filter_map(|job| self.hold_out_status(job)).collect(),
            harm: self.authority.harms().in_words(),
        }
    }

    /// How a trial or the hold-out holds a job's caps now, in words.
    pub(crate) fn trial_words(&self, job: &Job) -> Option<String> {
        let run = self.jobs.trial();
        if let Some(run) = run.filter(|run| run.report().job == job.name) {
            let report = self.report_of(run);
            return Some(match report.now.is_empty() {
                true => format!("trial waits: {}", report.why),
                false => format!("trial: {}", report.now),
            });
        }
        job.trial.lab?;
        let out = self.hold_out_status(job)?;
        Some(format!("hold-out: {}", out.now))
    }
}
