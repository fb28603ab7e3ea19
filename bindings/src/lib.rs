//! Vendors' C libraries, loaded at run time, so that litd starts where they are not installed.
//!
//! Each has its functions as bindgen found them in the vendor's header, and a thin safe layer
//! over those that litd needs. This is the only crate of the workspace with `unsafe` in it.

pub mod amd_smi;
pub mod rocm_smi;
mod smi;

pub use smi::{Error, Gpu, Library, Meaning, Range, Sensor, Status};
