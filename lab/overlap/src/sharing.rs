//! How fast a computation and a communication advance, alone or beside each other.
//!
//! They share SMs, which the candidate divides, and memory bandwidth, which nobody divides: each takes it in
//! proportion to what it would take alone. A lower clock slows the SMs' arithmetic, and hardly memory or links.

use litd_kareus::Work;
use litd_units::Hertz;

use crate::gpu::Gpu;
use crate::power::Activity;

/// The kernels that run at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Running<'a> {
    /// The computation, unless it is over, or has been launched and has not begun.
    pub computation: Option<&'a Work>,
    /// The SMs that computations have.
    pub computation_sms: f64,
    /// The SMs of a communication that sends.
    pub communication_sms: Option<f64>,
}

/// How fast it advances.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Of the computation: its share per second.
    pub computation: f64,
    /// Of the communication: bytes sent per second.
    pub sent: f64,
}

/// The softened largest of some times: the norm of that order.
fn norm(times: &[f64], order: f64) -> f64 {
    let largest = times.iter().copied().fold(0.0, f64::max);
    if largest <= 0.0 || !largest.is_finite() {
        return largest;
    }
    let sum: f64 = times.iter().map(|it| (it / largest).powf(order)).sum();
    largest * sum.powf(1.0 / order)
}

impl Gpu {
    /// How much slower than at the highest clock something is of which this share passes in cycles.
    fn stretch(&self, clock: Hertz, clocked: f64) -> f64 {
        1.0 - clocked + clocked / self.relative(clock)
    }

    /// Seconds that a computation takes with so many SMs and at most so many B/s of memory.
    fn seconds(&self, clock: Hertz, work: &Work, sms: f64, bandwidth: f64) -> f64 {
        let cycles = sms * clock.0;
        let per_sm = self.bandwidth_per_sm / self.stretch(clock, self.clocked_latency);
        let times = [
            work.matrix / (self.matrix * self.matrix_efficiency * cycles),
            work.vector / (self.vector * self.vector_efficiency * cycles),
            work.bytes / bandwidth,
            work.bytes / (per_sm * sms),
        ];
        norm(&times, self.softness)
    }

    /// Bytes that a communication sends per second with so many SMs and at most so many B/s of memory.
    fn sending(&self, clock: Hertz, sms: f64, bandwidth: f64) -> f64 {
        let per_sm = self.link_per_sm / self.stretch(clock, self.clocked_link_latency);
        // The links fill up gradually: with 30 SMs little is left to gain (the paper's Appendix B).
        let alone = norm(&[1.0 / self.link, 1.0 / (per_sm * sms)], 2.0);
        let memory = self.bytes_per_sent / bandwidth;
        1.0 / norm(&[alone, memory], self.softness)
    }

    /// How fast what runs advances.
    #[must_use]
    pub fn rates(&self, clock: Hertz, running: Running<'_>) -> Rates {
        let computing = |bandwidth| match running.computation {
            Some(work) => 1.0 / self.seconds(clock, work, running.computation_sms, bandwidth),
            None => 0.0,
        };
        let sending = |bandwidth| match running.communication_sms {
            Some(sms) => self.sending(clock, sms, bandwidth),
            None => 0.0,
        };
        // The share of the memory that each would take if it were alone.
        let computation = match running.computation {
            Some(work) if work.bytes > 0.0 => computing(self.bandwidth) * work.bytes,
            _ => 0.0,
        };
        let communication = sending(self.bandwidth) * self.bytes_per_sent;
        let wanted = computation + communication;
        if computation <= 0.0 || communication <= 0.0 {
            return Rates {
                computation: computing(self.bandwidth),
                sent: sending(self.bandwidth),
            };
        }
        // Two streams disturb each other's rows.
        let share = communication / wanted;
        let shared = self.bandwidth * (1.0 - self.mixing * share * (1.0 - share));
        let fits = (shared / wanted).min(1.0);
        Rates {
            computation: computing(shared - communication * fits),
            sent: sending(shared - computation * fits),
        }
    }

    /// The activity at these rates.
    #[must_use]
    pub fn activity(&self, running: Running<'_>, rates: Rates) -> Activity {
        let work = running.computation.copied().unwrap_or_default() * rates.computation;
        let computing = running.computation.map_or(0.0, |_| running.computation_sms);
        Activity {
            sms: computing + running.communication_sms.unwrap_or(0.0),
            matrix: work.matrix,
            vector: work.vector,
            bytes: work.bytes + rates.sent * self.bytes_per_sent,
            sent: rates.sent,
        }
    }
}
