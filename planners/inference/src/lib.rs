//! EnergyLens: energy and latency of language-model inference on several GPUs, predicted from a few lines
//! of einsums (Song et al., "EnergyLens: Predictive Energy-Aware Exploration for Multi-GPU LLM Inference
//! Optimization").
//!
//! A [`Gpu`](gpu::Gpu) from a public specification and a [`KernelModel`](kernel::KernelModel) predict one
//! kernel; [`fit`] calibrates that from a measured [`table`], and [`evaluate`](mod@evaluate) tells how far it is off.

pub mod engine;
pub mod evaluate;
pub mod fit;
pub mod gpu;
pub mod interpret;
pub mod kernel;
pub mod model;
pub mod predict;
pub mod spec;
pub mod sweep;
pub mod table;
