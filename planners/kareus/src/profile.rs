//! The interface of profilers, through which all times and energies come.
//!
//! # What a profiler returns
//! All of one GPU, and of **one** execution of what was profiled: a window's time and energy, divided by how
//! often it was executed in that window (section 5.3: 5 s, after a cooldown).
//!
//! - **Time**: the mean, from the start of the first computation or the communication, whichever is earlier,
//!   to the end of both.
//! - **Total energy**: what the GPU's energy counter says.
//! - **Static power**: what that GPU draws in its ready state (P0) with nothing to do (footnote 4). One number
//!   for the whole profiler: it does not depend on clock or candidate.
//! - **Dynamic energy**: total energy less static power x time, so it is computed and not measured
//!   ([`Measurement::dynamic`]).
//! - **Clock**: the mean in the window; lower than what was asked for where power or heat throttled it.
//! - **Temperature**: the GPU's when the window began. Profiles that began warm are biased upwards.
//! - **Noise**: the relative standard deviation of energy between repeated windows; nothing where there was
//!   one window only.
//!
//! The same question may be asked twice. A recorded profiler gives the same answer; a real or simulated one
//! may measure again, with other noise.
//!
//! What a profiler can't answer is an error which names the partition and the candidate. It never makes a
//! number up.

use litd_units::{Celsius, Hertz, Joules, Millis, Watts};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::candidate::Candidate;
use crate::partition::{Partition, Sequence};

/// The result of one execution, on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// How long it took; more than 0.
    pub time: Millis,
    /// The energy of the GPU in that time, in total; more than 0.
    pub energy: Joules,
    /// The mean clock.
    pub clock: Hertz,
    /// The GPU's temperature when the window began, where somebody looked.
    pub temperature: Option<Celsius>,
    /// The relative standard deviation of the energy of repeated windows.
    pub noise: Option<f64>,
}

impl Measurement {
    /// The dynamic energy: what is left without the static power (section 2.3). Noise can make it negative.
    #[must_use]
    pub fn dynamic(&self, static_power: Watts) -> Joules {
        Joules(self.energy.0 - static_power.0 * self.time.0 * 1e-3)
    }
}

/// Why a profiler has no answer.
#[derive(Debug, Clone, PartialEq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ProfilerError {
    #[error("{partition}: there is no result for {candidate}")]
    Missing {
        partition: String,
        candidate: Candidate,
    },
    #[error("{sequence}: there is no result at {} MHz", clock.0 / 1e6)]
    MissingSequence { sequence: String, clock: Hertz },
    #[error("{name}: {what}")]
    Impossible { name: String, what: String },
}

/// The source of times and energies: a record, a simulator, a GPU.
pub trait Profiler {
    /// The power of the idle GPU.
    fn static_power(&self) -> Watts;

    /// Measures one execution of a partition.
    ///
    /// # Errors
    /// If it has no such result, or the GPU can't do that: a clock that it does not have, more SMs than it
    /// has or none, a launch with no computation.
    fn partition(
        &mut self,
        partition: &Partition,
        candidate: Candidate,
    ) -> Result<Measurement, ProfilerError>;

    /// Measures one execution of a sequence without overlap.
    ///
    /// # Errors
    /// As [`Self::partition`].
    fn sequence(&mut self, sequence: &Sequence, clock: Hertz)
    -> Result<Measurement, ProfilerError>;
}
