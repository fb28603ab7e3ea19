//! The nodes of the study.

use litd_policies::Policy;
use litd_sim::{Scenario, ScenarioError};
use litd_units::{Aggregation, Kelvins, Millis, Watts};

use crate::run::{Case, Settings};
use crate::tracking::Disturbance;

/// The noise that the study's targets are given for: from kernel to kernel, from iteration to
/// iteration.
pub const NOISE: (f64, f64) = (0.01, 0.005);
/// The noise at which numbers are reported besides.
pub const LOUD: (f64, f64) = (0.03, 0.005);

/// A shipped scenario with other noise.
///
/// # Errors
/// There is no such scenario.
pub fn noisy(name: &str, noise: (f64, f64)) -> Result<Scenario, ScenarioError> {
    let mut scenario = Scenario::builtin(name)?;
    (scenario.kernel_noise, scenario.iteration_noise) = noise;
    Ok(scenario)
}

/// The shipped scenarios that have power to move: those calibrated to the paper's nodes where
/// there are any, and the oracle's.
pub fn nodes() -> impl Iterator<Item = &'static str> {
    litd_sim::scenario::builtin_names().filter(|name| {
        matches!(*name, "default" | "two-stragglers" | "a100") || name.contains("-node")
    })
}

/// The node of which only parts are coupled: so many groups of neighbouring GPUs, as those of
/// tensor parallelism, wait for their own with every layer, and all GPUs for each other only at the
/// iteration's end.
fn partly_coupled(groups: usize, noise: (f64, f64)) -> Result<Scenario, ScenarioError> {
    let mut scenario = noisy("default", noise)?;
    if let Some((_, layers)) = scenario.workload.collectives.split_last_mut() {
        for collective in layers {
            collective.groups = groups;
        }
    }
    Ok(scenario)
}

/// One case per node and policy.
///
/// # Errors
/// A scenario is missing.
pub fn levelling(noise: (f64, f64)) -> Result<Vec<Case>, ScenarioError> {
    let mut scenarios = Vec::new();
    for name in nodes() {
        scenarios.push((name, noisy(name, noise)?));
    }
    scenarios.push(("two groups of four", partly_coupled(2, noise)?));
    scenarios.push(("four pairs", partly_coupled(4, noise)?));
    let mut cases = Vec::new();
    for (name, scenario) in scenarios {
        for policy in Policy::STEERING {
            cases.push(Case {
                name: name.to_owned(),
                scenario: scenario.clone(),
                policy,
                disturbance: None,
            });
        }
    }
    Ok(cases)
}

/// When the disturbance comes, in samples: long after the node is level.
const LATER: u32 = 150;

/// One case per thing that can happen, under gpu-realloc.
///
/// # Errors
/// A scenario is missing.
pub fn tracking(noise: (f64, f64)) -> Result<Vec<Case>, ScenarioError> {
    let scenario = noisy("default", noise)?;
    let happens = [
        ("air 8 K warmer", Disturbance::Ambient(Kelvins(8.0))),
        (
            "a fan fails",
            Disturbance::Fan {
                gpu: 2,
                resistance: 1.25,
            },
        ),
        (
            "a GPU replaced by a hotter one",
            Disturbance::Replaced {
                gpu: 1,
                clock: -0.03,
            },
        ),
        (
            "a phase bound by memory",
            Disturbance::Phase { clock_bound: 0.6 },
        ),
        (
            "a neighbour on one host",
            Disturbance::Neighbour {
                gpu: 3,
                gap: Millis(0.08),
            },
        ),
    ];
    let case = |(name, disturbance): (&str, Disturbance)| Case {
        name: name.to_owned(),
        scenario: scenario.clone(),
        policy: Policy::GpuRealloc,
        disturbance: Some((LATER, disturbance)),
    };
    Ok(happens.into_iter().map(case).collect())
}

/// A knob of the paper's Table II at a value.
pub struct Knob {
    /// The knob.
    pub name: &'static str,
    /// Its value, in words.
    pub value: String,
    /// The loop with it.
    pub settings: Settings,
    /// The node with it.
    pub scenario: Scenario,
    /// The policy that shows it.
    pub policy: Policy,
}

/// Every knob of Table II at the values that the paper varies it over.
///
/// # Errors
/// A scenario is missing.
pub fn knobs(settings: &Settings, noise: (f64, f64)) -> Result<Vec<Knob>, ScenarioError> {
    let scenario = noisy("default", noise)?;
    let mut knobs = Vec::new();
    let mut vary = |name, value: String, change: &dyn Fn(&mut Settings, &mut Scenario), policy| {
        let (mut settings, mut scenario) = (settings.clone(), scenario.clone());
        change(&mut settings, &mut scenario);
        knobs.push(Knob {
            name,
            value,
            settings,
            scenario,
            policy,
        });
    };
    let red = Policy::GpuRed;
    for window in [1, 3, 5, 10] {
        let set = move |s: &mut Settings, _: &mut Scenario| s.config.detection.window = window;
        vary("window", window.to_string(), &set, red);
    }
    for how in [Aggregation::Sum, Aggregation::Max, Aggregation::Last] {
        let set = move |s: &mut Settings, _: &mut Scenario| s.config.detection.aggregation = how;
        vary("aggregation", format!("{how:?}").to_lowercase(), &set, red);
    }
    for watts in [5.0, 15.0, 30.0] {
        let set = move |s: &mut Settings, _: &mut Scenario| {
            s.config.mitigation.max_adjustment = Watts(watts);
        };
        vary("max adjustment", format!("{watts} W"), &set, red);
    }
    for scale in [litd_policies::Scale::Global, litd_policies::Scale::Local] {
        let set = move |s: &mut Settings, _: &mut Scenario| s.config.mitigation.scale = scale;
        vary("scale", format!("{scale:?}").to_lowercase(), &set, red);
    }
    for period in [5, 10, 20] {
        let set =
            move |s: &mut Settings, _: &mut Scenario| s.config.calibration.sampling_period = period;
        vary("sampling period", period.to_string(), &set, red);
    }
    for samples in [10, 50, 100] {
        let set = move |s: &mut Settings, _: &mut Scenario| s.config.calibration.warm_up = samples;
        vary("warm-up", samples.to_string(), &set, red);
    }
    for watts in [700.0, 650.0, 600.0, 550.0, 500.0] {
        let set = move |_: &mut Settings, s: &mut Scenario| s.caps.initial = Watts(watts);
        vary(
            "initial cap",
            format!("{watts} W"),
            &set,
            Policy::GpuRealloc,
        );
    }
    for watts in [10.0, 20.0, 30.0, 40.0, 50.0] {
        let set = move |s: &mut Settings, _: &mut Scenario| {
            s.config.mitigation.slosh_per_gpu = Watts(watts);
        };
        vary("power budget", format!("{watts} W"), &set, Policy::CpuSlosh);
    }
    Ok(knobs)
}
