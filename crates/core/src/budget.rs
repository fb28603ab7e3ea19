//! The budgets that a node's GPUs can keep. No cap goes below its GPU's floor, so a budget below the sum of all
//! floors can't be enforced. It is refused whoever asks for it: the configuration file, a reload, `litctl budget`
//! or a lease.

use litd_power::DeviceKind;
use litd_units::Watts;

use crate::config::Config;
use crate::core::Core;
use crate::devices::{Devices, Unit};
use crate::event::Device;
use crate::store::Store;

/// The least and the most that all GPU caps together can add up to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bounds {
    floors: Watts,
    ceilings: Watts,
    /// The part of `floors` that is no floor: what GPUs may hold that litd may not lower.
    kept: Watts,
}

/// A budget of a configuration that this node's GPUs can't keep.
#[derive(Debug, Clone, PartialEq)]
pub struct Impossible {
    /// The key, such as `caps.budget`, or whoever else has set the budget.
    pub key: &'static str,
    /// The problem and a valid value, beginning with the key.
    pub reason: String,
}

impl Bounds {
    /// The bounds of these devices under a configuration, as far as their drivers have told.
    fn under(config: &Config, devices: &Devices) -> Self {
        Self::of(devices.gpus().map(|(_, unit)| configured(unit, config)))
    }

    /// The bounds from the floor and the ceiling of each GPU.
    fn of(limits: impl Iterator<Item = (Watts, Watts)>) -> Self {
        let nothing = Self {
            floors: Watts::ZERO,
            ceilings: Watts::ZERO,
            kept: Watts::ZERO,
        };
        limits.fold(nothing, |sum, (floor, ceiling)| Self {
            floors: sum.floors + floor,
            ceilings: sum.ceilings + ceiling,
            ..sum
        })
    }

    /// No budget below this can be kept.
    pub fn floors(self) -> Watts {
        self.floors
    }

    /// Whether a budget can be kept. A budget above all ceilings can, and bounds nothing: one file or lease may
    /// serve nodes with fewer GPUs, too.
    ///
    /// # Errors
    /// It can't; why, in words.
    pub fn check(self, budget: Watts) -> Result<(), String> {
        check_number(budget)?;
        match budget >= self.floors {
            true => Ok(()),
            false => Err(self.refusal(budget)),
        }
    }

    fn refusal(self, budget: Watts) -> String {
        format!(
            "a budget of {budget} can't be kept: the GPUs' floors{} add up to {}",
            match self.kept > Watts::ZERO {
                true => format!(", and caps of {} that litd may not lower,", self.kept),
                false => String::new(),
            },
            self.floors
        )
    }

    /// The same for a budget that somebody typed for this node: one above all ceilings is a slip.
    ///
    /// # Errors
    /// As [`Bounds::check`].
    pub fn check_by_hand(self, budget: Watts) -> Result<(), String> {
        self.check(budget)?;
        match budget <= self.ceilings {
            true => Ok(()),
            false => Err(format!(
                "a budget of {budget} bounds nothing: the GPUs' ceilings add up to {}",
                self.ceilings
            )),
        }
    }

    /// The budgets of a configuration that can't be kept where the CPU sockets' limits add up to so
    /// much.
    fn impossible(self, config: &Config, cpus: Watts) -> Vec<Impossible> {
        let refused = |(key, budget): (&'static str, Option<Watts>)| {
            let why = self.check(budget?).err()?;
            let floors = self.floors;
            let reason = format!(
                "{key}: {why}; set it to {floors} or more, or lower caps.gpu_floor where drivers allow it"
            );
            Some(Impossible { key, reason })
        };
        let mut found: Vec<_> = budgets(config).into_iter().filter_map(refused).collect();
        if found.iter().all(|it| it.key != "node.budget") {
            found.extend(self.leaves_too_little(config, cpus));
        }
        found
    }

    /// A budget of the whole node that leaves its GPUs less than their floors. Other consumers (fans, memory,
    /// network) count as configured; measured values are only known later.
    fn leaves_too_little(self, config: &Config, cpus: Watts) -> Option<Impossible> {
        let (key, budget) = ("node.budget", config.node.budget?);
        // On a node without a GPU there is no sum to compare with.
        if self.floors == Watts::ZERO {
            return None;
        }
        let reserve = config.node.reserve.unwrap_or(Watts::ZERO);
        let least = self.floors + reserve + cpus;
        (budget < least).then(|| Impossible {
            key,
            reason: format!(
                "{key}: a budget of {budget} leaves {} to the GPUs, whose floors add up to {}, once \
                 node.reserve ({reserve}) and the CPU sockets' limits ({cpus}) are taken off; set it \
                 to {least} or more, or lower caps.gpu_floor where drivers allow it",
                (budget - reserve - cpus).max(Watts::ZERO),
                self.floors
            ),
        })
    }
}

/// The budgets of a configuration that these devices can't keep; none if it is good. A GPU that
/// has not told its range counts with the configured floor, a CPU socket that was not read with
/// nothing.
#[must_use]
pub fn impossible(config: &Config, inventory: &[Device]) -> Vec<Impossible> {
    let cpus = inventory
        .iter()
        .filter(|device| device.identity.kind == DeviceKind::Cpu);
    let cpus: Watts = cpus.filter_map(|it| Some(it.reading?.cap)).sum();
    Bounds::under(config, &Devices::new(inventory.to_vec())).impossible(config, cpus)
}

/// The budgets of a configuration, by key.
fn budgets(config: &Config) -> [(&'static str, Option<Watts>); 3] {
    [
        ("caps.budget", config.caps.budget),
        ("caps.safe_budget", config.caps.safe_budget),
        ("node.budget", config.node.budget),
    ]
}

/// Whether this number can be a budget at all: positive and finite.
pub(crate) fn check_number(budget: Watts) -> Result<(), String> {
    // Written so that a NaN is refused.
    match budget > Watts::ZERO && budget.is_finite() {
        true => Ok(()),
        false => Err(format!(
            "a budget of {budget} is not possible: it has to be a positive number of watts"
        )),
    }
}

/// The floor and ceiling of a GPU's cap under a configuration, as far as its driver has told.
fn configured(unit: &Unit, config: &Config) -> (Watts, Watts) {
    let floor = unit.floor(&config.caps);
    (floor, unit.limits(&config.caps).ceiling)
}

/// Whether an administrator has released the device: then it may not be opened to lower its cap.
fn is_drained(unit: &Unit) -> bool {
    unit.standing.let_go().is_some_and(|it| !it.by_mode)
}

impl<S: Store> Core<S> {
    /// The bounds of all GPU caps now. A GPU that litd may not move, that can't be judged or that an administrator
    /// has released keeps what it may hold. It counts with its floor at least, because litd may steer it again.
    pub(crate) fn bounds(&self) -> Bounds {
        let kept = |unit: &Unit| {
            let others = !unit.is_ours() && unit.standing.let_go().is_none();
            is_drained(unit) || others && !self.obeys_again(unit)
        };
        self.bounds_under(&self.config, kept)
    }

    /// The bounds if litd could move all GPUs.
    pub(crate) fn bounds_of_all(&self) -> Bounds {
        self.bounds_under(&self.config, |_| false)
    }

    /// The bounds under a configuration, where the GPUs chosen by `kept` keep what they may hold.
    fn bounds_under(&self, config: &Config, kept: impl Fn(&Unit) -> bool) -> Bounds {
        let keeps = |(device, unit): (usize, &Unit)| {
            let floor = unit.floor(&config.caps);
            kept(unit).then(|| self.writer.account().most_of(device).max(floor))
        };
        let limits = |(device, unit): (usize, &Unit)| {
            let (floor, ceiling) = configured(unit, config);
            match keeps((device, unit)) {
                None => (floor, ceiling),
                Some(most) => (most, ceiling.max(most)),
            }
        };
        let unmanaged = self.devices.each_unmanaged().map(|most| (most, most));
        let all_kept = self.devices.gpus().filter_map(keeps);
        Bounds {
            kept: all_kept.chain(self.devices.each_unmanaged()).sum(),
            ..Bounds::of(self.devices.gpus().map(limits).chain(unmanaged))
        }
    }

    /// Why this configuration can't replace the one in force: it has a budget, or a budget set before by other
    /// means, that could not be kept under it.
    #[must_use]
    pub fn refuses(&self, config: &Config) -> Option<String> {
        let mut found = self.newly_impossible(config, |_| false);
        let always: Vec<&str> = found.iter().map(|it| it.key).collect();
        let now = self.newly_impossible(config, is_drained);
        let only_now: Vec<&str> = now.iter().map(|it| it.key).collect();
        let only_now = only_now.into_iter().filter(|key| !always.contains(key));
        let released: Vec<Impossible> = only_now.map(|it| self.for_the_released(it)).collect();
        found.extend(released);
        let reasons: Vec<String> = found.into_iter().map(|it| it.reason).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// A budget that can't be kept only because an administrator has released GPUs, which keep what they hold.
    fn for_the_released(&self, key: &'static str) -> Impossible {
        let released = self.devices.gpus().filter(|(_, unit)| is_drained(unit));
        let names: Vec<&str> = released.map(|(_, unit)| unit.name.as_str()).collect();
        let reason = format!(
            "{key}: this budget can't be kept while {} keep what they hold, because they were released: take them back \
             first (`litctl resume`), or set a higher one",
            names.join(", ")
        );
        Impossible { key, reason }
    }

    /// The budgets that can't be kept under a configuration where the GPUs chosen by `kept` keep what they may
    /// hold. A budget that is already impossible only because GPUs are released is accepted if it is not lowered and
    /// the floors are the same.
    fn newly_impossible(&self, config: &Config, kept: fn(&Unit) -> bool) -> Vec<Impossible> {
        let cpus = self.left_to_cpus();
        let (new, old) = (
            self.bounds_under(config, kept),
            self.bounds_under(&self.config, kept),
        );
        let floors_grew = new.floors > old.floors;
        let before = old.impossible(&self.config, cpus);
        let is_worse = |it: &Impossible| {
            let was = before.iter().any(|before| before.key == it.key);
            let pairs = budgets(config).into_iter().zip(budgets(&self.config));
            let mut own = pairs.filter(|(new, _)| new.0 == it.key);
            !was || floors_grew || own.any(|(new, old)| new.1 < old.1)
        };
        let impossible = new.impossible(config, cpus).into_iter();
        let mut found: Vec<Impossible> = impossible.filter(is_worse).collect();
        for (key, budget) in [
            ("`litctl budget`", self.authority.overriding_budget()),
            ("the lease", self.authority.leased_budget()),
        ] {
            let Some(budget) = budget else {
                continue;
            };
            let was_kept = old.check(budget).is_ok();
            if let Err(why) = new.check(budget)
                && (was_kept || floors_grew)
            {
                let reason = format!("{why}; {key} has set this budget");
                found.push(Impossible { key, reason });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use litd_power::Reading;

    use super::*;
    use crate::devices::all::tests::device;

    /// Two GPUs of 300 W to 700 W, and a CPU socket that was found with 350 W.
    fn node() -> (Config, Vec<Device>) {
        let mut config = Config::default();
        config.caps.gpu_floor = Watts(300.0);
        let mut socket = device(DeviceKind::Cpu, "cpu0");
        socket.reading = Some(Reading {
            cap: Watts(350.0),
            ..Reading::default()
        });
        let gpu = |address: &str| device(DeviceKind::Gpu, address);
        (
            config,
            vec![gpu("0000:05:00.0"), socket, gpu("0000:85:00.0")],
        )
    }

    fn keys(config: &Config, inventory: &[Device]) -> Vec<&'static str> {
        let found = impossible(config, inventory).into_iter();
        found.map(|it| it.key).collect()
    }

    #[test]
    fn a_budget_is_a_positive_number() {
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(check_number(Watts(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(check_number(Watts(f64::MIN_POSITIVE)), Ok(()));
    }

    #[test]
    fn no_budget_below_the_floors_can_be_kept_and_one_above_all_ceilings_is_a_slip_of_the_hand() {
        let limits = [(Watts(300.0), Watts(700.0)), (Watts(200.0), Watts(500.0))];
        let bounds = Bounds::of(limits.into_iter());
        assert_eq!(bounds.floors(), Watts(500.0));
        assert_eq!(
            (bounds.check(Watts(500.0)), bounds.check(Watts(9000.0))),
            (Ok(()), Ok(()))
        );
        assert!(
            bounds
                .check(Watts(499.9))
                .unwrap_err()
                .contains("add up to 500")
        );
        assert!(bounds.check(Watts(f64::NAN)).is_err());
        assert_eq!(bounds.check_by_hand(Watts(1200.0)), Ok(()));
        for wrong in [499.9, 1200.1, f64::INFINITY] {
            assert!(bounds.check_by_hand(Watts(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_budget_of_a_configuration_that_cant_be_kept_is_named() {
        let (mut config, inventory) = node();
        assert!(keys(&config, &inventory).is_empty());
        config.caps.budget = Some(Watts(599.0));
        config.caps.safe_budget = Some(Watts(600.0));
        assert_eq!(keys(&config, &inventory), ["caps.budget"]);
        config.caps.safe_budget = Some(Watts(1.0));
        config.node.budget = Some(Watts(f64::NAN));
        let all = ["caps.budget", "caps.safe_budget", "node.budget"];
        assert_eq!(keys(&config, &inventory), all);
    }

    #[test]
    fn a_nodes_budget_has_to_leave_the_gpus_their_floors() {
        let (mut config, inventory) = node();
        config.node.reserve = Some(Watts(500.0));
        config.node.budget = Some(Watts(1449.0));
        let found = impossible(&config, &inventory);
        assert!(found[0].reason.contains("leaves 599 W"), "{found:?}");
        config.node.budget = Some(Watts(1450.0));
        assert!(keys(&config, &inventory).is_empty());
        // Without a GPU there is nothing to compare with.
        config.node.budget = Some(Watts(1.0));
        assert!(keys(&config, &inventory[1..2]).is_empty());
    }
}
