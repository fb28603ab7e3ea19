//! A trial that was asked for: blocks of both arms alternate on one job.

use litd_api::{EventKind, Problem};
use litd_policies::{CapVector, Policy, State as Loop};
use litd_proto::Tick;
use litd_trial::report::{About, harm};
use litd_trial::{Arm, Block, Design, Report, State, Verdict};
use litd_units::Nanos;

use super::Lab;
use super::meter::{Meter, Step};
use crate::authority::admin::problem;
use crate::core::{Core, seconds};
use crate::record::Note;
use crate::store::Store;

/// The most quads of a trial: at six minutes a block that is a month.
const MOST_QUADS: u32 = 2000;

/// A trial under way.
#[derive(Debug)]
pub(crate) struct Run {
    report: Report,
    blocks: Vec<Block>,
    policy: Policy,
    /// The balanced caps; absent before it runs, and where both arms hold the caps found.
    caps: Option<CapVector>,
    meter: Option<Meter>,
}

impl Run {
    pub fn report(&self) -> &Report {
        &self.report
    }

    pub fn tick(&mut self, job: &str, tick: Tick) {
        if let Some(meter) = self.meter.as_mut().filter(|_| self.report.job == job) {
            meter.tick(tick.iteration, tick.duration, tick.profiled);
        }
    }

    pub fn disturb(&mut self, job: &str, now: Nanos) {
        if let Some(meter) = self.meter.as_mut().filter(|_| self.report.job == job) {
            meter.disturb(now);
        }
    }
}

impl<S: Store> Core<S> {
    /// Begins a trial.
    pub(crate) fn ask_trial(
        &mut self,
        job: Option<String>,
        quads: Option<u32>,
        same: bool,
        seed: Option<u64>,
    ) -> Result<String, Problem> {
        if let Some(run) = self.jobs.trial() {
            let job = &run.report.job;
            return Err(problem(format!(
                "a trial runs on {job} already: `litctl trial status` shows it, `litctl trial stop` ends it"
            )));
        }
        let name = self.trial_job(job)?;
        if let Some(why) = self.not_now(&name) {
            return Err(problem(format!("{name} can't be tried now: {why}")));
        }
        if !same {
            self.check_steering()?;
        }
        let rules = &self.config.trial;
        let quads = quads.unwrap_or(rules.quads);
        if !(2..=MOST_QUADS).contains(&quads) {
            return Err(problem(format!(
                "{quads} quads: a trial has 2 to {MOST_QUADS}, of four blocks each"
            )));
        }
        let job = self.jobs.get(&name);
        let started_unix = self.out.unix_seconds();
        let design = Design {
            quads,
            block: seconds(rules.block_seconds),
            settle: job.map_or(Nanos::default(), |job| seconds(self.settle_seconds(job))),
            iterations: rules.block_iterations,
            seed: seed.unwrap_or(started_unix.to_bits()),
            same,
        };
        let about = About {
            job: name.clone(),
            policy: self.policy().name().to_owned(),
            simulated: self.devices.is_simulated(),
            gpus: job.map_or(0, |job| job.ranks.len() as u32),
            prices: self.config.prices.known(),
            started_unix,
        };
        let mut report = Report::new(about, design);
        "the job's caps are not balanced yet".clone_into(&mut report.why);
        let kind = if same { "A/A trial" } else { "trial" };
        let hours = design.length().as_secs_f64() / 3600.0;
        let text = format!(
            "{kind} of {quads} quads ({} blocks, {hours:.1} h), seed {}",
            design.blocks(),
            design.seed
        );
        let note = Note::info(EventKind::Trial, format!("asked for: {text}"));
        self.note_trial(&name, note);
        self.end_hold_out(&name);
        self.jobs.begins_trial(Run {
            report,
            blocks: Vec::new(),
            policy: self.policy(),
            caps: None,
            meter: None,
        });
        self.keep_trial();
        Ok(format!("{text}, on {name}: `litctl trial status` shows it"))
    }

    fn trial_job(&self, job: Option<String>) -> Result<String, Problem> {
        let known = self.jobs.names();
        match (job, &known[..]) {
            (Some(name), _) if known.contains(&name) => Ok(name),
            (Some(name), _) => Err(problem(format!(
                "there is no job {name:?}; there are: {}",
                known.join(", ")
            ))),
            (None, [one]) => Ok(one.clone()),
            (None, []) => Err(problem("no job is connected: a trial needs one that runs")),
            (None, _) => Err(problem(format!(
                "which job? There are {}",
                known.join(", ")
            ))),
        }
    }

    fn check_steering(&self) -> Result<(), Problem> {
        self.authority.check_mode(&self.config).map_err(|why| {
            problem(format!(
                "{why}; so there are no balanced caps to try. `litctl trial start --aa` tries the measurement without moving any cap"
            ))
        })?;
        match self.policy() {
            Policy::Observe => Err(problem(
                "the policy is observe, so there are no balanced caps to try: `litctl policy` sets another",
            )),
            _ => Ok(()),
        }
    }

    /// Ends the trial under way.
    pub(crate) fn stop_trial(&mut self) -> Result<String, Problem> {
        if self.jobs.trial().is_none() {
            return Err(problem("no trial is under way"));
        }
        self.end_run(|report| report.abort("an administrator stopped it"));
        Ok("the trial is stopped; the balanced caps come back step by step".to_owned())
    }

    /// A trial's report, and its present state.
    pub(crate) fn report_of(&self, run: &Run) -> Report {
        let mut report = run.report.clone();
        report.now = match (&run.meter, report.state) {
            (Some(meter), State::Running) => format!(
                "block {} of {} ({}), {}",
                report.blocks + 1,
                report.design.blocks(),
                meter.arm().letter(),
                meter.progress(self.now(), &self.config.trial)
            ),
            _ => String::new(),
        };
        report
    }

    pub(crate) fn check_run(&mut self) {
        let Some(run) = self.jobs.trial() else {
            return;
        };
        if let Some(why) = self.run_obstacle(run) {
            return self.end_run(|report| report.abort(&why));
        }
        match run.report.state {
            State::Waiting => self.begin_run(),
            _ => self.go_on(),
        }
    }

    fn run_obstacle(&self, run: &Run) -> Option<String> {
        let name = &run.report.job;
        let job = self.jobs.get(name);
        if let Some(why) = self.not_now(name) {
            return Some(why);
        }
        if self.policy() != run.policy && !run.report.design.same {
            return Some(format!("the policy is {} now", self.policy()));
        }
        let job = job?;
        let waits = run.report.state == State::Waiting;
        let same = run.report.design.same;
        if same
            && !waits
            && self.steers()
            && job.trial.lab != Some(Lab::Found)
            && job.control.ask().is_some()
        {
            return Some(format!("its caps were planned anew: {}", job.control.why()));
        }
        if !same && !waits && job.control.ask() != run.caps.as_ref() {
            return Some(format!("its caps were planned anew: {}", job.control.why()));
        }
        if !same && waits && job.state() == Some(Loop::Rollback) {
            return Some(format!("its loop has stopped: {}", job.control.why()));
        }
        None
    }

    /// Begins once the caps are balanced; at once, where both arms hold the caps found.
    fn begin_run(&mut self) {
        let Some(run) = self.jobs.trial() else {
            return;
        };
        let (name, same) = (run.report.job.clone(), run.report.design.same);
        let Some(job) = self.jobs.get(&name) else {
            return;
        };
        if let Some(obstacle) = job.control.no_plan().filter(|_| !same) {
            let why = format!("there is nothing to balance: {obstacle}");
            return self.end_run(|report| report.nothing_to_do(&why));
        }
        if !same && job.state() == Some(Loop::Observe) {
            let why = format!("its job is not steered: {}", job.control.why());
            return self.end_run(|report| report.abort(&why));
        }
        let converged = job.state() == Some(Loop::Converged);
        if !same && !converged {
            let why = format!("the job's caps are not balanced yet: {}", job.control.why());
            if let Some(run) = self.jobs.trial_mut() {
                run.report.why = why;
            }
            return;
        }
        if !same && self.nothing_moved(job) {
            let why = format!("the balanced caps are those found: {}", job.control.why());
            return self.end_run(|report| report.nothing_to_do(&why));
        }
        if matches!(job.trial.lab, Some(Lab::Rising { .. })) {
            return;
        }
        let caps = job.control.ask().cloned().filter(|_| !same);
        if let Some(job) = self.jobs.get_mut(&name) {
            job.trial.lab = match same && job.control.ask().is_some() {
                true => Some(Lab::Found),
                false => job.control.ask().map(|_| Lab::Balanced),
            };
        }
        if let Some(run) = self.jobs.trial_mut() {
            run.caps = caps;
            run.report.state = State::Running;
            "blocks are being measured".clone_into(&mut run.report.why);
        }
        let note = Note::info(EventKind::Trial, "the first block begins");
        self.note_trial(&name, note);
        self.keep_trial();
    }

    fn go_on(&mut self) {
        self.next_block();
        let Some(run) = self.jobs.trial() else {
            return;
        };
        let Some(job) = self.jobs.get(&run.report.job) else {
            return;
        };
        let (gauges, gpus) = self.gauges(job);
        let rising = matches!(job.trial.lab, Some(Lab::Rising { .. })) || self.is_climbing(job);
        let (now, node) = (self.now(), self.node_power());
        let rules = &self.config.trial;
        let Some(run) = self.jobs.trial_mut() else {
            return;
        };
        let Some(meter) = &mut run.meter else {
            return;
        };
        if rising {
            return meter.disturb(now);
        }
        match meter.step(now, &gauges, gpus, node, rules) {
            Step::Goes => {}
            Step::Done(block) => self.block_done(block),
            Step::Starved => {
                let why = format!(
                    "a block had fewer than {} unprofiled iterations after {:.0} s",
                    rules.block_iterations,
                    rules.block_seconds * 12.0
                );
                self.end_run(|report| report.abort(&why));
            }
        }
    }

    /// Has the caps of the next block's arm held, if no block is under way.
    fn next_block(&mut self) {
        let now = self.now();
        let Some(run) = self.jobs.trial_mut() else {
            return;
        };
        if run.meter.is_some() {
            return;
        }
        let arm = run.report.design.arm(run.report.blocks);
        run.meter = Some(Meter::new(arm, now, run.report.design.settle));
        let (name, same) = (run.report.job.clone(), run.report.design.same);
        if same {
            return;
        }
        match arm {
            Arm::Balanced => self.raise_lab(&name, false),
            Arm::Found => {
                if let Some(job) = self.jobs.get_mut(&name) {
                    job.trial.lab = Some(Lab::Found);
                }
            }
        }
    }

    fn block_done(&mut self, block: Block) {
        let Some(run) = self.jobs.trial_mut() else {
            return;
        };
        run.meter = None;
        run.blocks.push(block);
        run.report.update(&run.blocks);
        let (name, blocks) = (run.report.job.clone(), run.blocks.len());
        let all = run.report.design.blocks() as usize;
        if blocks >= all {
            let blocks = std::mem::take(&mut run.blocks);
            return self.end_run(|report| report.complete(&blocks));
        }
        let found = harm(&run.blocks).filter(|_| blocks % 4 == 0 && !run.report.design.same);
        if let Some(it) = found {
            let why = format!(
                "after {blocks} blocks the balanced caps make the job slower: throughput {:+.2} % ({:+.2} to {:+.2} % at {:.1} %)",
                it.mean * 100.0,
                it.low * 100.0,
                it.high * 100.0,
                it.confidence * 100.0
            );
            return self.end_run(|report| report.stop_for_harm(&why));
        }
        if blocks % 4 == 0 {
            let text = format!("{blocks} of {all} blocks are measured");
            self.note_trial(&name, Note::info(EventKind::Trial, text));
            self.keep_trial();
        }
    }

    /// The trial is over.
    fn end_run(&mut self, end: impl FnOnce(&mut Report)) {
        let Some(mut run) = self.jobs.ends_trial() else {
            return;
        };
        end(&mut run.report);
        let report = run.report;
        let (name, verdict) = (report.job.clone(), report.verdict);
        let text = format!("trial {}: {}", report.state.name(), report.why);
        let note = match (report.state, verdict) {
            (State::Complete, Verdict::Pays | Verdict::Zero | Verdict::Undecided) => {
                Note::info(EventKind::Trial, text)
            }
            _ => Note::warning(EventKind::Trial, text),
        };
        let why = match report.state {
            State::Aborted => report.why.clone(),
            _ => "a trial has shown that the balanced caps make the job slower".to_owned(),
        };
        self.note_trial(&name, note);
        self.jobs.has_tried(Some(report));
        self.raise_lab(&name, true);
        match verdict {
            Verdict::Harm => self.declare_harm(&name, &why),
            _ => self.keep_trial(),
        }
    }
}
