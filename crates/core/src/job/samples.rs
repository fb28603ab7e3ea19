//! What the ranks of a job measure: each sends its kernels of an iteration, and an iteration that all have sent is a
//! sample once the devices have been read after it.

use std::collections::BTreeMap;

use litd_policies::{GpuReading, Sample};
use litd_proto::Kernels;
use litd_traces::live::{Live, LiveKernel, LiveReport, Shows, Waits};
use litd_traces::{Aggregation, AlignOptions, KernelClass, NameId};
use litd_units::Nanos;

use crate::job::elsewhere::{Elsewhere, Shares};
use crate::job::names::{Kind, Names};
use crate::room::Table;

/// How many iterations may be incomplete (not sent by all ranks) at a time.
const PENDING: usize = 2;

/// An iteration that not all ranks have sent yet.
#[derive(Debug)]
struct Pending {
    live: Live,
    /// Waits for other nodes, of a job that runs on several.
    waits: Waits,
    duration: Nanos,
}

impl Pending {
    fn new(ranks: usize) -> Self {
        Self {
            live: Live::new(ranks, AlignOptions::default()),
            waits: Waits::default(),
            duration: Nanos::ZERO,
        }
    }

    /// The memory that the iteration takes.
    fn bytes(&self) -> usize {
        self.live.bytes() + self.waits.bytes()
    }
}

/// An iteration that all ranks have sent; it waits for the devices to be read.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The iteration's number.
    pub iteration: u64,
    /// Leads, busy times and so on of all ranks.
    pub report: LiveReport,
    /// Wall time: that of the slowest rank.
    pub duration: Nanos,
    /// When the last rank's part arrived; readings must be younger.
    pub at: Nanos,
    /// The shares of it in which this node waits for other nodes, if the job has any.
    pub elsewhere: Option<Shares>,
}

/// The last sample's values for each rank's GPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    /// Lead values.
    pub leads: Vec<Nanos>,
    /// The number of kernels over which each lead value is summed.
    pub summands: u32,
    /// Busy fractions.
    pub busy: Vec<f64>,
    /// The kinds of evidence that the sample has.
    pub shows: Shows,
}

/// Why a rank's part of a sample was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeftOut {
    /// The iteration is older than one that is complete.
    Old,
    /// A name id that is not in the dictionary.
    UnknownName,
    /// The parts don't fit together; in words.
    Unaligned(String),
    /// Incomplete iterations take more bytes than the ranks' room for them.
    NoRoom {
        /// The room, in bytes.
        most: usize,
    },
}

/// One rank's kernels of one iteration.
pub(crate) struct Part<'a> {
    /// The rank's position among the job's ranks on this node.
    pub position: usize,
    /// How many ranks the job has on this node.
    pub of: usize,
    pub kernels: &'a Kernels,
    /// The rank's names as the job knows them.
    pub names: &'a [NameId],
    /// What is known of the job's other nodes, if it has any.
    pub elsewhere: Option<&'a Elsewhere>,
}

/// The samples of a job.
#[derive(Debug)]
pub(crate) struct Samples {
    /// Kernel names of all ranks.
    names: Names,
    /// The bytes that each rank adds to the room for incomplete iterations.
    rank_room: usize,
    pending: BTreeMap<u64, Pending>,
    /// A complete iteration that waits for readings.
    measured: Option<Measured>,
    last_iteration: Option<u64>,
    shown: Shown,
    used: u64,
    unused: u64,
    /// The hash of the job's computation, once an iteration has shown it.
    workload: Option<u64>,
}

impl Samples {
    /// No samples yet, of a job on a node with so many GPUs.
    pub fn new(gpus: usize) -> Self {
        Self {
            names: Names::new(),
            rank_room: Table::Samples.of_a_gpu(gpus),
            pending: BTreeMap::new(),
            measured: None,
            last_iteration: None,
            shown: Shown::default(),
            used: 0,
            unused: 0,
            workload: None,
        }
    }

    /// Samples that counted.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Samples that did not count.
    pub fn unused(&self) -> u64 {
        self.unused
    }

    /// A sample counts.
    pub fn counts(&mut self) {
        self.used += 1;
    }

    /// A sample does not count.
    pub fn does_not_count(&mut self) {
        self.unused += 1;
    }

    /// The last sample's values.
    pub fn shown(&self) -> &Shown {
        &self.shown
    }

    /// The last sample's values are no longer true.
    pub fn show_nothing(&mut self) {
        self.shown = Shown::default();
    }

    /// The hash of the job's computation, once an iteration has shown it.
    pub fn workload(&self) -> Option<u64> {
        self.workload
    }

    /// The complete iteration that waits for readings.
    pub fn measured(&self) -> Option<&Measured> {
        self.measured.as_ref()
    }

    /// Takes that iteration out.
    pub fn take_measured(&mut self) -> Option<Measured> {
        self.measured.take()
    }

    /// The kernel names of all ranks.
    pub fn names_mut(&mut self) -> &mut Names {
        &mut self.names
    }

    /// Forgets what was measured under other conditions.
    pub fn forget(&mut self) {
        self.pending.clear();
        self.measured = None;
    }

    /// Drops incomplete iterations: the ranks have changed.
    pub fn drop_pending(&mut self) {
        self.unused += self.pending.len() as u64;
        self.pending.clear();
        self.drop_measured();
    }

    /// Drops the iteration that waits for readings.
    pub fn drop_measured(&mut self) {
        self.unused += u64::from(self.measured.take().is_some());
    }

    /// Counts the job's iterations anew: a rank came back at an earlier one.
    pub fn count_anew(&mut self) {
        self.drop_pending();
        self.last_iteration = None;
    }

    /// Takes one rank's kernels of one iteration.
    pub fn add(&mut self, part: &Part<'_>, now: Nanos) -> Result<(), LeftOut> {
        let Part { kernels, names, .. } = *part;
        let iteration = kernels.iteration;
        if self.last_iteration.is_some_and(|last| iteration <= last) || self.measured.is_some() {
            return Err(LeftOut::Old);
        }
        if kernels.name.iter().any(|&id| id as usize >= names.len()) {
            return Err(LeftOut::UnknownName);
        }
        let pending = self.pending.entry(iteration);
        let pending = pending.or_insert_with(|| Pending::new(part.of));
        pending.duration = pending.duration.max(kernels.duration);
        if !kernels.shows_collectives {
            pending.live.tells_pieces();
        }
        let known = &self.names;
        let kernel = |at: usize| LiveKernel {
            name: names[kernels.name[at] as usize],
            stream: kernels.stream[at],
            class: class(kernels, at, names, known),
            limit: kind(kernels, at, names, known).and_then(|kind| kind.1),
            start: kernels.start[at],
            duration: kernels.duration_of[at],
        };
        let kernels_of = (0..kernels.name.len()).map(kernel);
        if let Err(error) = pending.live.add(part.position, kernels_of) {
            self.pending.remove(&iteration);
            self.unused += 1;
            return Err(LeftOut::Unaligned(error.to_string()));
        }
        if let Some(elsewhere) = part.elsewhere {
            let class = |at| class(kernels, at, names, known);
            elsewhere.add(&mut pending.waits, kernels, class);
        }
        if pending.live.missing() == 0 {
            return self.finish(iteration, part.elsewhere.is_some(), now);
        }
        if self.pending.len() > PENDING {
            self.drop_oldest();
        }
        self.fit_pending(part.of)
    }

    /// Drops the oldest incomplete iterations until the others fit the room that so many ranks bring.
    fn fit_pending(&mut self, ranks: usize) -> Result<(), LeftOut> {
        let most = self.rank_room.saturating_mul(ranks);
        let mut fits = Ok(());
        while self.pending.values().map(Pending::bytes).sum::<usize>() > most {
            self.drop_oldest();
            fits = Err(LeftOut::NoRoom { most });
        }
        fits
    }

    /// The oldest iteration will hardly become complete any more.
    fn drop_oldest(&mut self) {
        self.unused += u64::from(self.pending.pop_first().is_some());
    }

    /// All ranks have sent this iteration: earlier ones will not become complete any more.
    fn finish(&mut self, iteration: u64, leaves_node: bool, at: Nanos) -> Result<(), LeftOut> {
        let Some(pending) = self.pending.remove(&iteration) else {
            return Ok(());
        };
        let later = self.pending.split_off(&iteration);
        self.unused += self.pending.len() as u64;
        self.pending = later;
        self.last_iteration = Some(iteration);
        let elsewhere = leaves_node.then(|| Shares::of(&pending.waits, pending.duration));
        match pending.live.finish(self.names.table()) {
            Ok(report) => {
                self.workload = Some(report.workload);
                self.measured = Some(Measured {
                    iteration,
                    report,
                    duration: pending.duration,
                    at,
                    elsewhere,
                });
                Ok(())
            }
            Err(error) => {
                self.unused += 1;
                Err(LeftOut::Unaligned(error.to_string()))
            }
        }
    }

    /// The loop's input: the measured iteration and the GPUs' readings.
    pub fn sample(
        &mut self,
        measured: &Measured,
        mut gpus: Vec<GpuReading>,
        aggregation: Aggregation,
    ) -> Sample {
        let report = &measured.report;
        for (at, gpu) in gpus.iter_mut().enumerate() {
            gpu.pace = report.pace.get(at).copied().flatten();
            gpu.slowness = report.slowness.get(at).copied().flatten();
            gpu.marks = report.marks.get(at).copied().unwrap_or_default();
            gpu.busy = report.busy.get(at).copied();
        }
        let leads: Vec<Nanos> = report
            .leads
            .iter()
            .map(|lead| lead.get(aggregation))
            .collect();
        let matched = report.matched.max(1) as f64;
        let sample = Sample {
            iteration: measured.iteration,
            leads: leads.iter().map(|lead| Some(lead.to_millis())).collect(),
            summands: match aggregation {
                Aggregation::Sum => u32::try_from(report.matched).unwrap_or(u32::MAX),
                Aggregation::Max | Aggregation::Last => 1,
            },
            last_in: report
                .last_in
                .iter()
                .map(|&times| times as f64 / matched)
                .collect(),
            iteration_time: measured.duration.to_millis(),
            gpus,
        };
        self.shown = Shown {
            leads,
            summands: sample.summands.max(1),
            busy: report.busy.clone(),
            shows: report.shows,
        };
        sample
    }
}

/// The kind of a kernel, by its name.
fn kind(kernels: &Kernels, at: usize, names: &[NameId], known: &Names) -> Option<Kind> {
    let name = names.get(*kernels.name.get(at)? as usize)?;
    known.kind(*name)
}

/// The class of a kernel: as the hook says, or else by its name.
fn class(kernels: &Kernels, at: usize, names: &[NameId], known: &Names) -> KernelClass {
    use litd_proto::Class;
    match kernels.class[at] {
        Class::Computation => KernelClass::Computation,
        Class::Communication | Class::CommunicationInside | Class::CommunicationOutside => {
            KernelClass::Communication
        }
        Class::Copy => KernelClass::Copy,
        Class::Unspecified => {
            kind(kernels, at, names, known).map_or(KernelClass::Computation, |kind| kind.0)
        }
    }
}
