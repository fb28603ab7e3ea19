//! All jobs of the node by their names, the trial of one of them, and what was learned from jobs.

use std::collections::BTreeMap;

use litd_api::EventKind;
use litd_trial::Report;

use crate::hooks::Hooks;
use crate::job::Job;
use crate::job::moves::Moves;
use crate::learned::Learned;
use crate::outbox::Outbox;
use crate::record::Note;
use crate::store::Store;
use crate::trial::Run;

/// All jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    jobs: BTreeMap<String, Job>,
    /// The trial under way. It outlives its job for a moment, to report that.
    trial: Option<Run>,
    /// The report of the last trial.
    tried: Option<Report>,
    learned: Learned,
    /// How often caps have moved for whose jobs.
    moves: Moves,
}

impl Jobs {
    /// No jobs; this was learned from earlier ones.
    pub fn new(learned: Learned) -> Self {
        Self {
            learned,
            ..Self::default()
        }
    }

    pub fn get(&self, name: &str) -> Option<&Job> {
        self.jobs.get(name)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Job> {
        self.jobs.get_mut(name)
    }

    pub fn values(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        self.jobs.values_mut()
    }

    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// The names of all jobs.
    pub fn names(&self) -> Vec<String> {
        self.jobs.keys().cloned().collect()
    }

    /// The names of the jobs of which this is true.
    pub fn that(&self, is: impl Fn(&Job) -> bool) -> Vec<String> {
        let jobs = self.values().filter(|job| is(job));
        jobs.map(|job| job.name.clone()).collect()
    }

    /// The names of the jobs that have a loop.
    pub fn with_a_loop(&self) -> Vec<String> {
        self.that(|job| job.control.runs())
    }

    /// The job of this name, which begins now if it is `new`.
    pub fn joined(&mut self, name: &str, new: impl FnOnce() -> Job) -> &mut Job {
        self.jobs.entry(name.to_owned()).or_insert_with(new)
    }

    /// A job ends, and with the last group of a whole job what its profilers were trying. Returns the job.
    pub fn ends(&mut self, name: &str) -> Option<Job> {
        let job = self.jobs.remove(name)?;
        if !self.values().any(|other| other.whole() == job.whole()) {
            self.learned.profilers.ended(job.whole());
        }
        Some(job)
    }

    /// The note with the user, or the pod, whose job it is about: he has caused it unless the note says otherwise.
    pub fn blame(&self, note: Note, hooks: &Hooks) -> Note {
        let job = note.job_of_unknown_owner().and_then(|job| self.get(job));
        match job.map(|job| hooks.tenant_of(job).party()) {
            Some(party) => note.caused_by(Some(party)),
            None => note,
        }
    }

    /// How often caps have moved for whose jobs.
    pub fn moves(&self) -> &Moves {
        &self.moves
    }

    pub fn moves_mut(&mut self) -> &mut Moves {
        &mut self.moves
    }

    /// What was learned from jobs of this node.
    pub fn learned(&self) -> &Learned {
        &self.learned
    }

    pub fn learned_mut(&mut self) -> &mut Learned {
        &mut self.learned
    }

    /// Keeps what was learned for the next litd.
    pub fn save_learned(&self, store: &mut impl Store, out: &mut Outbox) {
        if let Err(error) = self.learned.save(store) {
            out.error("learned", "");
            let text = format!("what was learned can't be kept: {error}");
            out.note(Note::warning(EventKind::Fault, text));
        }
    }

    /// The trial under way.
    pub fn trial(&self) -> Option<&Run> {
        self.trial.as_ref()
    }

    pub fn trial_mut(&mut self) -> Option<&mut Run> {
        self.trial.as_mut()
    }

    /// A trial begins.
    pub fn begins_trial(&mut self, run: Run) {
        self.trial = Some(run);
    }

    /// The trial is over. Its report is told by [`Jobs::tried`].
    pub fn ends_trial(&mut self) -> Option<Run> {
        self.trial.take()
    }

    /// The report of the last trial.
    pub fn tried(&self) -> Option<&Report> {
        self.tried.as_ref()
    }

    /// The last trial has come to this.
    pub fn has_tried(&mut self, report: Option<Report>) {
        self.tried = report;
    }
}

#[cfg(test)]
mod tests {
    use litd_proto::Hello;
    use litd_units::Nanos;

    use super::*;

    fn hello(job: &str) -> Hello {
        Hello {
            job: job.to_owned(),
            rank: 0,
            local_world_size: 1,
            local_rank: 0,
            world_size: 1,
            protocol: 1,
            gpu: "0000:05:00.0".to_owned(),
            framework: String::new(),
            versions: BTreeMap::new(),
            group: String::new(),
        }
    }

    fn jobs(names: &[&str]) -> Jobs {
        let mut jobs = Jobs::default();
        for name in names {
            jobs.joined(name, || Job::new(&hello(name), 500, None, 8, Nanos(0)));
        }
        jobs
    }

    #[test]
    fn a_job_that_is_joined_again_goes_on() {
        let mut jobs = jobs(&["b", "a"]);
        jobs.get_mut("a").unwrap().control.says("known");
        let again = jobs.joined("a", || unreachable!());
        assert_eq!(again.control.why(), "known");
        assert_eq!(jobs.names(), ["a", "b"]);
        assert_eq!(jobs.that(|job| job.control.why().is_empty()), ["b"]);
        assert!(jobs.with_a_loop().is_empty());
    }

    #[test]
    fn a_job_ends_once() {
        let mut jobs = jobs(&["a", "b"]);
        assert!(jobs.ends("a").is_some() && jobs.ends("a").is_none());
        assert_eq!(jobs.names(), ["b"]);
    }

    #[test]
    fn what_is_about_a_job_counts_as_its_owners_doing() {
        let jobs = jobs(&["a"]);
        let of = |job: &str| Note::info(EventKind::Job, "text").job(job);
        let blamed = |job: &str| jobs.blame(of(job), &Hooks::default());
        assert!(blamed("a").job_of_unknown_owner().is_none());
        assert_eq!(blamed("b").job_of_unknown_owner(), Some("b"));
    }
}
