//! Consequences of decisions (see [`Authority`](crate::authority::Authority)): devices to release and take back,
//! leases that are granted or refused, and the budget in force.

use std::path::PathBuf;

use litd_api::{EventKind, Lease, Mode, Problem};
use litd_policies::Policy;
use litd_units::Watts;

use crate::budget::check_number;
use crate::core::Core;
use crate::record::Note;
use crate::store::Store;

/// The longest lease, in seconds.
const LONGEST: f64 = 86_400.0;

impl<S: Store> Core<S> {
    /// The host's name, for a configuration that names no node.
    pub fn set_host(&mut self, host: &str) {
        self.authority.set_host(host);
        self.mode_may_differ();
    }

    /// Files that turn litd off while they are there.
    pub fn kill_switches(&self) -> &[PathBuf] {
        &self.config.rollout.kill_switches
    }

    /// Why a kill switch has switched litd off; `None` while it has not.
    pub fn killed(&self) -> Option<&str> {
        self.authority.killed()
    }

    /// The kill switch has appeared, or is gone.
    pub(crate) fn kill(&mut self, why: Option<String>) {
        if self.authority.killed() == why.as_deref() {
            return;
        }
        let note = match &why {
            Some(why) => Note::warning(EventKind::Command, format!("off: {why}")),
            None => Note::info(EventKind::Command, "the kill switch is gone"),
        };
        self.note(note);
        self.authority.kill(why);
        self.mode_may_differ();
    }

    /// Mode or budget may have changed.
    pub(crate) fn mode_may_differ(&mut self) {
        if !self.authority.is_stopping() {
            self.follow_mode();
            self.replan_all();
        }
    }

    /// Releases all devices when litd is off, and takes them back when that ends.
    pub(crate) fn follow_mode(&mut self) {
        let Some(off) = self.authority.goes_off(&self.config) else {
            return;
        };
        let devices = self.devices.iter();
        let concerned = devices.filter(|(_, unit)| match unit.standing.let_go() {
            None => off,
            Some(it) => !off && it.by_mode,
        });
        let concerned: Vec<usize> = concerned.map(|(device, _)| device).collect();
        if off {
            self.devices.try_once_more();
            for device in concerned {
                // At a start nobody has read yet which devices were released by name before.
                let by_mode = !self.is_released_by_name(device);
                self.let_go_of(device, by_mode);
            }
        } else {
            let (released, others): (Vec<_>, Vec<_>) = concerned
                .into_iter()
                .partition(|&device| self.is_released_by_name(device));
            for device in released {
                self.let_go_of(device, false);
            }
            self.begin_anew_with(&others);
        }
    }

    /// Whether a lease's budget can be kept. A budget that the lease's holder has already, or a higher one, is not
    /// refused because of caps that GPUs hold by now: without the lease they would hold more.
    fn check_lent(&mut self, lease: &Lease) -> Result<(), Problem> {
        let Some(budget) = lease.budget else {
            return Ok(());
        };
        self.check_has_gpu()?;
        check_number(budget).map_err(|error| Problem { error })?;
        // A lease that switches litd off rules only for as long as litd is off.
        if lease.mode == Some(Mode::Off) || self.renews(lease) {
            return Ok(());
        }
        // While litd is off all GPUs are released; the budget rules once they are taken back.
        let bounds = match self.switches_off(lease) {
            true => self.bounds_of_all(),
            false => self.bounds(),
        };
        let kept = bounds.check(budget);
        kept.map_err(|why| {
            let why = self.unless_unread(why);
            let error = self.refuse_lower(lease, &why);
            Problem { error }
        })
    }

    /// The budget of a lease for which caps may have to come down. A lease that is renewed with the same or a
    /// higher budget lowers none: without it GPUs would hold more. Nor does a lease that switches litd off, which
    /// restores caps: a full disk never stops that.
    pub(crate) fn lowers_to(&self, lease: &Lease) -> Option<Watts> {
        let lowers = !self.switches_off(lease) && !self.renews(lease);
        lease.budget.filter(|_| lowers)
    }

    /// Whether a lease switches litd off.
    fn switches_off(&self, lease: &Lease) -> bool {
        self.authority.rule_with(&self.config, Some(lease)).0 == Mode::Off
    }

    fn renews(&self, lease: &Lease) -> bool {
        self.authority.renews(lease, &self.config, self.now())
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
        // A lease that ended since the last tick can't be in the way.
        self.check_lease();
        if let Some((rival, left)) = self.authority.rival(&lease.controller, self.now()) {
            return problem(format!("{rival} holds a lease for another {left:.0} s"));
        }
        self.check_lent(&lease)?;
        if let Some(budget) = self.lowers_to(&lease)
            && let Err(why) = self.check_on_record(budget)
        {
            return problem(self.refuse_lower(&lease, &why));
        }
        let said = format!("leased to {} for {} s", lease.controller, lease.seconds);
        let renewed = self.authority.grant(lease, self.now());
        if !renewed {
            self.mode_may_differ();
        }
        let (mode, why) = self.authority.rule(&self.config);
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        let idle = match (mode, self.policy()) {
            (Mode::Off, _) => "; no budget is enforced while litd is off",
            (_, Policy::Observe) => "; litd only observes: it moves no cap for a job",
            _ => "",
        };
        Ok(format!("{said}; mode {}{why}{idle}", mode.name()))
    }

    /// Refuses a lease because caps can't be lowered so far. Its holder's present lease is prolonged by as much:
    /// were it to end, all caps would rise. Returns the answer.
    pub(crate) fn refuse_lower(&mut self, lease: &Lease, why: &str) -> String {
        match self.authority.prolong(&self.config, self.now()) {
            Some(left) => format!(
                "{why}; the present lease of {} stays as it is, for another {left:.0} s",
                lease.controller
            ),
            None => format!("the budget stays as it was: {why}"),
        }
    }

    /// A fleet controller ends its lease.
    pub(crate) fn end_lease(&mut self) -> String {
        match self.authority.end_lease() {
            Some(controller) => {
                self.mode_may_differ();
                format!("the lease of {controller} has ended")
            }
            None => "there is no lease".to_owned(),
        }
    }

    /// Ends a lease whose time is over.
    pub(crate) fn check_lease(&mut self) {
        let Some(controller) = self.authority.expire_lease(self.now()) else {
            return;
        };
        let mode = self.authority.mode(&self.config);
        let budget = match self.set_budget().filter(|_| mode != Mode::Off) {
            Some(budget) => format!(", with a budget of {budget}"),
            None => String::new(),
        };
        let text = format!(
            "the lease of {controller} has ended and was not renewed: the mode is now {}{budget}",
            mode.name()
        );
        self.note(Note::warning(EventKind::Command, text));
        self.mode_may_differ();
    }
}
