//! Carbon-aware dynamic parallelism (Aboualim and Lee): which parallel configuration (TP, PP, DP) of a
//! training job runs in which hour, so that the job emits least and still meets its deadline.
//!
//! A [`Profile`] holds power and throughput of each configuration; a [`Trace`] holds the carbon intensity
//! of a zone's electricity, [`Forecasts`] what was expected of it and when. A [`Job`] with the intensity of
//! each window is a [`Problem`] (section 4.2, equations 1 to 4), whose answers are [`Plan`]s:
//! [`solve::solve`] finds the optimum with a proof, [`policy`] holds the other policies of section 5.1
//! and model-predictive control, and [`replay`] plays a plan back with what planning leaves out.

mod bootstrap;
mod configuration;
mod error;
mod forecast;
mod job;
mod plan;
pub mod policy;
mod profile;
pub mod replay;
mod series;
pub mod signal;
mod skill;
pub mod solve;
mod table;
mod time;
mod trace;

pub use bootstrap::{Interval, paired};
pub use configuration::Configuration;
pub use error::{Infeasible, Uncovered};
pub use forecast::{Forecasts, FromLater, Issued, Known};
pub use job::{Job, JobError, Problem, Start, in_whole_windows, is_window, slack_deadline};
pub use plan::{Broken, Plan, Run};
pub use profile::{Point, Profile};
pub use series::Series;
pub use skill::Skill;
pub use table::TableError;
pub use time::moment;
pub use trace::{Factor, Trace};
