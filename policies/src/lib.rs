//! Decisions of litd as values and functions: no I/O, no clock, no state but what is passed.
//!
//! - [`law`]: how lead values become wanted caps (Algorithms 2 and 3 of the Lit Silicon paper).
//! - `model`: the model law, which computes wanted caps from kernel durations (docs/laws.md).
//! - [`envelope`]: projects whatever a law wants onto what is allowed. Only it makes a
//!   [`CapVector`], and only a [`CapVector`] can be written to hardware.
//! - [`actuator`]: the account of writes and their order, so that the sum stays within the budget after each.
//! - [`plan`]: the three use cases of Table I as budgets, start caps and ceilings.
//! - [`diagnosis`]: why the straggler is late, and whether watts would help it.
//! - [`drawn`]: the mean power of a device, by its energy counter where that can be believed.
//! - [`controller`]: the loop's state machine, one sample in, one [`decision`] out.

pub mod actuator;
pub mod config;
pub mod controller;
pub mod decision;
pub mod diagnosis;
pub mod drawn;
pub mod envelope;
pub mod law;
mod model;
pub mod plan;
pub mod sample;

pub use actuator::{Actuator, Rises, Written};
pub use config::{Config, Law, Scale};
pub use controller::Controller;
pub use decision::{Decision, State, Why};

pub use diagnosis::Diagnosis;
pub use drawn::Drawn;
pub use envelope::{CapVector, Envelope, EnvelopeError, Limits, to_the_microwatt};
pub use law::{LeadError, Leads, adj_power_node, inc_power_gpu};
pub use plan::{Cpu, Node, Plan, PlanError, Policy};
pub use sample::{GpuReading, Sample};
