//! A stand-in `libnvidia-ml.so.1`: what NVML clients call, answered by a simulated node.
//!
//! The node's socket stands in a file beside the library, which has the library's name and
//! `.socket` at its end. Without a node there the driver is not loaded.
//!
//! Layouts, return codes and units are those of `nvml.h`. As with the real library, handles are
//! good for one session only, and a GPU that was lost stays lost until the library is shut down.
// The C interface is made of pointers.
#![allow(unsafe_code)]

mod abi;
pub mod code;
mod protocol;
mod session;

pub use protocol::{Answer, Board, MIG_INSTANCES, Request, Sensors};
