//! The simulated profiler against the paper's observations, and as an instrument.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod measuring;
mod observations;
mod power;
mod refusals;

use litd_kareus::Candidate;
use litd_overlap::gpu::A100;
use litd_overlap::{Method, Simulated};
use litd_units::{Hertz, Millis};

fn at(megahertz: f64, sms: u32, launch: usize) -> Candidate {
    Candidate {
        clock: Hertz(megahertz * 1e6),
        sms,
        launch,
    }
}

/// Windows and cooldowns of so many seconds.
fn simulated(window: f64, cooldown: f64, seed: u64) -> Simulated {
    let method = Method {
        window: Millis(window * 1e3),
        cooldown: Millis(cooldown * 1e3),
        repeats: 1,
    };
    Simulated::new(A100, method, seed)
}
