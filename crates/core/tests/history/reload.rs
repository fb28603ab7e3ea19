//! Reloads of any set of keys at once.

use litd_api::Mode;
use litd_core::config::{Cooling, OnExit, OnStale};
use litd_core::{Config, Event};
use litd_policies::Policy;
use litd_units::{Kelvins, Watts};

use crate::fault::Fault;
use crate::hardware::Hw;
use crate::matrix::{Manner, Subject};
use crate::rng::Rng;
use crate::setup;
use crate::world::World;

/// Changes a part of a configuration.
type Change = fn(&mut Rng, &mut Config, &[Hw]);

/// All keys that a reload may change, those that belong together in one.
const CHANGES: &[Change] = &[
    |rng, it, _| {
        it.mode = rng.pick(&[
            Mode::Steer,
            Mode::Steer,
            Mode::Steer,
            Mode::Observe,
            Mode::Observe,
            Mode::Canary,
            Mode::Off,
        ]);
    },
    |rng, it, _| it.policy = rng.pick(&Policy::STEERING),
    |rng, it, _| setup::knobs(rng, it),
    |rng, it, _| it.caps.gpu_floor = Watts(rng.pick(&[150.0, 200.0, 250.0])),
    |rng, it, _| it.caps.cpu_floor = Watts(rng.pick(&[80.0, 100.0])),
    |rng, it, _| it.caps.gpu_ceiling = rng.chance(0.4).then_some(Watts(480.0)),
    |rng, it, hw| it.caps.budget = budget(rng, it, hw),
    |rng, it, hw| it.caps.budget = budget(rng, it, hw),
    |rng, it, hw| it.caps.safe_budget = budget(rng, it, hw),
    |rng, it, _| it.caps.on_exit = rng.pick(&[OnExit::Restore, OnExit::Hold]),
    |rng, it, _| it.caps.follow_seconds = rng.pick(&[3.0, 5.0]),
    |rng, it, _| it.caps.follow_margin = rng.pick(&[0.05, 0.1]),
    |rng, it, _| it.caps.answer_seconds = rng.pick(&[3.0, 5.0]),
    |rng, it, _| it.release.resume_after_seconds = rng.pick(&[0.0, 6.0]),
    |rng, it, _| it.release.resume_on_return = rng.chance(0.8),
    |rng, it, hw| {
        let highest: Watts = hw.iter().map(|hw| hw.range.default).sum();
        it.node.budget = rng.chance(0.5).then(|| highest * (0.7 + 0.5 * rng.unit()));
    },
    |rng, it, _| it.node.reserve = rng.chance(0.5).then(|| Watts(rng.unit() * 500.0)),
    |rng, it, _| it.jobs.stale_seconds = rng.pick(&[5.0, 20.0]),
    |rng, it, _| it.jobs.on_stale = rng.pick(&[OnStale::Keep, OnStale::Restore]),
    |rng, it, _| it.jobs.reconnect_seconds = rng.pick(&[2.0, 6.0]),
    |rng, it, _| it.sampling.converged_period = rng.pick(&[0, 3, 10]),
    |rng, it, _| it.sampling.recheck_temperature = Kelvins(rng.pick(&[4.0, 8.0])),
    |rng, it, _| it.settle.seconds = Some(rng.pick(&[0.0, 1.0, 3.0])),
    |rng, it, _| it.settle.iterations = rng.pick(&[0, 1, 3]),
    |rng, it, _| it.settle.cooling = rng.pick(&[Cooling::Air, Cooling::Liquid]),
    |rng, it, _| it.trial.hold_out = rng.pick(&[0.0, 0.3]),
    |rng, it, _| {
        it.prices.energy_per_kwh = Some(0.1 + rng.unit());
        it.prices.gpu_hour = Some(2.0);
    },
];

fn budget(rng: &mut Rng, config: &Config, hw: &[Hw]) -> Option<Watts> {
    rng.chance(0.6).then(|| setup::budget(rng, hw, config))
}

impl World {
    /// A configuration of which any keys are other ones.
    pub fn drawn_anew(&mut self) -> Config {
        let mut config = self.config.clone();
        let share = self.fates.pick(&[0.1, 0.3, 0.6]);
        let first = self.fates.below(CHANGES.len());
        for (at, change) in CHANGES.iter().enumerate() {
            if at == first || self.fates.chance(share) {
                change(&mut self.fates, &mut config, &self.hw);
            }
        }
        if config.caps.safe_budget.is_none() {
            // No configuration is accepted that is to hold nothing.
            config.caps.on_exit = OnExit::Restore;
        }
        config
    }

    /// Changes any of the keys, and has the daemon reload its file.
    pub fn reload_any(&mut self) {
        if self.core.is_none() {
            return;
        }
        if self.fates.chance(0.15) {
            return self.reload_refused();
        }
        let mut config = self.drawn_anew();
        let anothers = self.fates.chance(0.1);
        if anothers {
            config.caps.budget = Some(self.budget_of_another());
            self.met(Subject::Configuration, Manner::Anothers, None);
        }
        self.seen.mark(Fault::ReloadAny);
        self.take_in(config);
    }

    /// The daemon reads this configuration.
    pub fn take_in(&mut self, config: Config) {
        let (limit, mode) = (self.limit(), self.mode());
        let law = config.law != self.config.law;
        self.note(|| {
            let caps = &config.caps;
            format!(
                "reload: {:?}, {:?}, budget {:?}, safe {:?}, on exit {:?}, floor {}, ceiling {:?}, law {}",
                config.mode,
                config.policy,
                caps.budget,
                caps.safe_budget,
                caps.on_exit,
                caps.gpu_floor,
                caps.gpu_ceiling,
                law
            )
        });
        self.met(Subject::Configuration, Manner::Changed, None);
        let refuses = |core: &litd_core::Core<_>| core.refuses(&config).is_some();
        if self.core.as_ref().is_some_and(refuses) {
            // A budget of it could not be kept: all stays as it was.
            return self.tell(Event::Reloaded(Box::new(config)));
        }
        self.has_new_budget(config.caps.budget);
        self.config = config.clone();
        (self.reloaded, self.ledger.watching) = (self.now, None);
        self.was_reconfigured(limit);
        // A budget that did not fit before may fit now: closed devices are not looked at.
        self.rule.changed = self.now;
        if mode != self.mode() {
            self.mode_changed();
        }
        if config.caps.budget.is_some() {
            self.needs_no_rank();
        }
        self.tell(Event::Reloaded(Box::new(config)));
    }
}
