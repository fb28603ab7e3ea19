//! Perseus: the time-energy frontier of one training iteration of a pipeline.
//!
//! A [`Graph`] of operations and a [`Curve`](litd_profiles::Curve) of cost for each kind of operation make a
//! [`Problem`]; [`Frontier::characterise`] finds, for every whole unit of time from the longest
//! sensible iteration (T*) down to the shortest possible one (Tmin), the least cost at which the
//! iteration ends in time. The cost is the effective one: energy less what blocking would have
//! used in the same time (section 4.1, equation 4). [`certificate::check`] proves a point
//! optimal without knowing how it was found.

pub mod baselines;
pub mod certificate;
mod contract;
mod frontier;
mod graph;
mod job;
mod partition;
mod problem;
mod schedule;

pub use frontier::{Frontier, Point, State};
pub use graph::{Arc, Graph, GraphError, Operation};
pub use job::{Job, JobError, Pipeline, Plan, Planned, Scale};
pub use partition::{Partition, PartitionError, partition};
pub use problem::{Problem, ProblemError};
pub use schedule::{CONSTANT, Schedule, ScheduleError, is_constant};
