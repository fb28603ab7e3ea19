//! A plant as the loop has it, whoever wrote it: devices to read and to write, iterations to take
//! apart; and what only a judge may ask.

mod family;
mod sim;

use litd_policies::{GpuReading, Node};
use litd_traces::Limit;
use litd_units::{Millis, Watts};

use crate::StudyError;
use crate::optimum::Outcome;

pub use family::{Family, PowerBit};

/// One iteration.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ran {
    /// Its wall time.
    pub time: Millis,
    /// Mean power of all GPUs.
    pub gpus: Watts,
    /// Mean power of the whole node, as far as the plant knows of it.
    pub node: Watts,
}

/// What every rank executes in an iteration, as a hook would name it.
#[derive(Debug, Clone, Default)]
pub struct Kernels {
    /// Computation kernels in stream order: name, and what limits them, as far as the name tells.
    pub computation: Vec<(String, Option<Limit>)>,
    /// Collectives in stream order.
    pub collectives: Vec<String>,
}

/// When a kernel ran: start from the iteration's begin, and duration.
pub type Span = (Millis, Millis);

/// A simulated node that a law can be let at. GPUs are devices 0 and up, CPU sockets come behind.
pub trait Steered: Clone {
    /// How many GPUs it has.
    fn gpu_count(&self) -> usize;
    /// Its devices as a plan sees them.
    fn node(&self) -> Node;
    /// The lowest and the highest cap that drivers accept.
    fn range(&self) -> (Watts, Watts);
    /// What ranks execute.
    fn kernels(&self) -> Kernels;
    /// Iterations so far.
    fn iterations(&self) -> u64;
    /// Runs one iteration.
    fn iterate(&mut self) -> Ran;
    /// When each computation kernel and each collective of a rank ran in the last iteration.
    fn spans(&self, rank: usize) -> (Vec<Span>, Vec<Span>);
    /// Wall time of the last iteration.
    fn last(&self) -> Millis;
    /// What tools tell of each GPU; what they tell of shares of time is since the last time.
    fn readings(&mut self) -> Vec<GpuReading>;
    /// The cap of a GPU, or the limit of a CPU socket.
    ///
    /// # Errors
    /// No such device.
    fn cap(&self, device: usize) -> Result<Watts, StudyError>;
    /// Sets it.
    ///
    /// # Errors
    /// The device refuses it.
    fn set(&mut self, device: usize, cap: Watts) -> Result<(), StudyError>;
    /// Jumps to where heat and clocks settle under the present caps.
    fn settle(&mut self);
    /// Where it would settle under these caps of GPUs, without noise: the judge's alone.
    ///
    /// # Errors
    /// The plant refuses a cap.
    fn steady(&self, caps: &[Watts]) -> Result<Outcome, StudyError>;

    /// The caps of all GPUs.
    fn gpu_caps(&self) -> Vec<Watts> {
        let cap = |gpu| self.cap(gpu).unwrap_or(Watts(f64::NAN));
        (0..self.gpu_count()).map(cap).collect()
    }
}
