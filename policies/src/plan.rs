//! The use cases of Table I as numbers: where caps start, what they may add up to, and how far
//! each may go.

use std::fmt;
use std::str::FromStr;

use litd_units::Watts;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::Mitigation;
use crate::envelope::{CapVector, Envelope, EnvelopeError, Limits};

/// The share of a CPU's draw that cpu-slosh leaves above it: a CPU at its limit starves the
/// GPUs it feeds.
const CPU_MARGIN: f64 = 0.1;

/// The policy against a straggler (Table I).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Measure and predict, write nothing.
    Observe,
    /// No budget below TDP: take power from leaders that only wait. Less power, same speed.
    GpuRed,
    /// A budget below TDP: move power from leaders to the straggler. Same power, more speed.
    GpuRealloc,
    /// gpu-realloc with watts that the CPUs don't use. More speed at the same node budget.
    CpuSlosh,
}

impl Policy {
    /// The policies that move caps, in the order of the paper's Table III.
    pub const STEERING: [Self; 3] = [Self::GpuRed, Self::GpuRealloc, Self::CpuSlosh];

    /// The name as users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::GpuRed => "gpu-red",
            Self::GpuRealloc => "gpu-realloc",
            Self::CpuSlosh => "cpu-slosh",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no policy's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no policy is called {0:?}: there are observe, gpu-red, gpu-realloc and cpu-slosh")]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        [Self::Observe]
            .into_iter()
            .chain(Self::STEERING)
            .find(|policy| policy.name() == name)
            .ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

/// A CPU socket as cpu-slosh sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cpu {
    /// Limits of its limit. The ceiling is the limit found.
    pub limits: Limits,
    /// The power under this workload.
    pub draw: Watts,
}

/// The devices of a node. A GPU's ceiling is its TDP.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The GPUs, in the order of everything else that is per GPU.
    pub gpus: Vec<Limits>,
    /// The CPU sockets. Only cpu-slosh touches them.
    pub cpus: Vec<Cpu>,
}

/// A policy applied to a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    policy: Policy,
    tdp: Vec<Watts>,
    gpu_budget: Watts,
    cpu_targets: Vec<Watts>,
    envelope: Envelope,
    start: CapVector,
}

/// Why a policy can't do anything for a node.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PlanError {
    /// Every GPU starts at its TDP.
    #[error(
        "{policy} has no headroom: the initial cap of {initial} is the GPUs' TDP, so the straggler can't be raised. Set a budget or an initial cap below it, or use gpu-red. Nothing to do: predicted gain 0 (estimate)"
    )]
    NoHeadroom {
        /// The policy.
        policy: Policy,
        /// The initial cap.
        initial: Watts,
    },
    /// The CPUs need what they have.
    #[error(
        "cpu-slosh has no headroom: the CPUs draw {draw} under limits of {limit}, and a tenth above the draw is kept. Nothing to do: predicted gain 0 (estimate)"
    )]
    NoCpuHeadroom {
        /// The power of all sockets.
        draw: Watts,
        /// The sum of all sockets' limits.
        limit: Watts,
    },
    /// The initial cap is no cap of that GPU.
    #[error("the initial cap of {initial} is below the floor of {floor} of GPU {gpu}")]
    InitialBelowFloor {
        /// The initial cap.
        initial: Watts,
        /// The GPU's floor.
        floor: Watts,
        /// The GPU.
        gpu: usize,
    },
    /// A knob or a reading that is no power.
    #[error("{what} is {value}, which is not possible: it must be from 0 to 100000 W")]
    NotAPower {
        /// The parameter or reading.
        what: &'static str,
        /// The value.
        value: Watts,
    },
    /// A driver unit is more than a cap may rise at once, so none could ever rise.
    #[error(
        "GPU {gpu} takes caps in units of {unit}, and no cap may rise by more than {rise} at once: allow at least a unit"
    )]
    StepBelowUnit {
        /// The GPU.
        gpu: usize,
        /// The driver's unit.
        unit: Watts,
        /// The largest rise.
        rise: Watts,
    },
    /// The limits contradict each other.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
}

impl Plan {
    /// Works a policy out for a node: [`Plan::within`] without a budget.
    pub fn new(policy: Policy, node: &Node, knobs: &Mitigation) -> Result<Self, PlanError> {
        Self::within(policy, node, knobs, None)
    }

    /// Works a policy out for a node whose GPUs' caps may add up to `budget` and no more: the
    /// initial caps come down to it, all by the same amount. cpu-slosh adds to it what the CPUs
    /// give: all caps and CPU limits are then within the budget and the CPU limits found. Where
    /// a budget below TDP binds gpu-red, it first moves power as gpu-realloc does, until a cap
    /// is at TDP. Observing needs no budget, but one that no caps satisfy is refused.
    pub fn within(
        policy: Policy,
        node: &Node,
        knobs: &Mitigation,
        budget: Option<Watts>,
    ) -> Result<Self, PlanError> {
        check_powers(node, knobs, budget)?;
        check_units(policy, node, knobs)?;
        let tdp: Vec<Watts> = node.gpus.iter().map(|gpu| gpu.ceiling).collect();
        let initial = initial_caps(policy, node, knobs)?;
        let (initial, allowance) = under(policy, initial, &node.gpus, budget)?;
        // Watts that rounding to driver units leaves unused belong to the GPUs, and are not headroom for the CPUs.
        let unused = allowance - initial.iter().copied().sum::<Watts>();
        let below_tdp: Watts = tdp.iter().zip(&initial).map(|(&t, &i)| t - i).sum();
        let headroom = below_tdp - unused;
        if matches!(policy, Policy::GpuRealloc | Policy::CpuSlosh) && !(headroom > Watts::ZERO) {
            return Err(PlanError::NoHeadroom {
                policy,
                initial: knobs.initial_cap,
            });
        }
        let (cpus, cpu_targets): (&[Cpu], _) = match policy {
            Policy::CpuSlosh => {
                let wanted = knobs.slosh_per_gpu * node.gpus.len() as f64;
                (&node.cpus, cpu_targets(&node.cpus, wanted.min(headroom))?)
            }
            _ => (&[], Vec::new()),
        };
        let targets = cpus.iter().zip(&cpu_targets);
        let taken: Watts = targets
            .clone()
            .map(|(cpu, &target)| cpu.limits.ceiling - target)
            .sum();
        let lowered = targets.map(|(cpu, &target)| Limits {
            floor: target,
            ..cpu.limits
        });
        let devices: Vec<Limits> = node.gpus.iter().copied().chain(lowered).collect();
        let limits = cpus.iter().map(|cpu| cpu.limits.ceiling);
        let envelope = Envelope::new(&devices, allowance + limits.clone().sum::<Watts>())?;
        let found: Vec<Watts> = initial.into_iter().chain(limits).collect();
        let start = envelope.project(&found, &found);
        Ok(Self {
            policy,
            tdp,
            gpu_budget: allowance + taken,
            cpu_targets,
            envelope,
            start,
        })
    }

    /// The same plan with warm-up under other caps, say those that the devices hold: as near to
    /// them as the plan allows. GPUs first, then CPU sockets; a cap that is missing or not
    /// finite stays the plan's own.
    #[must_use]
    pub fn start_from(self, caps: &[Watts]) -> Self {
        let start = self.envelope.project(caps, &self.start.to_watts());
        Self { start, ..self }
    }

    /// The plan's policy.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The TDP of each GPU.
    #[must_use]
    pub fn tdp(&self) -> &[Watts] {
        &self.tdp
    }

    /// The bound on the sum of the GPUs' caps once the CPUs have given their watts: Algorithm 3's `P_n`.
    #[must_use]
    pub fn gpu_budget(&self) -> Watts {
        self.gpu_budget
    }

    /// The CPU limits while GPUs have the CPUs' watts; empty for policies that leave CPUs be.
    #[must_use]
    pub fn cpu_targets(&self) -> &[Watts] {
        &self.cpu_targets
    }

    /// The permitted caps: GPUs first, then (cpu-slosh only) CPU sockets.
    #[must_use]
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// The caps under which warm-up measures: TDP for gpu-red, the initial cap otherwise; less
    /// where a budget is below that, or as [`Plan::start_from`] was told.
    #[must_use]
    pub fn start(&self) -> &CapVector {
        &self.start
    }
}

/// Checks that all values that are added up or compared below are powers; a NaN would pass most tests.
fn check_powers(node: &Node, knobs: &Mitigation, budget: Option<Watts>) -> Result<(), PlanError> {
    let knobs = [
        ("max_adjustment", knobs.max_adjustment),
        ("max_rise", knobs.rise()),
        ("initial_cap", knobs.initial_cap),
        ("slosh_per_gpu", knobs.slosh_per_gpu),
    ];
    let draws = node.cpus.iter().map(|cpu| ("a CPU's draw", cpu.draw));
    let budget = budget.map(|budget| ("the budget", budget));
    for (what, value) in knobs.into_iter().chain(draws).chain(budget) {
        if !(value >= Watts::ZERO && value <= Watts(100_000.0)) {
            return Err(PlanError::NotAPower { what, value });
        }
    }
    Ok(())
}

/// A policy that moves caps must be able to move each by a driver unit at least.
fn check_units(policy: Policy, node: &Node, knobs: &Mitigation) -> Result<(), PlanError> {
    let rise = knobs.rise();
    let coarse = |gpu: &Limits| !(gpu.resolution <= rise);
    match node.gpus.iter().position(coarse) {
        Some(gpu) if policy != Policy::Observe => Err(PlanError::StepBelowUnit {
            gpu,
            unit: node.gpus[gpu].resolution,
            rise,
        }),
        _ => Ok(()),
    }
}

fn initial_caps(policy: Policy, node: &Node, knobs: &Mitigation) -> Result<Vec<Watts>, PlanError> {
    let initial = |(gpu, limits): (usize, &Limits)| match policy {
        Policy::GpuRed => Ok(limits.ceiling),
        _ if knobs.initial_cap < limits.floor => Err(PlanError::InitialBelowFloor {
            initial: knobs.initial_cap,
            floor: limits.floor,
            gpu,
        }),
        _ => Ok(limits.ceiling.min(knobs.initial_cap)),
    };
    node.gpus.iter().enumerate().map(initial).collect()
}

/// The initial caps within a budget, and what the GPUs' caps may add up to then.
fn under(
    policy: Policy,
    initial: Vec<Watts>,
    gpus: &[Limits],
    budget: Option<Watts>,
) -> Result<(Vec<Watts>, Watts), PlanError> {
    let sum: Watts = initial.iter().copied().sum();
    let Some(budget) = budget else {
        return Ok((initial, sum));
    };
    let envelope = Envelope::new(gpus, budget)?;
    if sum <= budget || policy == Policy::Observe {
        return Ok((initial, sum));
    }
    Ok((envelope.project(&initial, &initial).to_watts(), budget))
}

/// Lowers the CPU limits by `wanted` in all, or by as much as their draw permits, in proportion
/// to what each can spare and in whole driver units.
fn cpu_targets(cpus: &[Cpu], wanted: Watts) -> Result<Vec<Watts>, PlanError> {
    let spare = |cpu: &Cpu| {
        let keep = (cpu.draw * (1.0 + CPU_MARGIN)).max(cpu.limits.floor);
        (cpu.limits.ceiling - keep).max(Watts::ZERO)
    };
    let spare_sum: Watts = cpus.iter().map(spare).sum();
    let share = (wanted / spare_sum).min(1.0);
    let target = |cpu: &Cpu| {
        let unit = cpu.limits.resolution;
        // Rounded up, so that the GPUs never get more than the CPUs gave; but not above what
        // the driver can hold.
        let highest = unit * (cpu.limits.ceiling / unit).floor();
        (unit * ((cpu.limits.ceiling - spare(cpu) * share) / unit).ceil()).min(highest)
    };
    let targets: Vec<Watts> = cpus.iter().map(target).collect();
    let none = cpus
        .iter()
        .zip(&targets)
        .all(|(cpu, target)| !(*target < cpu.limits.ceiling));
    if none {
        return Err(PlanError::NoCpuHeadroom {
            draw: cpus.iter().map(|cpu| cpu.draw).sum(),
            limit: cpus.iter().map(|cpu| cpu.limits.ceiling).sum(),
        });
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu() -> Limits {
        Limits {
            floor: Watts(300.0),
            ceiling: Watts(750.0),
            resolution: Watts(1.0),
        }
    }

    fn node(draw: Watts) -> Node {
        let limits = Limits {
            floor: Watts(120.0),
            ceiling: Watts(400.0),
            resolution: Watts(1.0),
        };
        Node {
            gpus: vec![gpu(); 8],
            cpus: vec![Cpu { limits, draw }; 2],
        }
    }

    #[test]
    fn gpu_red_starts_at_tdp_under_a_budget_of_all_tdps() {
        let plan = Plan::new(Policy::GpuRed, &node(Watts(150.0)), &Mitigation::default()).unwrap();
        assert_eq!(plan.start().to_watts(), vec![Watts(750.0); 8]);
        assert_eq!(plan.gpu_budget(), Watts(6000.0));
        assert!(plan.cpu_targets().is_empty());
    }

    #[test]
    fn gpu_realloc_keeps_the_sum_of_the_initial_caps() {
        let plan = Plan::new(
            Policy::GpuRealloc,
            &node(Watts(150.0)),
            &Mitigation::default(),
        )
        .unwrap();
        assert_eq!(plan.start().to_watts(), vec![Watts(700.0); 8]);
        assert_eq!(plan.gpu_budget(), Watts(5600.0));
    }

    #[test]
    fn cpu_slosh_takes_from_the_cpus_what_the_gpus_get() {
        let plan = Plan::new(
            Policy::CpuSlosh,
            &node(Watts(150.0)),
            &Mitigation::default(),
        )
        .unwrap();
        assert_eq!(plan.gpu_budget(), Watts(5760.0));
        assert_eq!(plan.cpu_targets(), [Watts(320.0); 2]);
        assert_eq!(plan.envelope().budget(), Watts(5600.0 + 800.0));
        assert_eq!(plan.start().watts(8), Some(Watts(400.0)));
    }

    #[test]
    fn cpu_slosh_leaves_busy_cpus_their_watts() {
        let plan = |draw| Plan::new(Policy::CpuSlosh, &node(draw), &Mitigation::default());
        // 330 W of draw and a tenth: 363 W each stay, or the next whole watt.
        for &target in plan(Watts(330.0)).unwrap().cpu_targets() {
            assert!(target >= Watts(363.0) && target <= Watts(364.0), "{target}");
        }
        let error = plan(Watts(390.0)).unwrap_err();
        assert!(matches!(error, PlanError::NoCpuHeadroom { .. }), "{error}");
    }

    #[test]
    fn the_gpus_get_no_more_than_the_cpus_give_on_any_grid() {
        for (ceiling, unit) in [(400.0, 1.0), (400.5, 1.0), (400.0, 3.0), (400.0, 0.3)] {
            for draws in [[150.0, 150.0], [150.0, 390.0], [301.3, 222.2]] {
                let mut node = node(Watts(150.0));
                for (cpu, draw) in node.cpus.iter_mut().zip(draws) {
                    cpu.limits.ceiling = Watts(ceiling);
                    cpu.limits.resolution = Watts(unit);
                    cpu.draw = Watts(draw);
                }
                let plan = Plan::new(Policy::CpuSlosh, &node, &Mitigation::default()).unwrap();
                let targets: Watts = plan.cpu_targets().iter().copied().sum();
                let given = Watts(2.0 * ceiling) - targets;
                let got = plan.gpu_budget() - Watts(5600.0);
                assert!(got <= given + Watts(1e-9), "{got} of {given}");
                assert!(got <= Watts(161.0) && got > Watts::ZERO, "{got}");
                let all = plan.envelope().budget();
                assert!(plan.gpu_budget() + targets <= all + Watts(1e-6));
            }
        }
    }

    #[test]
    fn what_is_no_power_makes_no_plan() {
        for bad in [f64::NAN, -1.0, f64::INFINITY, 1e300] {
            let refused = |node: &Node, knobs: &Mitigation| {
                let error = Plan::new(Policy::CpuSlosh, node, knobs).unwrap_err();
                assert!(matches!(error, PlanError::NotAPower { .. }), "{error}");
            };
            refused(&node(Watts(bad)), &Mitigation::default());
            let knobs = Mitigation {
                slosh_per_gpu: Watts(bad),
                ..Mitigation::default()
            };
            refused(&node(Watts(150.0)), &knobs);
            let knobs = Mitigation {
                max_adjustment: Watts(bad),
                ..Mitigation::default()
            };
            refused(&node(Watts(150.0)), &knobs);
        }
    }

    #[test]
    fn an_initial_cap_at_tdp_leaves_no_headroom() {
        let knobs = Mitigation {
            initial_cap: Watts(750.0),
            ..Mitigation::default()
        };
        for policy in [Policy::GpuRealloc, Policy::CpuSlosh] {
            let error = Plan::new(policy, &node(Watts(150.0)), &knobs).unwrap_err();
            assert!(error.to_string().contains("no headroom"), "{error}");
        }
        assert!(Plan::new(Policy::GpuRed, &node(Watts(150.0)), &knobs).is_ok());
    }

    fn within(policy: Policy, budget: f64) -> Result<Plan, PlanError> {
        let knobs = Mitigation::default();
        Plan::within(policy, &node(Watts(150.0)), &knobs, Some(Watts(budget)))
    }

    #[test]
    fn initial_caps_come_down_to_a_budget_all_alike() {
        for policy in [Policy::GpuRed, Policy::GpuRealloc] {
            let plan = within(policy, 4804.0).unwrap();
            assert_eq!(plan.start().to_watts(), vec![Watts(600.0); 8]);
            assert_eq!(plan.gpu_budget(), Watts(4804.0));
            assert_eq!(plan.envelope().budget(), Watts(4804.0));
        }
        let mut uneven = node(Watts(150.0));
        uneven.gpus[3].ceiling = Watts(500.0);
        let knobs = Mitigation::default();
        let budget = Some(Watts(5400.0 - 8.0 * 10.0));
        let plan = Plan::within(Policy::GpuRealloc, &uneven, &knobs, budget).unwrap();
        assert_eq!(plan.start().watts(3), Some(Watts(490.0)));
        assert_eq!(plan.start().watts(4), Some(Watts(690.0)));
    }

    #[test]
    fn cpu_slosh_adds_to_a_budget_what_the_cpus_give() {
        let plan = within(Policy::CpuSlosh, 4800.0).unwrap();
        assert_eq!(plan.gpu_budget(), Watts(4960.0));
        assert_eq!(plan.envelope().budget(), Watts(4800.0 + 800.0));
        assert_eq!(plan.start().watts(0), Some(Watts(600.0)));
        assert_eq!(plan.start().watts(8), Some(Watts(400.0)));
        // Just below all TDPs there is no room for more than that from the CPUs.
        let knobs = Mitigation {
            initial_cap: Watts(750.0),
            ..Mitigation::default()
        };
        let (node, budget) = (node(Watts(150.0)), Some(Watts(5990.5)));
        let plan = Plan::within(Policy::CpuSlosh, &node, &knobs, budget).unwrap();
        assert!(plan.gpu_budget() <= Watts(6000.0) && plan.gpu_budget() > Watts(5998.0));
    }

    #[test]
    fn a_budget_below_tdp_is_headroom() {
        let knobs = Mitigation {
            initial_cap: Watts(750.0),
            ..Mitigation::default()
        };
        let plan = |budget| {
            let budget = Some(Watts(budget));
            Plan::within(Policy::GpuRealloc, &node(Watts(150.0)), &knobs, budget)
        };
        assert_eq!(plan(5600.0).unwrap().gpu_budget(), Watts(5600.0));
        assert!(matches!(plan(6000.0), Err(PlanError::NoHeadroom { .. })));
    }

    #[test]
    fn a_budget_that_no_caps_satisfy_is_refused_and_observing_ignores_others() {
        for policy in [Policy::Observe, Policy::GpuRed, Policy::CpuSlosh] {
            let error = within(policy, 2399.0).unwrap_err();
            assert!(
                matches!(
                    error,
                    PlanError::Envelope(EnvelopeError::BudgetTooSmall { .. })
                ),
                "{error}"
            );
            for bad in [f64::NAN, f64::INFINITY, -1.0] {
                let error = within(policy, bad).unwrap_err().to_string();
                assert!(error.contains("the budget is"), "{error}");
            }
        }
        let knobs = Mitigation::default();
        let free = Plan::new(Policy::Observe, &node(Watts(150.0)), &knobs);
        assert_eq!(within(Policy::Observe, 2400.0), free);
    }

    #[test]
    fn names_read_back() {
        for policy in Policy::STEERING {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert!("gpu-blue".parse::<Policy>().is_err());
    }
}
