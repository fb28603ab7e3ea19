//! The simulated node: kernels and collectives by the oracle's five rules, clocks from power
//! caps, heat, noise from a seed. What it yields is what a profiler and a driver would yield, so
//! that the loop and the analysis run on it unchanged.
//!
//! - [`workload`]: what every GPU executes in one training iteration;
//! - [`iteration`]: one iteration at given speeds, by the five rules;
//! - [`scenario`]: a node and its workload, from a file;
//! - [`plant`]: that node over time, with caps, clocks and temperatures;
//! - [`record`] and [`kineto`]: an iteration as [`litd_traces::Timeline`]s and as Kineto files;
//! - [`pieces`]: the same as a hook without a profiler would have timed it;
//! - [`parallel`]: a job whose ranks do different things, such as the stages of a pipeline;
//! - [`rng`]: the noise.

mod device;
pub mod iteration;
pub mod kineto;
pub mod parallel;
pub mod pieces;
pub mod plant;
pub mod record;
pub mod rng;
pub mod scenario;
mod scenario_file;
pub mod workload;

pub use device::{CpuTelemetry, GpuTelemetry, Limiter, Throttle};
pub use iteration::{Conditions, IterationError, IterationModel, IterationResult};
pub use parallel::{Parallel, ParallelError};
pub use pieces::Pieces;
pub use plant::{Plant, PlantError, SteadyState};
pub use scenario::{CapLimits, CpuSpec, GpuSpec, Scenario, ScenarioError};
pub use workload::{Workload, WorkloadError};
