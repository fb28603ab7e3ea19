//! Reading the rings of a job: from the records of its ranks to one iteration's arrivals at collectives.

use std::collections::HashMap;
use std::sync::Arc;

use litd_attach::ring::{NoCommon, Reader, Record, Tick, common};
use litd_files::Beneath;
use litd_proto::{Class, Kernels};
use litd_traces::arrivals::{Arrivals, NoArrivals, Piece, arrivals, arrivals_by};
use litd_traces::demand::{Called, Repeats, repeats};
use litd_units::Nanos;

use crate::attach::ranks::{Candidate, Measured, Sample};

/// The most collectives of all ranks of a job in one look. With what is made of them they take some 300 bytes each, and
/// litd's unit has 128 MiB for everything; one job is read at a time.
const MOST: usize = 1 << 16;

/// The rings of a job to be read, in the order of its ranks.
#[derive(Debug)]
pub(super) struct Reading {
    pub rings: Vec<Open>,
    /// Whether only what comes later is of interest.
    pub skips: bool,
}

/// A rank's ring.
#[derive(Debug)]
pub(super) struct Open {
    pub process: Candidate,
    pub file: Arc<Beneath>,
    pub reader: Reader,
    /// The unit of the rank's clock, once it is known.
    pub tick: Option<Tick>,
}

/// The outcome of a reading.
#[derive(Debug)]
pub(super) struct Read {
    /// How far each ring was read, and the units of the clocks.
    pub rings: Vec<Open>,
    /// The sample; `None` where collectives were passed over.
    pub outcome: Result<Option<Sample>, Failure>,
}

/// Why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A process's ring is not to be read again; why, in words.
    Ring(u32, String),
    /// The job runs no collectives now.
    Silent,
    /// The rings show no whole iteration; why, in words.
    Nothing(String),
}

impl From<NoCommon> for Failure {
    fn from(why: NoCommon) -> Self {
        match why {
            NoCommon::Silent => Self::Silent,
            NoCommon::Apart => Self::Nothing(why.to_string()),
        }
    }
}

impl Reading {
    /// Reads.
    pub fn read(mut self) -> Read {
        let outcome = match self.skips {
            true => self.skip().map(|()| None),
            false => self.sample().map(Some),
        };
        Read {
            rings: self.rings,
            outcome,
        }
    }

    fn skip(&mut self) -> Result<(), Failure> {
        for Open {
            process,
            file,
            reader,
            ..
        } in &mut self.rings
        {
            let skipped = reader.skip(|at, into| file.read_exact_at(into, at));
            skipped.map_err(|why| Failure::Ring(process.pid, why.to_string()))?;
        }
        Ok(())
    }

    fn sample(&mut self) -> Result<Sample, Failure> {
        let most = MOST / self.rings.len().max(1);
        let mut told = Vec::new();
        for ring in &mut self.rings {
            told.push(ring.records(most)?);
        }
        let communicator = common(&told)?;
        let mut called = Vec::new();
        for (ring, records) in self.rings.iter().zip(&told) {
            let unknown = || {
                let pid = ring.process.pid;
                Failure::Nothing(format!(
                    "the unit of the clock of process {pid} is not known yet"
                ))
            };
            let tick = ring.tick.ok_or_else(unknown)?;
            called.push(calls(records, communicator, tick));
        }
        drop(told);
        sample_of(&called).map_err(Failure::Nothing)
    }
}

impl Open {
    /// The newest records, of so many at most.
    fn records(&mut self, most: usize) -> Result<Vec<Record>, Failure> {
        let Candidate { pid, own, .. } = self.process;
        let batch = self
            .reader
            .read(|at, into| self.file.read_exact_at(into, at));
        let batch = batch.map_err(|why| Failure::Ring(pid, why.to_string()))?;
        // A ring that names another process is that one's, or made up.
        if i64::try_from(batch.pid) != Ok(i64::from(own)) {
            let why = format!("says that process {} writes it, and it is {own}", batch.pid);
            return Err(Failure::Ring(pid, why));
        }
        let mut records = batch.records;
        records.drain(..records.len().saturating_sub(most));
        records.shrink_to_fit();
        self.tick = self.tick.or_else(|| Tick::of(records.iter()));
        Ok(records)
    }
}

/// The collectives of one communicator, in the order in which they were called.
fn calls(records: &[Record], communicator: u64, tick: Tick) -> Vec<Called> {
    let mut own: Vec<&Record> = records
        .iter()
        .filter(|it| it.communicator == communicator)
        .collect();
    own.sort_by_key(|it| (it.enqueued, it.start, it.sequence));
    let ran = |record: &Record| {
        let times = |ticks: Option<u64>| tick.times(ticks?);
        let ran = times(record.start).zip(times(record.stop));
        ran.filter(|_| record.is_whole())
    };
    let called = |record: &Record| Called {
        function: record.function.name(),
        sequence: record.sequence,
        bytes: record.bytes,
        ran: ran(record),
    };
    own.into_iter().map(called).collect()
}

fn sample_of(called: &[Vec<Called>]) -> Result<Sample, String> {
    let found = repeats(called).map_err(|why| why.to_string())?;
    let arrivals = match arrivals(&found.last) {
        // An iteration may have too few collectives for that; several have more.
        Err(NoArrivals::ClocksUnknown { .. }) => arrivals_by(&found.last, &found.all),
        arrivals => arrivals,
    };
    let arrivals = arrivals.map_err(|why| why.to_string())?;
    if arrivals.collectives() == 0 {
        return Err("no collective of an iteration was seen on all ranks".to_owned());
    }
    Ok(sample(&found, &arrivals))
}

fn sample(found: &Repeats, arrivals: &Arrivals) -> Sample {
    let pieces: Vec<Vec<Piece>> = (0..found.last.len())
        .map(|at| arrivals.pieces(at))
        .collect();
    // Clocks of GPUs began whenever: an iteration's own begin is as good.
    let first = pieces.iter().flatten().map(|it| it.start).min();
    let first = first.unwrap_or_default();
    let rank = |(durations, pieces): (&Vec<Nanos>, Vec<Piece>)| Measured {
        durations: durations.clone(),
        kernels: kernels(durations, pieces, first),
    };
    Sample {
        began: found.began,
        ranks: found.durations.iter().zip(pieces).map(rank).collect(),
    }
}

fn kernels(durations: &[Nanos], pieces: Vec<Piece>, first: Nanos) -> Kernels {
    let mut told = Kernels {
        duration: durations.last().copied().unwrap_or_default(),
        shows_collectives: false,
        ..Kernels::default()
    };
    let mut names = HashMap::new();
    for piece in pieces {
        let next = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let number = *names.entry(piece.name).or_insert_with_key(|name: &String| {
            told.new_names.push(name.clone());
            next
        });
        told.name.push(number);
        told.stream.push(0);
        // To the law a piece is computation, whatever is waited for in it.
        told.class.push(Class::Computation);
        let start = piece.start - first;
        told.start.push(start);
        // Times are what a process says: no sum of two may be too large.
        let most = Nanos(i64::MAX) - start;
        told.duration_of
            .push(piece.duration.clamp(Nanos::ZERO, most));
    }
    told
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::path::Path;

    use litd_attach::ring::{
        AT_BEGUN, AT_MAGIC, AT_PID, BYTES, Function, HEADER, MAGIC, RECORD, SLOTS,
    };
    use nix::unistd::Uid;

    use super::*;

    /// The rings of a job in files, as the plugin writes them.
    struct Files {
        folder: tempfile::TempDir,
        files: Vec<File>,
        written: Vec<u64>,
    }

    const OWN: i32 = 4711;

    impl Files {
        fn new(ranks: usize) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let files = (0..ranks).map(|rank| {
                let file = File::create_new(folder.path().join(rank.to_string())).unwrap();
                file.set_len(BYTES as u64).unwrap();
                file
            });
            let files = Self {
                files: files.collect(),
                written: vec![0; ranks],
                folder,
            };
            for rank in 0..ranks {
                files.set(rank, AT_MAGIC, MAGIC);
                files.set(rank, AT_PID, OWN as u64);
            }
            files
        }

        fn set(&self, rank: usize, word: usize, value: u64) {
            let at = 8 * word as u64;
            self.files[rank]
                .write_all_at(&value.to_ne_bytes(), at)
                .unwrap();
        }

        fn write(&mut self, rank: usize, record: &Record) {
            let number = self.written[rank];
            let bytes = record.words(number).map(u64::to_ne_bytes).concat();
            let at = HEADER + number as usize % SLOTS * RECORD;
            self.files[rank].write_all_at(&bytes, at as u64).unwrap();
            self.written[rank] += 1;
            self.set(rank, AT_BEGUN, number + 1);
        }

        /// Iterations of 0.7 s with a layer for each two collectives; a rank comes so late, and its clock is ahead.
        fn train(&mut self, iterations: u64, late: &[u64]) {
            let functions = [Function::AllGather, Function::ReduceScatter].repeat(5);
            for (rank, &late) in late.iter().enumerate() {
                let begins = (0..iterations).map(|it| 1_000_000_000 + 700_000_000 * it);
                for (number, begins) in begins.enumerate() {
                    for (at, &function) in functions.iter().enumerate() {
                        let begins = begins + 60_000_000 * at as u64;
                        let clock = 9_000_000_000 * rank as u64;
                        self.write(
                            rank,
                            &Record {
                                communicator: 5,
                                rank: rank as u32,
                                ranks: 3,
                                nodes: 1,
                                function,
                                sequence: number as u64 * 5 + at as u64 / 2,
                                bytes: 100 + at as u64,
                                enqueued: begins - 5_000_000,
                                start: Some(begins + late + clock),
                                stop: Some(begins + 20_000_000 + clock),
                                channels: 8,
                                started: 8,
                                stopped: 8,
                                interface: 5,
                            },
                        );
                    }
                }
            }
        }

        fn open(&self) -> Vec<Open> {
            let root = File::open(self.folder.path()).unwrap();
            let uid = Uid::effective().as_raw();
            let open = |rank: usize| {
                let name = Path::new("/").join(rank.to_string());
                let file = Beneath::open(&root, &name, uid, BYTES as u64).unwrap();
                let process = Candidate {
                    pid: 100 + rank as u32,
                    uid,
                    began: 1,
                    own: OWN,
                };
                let (file, reader) = (Arc::new(file), Reader::default());
                Open {
                    process,
                    file,
                    reader,
                    tick: None,
                }
            };
            (0..self.files.len()).map(open).collect()
        }

        fn read(&self) -> Read {
            let (rings, skips) = (self.open(), false);
            Reading { rings, skips }.read()
        }
    }

    fn why(outcome: Result<Option<Sample>, Failure>) -> String {
        match outcome {
            Err(Failure::Nothing(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rings_become_the_arrivals_of_one_iteration() {
        let mut files = Files::new(3);
        files.train(4, &[0, 7_000_000, 3_000_000]);
        let read = files.read();
        let sample = read.outcome.unwrap().unwrap();
        for (rank, late) in sample.ranks.iter().zip([0, 7_000_000, 3_000_000]) {
            assert_eq!(rank.durations, [Nanos(700_000_000); 3]);
            let kernels = &rank.kernels;
            assert_eq!((kernels.name.len(), kernels.new_names.len()), (10, 2));
            // The iteration begins where the communicator rests longest, wherever the look began.
            assert_eq!(kernels.new_names, ["from AllGather", "from ReduceScatter"]);
            assert_eq!(kernels.start[0], Nanos(late));
            assert!(!kernels.shows_collectives);
            assert!(kernels.class.iter().all(|it| *it == Class::Computation));
        }
        // A collective is read once.
        let rings = read.rings;
        let silent = Reading {
            rings,
            skips: false,
        }
        .read();
        assert_eq!(silent.outcome.err(), Some(Failure::Silent));
        // Collectives that were passed over are not read.
        let rings = files.open();
        let skipped = Reading { rings, skips: true }.read();
        assert!(skipped.outcome.unwrap().is_none());
        let rings = skipped.rings;
        let silent = Reading {
            rings,
            skips: false,
        }
        .read();
        assert_eq!(silent.outcome.err(), Some(Failure::Silent));
    }

    #[test]
    fn too_little_is_no_iteration_and_says_why() {
        let mut files = Files::new(3);
        files.train(1, &[0, 0, 0]);
        let said = why(files.read().outcome);
        assert_eq!(
            said,
            "the unit of the clock of process 100 is not known yet"
        );
        let mut files = Files::new(3);
        files.train(2, &[0, 0, 0]);
        files.files[1].set_len(BYTES as u64 - 1).unwrap();
        assert!(files.read().outcome.is_ok(), "what is there is read");
        files.files[1].set_len(HEADER as u64 + 3).unwrap();
        let said = files.read().outcome.unwrap_err();
        assert!(matches!(said, Failure::Ring(101, why) if why.contains("can't be read")));
    }

    /// Reading is bounded, and ends in a sample or in words, whatever bytes are in rings.
    #[test]
    fn any_bytes_are_read_without_harm() {
        let mut seed = 11_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let (mut samples, mut failures) = (0, 0);
        for round in 0..400 {
            let mut files = Files::new(3);
            files.train(4, &[0, 7_000_000, 3_000_000]);
            for _ in 0..=random(30) {
                let rank = random(3) as usize;
                match random(4) {
                    // A record that passes for one, and says anything.
                    0 => {
                        let mut any = |bits: u64| random(2) * (u64::MAX >> random(bits));
                        let words = [any(64), any(3), any(64), any(64), any(64), any(64), any(64)];
                        let [start, communicator, what, sequence, bytes, enqueued, stop] = words;
                        files.write(
                            rank,
                            &Record {
                                communicator: if what % 2 == 0 { 5 } else { communicator },
                                rank: what as u32 % 5,
                                ranks: 3,
                                nodes: 1,
                                function: Function::of_code(what as u8),
                                sequence,
                                bytes,
                                enqueued,
                                start: Some(start),
                                stop: Some(stop),
                                channels: 1,
                                started: 1,
                                stopped: 1,
                                interface: 9,
                            },
                        );
                    }
                    // Any bytes anywhere: in records, now and then in the header.
                    1 => {
                        let at = HEADER as u64 + random(60 * RECORD as u64);
                        let bytes = random(u64::MAX).to_ne_bytes();
                        files.files[rank].write_all_at(&bytes, at).unwrap();
                    }
                    2 if round % 4 == 0 => files.set(rank, random(16) as usize, random(u64::MAX)),
                    2 if round % 9 == 0 => files.files[rank].set_len(random(9_000)).unwrap(),
                    _ => {
                        let count = files.written[rank] + random(3);
                        files.set(rank, AT_BEGUN, count);
                    }
                }
            }
            match files.read().outcome {
                Ok(sample) => {
                    samples += 1;
                    for rank in sample.unwrap().ranks {
                        let kernels = rank.kernels;
                        assert!(kernels.start.iter().all(|it| *it >= Nanos::ZERO));
                        let times = kernels.start.iter().zip(&kernels.duration_of);
                        let mut ends = times.map(|(from, long)| from.0.checked_add(long.0));
                        assert!(ends.all(|it| it.is_some()));
                        assert!(kernels.duration_of.iter().all(|it| *it >= Nanos::ZERO));
                        assert!(rank.durations.iter().all(|it| *it > Nanos::ZERO));
                    }
                }
                Err(_) => failures += 1,
            }
        }
        assert!(
            samples > 20 && failures > 20,
            "{samples} samples, {failures} failures"
        );
    }
}
