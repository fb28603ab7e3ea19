//! The nodes that laws are judged on: draws of the family, its corners, and scenarios
//! of `lab/sim`.

use litd_plants::kind::Sensor;
use litd_plants::{Dimension, Draw, corner};
use litd_policies::Policy;
use litd_units::Millis;

use super::{Hand, Judged, Row, Settings};
use crate::StudyError;
use crate::cases;
use crate::steered::Family;

/// The noise of a plant that a run sees: any number, the same for all.
const NOISE: u64 = 1;

/// One node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// The draw of the family that this seed gives.
    Draw(u64),
    /// A corner of the family.
    Corner(&'static str),
    /// A scenario of the simulator.
    Scenario(&'static str),
}

/// A node and what became of it, under every policy and hand.
#[derive(Debug, Clone)]
pub struct Verdicts {
    /// Which.
    pub node: Named,
    /// Its name.
    pub name: String,
    /// What it is, in a few words.
    pub what: String,
    /// Caps that it starts from, against the highest.
    pub start: f64,
    /// Policy by policy, hand by hand.
    pub rows: Vec<Row>,
}

/// Who plays, and to which ends.
#[derive(Clone)]
pub struct Field<'a> {
    /// The hands.
    pub hands: Vec<Hand<'a>>,
    /// The policies.
    pub policies: Vec<Policy>,
}

impl Named {
    /// The simulator's own nodes, and the corners of the family.
    #[must_use]
    pub fn with_a_name() -> Vec<Self> {
        let own = cases::nodes().map(Self::Scenario);
        let corners = corner::all().into_iter().map(|it| Self::Corner(it.name));
        corners.chain(own).collect()
    }

    /// What it is called; a draw has no name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Draw(_) => "",
            Self::Corner(name) | Self::Scenario(name) => name,
        }
    }

    /// Whether it is the paper's node or one of the simulator's own.
    #[must_use]
    pub fn is_paper_or_scenario(&self) -> bool {
        match self {
            Self::Draw(_) => false,
            Self::Corner(name) => *name == "lit-silicon",
            Self::Scenario(_) => true,
        }
    }

    /// Judges everybody on it.
    ///
    /// # Errors
    /// The node makes no sense.
    pub fn judge(self, field: &Field, settings: &Settings) -> Result<Verdicts, StudyError> {
        match self {
            Self::Draw(seed) => {
                let draw = Draw::new(seed);
                let name = seed.to_string();
                judge_draw(self, name, &draw, field, settings)
            }
            Self::Corner(name) => {
                let found = corner::named(name);
                let missing = || StudyError::NoNode(name.to_owned());
                let draw = found.ok_or_else(missing)?.draw;
                judge_draw(self, name.to_owned(), &draw, field, settings)
            }
            Self::Scenario(name) => judge_scenario(name, field, settings),
        }
    }
}

/// Judges everybody on a draw.
///
/// # Errors
/// The node makes no sense.
pub fn judge_draw(
    node: Named,
    name: String,
    draw: &Draw,
    field: &Field,
    settings: &Settings,
) -> Result<Verdicts, StudyError> {
    let Sensor::Window { window, .. } = draw.kind.spec().sensor;
    // As the plant's own readings are.
    let window = match draw.value(Dimension::Averaged) > 0.6 {
        true => Millis(1_000.0),
        false => Millis(window),
    };
    let plant = Family::new(draw.plant(NOISE), window, settings.bit, draw.seed);
    let mut judged = Judged::new(plant, settings, draw.seed);
    let mut rows = Vec::new();
    for &policy in &field.policies {
        let prospect = judged.prospect(policy)?;
        for &hand in &field.hands {
            rows.push(judged.judge(hand, &prospect)?);
        }
    }
    Ok(Verdicts {
        node,
        name,
        what: format!("{} {}", draw.kind.spec().name, draw.workload.name()),
        start: draw.start(),
        rows,
    })
}

fn judge_scenario(
    name: &'static str,
    field: &Field,
    settings: &Settings,
) -> Result<Verdicts, StudyError> {
    let mut scenario = cases::noisy(name, cases::NOISE)?;
    let (found, tdp) = (scenario.caps.initial, scenario.caps.tdp);
    let mut rows = Vec::new();
    for &policy in &field.policies {
        // Scenarios say where caps are found for the other two; gpu-red starts at TDP.
        scenario.caps.initial = if policy == Policy::GpuRed { tdp } else { found };
        let plant = litd_sim::Plant::new(&scenario, crate::run::seed(NOISE))?;
        let mut judged = Judged::new(plant, settings, NOISE);
        let prospect = judged.prospect(policy)?;
        for &hand in &field.hands {
            rows.push(judged.judge(hand, &prospect)?);
        }
    }
    Ok(Verdicts {
        node: Named::Scenario(name),
        name: format!("{name} (lab/sim)"),
        what: "lab/sim".to_owned(),
        start: found / tdp,
        rows,
    })
}
