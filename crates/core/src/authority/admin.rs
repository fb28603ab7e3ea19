//! Commands of administrators, and reloads of the configuration.

use litd_api::{Command, EventKind, Lease, Mode, Problem};
use litd_policies::Policy;
use litd_units::Watts;

use crate::authority::Decided;
use crate::config::{Caps, Config, OnExit};
use crate::core::Core;
use crate::devices::Unit;
use crate::record::Note;
use crate::store::Store;

pub(crate) fn problem(error: impl Into<String>) -> Problem {
    Problem {
        error: error.into(),
    }
}

/// A budget that a command promises to keep.
pub(crate) struct Promise {
    pub(crate) budget: Watts,
    /// The lease that brings it.
    lease: Option<Lease>,
}

impl<S: Store> Core<S> {
    /// Whether litd stops: then it takes no command.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.authority.is_stopping()
    }

    /// Does what user `uid` asks for.
    pub(crate) fn obey(&mut self, uid: u32, command: Command) -> Result<String, Problem> {
        let asked = format!("user {uid} asks: {}", in_words(&command));
        self.note(Note::info(EventKind::Command, asked));
        let outcome = match command {
            Command::SetBudget { watts } => self.ask_budget(watts),
            Command::SetPolicy { policy } => self.ask_policy(&policy),
            Command::SetCap { device, watts } => self.ask_cap(uid, &device, watts),
            Command::Release { device } => self.let_go(device.as_deref()),
            Command::Resume { device } => self.resume(device.as_deref()),
            Command::StartTrial {
                job,
                quads,
                same,
                seed,
            } => self.ask_trial(job, quads, same, seed),
            Command::StopTrial => self.stop_trial(),
            Command::BeginJob { job, gpus, opt_out } => self.begin_job(&job, &gpus, opt_out),
            Command::EndJob { job, gpus } => self.finish_job(&job, &gpus),
            Command::Lease(lease) => self.grant(lease),
            Command::EndLease => Ok(self.end_lease()),
            Command::Forget => {
                self.jobs.learned_mut().forget();
                self.jobs
                    .save_learned(self.writer.store_mut(), &mut self.out);
                Ok("learned caps and results of profilers are forgotten".to_owned())
            }
            Command::ImportStacks { stacks } => self.import_stacks(&stacks),
        };
        if let Err(Problem { error }) = &outcome {
            self.note(Note::info(EventKind::Command, format!("refused: {error}")));
        }
        outcome
    }

    /// The budget that a command promises to keep and for which caps may have to come down.
    pub(crate) fn promise(&self, command: &Command) -> Option<Promise> {
        match command {
            Command::SetBudget { watts } => Some(Promise {
                // Without a budget in the command the configured one rules again.
                budget: watts.or(self.config.caps.budget)?,
                lease: None,
            }),
            Command::Lease(lease) => {
                let lease_of = |budget| Promise {
                    budget,
                    lease: Some(lease.clone()),
                };
                self.lowers_to(lease).map(lease_of)
            }
            _ => None,
        }
    }

    /// What was decided before a promise that can't be kept is in force again.
    pub(crate) fn take_back_promise(&mut self, before: Decided) {
        self.authority.take_back(before);
        self.mode_may_differ();
        self.replan_all();
    }

    /// Says that a promise can't be kept, because of `why`.
    pub(crate) fn refuse_promise(&mut self, promise: &Promise, why: &str) -> Problem {
        let why = match &promise.lease {
            Some(lease) => self.refuse_lower(lease, why),
            None => format!("the budget stays as it was: {why}"),
        };
        self.note(Note::info(EventKind::Command, format!("refused: {why}")));
        problem(why)
    }

    fn ask_budget(&mut self, watts: Option<Watts>) -> Result<String, Problem> {
        if let Some(budget) = watts {
            self.check_has_gpu()?;
            let kept = self.bounds().check_by_hand(budget);
            kept.map_err(|why| problem(self.unless_unread(why)))?;
            self.check_enforced(self.authority.rule(&self.config))?;
            let as_it_was = |why| problem(format!("the budget stays as it was: {why}"));
            self.check_on_record(budget).map_err(as_it_was)?;
        }
        self.authority.set_budget(watts);
        self.save_condition();
        self.replan_all();
        Ok(match (watts, self.policy()) {
            (Some(budget), Policy::Observe) => {
                format!(
                    "budget is {budget}; litd keeps it, but only observes: it moves no cap for a job"
                )
            }
            (Some(budget), _) => format!("budget is {budget}"),
            (None, _) => format!("budget is {} again", self.gpu_budget()),
        })
    }

    /// A budget that litd would not enforce in this mode is refused.
    pub(crate) fn check_enforced(
        &self,
        (mode, why): (Mode, Option<String>),
    ) -> Result<(), Problem> {
        if mode != Mode::Off {
            return Ok(());
        }
        let why = why.unwrap_or_else(|| "its configuration says so".to_owned());
        Err(problem(format!(
            "litd is off and enforces no budget: {why}"
        )))
    }

    fn ask_policy(&mut self, name: &str) -> Result<String, Problem> {
        let policy: Policy = name.parse().map_err(|error| problem(format!("{error}")))?;
        if let (Some(why), true) = (
            self.condition.rivals.why_yielded(),
            policy != Policy::Observe,
        ) {
            return Err(problem(format!("{why}: `litctl resume` first")));
        }
        if policy != Policy::Observe {
            self.authority.check_mode(&self.config).map_err(problem)?;
        }
        self.authority.set_policy(policy);
        self.save_condition();
        self.replan_all();
        Ok(format!("policy is {policy}"))
    }

    /// Steers devices again, from what they hold now.
    fn resume(&mut self, device: Option<&str>) -> Result<String, Problem> {
        let mut devices = self.devices.named(device)?;
        if self.authority.is_off() {
            self.authority.check_mode(&self.config).map_err(problem)?;
        }
        // Devices that are steered already are skipped, so that their job's loop goes on.
        devices.retain(|&device| !self.devices.get(device).is_some_and(Unit::is_ours));
        for &device in &devices {
            // The device may have been replaced or divided meanwhile: it has to identify itself again.
            self.devices.ask_anew(device);
        }
        let forgiven = self.forgive_harm();
        self.take_back(&devices);
        // A rollback's pause ends too.
        let paused: Vec<String> = self
            .jobs
            .values_mut()
            .filter_map(|job| job.control.resumes().then(|| job.name.clone()))
            .collect();
        for name in &paused {
            self.tell_hooks(name);
        }
        let node = device.is_none() && self.forget_rivals();
        let again = match (node, devices.as_slice()) {
            (false, []) if forgiven || !paused.is_empty() => "jobs that were paused".to_owned(),
            (false, []) => return Ok("nothing was stopped that this could resume".to_owned()),
            (true, []) => "the node".to_owned(),
            (true, devices) => format!("the node and {}", counted(devices)),
            (false, devices) => counted(devices),
        };
        Ok(match self.has_yielded() {
            true => format!(
                "{again} may be steered again, but litd only observes this node since foreign changes were repeated: \
                 `litctl resume` without a device ends that"
            ),
            false => format!("{again} may be steered again"),
        })
    }

    /// A reload of the configuration has failed.
    pub(crate) fn reload_refused(&mut self, why: &str) {
        self.out.error("configuration", "");
        let text = format!("the configuration stays as it was: {why}");
        self.note(Note::warning(EventKind::Daemon, text));
    }

    /// A file with another budget than before is the administrator's newest word where it allows less than `litctl
    /// budget` did. Where it allows more, the lower budget of `litctl budget` stays: the file may have been read
    /// because of another key.
    fn forget_higher_override(&mut self, config: &Config) {
        let new = config
            .caps
            .budget
            .filter(|_| config.caps.budget != self.config.caps.budget);
        if let Some((set, new)) = self.authority.overriding_budget().zip(new)
            && new < set
        {
            self.authority.set_budget(None);
            self.save_condition();
            let text =
                format!("caps.budget of {new} takes the place of the {set} of `litctl budget`");
            self.note(Note::info(EventKind::Command, text));
        }
    }

    /// The configuration was read anew.
    pub(crate) fn reload(&mut self, config: Config) {
        if let Some(why) = self.refuses(&config) {
            return self.reload_refused(&why);
        }
        let law = config.knobs() != self.config.knobs();
        let rules = config.mode != self.config.mode
            || config.rollout != self.config.rollout
            || config.policy != self.config.policy
            || differ(&config.caps, &self.config.caps)
            || config.node != self.config.node;
        self.forget_higher_override(&config);
        let lifted = lifted(&self.config, &config);
        let profilers = config.sampling.profiler != self.config.sampling.profiler;
        self.config = config;
        self.note(Note::info(EventKind::Daemon, "configuration read anew"));
        if !lifted.is_empty() {
            let text = format!(
                "the configuration no longer sets {}, so caps may rise. If you did not remove that, check whether the \
                 end of the file is missing",
                lifted.join(", ")
            );
            self.note(Note::warning(EventKind::Daemon, text));
        }
        if self.authority.is_stopping() {
            return;
        }
        self.follow_mode();
        if rules {
            self.bind_anew();
        }
        if law {
            for name in self.jobs.with_a_loop() {
                self.plan_anew(&name);
            }
        } else if rules {
            self.replan_all();
        }
        for name in self.jobs.names() {
            self.tell_hooks(&name);
        }
        if profilers {
            self.tell_of_profilers_anew();
        }
    }
}

fn in_words(command: &Command) -> String {
    match command {
        Command::SetBudget { watts: Some(watts) } => format!("budget {watts}"),
        Command::SetBudget { watts: None } => "budget as configured".to_owned(),
        Command::SetPolicy { policy } => format!("policy {policy:?}"),
        Command::SetCap { device, watts } => format!("cap of {device:?} {watts}"),
        Command::Release { device } => {
            format!("release {}", device.as_deref().unwrap_or("everything"))
        }
        Command::Resume { device } => {
            format!("resume {}", device.as_deref().unwrap_or("everything"))
        }
        Command::StartTrial { job, same, .. } => format!(
            "{} on {}",
            if *same { "A/A trial" } else { "trial" },
            job.as_deref().unwrap_or("the only job")
        ),
        Command::StopTrial => "end of the trial".to_owned(),
        Command::Forget => "forget what was learned".to_owned(),
        Command::ImportStacks { stacks } => format!(
            "take over results of profilers: {} good, {} off",
            stacks.good.len(),
            stacks.off.len()
        ),
        Command::BeginJob { job, opt_out, .. } => {
            let out = if *opt_out { ", which opts out" } else { "" };
            format!("job {:.128} begins{out}", job.escape_debug().to_string())
        }
        Command::EndJob { job, .. } => {
            format!("job {:.128} has ended", job.escape_debug().to_string())
        }
        Command::Lease(lease) => format!("lease to {:?}", lease.controller),
        Command::EndLease => "the end of the lease".to_owned(),
    }
}

fn counted(devices: &[usize]) -> String {
    match devices.len() {
        1 => "1 device".to_owned(),
        count => format!("{count} devices"),
    }
}

/// Whether caps have to be planned anew. How fast they rise changes no plan.
fn differ(one: &Caps, other: &Caps) -> bool {
    let as_fast = Caps {
        max_rise_w_per_s: other.max_rise_w_per_s,
        ..one.clone()
    };
    as_fast != *other
}

/// The bounds that one configuration has and the next one does not.
fn lifted(before: &Config, after: &Config) -> Vec<&'static str> {
    let bounds = |it: &Config| {
        let holds = it.caps.on_exit == OnExit::Hold;
        [
            ("caps.budget", it.caps.budget.is_some()),
            ("caps.safe_budget", it.caps.safe_budget.is_some()),
            ("caps.on_exit = \"hold\"", holds),
            ("node.budget", it.node.budget.is_some()),
            ("caps.max_rise_w_per_s", it.caps.max_rise_w_per_s.is_some()),
        ]
    };
    let both = bounds(before).into_iter().zip(bounds(after));
    let gone = both.filter(|((_, was), (_, is))| *was && !is);
    gone.map(|((key, _), _)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand::Stand;

    fn budget(watts: f64) -> Command {
        let watts = Some(Watts(watts));
        Command::SetBudget { watts }
    }

    fn policy(name: &str) -> Command {
        let policy = name.to_owned();
        Command::SetPolicy { policy }
    }

    #[test]
    fn a_budget_that_cant_be_kept_is_refused_and_the_one_before_stays() {
        let mut node = Stand::new(Config::default(), &[600.0, 600.0]);
        node.pass(3);
        node.command(budget(800.0)).unwrap();
        // Two floors of 200 W.
        for wrong in [399.0, 0.0, f64::NAN] {
            assert!(node.command(budget(wrong)).is_err(), "{wrong}");
        }
        node.pass(2);
        assert_eq!(node.core.set_budget(), Some(Watts(800.0)));
        assert_eq!(node.caps(), [400.0, 400.0]);
    }

    #[test]
    fn a_policy_is_taken_by_its_name_and_only_where_caps_may_be_moved() {
        let mut node = Stand::new(Config::default(), &[600.0]);
        assert!(node.command(policy("gpu-blue")).is_err());
        // The mode is observe.
        assert!(node.command(policy("gpu-realloc")).is_err());
        let mode = Mode::Steer;
        node.core.config = Config {
            mode,
            ..Config::default()
        };
        node.command(policy("gpu-realloc")).unwrap();
        assert_eq!(node.core.policy(), Policy::GpuRealloc);
    }

    #[test]
    fn a_lower_budget_of_the_file_takes_the_place_of_a_commands_and_a_higher_one_does_not() {
        let mut node = Stand::new(Config::default(), &[600.0, 600.0]);
        node.pass(3);
        node.command(budget(800.0)).unwrap();
        let reload = |node: &mut Stand, watts: f64| {
            let mut config = Config::default();
            config.caps.budget = Some(Watts(watts));
            node.tell(crate::Event::Reloaded(Box::new(config)));
            node.core.set_budget()
        };
        assert_eq!(reload(&mut node, 1000.0), Some(Watts(800.0)));
        assert_eq!(reload(&mut node, 600.0), Some(Watts(600.0)));
    }
}
