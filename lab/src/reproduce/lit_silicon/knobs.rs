//! Table II: every knob at every value of the paper, and the runs with it.

use litd_policies::{Config, Policy, Scale};
use litd_sim::Scenario;
use litd_study::course::{self, Course, Hand, Measures};
use litd_study::{StudyError, parallel, run};
use litd_units::{Aggregation, Watts};

use super::Fallible;

/// A knob at a value; everything else as Table II has it by default.
#[derive(Debug, Clone)]
pub(super) struct Knob {
    pub name: &'static str,
    pub value: String,
    pub policy: Policy,
    pub scenario: Scenario,
    pub config: Config,
}

impl Knob {
    /// Whether it is Table II's default of every knob.
    pub(super) fn is_default(&self) -> bool {
        self.name == DEFAULT
    }

    /// Without enough samples before, power and time before are those of the defaults (caption of Figure 13).
    fn has_other_start(&self) -> bool {
        ["warm-up", "sampling period"].contains(&self.name)
    }
}

const DEFAULT: &str = "defaults";

/// A run with a knob.
pub(super) struct Ran {
    pub knob: Knob,
    pub hand: Hand,
    pub course: Course,
    pub measures: Measures,
}

/// The runs that the wanted items need.
pub(super) struct Lab {
    pub runs: Vec<Ran>,
}

/// Items that need all knobs, a few, or the defaults alone.
const ALL: [&str; 5] = [
    "figure-10",
    "figure-13",
    "figure-14",
    "figure-15",
    "table-2",
];
const FIGURE_11: &str = "figure-11";
const FIGURE_12: &str = "figure-12";
const DEFAULTS: [&str; 2] = ["table-3", "figure-9"];

impl Lab {
    /// Runs what items of this name need, or everything.
    pub(super) fn new(what: Option<&str>) -> Fallible<Self> {
        let wants =
            |name: &&str| what.is_none_or(|what| name.contains(what) || what.starts_with(*name));
        let every = ALL.iter().any(&wants);
        let mut knobs = Vec::new();
        for policy in Policy::STEERING {
            knobs.extend(of_policy(policy)?.into_iter().filter(|knob| {
                let realloc = policy == Policy::GpuRealloc;
                every
                    || knob.is_default()
                        && (DEFAULTS.iter().any(&wants) || wants(&FIGURE_11) || wants(&FIGURE_12))
                    || wants(&FIGURE_11) && realloc && knob.name == "warm-up"
                    || wants(&FIGURE_12) && knob.name == "power cap"
            }));
        }
        let jobs: Vec<(&Knob, Hand)> = knobs
            .iter()
            .flat_map(|knob| Hand::ALL.map(|hand| (knob, hand)))
            .collect();
        let bar = crate::study::bar("lit-silicon", jobs.len());
        let courses: Result<Vec<Course>, StudyError> = parallel::map(
            &jobs,
            |(knob, hand)| {
                course::run(
                    &knob.scenario,
                    knob.policy,
                    *hand,
                    &knob.config,
                    run::seed(0),
                )
            },
            |done| bar.set_position(done as u64),
        )
        .into_iter()
        .collect();
        bar.finish_and_clear();
        let done: Vec<(&Knob, Hand, Course)> = jobs
            .iter()
            .zip(courses?)
            .map(|(&(knob, hand), course)| (knob, hand, course))
            .collect();
        let runs = done.iter().map(|(knob, hand, course)| {
            let default = done.iter().find(|(it, other, _)| {
                it.is_default() && it.policy == knob.policy && other == hand
            });
            let before = match default {
                Some((_, _, default)) if knob.has_other_start() => default.before(),
                _ => course.before(),
            };
            Ran {
                knob: (*knob).clone(),
                hand: *hand,
                measures: course.measures(before),
                course: course.clone(),
            }
        });
        Ok(Self {
            runs: runs.collect(),
        })
    }

    /// The runs of a policy.
    pub(super) fn of(&self, policy: Policy) -> impl Iterator<Item = &Ran> {
        self.runs.iter().filter(move |it| it.knob.policy == policy)
    }
}

/// Every knob of a policy: the defaults first, then what differs from them.
fn of_policy(policy: Policy) -> Fallible<Vec<Knob>> {
    let base = Knob {
        name: DEFAULT,
        value: String::new(),
        policy,
        scenario: Scenario::builtin("mi300x-node1")?,
        config: Config::default(),
    };
    let mut knobs = vec![base.clone()];
    let mut vary = |name, value: String, change: &dyn Fn(&mut Knob)| {
        let mut knob = Knob {
            name,
            value,
            ..base.clone()
        };
        change(&mut knob);
        knobs.push(knob);
    };
    let node0 = Scenario::builtin("mi300x-node0")?;
    vary("node", "0".into(), &|it| it.scenario = node0.clone());
    for period in [4, 7] {
        vary("sampling period", period.to_string(), &|it| {
            it.config.calibration.sampling_period = period;
        });
    }
    for samples in [3, 6, 12, 25] {
        vary("warm-up", samples.to_string(), &|it| {
            it.config.calibration.warm_up = samples;
        });
    }
    for window in [1, 2, 5] {
        vary("window", window.to_string(), &|it| {
            it.config.detection.window = window;
        });
    }
    for (name, how) in [("max", Aggregation::Max), ("last", Aggregation::Last)] {
        vary("aggregation", name.into(), &|it| {
            it.config.detection.aggregation = how;
        });
    }
    for watts in [5.0, 10.0, 30.0] {
        vary("max adjustment", format!("{watts} W"), &|it| {
            it.config.mitigation.max_adjustment = Watts(watts);
        });
    }
    vary("scale", "local".into(), &|it| {
        it.config.mitigation.scale = Scale::Local;
    });
    if policy != Policy::GpuRed {
        for watts in [650.0, 600.0, 550.0, 500.0] {
            vary("power cap", format!("{watts} W"), &|it| {
                it.scenario.caps.initial = Watts(watts);
            });
        }
    }
    if policy == Policy::CpuSlosh {
        for watts in [10.0, 30.0, 50.0] {
            vary("power budget", format!("{watts} W"), &|it| {
                it.config.mitigation.power_budget = Watts(watts);
            });
        }
    }
    Ok(knobs)
}
