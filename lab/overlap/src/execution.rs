//! An execution as phases in which nothing changes, and the pace that a power limit leaves.

use litd_kareus::{Candidate, Collective, CollectiveKind, Communication, Computation};
use litd_kareus::{Partition, Sequence, Step, Work};
use litd_units::{Hertz, Joules, Millis, Watts};

use crate::gpu::Gpu;
use crate::power::Activity;
use crate::sharing::Running;

/// A span in which nothing begins or ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// How long it is.
    pub length: Millis,
    /// The computation that runs or has been launched, by its place; none once all are over.
    pub computation: Option<usize>,
    /// Whether a communication has SMs.
    pub communicating: bool,
    /// The activity.
    pub activity: Activity,
}

/// An execution at one clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Execution {
    /// The clock.
    pub clock: Hertz,
    /// In order.
    pub phases: Vec<Phase>,
}

impl Execution {
    /// How long it takes.
    #[must_use]
    pub fn time(&self) -> Millis {
        self.phases.iter().map(|it| it.length).sum()
    }

    /// How long the communication runs alone.
    #[must_use]
    pub fn exposed(&self) -> Millis {
        let alone = |it: &&Phase| it.communicating && it.computation.is_none();
        self.phases.iter().filter(alone).map(|it| it.length).sum()
    }

    /// How long this computation takes.
    #[must_use]
    pub fn of(&self, computation: usize) -> Millis {
        let its = |it: &&Phase| it.computation == Some(computation);
        self.phases.iter().filter(its).map(|it| it.length).sum()
    }

    /// How long the communication takes.
    #[must_use]
    pub fn communication(&self) -> Millis {
        let its = |it: &&Phase| it.communicating;
        self.phases.iter().filter(its).map(|it| it.length).sum()
    }

    /// The execution's dynamic energy.
    #[must_use]
    pub fn dynamic_energy(&self, gpu: &Gpu) -> Joules {
        let energy = |it: &Phase| {
            let power = gpu.dynamic_power(self.clock, &it.activity);
            Joules(power.0 * it.length.0 * 1e-3)
        };
        self.phases.iter().map(energy).sum()
    }
}

/// Bytes that each GPU sends for a collective.
fn sent(collective: &Collective) -> f64 {
    let group = f64::from(collective.group);
    let once = collective.bytes * (group - 1.0) / group;
    match collective.kind {
        CollectiveKind::AllReduce => 2.0 * once,
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter => once,
    }
}

/// The rest of a kernel, in order: seconds until it works, then its work.
#[derive(Debug, Clone, Copy)]
struct Kernel {
    latency: f64,
    left: f64,
}

impl Kernel {
    /// Seconds until its present part ends.
    fn until(self, rate: f64) -> f64 {
        if self.latency > 0.0 {
            self.latency
        } else if self.left > 0.0 {
            self.left / rate
        } else {
            0.0
        }
    }

    fn works(self) -> bool {
        self.latency <= 0.0 && self.left > 0.0
    }

    fn over(self) -> bool {
        self.latency <= 0.0 && self.left <= 0.0
    }

    /// So much later, where its present part ends in `until`.
    fn after(self, seconds: f64, until: f64, rate: f64) -> Self {
        let ends = until <= seconds;
        let Self { latency, left } = self;
        match latency > 0.0 {
            true if ends => Self { latency: 0.0, left },
            true => Self {
                latency: latency - seconds,
                left,
            },
            false if ends => Self {
                latency: 0.0,
                left: 0.0,
            },
            false => Self {
                latency,
                left: left - seconds * rate,
            },
        }
    }
}

/// A communication with its SMs and launch.
#[derive(Debug, Clone, Copy)]
struct Beside<'a> {
    communication: &'a Communication,
    sms: f64,
    launch: usize,
}

impl Gpu {
    fn computation_kernel(&self, clock: Hertz, computation: &Computation) -> Kernel {
        let ramp = self.kernel_ramp.0 / self.relative(clock);
        let works = computation.work != Work::default();
        Kernel {
            latency: (self.kernel_latency.0 + ramp) * 1e-3,
            left: if works { 1.0 } else { 0.0 },
        }
    }

    fn communication_kernel(&self, communication: &Communication) -> Kernel {
        let collectives = communication.collectives.iter();
        let agreeing = self.collective_latency * communication.collectives.len() as f64;
        Kernel {
            latency: (self.kernel_latency + agreeing).0 * 1e-3,
            left: collectives.map(sent).sum(),
        }
    }

    /// Computations in order, and perhaps a communication beside them.
    fn phases(
        &self,
        clock: Hertz,
        computations: &[Computation],
        beside: Option<Beside<'_>>,
    ) -> Vec<Phase> {
        let mut phases = Vec::with_capacity(2 * computations.len() + 4);
        let mut place = 0;
        let begin = |place: usize| {
            let computation = computations.get(place);
            computation.map(|it| self.computation_kernel(clock, it))
        };
        let mut computing = begin(place);
        let mut waiting = beside;
        let mut communicating: Option<(Kernel, f64)> = None;
        loop {
            if let Some(it) = waiting.take_if(|it| place >= it.launch || computing.is_none()) {
                communicating = Some((self.communication_kernel(it.communication), it.sms));
            }
            if computing.is_none() && communicating.is_none() {
                return phases;
            }
            let taken = communicating.map_or(0.0, |(_, sms)| sms);
            let works = computing.is_some_and(Kernel::works);
            let sends = communicating.filter(|(kernel, _)| kernel.works());
            let running = Running {
                computation: computations.get(place).filter(|_| works).map(|it| &it.work),
                computation_sms: f64::from(self.sms) - taken,
                communication_sms: sends.map(|(_, sms)| sms),
            };
            let rates = self.rates(clock, running);
            let of_computing = computing.map_or(f64::INFINITY, |it| it.until(rates.computation));
            let of_sending = communicating.map_or(f64::INFINITY, |(it, _)| it.until(rates.sent));
            let seconds = of_computing.min(of_sending);
            phases.push(Phase {
                length: Millis(seconds * 1e3),
                computation: computing.map(|_| place),
                communicating: communicating.is_some(),
                activity: self.activity(running, rates),
            });
            communicating = communicating
                .map(|(it, sms)| (it.after(seconds, of_sending, rates.sent), sms))
                .filter(|(it, _)| !it.over());
            computing = computing.map(|it| it.after(seconds, of_computing, rates.computation));
            if computing.is_some_and(Kernel::over) {
                place += 1;
                computing = begin(place);
            }
        }
    }

    /// A partition at this clock, whatever the power. The candidate's own clock is what was asked for.
    #[must_use]
    pub fn partition(
        &self,
        partition: &Partition,
        candidate: Candidate,
        clock: Hertz,
    ) -> Execution {
        let beside = Beside {
            communication: &partition.communication,
            sms: f64::from(candidate.sms),
            launch: candidate.launch,
        };
        let phases = self.phases(clock, &partition.computations, Some(beside));
        Execution { clock, phases }
    }

    /// A sequence at this clock, whatever the power.
    #[must_use]
    pub fn sequence(&self, sequence: &Sequence, clock: Hertz) -> Execution {
        let step = |it: &Step| match it {
            Step::Computation(it) => self.phases(clock, std::slice::from_ref(it), None),
            Step::Communication(communication) => {
                let beside = Beside {
                    communication,
                    sms: f64::from(self.default_sms),
                    launch: 0,
                };
                self.phases(clock, &[], Some(beside))
            }
        };
        let phases = sequence.steps.iter().flat_map(step).collect();
        Execution { clock, phases }
    }
}

/// Executions one after another, as the power limit lets them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// The mean clock.
    pub clock: Hertz,
    /// The mean time of an execution.
    pub time: Millis,
    /// The mean dynamic power.
    pub dynamic: Watts,
}

impl Gpu {
    /// The pace at a mean clock of which the real one swings up and down, half the time each, but never
    /// above the clock that was asked for.
    fn swinging(&self, asked: Hertz, mean: Hertz, execute: &dyn Fn(Hertz) -> Execution) -> Pace {
        let high = (mean + self.swing).min(asked);
        let low = (mean * 2.0 - high).max(self.lowest);
        let half = |clock| {
            let execution = execute(clock);
            let time = execution.time();
            let power = execution.dynamic_energy(self).0 / (time.0 * 1e-3);
            (time, power)
        };
        let (fast, slow) = (half(high), half(low));
        Pace {
            clock: (high + low) / 2.0,
            time: Millis(2.0 / (1.0 / fast.0.0 + 1.0 / slow.0.0)),
            dynamic: Watts((fast.1 + slow.1) / 2.0),
        }
    }

    /// The pace of what is executed again and again with the clock locked to `asked`. The power limit holds
    /// for the mean over executions, which are much shorter than its controller's period: where it binds,
    /// the clock swings about a lower mean, and that costs energy (Appendix A, section 6.2.1).
    pub fn pace(&self, asked: Hertz, resting: Watts, execute: &dyn Fn(Hertz) -> Execution) -> Pace {
        let free = self.swinging(asked, asked, execute);
        if !(free.dynamic + resting > self.limit) {
            return free;
        }
        let (mut low, mut high) = (self.lowest.min(asked), asked);
        // 1.2 GHz halved so often is less than 10 kHz.
        for _ in 0..17 {
            let middle = (low + high) / 2.0;
            if self.swinging(asked, middle, execute).dynamic + resting > self.limit {
                high = middle;
            } else {
                low = middle;
            }
        }
        self.swinging(asked, low, execute)
    }
}
