//! Trials: caps found and balanced caps alternate on a job, and the difference is reported. The permanent hold-out
//! is the same with little time for the caps found. Harm stops steering for the user of the harmed job, in the
//! same pod if it was in one ([`Tenant`]): iteration times are reported by his processes, and no user's reports
//! move the caps of another's GPUs.
//!
//! - [`lab`]: the caps of devices meanwhile;
//! - [`meter`]: one block;
//! - `run`: a trial that was asked for;
//! - `hold_out`: the permanent one.

mod hold_out;
mod lab;
mod meter;
mod run;

use litd_api::{EventKind, Trials as Told};
use litd_trial::Report;
use litd_units::Nanos;
use serde::{Deserialize, Serialize};

pub(crate) use hold_out::HeldOut;
pub(crate) use lab::Lab;
use meter::Gauge;
use run::Run;

use crate::core::Core;
use crate::hooks::tenant::Tenant;
use crate::job::Job;
use crate::record::Note;
use crate::store::Store;

/// How many harms are kept; the oldest are dropped, those of pods first, because most pods have ended by then.
const KEPT: usize = 64;

/// Steering has made a job slower: no job of its user is steered until an administrator resumes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Harm {
    #[serde(flatten)]
    whose: Tenant,
    job: String,
    why: String,
}

/// The part that is kept on disk.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    report: Option<Report>,
    harms: Vec<Harm>,
}

/// The trial under way, the last one, and harm.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    run: Option<Run>,
    last: Option<Report>,
    /// Harms, one for each user whose jobs steering has made slower.
    harms: Vec<Harm>,
}

impl Trials {
    /// Why no job of this tenant is steered, if steering has made one slower.
    pub fn harm_to(&self, whose: &Tenant) -> Option<String> {
        let harm = self.harms.iter().find(|harm| harm.whose == *whose)?;
        Some(format!(
            "steering made the job {} slower: no job of {whose} is steered until `litctl resume`",
            harm.job
        ))
    }

    fn keep_harm(&mut self, harm: Harm) {
        self.harms.retain(|known| known.whose != harm.whose);
        self.harms.push(harm);
        if self.harms.len() > KEPT {
            let of_a_pod = |harm: &Harm| harm.whose.user().is_none();
            let oldest = self.harms.iter().position(of_a_pod).unwrap_or(0);
            self.harms.remove(oldest);
        }
    }

    /// The harms so far, in words, if any.
    pub fn harm(&self) -> Option<String> {
        let each = self.harms.iter();
        let told = each.map(|it| format!("{} of {}: {}", it.job, it.whose, it.why));
        told.reduce(|all, it| format!("{all}; {it}"))
    }
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
        self.trials.last = kept.report;
        self.trials.harms = kept.harms;
        if let Some(report) = &mut self.trials.last
            && !report.state.is_over()
        {
            report.abort("litd ended while it ran; the caps found went back");
            let job = report.job.clone();
            let text = "a trial was aborted: litd ended while it ran";
            self.note_trial(&job, Note::warning(EventKind::Trial, text));
        }
        if let Some(why) = self.trials.harm() {
            let text = format!(
                "steering of these users' jobs stays stopped for harm, until `litctl resume`: {why}"
            );
            self.note(Note::warning(EventKind::Trial, text));
        }
    }

    fn keep_trial(&mut self) {
        let running = self.trials.run.as_ref().map(|run| run.report().clone());
        let kept = Kept {
            report: running.or_else(|| self.trials.last.clone()),
            harms: self.trials.harms.clone(),
        };
        let kept = serde_json::to_vec(&kept).map_err(std::io::Error::other);
        if let Err(error) = kept.and_then(|bytes| self.writer.store_mut().replace_trial(&bytes)) {
            self.out.error("trial", "");
            let text = format!("the trial's report can't be kept: {error}");
            self.note(Note::warning(EventKind::Fault, text));
        }
    }

    /// Trials and the hold-out, for `litctl trial`.
    #[must_use]
    pub fn trials(&self) -> Told {
        let running = self.trials.run.as_ref().map(|run| self.report_of(run));
        let jobs = self.jobs.values();
        Told {
            report: running.or_else(|| self.trials.last.clone()),
            hold_outs: jobs.filter_map(|job| self.hold_out_status(job)).collect(),
            harm: self.trials.harm(),
        }
    }

    /// How a trial or the hold-out holds a job's caps now, in words.
    pub(crate) fn trial_words(&self, job: &Job) -> Option<String> {
        let run = self.trials.run.as_ref();
        if let Some(run) = run.filter(|run| run.report().job == job.name) {
            let report = self.report_of(run);
            return Some(match report.now.is_empty() {
                true => format!("trial waits: {}", report.why),
                false => format!("trial: {}", report.now),
            });
        }
        job.lab?;
        let out = self.hold_out_status(job)?;
        Some(format!("hold-out: {}", out.now))
    }

    /// The round of trials, once a second.
    pub(crate) fn check_trials(&mut self) {
        self.raise_labs();
        self.check_run();
        self.check_hold_outs();
    }

    /// A rank reports how long an iteration took.
    pub(crate) fn trial_tick(&mut self, name: &str, tick: litd_proto::Tick) {
        if let Some(run) = &mut self.trials.run {
            run.tick(name, tick);
        }
        if let Some(job) = self.jobs.get_mut(name) {
            job.held_out.tick(tick);
        }
    }

    /// A job counts its iterations anew: the block under way is dropped.
    pub(crate) fn trial_restarted(&mut self, name: &str) {
        let now = self.now();
        if let Some(run) = &mut self.trials.run {
            run.disturb(name, now);
        }
        if let Some(job) = self.jobs.get_mut(name) {
            job.held_out.disturb(now);
        }
    }

    /// Records what an administrator's trial of a job, or the finding that steering harms it, has come to. Neither is
    /// its user's doing, whose other events are not to push this one out.
    fn note_trial(&mut self, name: &str, note: Note) {
        self.note(note.job(name).by_the_node());
    }

    /// Steering has made a job slower: no job of its user is steered until an administrator resumes it.
    fn declare_harm(&mut self, name: &str, why: &str) {
        let Some(whose) = self.jobs.get(name).map(|job| self.tenant_of(job)) else {
            return self.keep_trial();
        };
        let text = format!(
            "harm: {why}; caps found are restored for the jobs of {whose}, and none of them is steered until `litctl resume`"
        );
        self.note_trial(name, Note::warning(EventKind::Trial, text));
        self.trials.keep_harm(Harm {
            whose,
            job: name.to_owned(),
            why: why.to_owned(),
        });
        self.keep_trial();
        self.judge_jobs_anew();
    }

    /// An administrator resumes steering. Returns whether any harm was known.
    pub(crate) fn forgive_harm(&mut self) -> bool {
        if std::mem::take(&mut self.trials.harms).is_empty() {
            return false;
        }
        for job in self.jobs.values_mut() {
            job.held_out = HeldOut::default();
        }
        self.keep_trial();
        self.judge_jobs_anew();
        true
    }

    fn judge_jobs_anew(&mut self) {
        let names: Vec<String> = self.jobs.keys().cloned().collect();
        for name in names {
            self.suspend_or_resume(&name);
        }
    }

    /// Readings of a job's devices, GPUs first, and the number of GPUs.
    fn gauges(&self, job: &Job) -> (Vec<Gauge>, usize) {
        let gauge = |device: usize| {
            let unit = self.devices.get(device);
            let reading = unit.and_then(|unit| unit.readings.last());
            let settled = self.actuator.is_settled(device);
            Gauge {
                energy: reading.and_then(|reading| reading.energy),
                power: reading.and_then(|reading| reading.power),
                at: unit.map_or(Nanos::ZERO, |unit| unit.readings.asked()),
                held: self.actuator.held(device).filter(|_| settled),
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
            return Some("nothing was heard of its job for too long".to_owned());
        }
        if !job.control.runs() {
            return Some("ranks of its job are missing".to_owned());
        }
        // While power is short neither arm could be reached from the other.
        self.short_of_power()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::cgroup::Home;

    #[test]
    fn harm_to_one_users_job_is_that_users_alone_and_is_kept() {
        let harm = |uid: u32, job: &str| Harm {
            whose: uid.into(),
            job: job.to_owned(),
            why: "0.5 % slower".to_owned(),
        };
        let kept = Kept {
            report: None,
            harms: vec![harm(500, "one"), harm(502, "two")],
        };
        let bytes = serde_json::to_vec(&kept).unwrap();
        let trials = Trials {
            harms: serde_json::from_slice::<Kept>(&bytes).unwrap().harms,
            ..Trials::default()
        };
        let told = |uid: u32| trials.harm_to(&uid.into()).unwrap();
        let until = "until `litctl resume`";
        let (one, two) = (told(500), told(502));
        assert_eq!(
            one,
            format!("steering made the job one slower: no job of user 500 is steered {until}")
        );
        assert_eq!(
            two,
            format!("steering made the job two slower: no job of user 502 is steered {until}")
        );
        assert_eq!(trials.harm_to(&501.into()), None);
        let told = "one of user 500: 0.5 % slower; two of user 502: 0.5 % slower";
        assert_eq!(trials.harm().as_deref(), Some(told));
        assert_eq!(Trials::default().harm(), None);
    }

    #[test]
    fn harm_in_one_pod_is_none_in_another_and_older_files_count_for_jobs_in_no_pod() {
        let home = |number: u32| {
            let path = format!("/kubepods/pod{number:08x}-aaaa-4bbb-8ccc-0123456789ab");
            Home::of(&format!("0::{path}\n")).unwrap()
        };
        let pod = |number: u32| Tenant::of(0, Some(&home(number)));
        let mut trials = Trials::default();
        let harm = |whose: Tenant| Harm {
            whose,
            job: "train".to_owned(),
            why: "slower".to_owned(),
        };
        trials.keep_harm(harm(pod(1)));
        let bytes = serde_json::to_vec(&trials.harms).unwrap();
        trials.harms = serde_json::from_slice(&bytes).unwrap();
        let why = trials.harm_to(&pod(1)).unwrap();
        assert!(why.contains("of user 0 in pod-00000001-"), "{why}");
        assert_eq!(trials.harm_to(&pod(2)), None);
        assert_eq!(trials.harm_to(&0.into()), None);
        let older = r#"[{"uid":0,"job":"train","why":"slower"}]"#;
        trials.harms = serde_json::from_str(older).unwrap();
        assert!(trials.harm_to(&0.into()).is_some());
        assert_eq!(trials.harm_to(&pod(1)), None);
        // Any number of pods does not push out users who are in none.
        for number in 0..1000 {
            trials.keep_harm(harm(pod(number)));
        }
        assert!(trials.harms.len() <= KEPT && trials.harm_to(&0.into()).is_some());
        assert!(trials.harm_to(&pod(999)).is_some());
    }
}
