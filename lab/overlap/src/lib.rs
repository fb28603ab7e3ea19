//! A simulated profiler for Kareus: one GPU that computation and communication share. Everything here is
//! SIMULATED: it shows what a search finds where the truth is known, and says nothing about a GPU.
//!
//! Its author had not read the search or what judges it; the commit that brought it in says what he had.
//!
//! - [`gpu`]: the GPU's constants, each with its unit and where it comes from;
//! - [`power`]: what the GPU draws, by clock, activity and temperature;
//! - [`sharing`]: how fast a computation and a communication advance beside each other;
//! - [`execution`]: one execution as phases in which nothing changes, and a power limit's doing;
//! - [`heat`]: the GPU's temperature, as two poles;
//! - [`window`]: what an energy counter of 100 ms makes of repeated executions;
//! - [`profiler`]: all of that behind [`litd_kareus::Profiler`];
//! - [`paper`]: the paper's case study (Figure 3) and its Table 1, made by hand from the models' dimensions.
//!
//! # What is not modelled
//! Networks between nodes; differences between the GPUs of a group, which would wait for the slowest; waves
//! of thread blocks (work divides evenly among SMs); caches (bytes are bytes of memory); the time a clock
//! takes to change; a sensor's constant error; throttling by temperature alone; noise that windows share.

pub mod execution;
pub mod gpu;
pub mod heat;
pub mod paper;
pub mod power;
pub mod profiler;
pub mod sharing;
pub mod window;

pub use execution::{Execution, Phase};
pub use gpu::Gpu;
pub use power::Activity;
pub use profiler::{Simulated, Truth};
pub use window::Method;
