//! The laws in closed loop with the simulated node. Everything here is SIMULATED: it tests the
//! code, not the effect.
//!
//! - [`steered`]: a plant as the loop has it, whoever wrote it;
//! - [`closed_loop`]: plant, controller and the wire between them;
//! - [`optimum`]: the best caps there are, found without knowing what the plant is made of;
//! - [`run`]: one law on one node against that;
//! - [`tracking`]: what happens to a node that was level;
//! - [`cases`]: the nodes of the study, and the knobs of its sensitivities;
//! - [`harm`]: random nodes, broken ones too, that must not be worse off;
//! - [`judge`]: what a law is worth on a node that nobody wrote for it;
//! - [`day`]: a budget that changes by the hour;
//! - [`next`]: what more could be done with caps on a level node;
//! - [`rest`]: a level node, which is to be left alone;
//! - [`course`]: a run as the Lit Silicon paper evaluates it, under its bare law or litd's own;
//! - `paper` (feature `recorded`): how near a scenario is to the node of that paper;
//! - `iterations` (feature `recorded`): three iterations, as its Figures 3 to 5 and 7 draw them;
//! - [`report`] writes tables;
//! - [`parallel`]: work over all cores.

pub mod cases;
pub mod closed_loop;
pub mod course;
pub mod day;
pub mod harm;
#[cfg(feature = "recorded")]
pub mod iterations;
pub mod judge;
pub mod next;
pub mod observe;
pub mod optimum;
#[cfg(feature = "recorded")]
pub mod paper;
pub mod parallel;
pub mod report;
pub mod rest;
pub mod run;
pub mod steered;
pub mod tracking;

use thiserror::Error;

pub use closed_loop::ClosedLoop;

/// Why a study can't go on. None of these comes from the loop under study.
#[derive(Debug, Error)]
pub enum StudyError {
    /// The plant.
    #[error(transparent)]
    Plant(#[from] litd_sim::PlantError),
    /// The policy's plan.
    #[error(transparent)]
    Plan(#[from] litd_policies::PlanError),
    /// The analysis of an iteration.
    #[error(transparent)]
    Analysis(#[from] litd_traces::AlignError),
    /// A rank's kernels.
    #[error(transparent)]
    Live(#[from] litd_traces::LiveError),
    /// Leads that are none.
    #[error(transparent)]
    Leads(#[from] litd_policies::LeadError),
    /// A scenario.
    #[error(transparent)]
    Scenario(#[from] litd_sim::ScenarioError),
    /// There is no such node.
    #[error("there is no plant {0}; `litlab plants list` names those there are")]
    NoNode(String),
    /// A write of caps.
    #[error("a simulated device did not take a cap: {0}")]
    Write(String),
}
