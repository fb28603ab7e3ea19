//! The source of mode and budget: the configuration, an administrator's command until litd is stopped or the node
//! boots, a fleet controller's lease, and above all of them the kill switch. Modes: off (every device is closed),
//! observe, canary (`on` for a percentage of all nodes, chosen by their names, and observe on the others), on.

pub(crate) mod admin;
pub(crate) mod exit;
pub(crate) mod harm;
pub(crate) mod over_budget;
mod promise;
pub(crate) mod rollout;
pub(crate) mod stopping;

use litd_api::{Lease, LeaseStatus, Mode};
use litd_policies::Policy;
use litd_units::{Nanos, Watts};
use serde::{Deserialize, Serialize};

use crate::authority::harm::Harms;
use crate::authority::over_budget::{Keeping, News};
use crate::authority::stopping::Stopping;
use crate::budget::check_number;
use crate::config::{Config, Rollout};
use crate::core::seconds;
use crate::devices::Unit;

/// A lease that was granted.
#[derive(Debug, Clone, PartialEq)]
struct Granted {
    lease: Lease,
    /// When it ends.
    until: Nanos,
}

/// What administrators have set by commands, until litd is stopped: after a crash it is in force again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Orders {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget: Option<Watts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<Policy>,
}

impl Orders {
    /// Whether there are none. (serde passes a reference.)
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// In words; `None`: there are none.
    pub fn in_words(self) -> Option<String> {
        let budget = self
            .budget
            .map(|it| format!("the budget of {it} (`litctl budget`)"));
        let policy = self
            .policy
            .map(|it| format!("the policy {it} (`litctl policy`)"));
        let both: Vec<String> = budget.into_iter().chain(policy).collect();
        (!both.is_empty()).then(|| both.join(" and "))
    }
}

/// Decisions that override the configuration, and what has come of them.
#[derive(Debug, Default)]
pub(crate) struct Authority {
    orders: Orders,
    lease: Option<Granted>,
    /// Why a kill switch has switched litd off; `None` while it has not.
    kill_switch: Option<String>,
    /// Whether the mode was off at the last look.
    is_off: bool,
    /// The host's name.
    host: String,
    /// Whether litd is about to end.
    stopping: Stopping,
    /// Whether the budget that was set is kept.
    keeping: Keeping,
    /// The GPUs that were found, at the last look, to forget their caps once litd has left.
    forgetful: Vec<String>,
    /// Whose jobs steering has made slower.
    harms: Harms,
}

/// A copy of all decisions, to go back to if a promise turns out to be impossible.
#[derive(Debug)]
pub(crate) struct Decided {
    budget: Option<Watts>,
    lease: Option<Granted>,
}

/// The mode in force, and why if it is not the configured one.
pub(crate) type Rule = (Mode, Option<String>);

/// A node's place in the rollout, 0 to 9,999: the canary mode is on below `rollout.percent` times 100.
#[must_use]
pub fn canary_place(node: &str) -> u64 {
    // FNV-1a, so that anybody can compute a node's place.
    fnv1a(node.as_bytes()) % 10_000
}

/// The hash FNV-1a, 64 bits.
#[must_use]
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Authority {
    /// The mode that is in force under a configuration.
    pub fn rule(&self, config: &Config) -> Rule {
        self.rule_with(config, self.lease.as_ref().map(|it| &it.lease))
    }

    /// The mode that would be in force with this lease.
    pub fn rule_with(&self, config: &Config, lease: Option<&Lease>) -> Rule {
        if let Some(why) = &self.kill_switch {
            return (Mode::Off, Some(why.clone()));
        }
        if config.mode == Mode::Off {
            return (Mode::Off, None);
        }
        let leased = lease.and_then(|it| it.mode);
        let why = leased.and(lease);
        let why = why.map(|it| format!("leased by {}", it.controller));
        match leased.unwrap_or(config.mode) {
            Mode::Canary => self.as_canary(&config.rollout),
            mode => (mode, why),
        }
    }

    /// The mode that is in force under a configuration, without the reason.
    pub fn mode(&self, config: &Config) -> Mode {
        self.rule(config).0
    }

    /// Whether caps may be moved in this mode; if not, why, in words.
    pub fn check_mode(&self, config: &Config) -> Result<(), String> {
        let (mode, why) = self.rule(config);
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

    fn as_canary(&self, rollout: &Rollout) -> Rule {
        let node = match rollout.node.as_str() {
            "" => &self.host,
            node => node,
        };
        let (percent, place) = (rollout.percent, canary_place(node) as f64 / 100.0);
        let mode = match place < percent {
            true => Mode::Steer,
            false => Mode::Observe,
        };
        let why = format!(
            "canary: node {node:?} has place {place:.2} of 100, and nodes below rollout.percent ({percent}) are on"
        );
        (mode, Some(why))
    }

    /// The host's name, for a configuration that names no node.
    pub fn set_host(&mut self, host: &str) {
        host.clone_into(&mut self.host);
    }

    /// Why a kill switch has switched litd off; `None` while it has not.
    pub fn killed(&self) -> Option<&str> {
        self.kill_switch.as_deref()
    }

    /// A kill switch has appeared, and why; `None`: it is gone.
    pub fn kill(&mut self, why: Option<String>) {
        self.kill_switch = why;
    }

    /// Whether the mode was off at the last look.
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// Looks at the mode. Returns whether litd is off from now on, if that has changed.
    pub fn goes_off(&mut self, config: &Config) -> Option<bool> {
        let off = self.rule(config).0 == Mode::Off;
        let before = std::mem::replace(&mut self.is_off, off);
        if before != off {
            // From now on another budget is to be kept.
            self.keeping = Keeping::Kept;
        }
        (before != off).then_some(off)
    }

    /// Litd begins to stop. Returns whether it did not before.
    pub fn stops(&mut self, now: Nanos) -> bool {
        self.stopping.begins(now)
    }

    /// The shell is told that the stop is over.
    pub fn stop_ends(&mut self) {
        self.stopping.ends();
    }

    /// Whether litd is about to end, and since when.
    pub fn stopping(&self) -> Stopping {
        self.stopping
    }

    /// Whether litd is about to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.since().is_some()
    }

    /// Whether litd is stopping or off, so that caps have to become what stays without litd.
    pub fn is_leaving(&self) -> bool {
        self.is_stopping() || self.is_off
    }

    /// Whether caps are to stay within the safe budget now that litd leaves.
    pub fn holds(&self, config: &Config) -> bool {
        self.is_leaving() && config.caps.budget_on_exit().is_some()
    }

    /// Whether a device was released only because litd is off, and is to stay within the safe budget: nobody else
    /// owns its cap.
    pub fn is_held_off(&self, unit: &Unit, config: &Config) -> bool {
        unit.standing.let_go().is_some_and(|it| it.held) && self.holds(config)
    }

    /// Whether a device was read since litd began to stop, if it has: an older reading may miss somebody else's
    /// change.
    pub fn is_fresh(&self, unit: &Unit) -> bool {
        let since = self.stopping.since();
        since.is_none_or(|since| unit.readings.asked() >= since)
    }

    /// A look at whether the GPUs' caps exceed the budget that was set or, while litd is off, the safe budget that it
    /// holds. Returns what is to be reported. At a stop the exit status tells that.
    pub fn looks_at_caps(
        &mut self,
        is_exceeded: bool,
        is_any_distrusted: bool,
        now: Nanos,
    ) -> Option<News> {
        if self.is_stopping() {
            self.keeping = Keeping::Kept;
            return None;
        }
        self.keeping.looks(is_exceeded, is_any_distrusted, now)
    }

    /// Whether it was reported that the budget is not kept.
    pub fn is_exceeded(&self) -> bool {
        self.keeping == Keeping::Told
    }

    /// These GPUs forget their caps once litd has left. Returns whether others did at the last look.
    pub fn finds_forgetful(&mut self, forgetful: &[String]) -> bool {
        let differ = self.forgetful != forgetful;
        if differ {
            self.forgetful = forgetful.to_vec();
        }
        differ
    }

    /// The policy that is asked for where litd steers.
    pub fn policy(&self, config: &Config) -> Policy {
        self.orders.policy.unwrap_or(config.policy)
    }

    /// An administrator wants this policy until litd is stopped.
    pub fn set_policy(&mut self, policy: Policy) {
        self.orders.policy = Some(policy);
    }

    /// The budget that was set, before what the node's leaves: the least of what an administrator says and of what the
    /// lease says, or else the safe budget. A lease that names none leaves the safe one as it is.
    pub fn budget(&self, config: &Config) -> Option<Watts> {
        self.budget_under(self.leased_budget(), config)
    }

    /// The same with this budget of a lease.
    fn budget_under(&self, leased: Option<Watts>, config: &Config) -> Option<Watts> {
        let own = self.orders.budget.or(config.caps.budget);
        let lent = leased.or(config.caps.safe_budget);
        [own, lent].into_iter().flatten().reduce(Watts::min)
    }

    /// The budget that an administrator has set until litd is stopped.
    pub fn overriding_budget(&self) -> Option<Watts> {
        self.orders.budget
    }

    /// An administrator wants this budget until litd is stopped; `None`: the configured one.
    pub fn set_budget(&mut self, budget: Option<Watts>) {
        self.orders.budget = budget;
    }

    /// What is to be in force again after a crash.
    pub fn orders(&self) -> Orders {
        self.orders
    }

    /// The litd before has crashed under these orders: they are in force again, but for a budget where the file has a
    /// lower one by now.
    pub fn recall(&mut self, orders: Orders, config: &Config) {
        let lower = |budget: &Watts| config.caps.budget.is_none_or(|of_file| *budget <= of_file);
        let can_be = |budget: &Watts| check_number(*budget).is_ok();
        self.orders = Orders {
            budget: orders.budget.filter(can_be).filter(lower),
            policy: orders.policy,
        };
    }

    /// litd is stopped: the next one goes by its configuration.
    pub fn forget_orders(&mut self) {
        self.orders = Orders::default();
    }

    /// The budget of the lease.
    pub fn leased_budget(&self) -> Option<Watts> {
        self.lease.as_ref().and_then(|it| it.lease.budget)
    }

    /// Whether a lease's budget is the one in force, or a higher one. While litd is off no budget is in force.
    pub fn renews(&self, lease: &Lease, config: &Config, now: Nanos) -> bool {
        let is_off = self.rule(config).0 == Mode::Off;
        let in_force = self.lease.as_ref();
        let in_force = in_force.filter(|it| !is_off && now < it.until);
        let in_force = in_force.and_then(|it| it.lease.budget);
        let both = in_force.zip(lease.budget);
        both.is_some_and(|(it, new)| new >= it)
    }

    /// Another controller that has a lease, and for how many seconds still.
    pub fn rival(&self, controller: &str, now: Nanos) -> Option<(&str, f64)> {
        let it = self.lease.as_ref()?;
        let left = (it.until - now).as_secs_f64();
        (it.lease.controller != controller).then_some((&it.lease.controller, left))
    }

    /// Grants a lease, or renews it. Returns whether its terms are those of the one before.
    pub fn grant(&mut self, lease: Lease, now: Nanos) -> bool {
        let until = now + seconds(lease.seconds);
        let terms = |it: &Lease| (it.mode, it.budget);
        let before = self.lease.as_ref().map(|it| terms(&it.lease));
        let is_renewed = before == Some(terms(&lease));
        self.lease = Some(Granted { lease, until });
        is_renewed
    }

    /// The lease, if there is one, goes on for as long as it was granted for, unless caps would be lower without it.
    /// Returns for how many seconds.
    pub fn prolong(&mut self, config: &Config, now: Nanos) -> Option<f64> {
        let with = self.budget(config);
        let without = self.budget_under(None, config);
        if without.is_some_and(|without| with.is_none_or(|with| without < with)) {
            return None;
        }
        let held = self.lease.as_mut()?;
        held.until = held.until.max(now + seconds(held.lease.seconds));
        Some((held.until - now).as_secs_f64())
    }

    /// A fleet controller gives its lease back. Returns whose it was.
    pub fn end_lease(&mut self) -> Option<String> {
        self.lease.take().map(|it| it.lease.controller)
    }

    /// Ends a lease whose time is over. Returns whose it was.
    pub fn expire_lease(&mut self, now: Nanos) -> Option<String> {
        let ended = self.lease.take_if(|it| now >= it.until)?;
        Some(ended.lease.controller)
    }

    pub fn lease_status(&self, now: Nanos) -> Option<LeaseStatus> {
        let it = self.lease.as_ref()?;
        Some(LeaseStatus {
            controller: it.lease.controller.clone(),
            mode: it.lease.mode,
            budget: it.lease.budget,
            remaining_seconds: (it.until - now).as_secs_f64().max(0.0),
        })
    }

    /// Whose jobs steering has made slower.
    pub fn harms(&self) -> &Harms {
        &self.harms
    }

    pub fn harms_mut(&mut self) -> &mut Harms {
        &mut self.harms
    }

    /// A copy of all decisions.
    pub fn decided(&self) -> Decided {
        Decided {
            budget: self.orders.budget,
            lease: self.lease.clone(),
        }
    }

    /// Goes back to earlier decisions.
    pub fn take_back(&mut self, before: Decided) {
        (self.orders.budget, self.lease) = (before.budget, before.lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn lease(controller: &str, mode: Option<Mode>, budget: Option<f64>) -> Lease {
        Lease {
            controller: controller.to_owned(),
            seconds: 60.0,
            mode,
            budget: budget.map(Watts),
        }
    }

    fn config(mode: Mode) -> Config {
        Config {
            mode,
            ..Config::default()
        }
    }

    #[test]
    fn above_all_is_the_kill_switch_and_then_a_configuration_that_says_off() {
        let mut authority = Authority::default();
        authority.grant(lease("fleet", Some(Mode::Steer), None), Nanos(0));
        assert_eq!(authority.rule(&config(Mode::Off)), (Mode::Off, None));
        assert_eq!(authority.rule(&config(Mode::Observe)).0, Mode::Steer);
        authority.kill(Some("a file".to_owned()));
        assert_eq!(
            authority.rule(&config(Mode::Steer)),
            (Mode::Off, Some("a file".to_owned()))
        );
        assert_eq!(authority.goes_off(&config(Mode::Steer)), Some(true));
        assert_eq!(authority.goes_off(&config(Mode::Steer)), None);
        authority.kill(None);
        assert_eq!(authority.goes_off(&config(Mode::Steer)), Some(false));
    }

    #[test]
    fn litd_leaves_while_it_is_off_and_for_good_once_it_stops() {
        let mut authority = Authority::default();
        assert!(!authority.is_leaving());
        authority.goes_off(&config(Mode::Off));
        assert!(authority.is_leaving() && !authority.is_stopping());
        authority.goes_off(&config(Mode::Steer));
        assert!(!authority.is_leaving());
        assert!(authority.stops(Nanos(0)));
        authority.goes_off(&config(Mode::Observe));
        assert!(authority.is_leaving());
    }

    #[test]
    fn caps_stay_within_the_safe_budget_only_once_litd_leaves_and_only_if_that_is_configured() {
        let mut kept = config(Mode::Steer);
        kept.caps.safe_budget = Some(Watts(1000.0));
        let restored = kept.clone();
        kept.caps.on_exit = crate::config::OnExit::Hold;
        assert_eq!(restored.caps.budget_on_exit(), None);
        assert_eq!(kept.caps.budget_on_exit(), Some(Watts(1000.0)));
        let mut authority = Authority::default();
        assert!(!authority.holds(&kept));
        assert!(authority.stops(Nanos(0)));
        assert!(authority.holds(&kept) && !authority.holds(&restored));
    }

    #[test]
    fn caps_may_be_moved_in_one_mode_and_the_others_say_why_not() {
        let mut authority = Authority::default();
        assert_eq!(authority.check_mode(&config(Mode::Steer)), Ok(()));
        let why = authority.check_mode(&config(Mode::Observe)).unwrap_err();
        assert!(
            why.starts_with("litd only observes: set `mode = \"on\"`"),
            "{why}"
        );
        authority.kill(Some("a file".to_owned()));
        let why = authority.check_mode(&config(Mode::Steer)).unwrap_err();
        assert_eq!(why, "litd is off: a file");
    }

    #[test]
    fn the_budget_is_another_one_once_litd_is_off_or_on_again_and_none_at_a_stop() {
        let mut authority = Authority::default();
        let looks = |authority: &mut Authority, second: i64| {
            authority.looks_at_caps(true, false, Nanos(second * SECOND))
        };
        looks(&mut authority, 0);
        authority.goes_off(&config(Mode::Off));
        assert_eq!(looks(&mut authority, 10), None);
        assert_eq!(looks(&mut authority, 20), Some(News::Exceeded));
        assert!(authority.is_exceeded());
        authority.goes_off(&config(Mode::Steer));
        assert!(!authority.is_exceeded());
        assert_eq!(looks(&mut authority, 21), None);
        assert_eq!(looks(&mut authority, 31), Some(News::Exceeded));
        authority.stops(Nanos(32 * SECOND));
        assert_eq!(looks(&mut authority, 60), None);
        assert!(!authority.is_exceeded());
    }

    #[test]
    fn gpus_that_forget_their_caps_are_news_when_they_are_others() {
        let mut authority = Authority::default();
        assert!(!authority.finds_forgetful(&[]));
        assert!(authority.finds_forgetful(&["gpu0".to_owned()]));
        assert!(!authority.finds_forgetful(&["gpu0".to_owned()]));
        assert!(authority.finds_forgetful(&[]));
    }

    #[test]
    fn a_canary_is_on_by_the_nodes_name() {
        let mut authority = Authority::default();
        authority.set_host("node7");
        let place = canary_place("node7") as f64 / 100.0;
        let mut canary = config(Mode::Canary);
        canary.rollout.percent = place + 0.01;
        assert_eq!(authority.rule(&canary).0, Mode::Steer);
        canary.rollout.percent = place;
        assert_eq!(authority.rule(&canary).0, Mode::Observe);
        canary.rollout.node = "another".to_owned();
        let why = authority.rule(&canary).1.unwrap();
        assert!(why.contains("another"), "{why}");
    }

    #[test]
    fn the_least_budget_rules_and_the_safe_one_where_none_is_lent() {
        let mut authority = Authority::default();
        let mut config = config(Mode::Steer);
        assert_eq!(authority.budget(&config), None);
        config.caps.safe_budget = Some(Watts(3000.0));
        assert_eq!(authority.budget(&config), Some(Watts(3000.0)));
        authority.grant(lease("fleet", None, Some(4000.0)), Nanos(0));
        assert_eq!(authority.budget(&config), Some(Watts(4000.0)));
        authority.set_budget(Some(Watts(3500.0)));
        assert_eq!(authority.budget(&config), Some(Watts(3500.0)));
        authority.grant(lease("fleet", Some(Mode::Steer), None), Nanos(0));
        assert_eq!(authority.budget(&config), Some(Watts(3000.0)));
        // An administrator's budget replaces the file's, also where it is higher.
        authority.end_lease();
        (config.caps.budget, config.caps.safe_budget) = (Some(Watts(2000.0)), None);
        assert_eq!(authority.budget(&config), Some(Watts(3500.0)));
    }

    #[test]
    fn a_lease_ends_when_its_time_is_over_and_one_that_is_prolonged_lasts_as_long_again() {
        let mut authority = Authority::default();
        let granted = |authority: &mut Authority, at: i64| {
            authority.grant(lease("fleet", None, Some(4000.0)), Nanos(at * SECOND))
        };
        assert!(!granted(&mut authority, 0));
        assert!(granted(&mut authority, 10));
        assert_eq!(authority.rival("fleet", Nanos(0)), None);
        let other = authority.rival("another", Nanos(20 * SECOND));
        assert_eq!(other, Some(("fleet", 50.0)));
        assert_eq!(authority.expire_lease(Nanos(69 * SECOND)), None);
        assert_eq!(
            authority.prolong(&Config::default(), Nanos(60 * SECOND)),
            Some(60.0)
        );
        assert_eq!(authority.expire_lease(Nanos(119 * SECOND)), None);
        let ended = authority.expire_lease(Nanos(120 * SECOND));
        assert_eq!(ended.as_deref(), Some("fleet"));
        assert_eq!(authority.leased_budget(), None);
    }

    #[test]
    fn what_could_not_be_promised_is_as_it_was() {
        let mut authority = Authority::default();
        authority.grant(lease("fleet", None, Some(4000.0)), Nanos(0));
        let before = authority.decided();
        authority.set_budget(Some(Watts(1000.0)));
        authority.end_lease();
        authority.take_back(before);
        assert_eq!(authority.budget(&Config::default()), Some(Watts(4000.0)));
        assert_eq!(authority.overriding_budget(), None);
    }

    #[test]
    fn a_higher_budget_renews_and_a_lower_one_does_not() {
        let mut authority = Authority::default();
        let config = config(Mode::Steer);
        let asks = |authority: &Authority, watts: f64, at: i64| {
            let lease = lease("fleet", None, Some(watts));
            authority.renews(&lease, &config, Nanos(at * SECOND))
        };
        assert!(!asks(&authority, 4000.0, 0));
        authority.grant(lease("fleet", None, Some(4000.0)), Nanos(0));
        assert!(asks(&authority, 4000.0, 30) && asks(&authority, 5000.0, 30));
        assert!(!asks(&authority, 3999.0, 30));
        assert!(!asks(&authority, 4000.0, 60));
        authority.kill(Some("a file".to_owned()));
        assert!(!asks(&authority, 4000.0, 30));
    }
}
