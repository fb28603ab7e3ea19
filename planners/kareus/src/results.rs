//! The known results of a job's partitions and sequences.

use std::collections::BTreeMap;

use litd_units::{Hertz, Watts};

use crate::candidate::Candidate;
use crate::partition::{Partition, Sequence};
use crate::profile::{Measurement, Profiler, ProfilerError};

/// Measurements by the names of partitions and sequences, of one GPU. As a [`Profiler`] it answers what it has,
/// and nothing else.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    static_power: Watts,
    partitions: BTreeMap<String, Vec<(Candidate, Measurement)>>,
    sequences: BTreeMap<String, Vec<(Hertz, Measurement)>>,
}

impl Results {
    /// An empty set of results, of a GPU with this power in its ready state.
    #[must_use]
    pub fn new(static_power: Watts) -> Self {
        Self {
            static_power,
            partitions: BTreeMap::new(),
            sequences: BTreeMap::new(),
        }
    }

    /// Adds what a partition took.
    pub fn add_partition(&mut self, name: &str, candidate: Candidate, measured: Measurement) {
        let all = self.partitions.entry(name.to_owned()).or_default();
        all.push((candidate, measured));
    }

    /// Adds what a sequence took.
    pub fn add_sequence(&mut self, name: &str, clock: Hertz, measured: Measurement) {
        let all = self.sequences.entry(name.to_owned()).or_default();
        all.push((clock, measured));
    }

    /// The sequences' results alone.
    #[must_use]
    pub fn without_partitions(&self) -> Self {
        Self {
            static_power: self.static_power,
            partitions: BTreeMap::new(),
            sequences: self.sequences.clone(),
        }
    }

    /// The results of a partition.
    #[must_use]
    pub fn of_partition(&self, name: &str) -> &[(Candidate, Measurement)] {
        self.partitions.get(name).map_or(&[], Vec::as_slice)
    }

    /// The results of a sequence.
    #[must_use]
    pub fn of_sequence(&self, name: &str) -> &[(Hertz, Measurement)] {
        self.sequences.get(name).map_or(&[], Vec::as_slice)
    }
}

impl Profiler for Results {
    fn static_power(&self) -> Watts {
        self.static_power
    }

    fn partition(
        &mut self,
        partition: &Partition,
        candidate: Candidate,
    ) -> Result<Measurement, ProfilerError> {
        let all = self.of_partition(&partition.name).iter();
        let found = all.clone().find(|(it, _)| *it == candidate);
        found.map(|(_, measured)| *measured).ok_or_else(|| {
            let partition = partition.name.clone();
            ProfilerError::Missing {
                partition,
                candidate,
            }
        })
    }

    fn sequence(
        &mut self,
        sequence: &Sequence,
        clock: Hertz,
    ) -> Result<Measurement, ProfilerError> {
        let mut all = self.of_sequence(&sequence.name).iter();
        let found = all.find(|(it, _)| *it == clock);
        found.map(|(_, measured)| *measured).ok_or_else(|| {
            let sequence = sequence.name.clone();
            ProfilerError::MissingSequence { sequence, clock }
        })
    }
}
