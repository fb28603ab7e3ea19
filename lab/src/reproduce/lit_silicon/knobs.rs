//! Table II: every knob at every value of the paper, and the runs with it.

use litd_policies::{Config, Policy, Scale};
use litd_sim::Scenario;
use litd_study::course::{self, Course, Hand, Measures};
use litd_study::{StudyError, parallel, run};
use litd_units::{Aggregation, Watts};

use super::Fallible;
use super::characterised::Characterised;

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

    /// Whether its runs are repeated, so that its numbers have intervals.
    fn is_repeated(&self) -> bool {
        self.is_default() || self.name == "node"
    }

    /// Without enough samples before, power and time before are those of the defaults (caption of Figure 13).
    fn has_other_start(&self) -> bool {
        ["warm-up", "sampling period"].contains(&self.name)
    }
}

/// The name of Table II's defaults, whose value is empty.
pub(super) const DEFAULT: &str = "defaults";

/// The defaults, on both nodes, are run with so many seeds.
const SEEDS: u64 = 8;

/// A run with a knob.
pub(super) struct Ran {
    pub knob: Knob,
    pub hand: Hand,
    /// With the first seed.
    pub course: Course,
    pub measures: Measures,
    /// With every seed, the first included.
    pub repeats: Vec<Measures>,
}

impl Ran {
    /// The mean over seeds, and its 95 % interval in words.
    pub(super) fn mean(&self, of: impl Fn(&Measures) -> f64) -> (f64, String) {
        let values: Vec<f64> = self.repeats.iter().map(of).collect();
        match course::interval(&values) {
            Some(it) => {
                let text = format!(
                    "95 % interval {:.3} to {:.3}, {} seeds",
                    it.low, it.high, it.count
                );
                (it.mean, text)
            }
            None => (values.first().copied().unwrap_or(0.0), "one seed".into()),
        }
    }
}

/// The runs that the wanted items need, and section III's where those are wanted.
pub(super) struct Lab {
    pub runs: Vec<Ran>,
    pub characterised: Option<Characterised>,
}

/// Items that need all knobs, a few, or the defaults alone. Table II's own rows need none: its knobs are in figures.
const ALL: [&str; 4] = ["figure-10", "figure-13", "figure-14", "figure-15"];
const FIGURE_11: &str = "figure-11";
const FIGURE_12: &str = "figure-12";
const DEFAULTS: [&str; 2] = ["table-3", "figure-9"];
const FLEET: &str = "section-8a";
const CHARACTERISED: [&str; 6] = [
    "figure-3a",
    "figure-3b",
    "figure-4",
    "figure-5",
    "figure-7",
    "table-3",
];

impl Lab {
    /// Runs what items of this name need, or everything.
    pub(super) fn new(what: Option<&str>) -> Fallible<Self> {
        let wants =
            |name: &&str| what.is_none_or(|what| name.contains(what) || what.starts_with(*name));
        Ok(Self {
            runs: run_all(&wanted(&wants)?, ["table-3", FLEET].iter().any(wants))?,
            characterised: match CHARACTERISED.iter().any(wants) {
                true => Some(Characterised::new()?),
                false => None,
            },
        })
    }

    /// The run of a policy and a law with a knob at a value.
    pub(super) fn one(&self, policy: Policy, hand: Hand, name: &str, value: &str) -> Option<&Ran> {
        self.of(policy)
            .find(|it| it.hand == hand && it.knob.name == name && it.knob.value == value)
    }

    /// The runs of a policy.
    pub(super) fn of(&self, policy: Policy) -> impl Iterator<Item = &Ran> {
        self.runs.iter().filter(move |it| it.knob.policy == policy)
    }
}

/// The knobs that the wanted items need.
fn wanted(wants: &impl Fn(&&str) -> bool) -> Fallible<Vec<Knob>> {
    let every = ALL.iter().any(wants);
    let defaults = DEFAULTS.iter().any(wants);
    let (warm_up, caps, fleet) = (wants(&FIGURE_11), wants(&FIGURE_12), wants(&FLEET));
    let mut knobs = Vec::new();
    for policy in Policy::STEERING {
        let (red, realloc) = (policy == Policy::GpuRed, policy == Policy::GpuRealloc);
        knobs.extend(of_policy(policy)?.into_iter().filter(|knob| {
            every
                || knob.is_default() && (defaults || warm_up || caps || fleet && red)
                || warm_up && realloc && knob.name == "warm-up"
                || caps && knob.name == "power cap"
                || fleet && red && knob.name == "node"
        }));
    }
    Ok(knobs)
}

/// Runs each knob under every law, and with several seeds what then has intervals.
fn run_all(knobs: &[Knob], repeats: bool) -> Fallible<Vec<Ran>> {
    let mut jobs = Vec::new();
    for knob in knobs {
        let seeds = if repeats && knob.is_repeated() {
            SEEDS
        } else {
            1
        };
        for hand in Hand::ALL {
            jobs.extend((0..seeds).map(|seed| (knob, hand, seed)));
        }
    }
    let bar = crate::study::bar("lit-silicon", jobs.len());
    let courses: Result<Vec<Course>, StudyError> = parallel::map(
        &jobs,
        |&(knob, hand, seed)| {
            let (scenario, config) = (&knob.scenario, &knob.config);
            course::run(scenario, knob.policy, hand, config, run::seed(seed))
        },
        |done| bar.set_position(done as u64),
    )
    .into_iter()
    .collect();
    bar.finish_and_clear();
    let done: Vec<_> = jobs.into_iter().zip(courses?).collect();
    let first = |knob: &Knob, hand: Hand| {
        let found = done.iter().find(|((it, other, _), _)| {
            it.is_default() && it.policy == knob.policy && *other == hand
        });
        found.map(|(_, course)| course.before())
    };
    let mut runs: Vec<Ran> = Vec::new();
    for ((knob, hand, seed), course) in &done {
        let before = match first(knob, *hand) {
            Some(before) if knob.has_other_start() => before,
            _ => course.before(),
        };
        let measures = course.measures(before);
        match runs.last_mut() {
            Some(ran) if *seed > 0 => ran.repeats.push(measures),
            _ => runs.push(Ran {
                knob: (*knob).clone(),
                hand: *hand,
                course: course.clone(),
                measures,
                repeats: vec![measures],
            }),
        }
    }
    Ok(runs)
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
                it.config.mitigation.slosh_per_gpu = Watts(watts);
            });
        }
    }
    Ok(knobs)
}
