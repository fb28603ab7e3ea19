//! The permanent hold-out: a job that is steered in production holds the caps found for a small share of the time,
//! so that the effect of steering is measured and not assumed.

use litd_api::{EventKind, HoldOutStatus};
use litd_policies::{CapVector, Policy, State as Loop};
use litd_proto::Tick;
use litd_trial::holdout::pause;
use litd_trial::{Arm, Block, CONFIDENCE, HoldOut};
use litd_units::Nanos;

use super::Lab;
use super::meter::{Meter, Step};
use crate::core::{Core, seconds};
use crate::job::Job;
use crate::record::Note;
use crate::store::Store;

/// The loss of throughput for which the hold-out says how soon it would be found.
const LOSS: f64 = 0.005;

/// The phase of a job's hold-out.
#[derive(Debug, Default)]
enum Phase {
    /// The job is not steered, or not converged.
    #[default]
    Off,
    /// The balanced caps are held until then.
    Pause(Nanos),
    /// Blocks are measured: balanced, found, balanced.
    Measures { meter: Box<Meter>, done: Vec<Block> },
}

/// The hold-out of one job.
#[derive(Debug, Default)]
pub(crate) struct HeldOut {
    shown: HoldOut,
    phase: Phase,
    round: u32,
    /// The policy that it is about.
    policy: Option<Policy>,
    /// The balanced caps that are compared with those found.
    caps: Option<CapVector>,
}

impl HeldOut {
    pub fn tick(&mut self, tick: Tick) {
        if let Phase::Measures { meter, .. } = &mut self.phase {
            meter.tick(tick.iteration, tick.duration, tick.profiled);
        }
    }

    pub fn disturb(&mut self, now: Nanos) {
        if let Phase::Measures { meter, .. } = &mut self.phase {
            meter.disturb(now);
        }
    }
}

impl<S: Store> Core<S> {
    pub(crate) fn check_hold_outs(&mut self) {
        for name in self.jobs.names() {
            self.check_hold_out(&name);
        }
    }

    /// Whether a job's caps are balanced and held, so that there is something to compare.
    fn is_held(&self, name: &str) -> bool {
        let tried = self.jobs.trial();
        let tried = tried.is_some_and(|run| run.report().job == name);
        let on = self.config.trial.hold_out > 0.0 && self.steers() && !tried;
        let settled = |job: &Job| job.state() == Some(Loop::Converged) && job.is_steered();
        on && self.not_now(name).is_none()
            && self
                .jobs
                .get(name)
                .is_some_and(|job| settled(job) && !self.nothing_moved(job))
    }

    fn check_hold_out(&mut self, name: &str) {
        if !self.is_held(name) {
            return self.end_hold_out(name);
        }
        let (now, policy, rules) = (self.now(), self.policy(), self.config.trial.clone());
        let Some(job) = self.jobs.get(name) else {
            return;
        };
        let settle = seconds(self.settle_seconds(job));
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let out = &mut job.trial.held_out;
        if out.policy != Some(policy) {
            (out.shown, out.policy) = (HoldOut::default(), Some(policy));
        }
        let other = out.caps.as_ref() != job.control.ask();
        match &out.phase {
            Phase::Measures { .. } if other => self.end_hold_out(name),
            Phase::Measures { .. } => self.measure_hold_out(name),
            Phase::Pause(until) if now < *until => {}
            Phase::Pause(_) => {
                out.caps = job.control.ask().cloned();
                out.phase = Phase::Measures {
                    meter: Box::new(Meter::new(Arm::Balanced, now, settle)),
                    done: Vec::new(),
                };
            }
            Phase::Off => {
                out.round = out.round.wrapping_add(1);
                let away = seconds(rules.block_seconds) + settle;
                let next = pause(
                    rules.hold_out,
                    away,
                    self.rounds.started().0 as u64,
                    out.round,
                );
                out.phase = next.map_or(Phase::Off, |next| Phase::Pause(now + next));
            }
        }
    }

    /// The job goes on with its loop's caps.
    pub(crate) fn end_hold_out(&mut self, name: &str) {
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        if let Phase::Measures { .. } = std::mem::take(&mut job.trial.held_out.phase) {
            self.raise_lab(name, true);
        }
    }

    fn measure_hold_out(&mut self, name: &str) {
        let Some(job) = self.jobs.get(name) else {
            return;
        };
        let (gauges, gpus) = self.gauges(job);
        let settle = seconds(self.settle_seconds(job));
        let rising = matches!(job.trial.lab, Some(Lab::Rising { .. })) || self.is_climbing(job);
        let (now, node, rules) = (self.now(), self.node_power(), self.config.trial.clone());
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let Phase::Measures { meter, done } = &mut job.trial.held_out.phase else {
            return;
        };
        if rising {
            return meter.disturb(now);
        }
        let block = match meter.step(now, &gauges, gpus, node, &rules) {
            Step::Goes => return,
            Step::Starved => return self.end_hold_out(name),
            Step::Done(block) => block,
        };
        done.push(block);
        match done[..] {
            [_] => {
                **meter = Meter::new(Arm::Found, now, settle);
                job.trial.lab = Some(Lab::Found);
            }
            [_, _] => {
                **meter = Meter::new(Arm::Balanced, now, settle);
                self.raise_lab(name, false);
            }
            [before, found, after, ..] => {
                job.trial.held_out.shown.add(&before, &found, &after);
                self.end_hold_out(name);
                self.judge_hold_out(name);
            }
            [] => {}
        }
    }

    fn judge_hold_out(&mut self, name: &str) {
        let Some(job) = self.jobs.get(name) else {
            return;
        };
        let shown = &job.trial.held_out.shown;
        let count = shown.count();
        let Some(it) = shown.harm() else {
            let text = match shown.throughput(CONFIDENCE) {
                None => format!("{count} comparisons so far"),
                Some(it) => format!(
                    "{count} comparisons: throughput {:+.2} % ({:+.2} to {:+.2} %) with the balanced caps",
                    it.mean * 100.0,
                    it.low * 100.0,
                    it.high * 100.0
                ),
            };
            let text = format!("hold-out: {text}");
            return self.note(Note::info(EventKind::Trial, text).job(name));
        };
        let why = format!(
            "the hold-out has shown after {count} comparisons that the balanced caps make the job slower: throughput {:+.2} % ({:+.2} to {:+.2} % at {:.1} %)",
            it.mean * 100.0,
            it.low * 100.0,
            it.high * 100.0,
            it.confidence * 100.0
        );
        self.declare_harm(name, &why);
    }

    pub(crate) fn hold_out_status(&self, job: &Job) -> Option<HoldOutStatus> {
        let out = &job.trial.held_out;
        let now = match &out.phase {
            Phase::Off if out.shown.count() == 0 => return None,
            Phase::Off => "the job is not settled".to_owned(),
            Phase::Pause(until) => format!(
                "the next comparison begins in {:.0} min",
                (*until - self.now()).as_secs_f64().max(0.0) / 60.0
            ),
            Phase::Measures { meter, done } => format!(
                "block {} of 3 ({}), {}",
                done.len() + 1,
                meter.arm().letter(),
                meter.progress(self.now(), &self.config.trial)
            ),
        };
        Some(HoldOutStatus {
            job: job.name.clone(),
            share: self.config.trial.hold_out,
            comparisons: u32::try_from(out.shown.count()).unwrap_or(u32::MAX),
            throughput: out.shown.throughput(CONFIDENCE),
            power: out.shown.power(CONFIDENCE),
            to_find: out.shown.to_find(LOSS),
            now,
        })
    }
}
