//! The simulated profiler.

use litd_kareus::{
    Candidate, Communication, Computation, Measurement, Partition, Profiler, ProfilerError,
    Sequence, Step,
};
use litd_sim::rng::Rng;
use litd_units::{Celsius, Hertz, Joules, Millis, Watts};

use crate::execution::{Execution, Pace};
use crate::gpu::Gpu;
use crate::heat::Heat;
use crate::window::{self, LONGEST, Method, Window};

/// The result of a profiler without noise, heat and counter: SIMULATED, and for judges only. A search must
/// not see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Truth {
    /// The time of an execution.
    pub time: Millis,
    /// The energy, at the ready temperature.
    pub energy: Joules,
    /// The mean clock, as the power limit leaves it.
    pub clock: Hertz,
}

/// A simulated GPU that is asked to execute things. It gets warm by that, so what it says depends on what it
/// was asked before; the same seed, method and questions in the same order give the same answers.
#[derive(Debug, Clone)]
pub struct Simulated {
    gpu: Gpu,
    method: Method,
    seed: u64,
    heat: Heat,
    windows: u64,
}

fn impossible(name: &str, what: String) -> ProfilerError {
    ProfilerError::Impossible {
        name: name.to_owned(),
        what,
    }
}

impl Simulated {
    /// A GPU that has rested.
    #[must_use]
    pub fn new(gpu: Gpu, method: Method, seed: u64) -> Self {
        Self {
            gpu,
            method,
            seed,
            heat: Heat::rested(&gpu),
            windows: 0,
        }
    }

    /// The GPU's present temperature.
    #[must_use]
    pub fn temperature(&self) -> Celsius {
        self.heat.temperature(&self.gpu)
    }

    /// The truth about a candidate. It costs no time and warms nothing.
    ///
    /// # Errors
    /// As [`Profiler::partition`].
    pub fn truth(
        &self,
        partition: &Partition,
        candidate: Candidate,
    ) -> Result<Truth, ProfilerError> {
        self.check(partition, candidate)?;
        let execute = |clock| self.gpu.partition(partition, candidate, clock);
        self.known(&partition.name, candidate.clock, &execute)
    }

    /// The truth about a sequence.
    ///
    /// # Errors
    /// As [`Profiler::sequence`].
    pub fn truth_of_sequence(
        &self,
        sequence: &Sequence,
        clock: Hertz,
    ) -> Result<Truth, ProfilerError> {
        self.check_sequence(sequence, clock)?;
        let execute = |clock| self.gpu.sequence(sequence, clock);
        self.known(&sequence.name, clock, &execute)
    }

    fn known(
        &self,
        name: &str,
        asked: Hertz,
        execute: &dyn Fn(Hertz) -> Execution,
    ) -> Result<Truth, ProfilerError> {
        self.unlimited(name, asked, execute)?;
        let Pace {
            clock,
            time,
            dynamic,
        } = self.gpu.pace(asked, self.gpu.ready, execute);
        let power = dynamic + self.gpu.ready;
        Ok(Truth {
            time,
            energy: Joules(power.0 * time.0 * 1e-3),
            clock,
        })
    }

    /// The pace without a power limit.
    fn unlimited(
        &self,
        name: &str,
        asked: Hertz,
        execute: &dyn Fn(Hertz) -> Execution,
    ) -> Result<Pace, ProfilerError> {
        let free = self.gpu.pace(asked, Watts(f64::NEG_INFINITY), execute);
        if free.time <= LONGEST {
            return Ok(free);
        }
        let what = format!(
            "one execution takes {}, longer than the {LONGEST} that are simulated",
            free.time
        );
        Err(impossible(name, what))
    }

    fn check(&self, partition: &Partition, candidate: Candidate) -> Result<(), ProfilerError> {
        let Partition {
            name,
            computations,
            communication,
        } = partition;
        let Candidate { clock, sms, launch } = candidate;
        self.check_clock(name, clock)?;
        if sms < 1 || sms >= self.gpu.sms {
            let most = self.gpu.sms - 1;
            let what = format!(
                "the simulated GPU can't give {sms} SMs to a communication beside computations; 1 to {most} it can"
            );
            return Err(impossible(name, what));
        }
        if launch >= computations.len() {
            let there = computations.len();
            let what = format!(
                "there is no computation {launch} with which to launch the communication; the partition has {there}"
            );
            return Err(impossible(name, what));
        }
        for computation in computations {
            check_computation(name, computation)?;
        }
        self.check_communication(name, communication)
    }

    fn check_sequence(&self, sequence: &Sequence, clock: Hertz) -> Result<(), ProfilerError> {
        let name = &sequence.name;
        self.check_clock(name, clock)?;
        if sequence.steps.is_empty() {
            let what = "the sequence has no steps, so there is nothing to execute".to_owned();
            return Err(impossible(name, what));
        }
        sequence.steps.iter().try_for_each(|step| match step {
            Step::Computation(it) => check_computation(name, it),
            Step::Communication(it) => self.check_communication(name, it),
        })
    }

    fn check_clock(&self, name: &str, clock: Hertz) -> Result<(), ProfilerError> {
        if self.gpu.has(clock) {
            return Ok(());
        }
        let [lowest, highest, step, asked] =
            [self.gpu.lowest, self.gpu.highest, self.gpu.step, clock].map(|it| it.0 / 1e6);
        let what = format!(
            "the simulated GPU can't be locked to {asked} MHz; it has {lowest} to {highest} MHz, every {step} MHz"
        );
        Err(impossible(name, what))
    }

    fn check_communication(
        &self,
        name: &str,
        communication: &Communication,
    ) -> Result<(), ProfilerError> {
        if communication.collectives.is_empty() {
            let what = "the communication has no collectives; it needs at least one".to_owned();
            return Err(impossible(name, what));
        }
        for collective in &communication.collectives {
            let (group, bytes) = (collective.group, collective.bytes);
            if group < 1 || group > self.gpu.node {
                let most = self.gpu.node;
                let what = format!(
                    "a collective of {group} GPUs can't be simulated; a node has {most}, and there is no network between nodes"
                );
                return Err(impossible(name, what));
            }
            if !(bytes.is_finite() && bytes >= 0.0) {
                let what = format!("a collective of {bytes} bytes is none; it needs 0 or more");
                return Err(impossible(name, what));
            }
        }
        Ok(())
    }

    /// Measure by the method.
    fn measure(
        &mut self,
        name: &str,
        asked: Hertz,
        execute: &dyn Fn(Hertz) -> Execution,
    ) -> Result<Measurement, ProfilerError> {
        let gpu = self.gpu;
        // The pace depends on the temperature only where the power limit binds.
        let free = self.unlimited(name, asked, execute)?;
        let mut pace = |resting| match free.dynamic + resting > gpu.limit {
            true => gpu.pace(asked, resting, execute),
            false => free,
        };
        let mut windows = Vec::new();
        for _ in 0..self.method.repeats.max(1) {
            let mut rng = Rng::stream(self.seed, &[self.windows]);
            self.windows += 1;
            self.heat = window::cool(&gpu, self.heat, self.method.cooldown);
            let length = self.method.window;
            let heat = &mut self.heat;
            windows.push(window::measure(&gpu, heat, length, &mut rng, &mut pace));
        }
        Ok(summary(&windows))
    }
}

fn check_computation(name: &str, computation: &Computation) -> Result<(), ProfilerError> {
    let work = computation.work;
    let sound = |it: f64| it.is_finite() && it >= 0.0;
    if [work.matrix, work.vector, work.bytes]
        .into_iter()
        .all(sound)
    {
        return Ok(());
    }
    let what = format!(
        "{} asks for an amount of work that is not a number of 0 or more: {work:?}",
        computation.name
    );
    Err(impossible(name, what))
}

/// The means of windows, of which there is one at least, and their noise.
fn summary(windows: &[Window]) -> Measurement {
    let count = windows.len() as f64;
    let mean = |of: &dyn Fn(&Window) -> f64| windows.iter().map(of).sum::<f64>() / count;
    let energy = mean(&|it| it.energy.0);
    let square = windows.iter().map(|it| (it.energy.0 - energy).powi(2));
    let deviation = (square.sum::<f64>() / (count - 1.0)).sqrt();
    Measurement {
        time: Millis(mean(&|it| it.time.0)),
        energy: Joules(energy),
        clock: Hertz(mean(&|it| it.clock.0)),
        temperature: windows.first().map(|it| it.before),
        noise: (windows.len() > 1).then_some(deviation / energy),
    }
}

impl Profiler for Simulated {
    fn static_power(&self) -> Watts {
        self.gpu.ready
    }

    fn partition(
        &mut self,
        partition: &Partition,
        candidate: Candidate,
    ) -> Result<Measurement, ProfilerError> {
        self.check(partition, candidate)?;
        let gpu = self.gpu;
        let execute = |clock| gpu.partition(partition, candidate, clock);
        self.measure(&partition.name, candidate.clock, &execute)
    }

    fn sequence(
        &mut self,
        sequence: &Sequence,
        clock: Hertz,
    ) -> Result<Measurement, ProfilerError> {
        self.check_sequence(sequence, clock)?;
        let gpu = self.gpu;
        let execute = |clock| gpu.sequence(sequence, clock);
        self.measure(&sequence.name, clock, &execute)
    }
}
