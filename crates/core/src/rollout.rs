//! Who decides whether caps may be moved, and within which budget: the configuration, a lease of a
//! fleet controller, and above all the kill switch. Modes: off (everything is let go of), observe,
//! canary (on, on so many in a hundred nodes, by their names), on.

use std::path::PathBuf;

use litd_api::{DeviceState, EventKind, Lease, LeaseStatus, Mode, Problem};
use litd_policies::Policy;
use litd_units::{Nanos, Watts};

use crate::core::{Core, seconds};
use crate::record::Note;
use crate::store::Store;

/// A lease lasts no longer.
const LONGEST: f64 = 86_400.0;

/// A lease that was granted.
#[derive(Debug, Clone)]
pub(crate) struct Granted {
    pub lease: Lease,
    /// When it ends.
    pub until: Nanos,
}

/// Where a node stands among a hundred: below this, of 10,000.
#[must_use]
pub fn canary_place(node: &str) -> u64 {
    // Anybody can compute it.
    fnv1a(node.as_bytes()) % 10_000
}

/// The hash FNV-1a, 64 bits.
#[must_use]
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl<S: Store> Core<S> {
    /// What litd does, and why if that is not what its configuration says.
    pub(crate) fn mode_and_why(&self) -> (Mode, Option<String>) {
        self.mode_with(self.lease.as_ref().map(|it| &it.lease))
    }

    /// The same, were that the lease.
    pub(crate) fn mode_with(&self, lease: Option<&Lease>) -> (Mode, Option<String>) {
        if let Some(why) = &self.kill_switch {
            return (Mode::Off, Some(why.clone()));
        }
        if self.config.mode == Mode::Off {
            return (Mode::Off, None);
        }
        let leased = lease.and_then(|it| it.mode);
        let why = leased.and(lease);
        let why = why.map(|it| format!("leased by {}", it.controller));
        match leased.unwrap_or(self.config.mode) {
            Mode::Canary => {
                let percent = self.config.rollout.percent;
                let place = canary_place(self.node()) as f64 / 100.0;
                let mode = if place < percent {
                    Mode::Steer
                } else {
                    Mode::Observe
                };
                let why = format!(
                    "canary: {:?} is at {place:.2} of 100, and what is below {percent} is on",
                    self.node()
                );
                (mode, Some(why))
            }
            mode => (mode, why),
        }
    }

    /// The node's name.
    fn node(&self) -> &str {
        match self.config.rollout.node.as_str() {
            "" => &self.host,
            node => node,
        }
    }

    /// The host's name, for a configuration that names no node.
    pub fn set_host(&mut self, host: &str) {
        host.clone_into(&mut self.host);
        self.mode_may_differ();
    }

    /// What litd does.
    pub(crate) fn mode(&self) -> Mode {
        self.mode_and_why().0
    }

    /// Whether caps may be moved; why not, in words.
    pub(crate) fn check_mode(&self) -> Result<(), String> {
        let (mode, why) = self.mode_and_why();
        let why = why.unwrap_or_else(|| {
            let mode = mode.name();
            format!("set `mode = \"on\"` instead of \"{mode}\" in its configuration and reload it")
        });
        match mode {
            Mode::Steer => Ok(()),
            Mode::Off => Err(format!("litd is off: {why}")),
            Mode::Observe | Mode::Canary => Err(format!("litd only observes: {why}")),
        }
    }

    /// Files that turn litd off while they are there.
    pub fn kill_switches(&self) -> &[PathBuf] {
        &self.config.rollout.kill_switches
    }

    /// Why a kill switch has litd off, while one does.
    pub fn killed(&self) -> Option<&str> {
        self.kill_switch.as_deref()
    }

    /// The kill switch is there, or is gone.
    pub(crate) fn kill(&mut self, why: Option<String>) {
        if self.kill_switch == why {
            return;
        }
        let note = match &why {
            Some(why) => Note::warning(EventKind::Command, format!("off: {why}")),
            None => Note::info(EventKind::Command, "the kill switch is gone"),
        };
        self.note(note);
        self.kill_switch = why;
        self.mode_may_differ();
    }

    /// Another mode or budget may rule from now on.
    pub(crate) fn mode_may_differ(&mut self) {
        if self.stopping.is_none() {
            self.follow_mode();
            self.replan_all();
        }
    }

    /// Lets go of everything when litd is off, and takes it back when it no longer is.
    pub(crate) fn follow_mode(&mut self) {
        let off = self.mode() == Mode::Off;
        if off == self.is_off {
            return;
        }
        self.is_off = off;
        let devices = self.devices.iter();
        let concerned = devices.filter(|(_, unit)| match unit.let_go {
            None => off,
            Some(it) => !off && it.by_mode,
        });
        let concerned: Vec<usize> = concerned.map(|(device, _)| device).collect();
        if off {
            self.devices.try_once_more();
            for device in concerned {
                self.let_go_of(device, true);
            }
        } else {
            self.take_back(&concerned);
        }
    }

    /// Whether a lease's budget can be kept. The one that its holder has already, or a higher one, is not
    /// refused for what GPUs hold by now: without the lease they would hold more.
    fn check_lent(&self, lease: &Lease) -> Result<(), Problem> {
        let Some(budget) = lease.budget else {
            return Ok(());
        };
        if self.renews(lease) && budget.is_finite() {
            return Ok(());
        }
        self.bounds()
            .check(budget)
            .map_err(|error| Problem { error })
    }

    /// Whether a lease's budget is the one in force, or a higher one than that. While litd is off none is.
    pub(crate) fn renews(&self, lease: &Lease) -> bool {
        let is_off = self.mode_and_why().0 == Mode::Off;
        let in_force = self
            .lease
            .as_ref()
            .filter(|it| !is_off && self.now < it.until);
        let in_force = in_force.and_then(|it| it.lease.budget);
        in_force
            .zip(lease.budget)
            .is_some_and(|(it, new)| new >= it)
    }

    /// The budget of a lease for which caps may have to come down. One that is renewed as it is, or as more, lowers
    /// none: without it GPUs would hold more. Nor does one with which litd is off, which gives caps back: a full
    /// disk never stops that.
    pub(crate) fn lowers_to(&self, lease: &Lease) -> Option<Watts> {
        let off = self.mode_with(Some(lease)).0 == Mode::Off;
        lease.budget.filter(|_| !off && !self.renews(lease))
    }

    /// Grants a lease, or renews it.
    pub(crate) fn grant(&mut self, lease: Lease) -> Result<String, Problem> {
        let problem = |error: String| Err(Problem { error });
        // Written so that a NaN is refused.
        if !(lease.seconds >= 1.0 && lease.seconds <= LONGEST) {
            return problem(format!("a lease lasts 1 s to {LONGEST} s"));
        }
        if lease.controller.is_empty() || lease.controller.len() > 64 {
            return problem("controller: a name of 1 to 64 bytes".to_owned());
        }
        // One that ended since the last tick is nobody's rival.
        self.check_lease();
        if let Some(rival) = self
            .lease
            .as_ref()
            .filter(|it| it.lease.controller != lease.controller)
        {
            return problem(format!(
                "{} holds a lease for another {:.0} s",
                rival.lease.controller,
                (rival.until - self.now).as_secs_f64()
            ));
        }
        self.check_lent(&lease)?;
        if let Some(budget) = self.lowers_to(&lease)
            && let Err(why) = self.check_on_record(budget)
        {
            return problem(self.refuse_lower(&lease, &why));
        }
        let said = format!("leased to {} for {} s", lease.controller, lease.seconds);
        let until = self.now + seconds(lease.seconds);
        let terms = |it: &Lease| (it.mode, it.budget);
        let renewed = self
            .lease
            .as_ref()
            .is_some_and(|it| terms(&it.lease) == terms(&lease));
        self.lease = Some(Granted { lease, until });
        if !renewed {
            self.mode_may_differ();
        }
        let (mode, why) = self.mode_and_why();
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        let idle = match (mode, self.policy()) {
            (Mode::Off, _) => "; no budget is enforced while litd is off",
            (_, Policy::Observe) => "; litd moves no cap but for a budget",
            _ => "",
        };
        Ok(format!("{said}; mode {}{why}{idle}", mode.name()))
    }

    /// A lease is refused because no cap can be lowered for it. The one that its holder has goes on for as long as
    /// this one would have: were it to end, all caps would rise. Returns what is answered.
    pub(crate) fn refuse_lower(&mut self, lease: &Lease, why: &str) -> String {
        match &mut self.lease {
            Some(held) => {
                // As long as it was granted for, and no longer.
                held.until = held.until.max(self.now + seconds(held.lease.seconds));
                let left = (held.until - self.now).as_secs_f64();
                format!(
                    "the lease that {} has goes on for {left:.0} s as it was: {why}",
                    lease.controller
                )
            }
            None => format!("the budget stays as it was: {why}"),
        }
    }

    /// A fleet controller gives its lease back.
    pub(crate) fn end_lease(&mut self) -> String {
        match self.lease.take() {
            Some(it) => {
                self.mode_may_differ();
                format!("the lease of {} has ended", it.lease.controller)
            }
            None => "there is no lease".to_owned(),
        }
    }

    /// A lease whose time is over.
    pub(crate) fn check_lease(&mut self) {
        let over = |it: &&Granted| self.now >= it.until;
        let Some(ended) = self.lease.as_ref().filter(over) else {
            return;
        };
        let controller = ended.lease.controller.clone();
        self.lease = None;
        let rules = match self.config.caps.safe_budget {
            Some(safe) => format!("the safe budget of {safe} rules"),
            None => "the configuration rules".to_owned(),
        };
        let text = format!("the lease of {controller} has ended and was not renewed: {rules}");
        self.note(Note::warning(EventKind::Command, text));
        self.mode_may_differ();
    }

    /// The budget for all GPUs together that was set: the least of what an administrator says and
    /// of what the lease says, or else the safe budget; or what the node's budget leaves to the GPUs
    /// if that is less. Once litd leaves, only what it is to leave behind counts.
    pub(crate) fn set_budget(&self) -> Option<Watts> {
        if self.is_leaving() {
            return self.budget_on_exit();
        }
        let own = self.overrides.budget.or(self.config.caps.budget);
        let caps = &self.config.caps;
        // A lease that names none leaves the safe one as it is.
        let lent = self.lease.as_ref().and_then(|it| it.lease.budget);
        let lent = lent.or(caps.safe_budget);
        let set = match (own, lent) {
            (Some(own), Some(lent)) => Some(own.min(lent)),
            (own, lent) => own.or(lent),
        };
        let bound = self.node.bound();
        let less = |bound: &Watts| *bound < set.unwrap_or_else(|| self.come_to_hold());
        bound.filter(less).or(set)
    }

    /// What all GPUs may come to hold where no budget was set, each the most of: what it was found with; after a
    /// reset its default, if nobody reads it any more; what somebody else has set; what it counts with because its
    /// cap is not in force. And what those hold that came up after the start.
    fn come_to_hold(&self) -> Watts {
        let each = self.devices.gpus().map(|(device, unit)| {
            let is_reset = unit.let_go.is_some() || self.may_be_reset(unit);
            let default = unit.device.range.last().filter(|_| is_reset);
            let theirs = unit.standing == DeviceState::Foreign;
            let more = [
                default.map(|range| range.default),
                theirs.then(|| self.counts_with(device, unit)),
                unit.counts_as_faulty(),
            ];
            let found = self.found_on(device, unit);
            more.into_iter().flatten().fold(found, Watts::max)
        });
        each.sum::<Watts>() + self.each_unmanaged().sum()
    }

    pub(crate) fn lease_status(&self) -> Option<LeaseStatus> {
        let it = self.lease.as_ref()?;
        Some(LeaseStatus {
            controller: it.lease.controller.clone(),
            mode: it.lease.mode,
            budget: it.lease.budget,
            remaining_seconds: (it.until - self.now).as_secs_f64().max(0.0),
        })
    }
}
