//! A family of plants: SIMULATED nodes of GPUs that no law of litd was written for.
//!
//! A *plant* is what a controller steers. Those here were written from public data and literature
//! by somebody who had read neither the laws nor the scenarios that those were tuned on, and every
//! assumption is a [`Dimension`] with a range and a source. A [`Draw`] takes one value of each from
//! a seed; [`Draw::plant`] makes the [`Node`], which is a [`Plant`].
//!
//! - [`dimension`]: what is assumed, ranges, sources; [`kind`]: kinds of nodes;
//! - [`workload`], [`timeline`]: what GPUs execute, and one iteration at given clocks;
//! - [`gpu`]: power, clocks and limiters of one GPU; [`node`]: caps in, iterations out, over time;
//! - [`steady`]: where a node settles without noise; [`optimum`]: the best caps there are;
//! - [`corner`]: plants with a name; [`paper`]: one of them against Lit Silicon's tables;
//! - [`data`]: the recorded data; [`validate`]: the same statistics of data and plants, side by side.

pub mod corner;
pub mod data;
pub mod dimension;
pub mod draw;
pub mod gpu;
pub mod kind;
pub mod node;
pub mod optimum;
pub mod paper;
pub mod plant;
pub mod statistics;
pub mod steady;
pub mod timeline;
pub mod validate;
pub mod workload;

pub use dimension::Dimension;
pub use draw::Draw;
pub use kind::{Kind, Range};
pub use node::Node;
pub use optimum::{Optimum, Policy};
pub use plant::{Cpus, Iteration, Limiter, Plant, Reading};
pub use steady::Steady;
pub use workload::{Workload, WorkloadKind};
