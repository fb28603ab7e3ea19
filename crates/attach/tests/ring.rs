//! A ring that is written rightly, wrongly, and while it is read.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;

use litd_attach::ring::{
    AT_BEGUN, AT_DROPPED, AT_MAGIC, BYTES, Batch, Communicators, Function, HEADER, MAGIC, NoCommon,
    RECORD, Reader, Record, SLOTS, Tick, Timed, Unreadable, common,
};
use litd_units::Nanos;

/// A file with a ring, as the plugin writes it.
struct File(Vec<u8>);

impl File {
    fn new() -> Self {
        let mut file = Self(vec![0; BYTES]);
        file.set(AT_MAGIC, MAGIC);
        file
    }

    fn set(&mut self, word: usize, value: u64) {
        self.0[word * 8..][..8].copy_from_slice(&value.to_ne_bytes());
    }

    /// Writes the words of this record, and says that so many have begun.
    fn write(&mut self, number: u64, record: &Record) {
        let from = HEADER + (number as usize % SLOTS) * RECORD;
        for (at, word) in record.words(number).into_iter().enumerate() {
            self.0[from + at * 8..][..8].copy_from_slice(&word.to_ne_bytes());
        }
        self.set(AT_BEGUN, number + 1);
    }

    fn read(&self, reader: &mut Reader) -> Result<Batch, Unreadable> {
        reader.read(|at, bytes| {
            let from = at as usize;
            let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
            bytes.copy_from_slice(self.0.get(from..from + bytes.len()).ok_or_else(short)?);
            Ok(())
        })
    }
}

fn record(number: u64) -> Record {
    Record {
        communicator: 0xfeed_0000_0000_0001,
        rank: 3,
        ranks: 8,
        nodes: 2,
        function: Function::ReduceScatter,
        sequence: number,
        bytes: 1 << 30,
        enqueued: 1_000_000 * number,
        start: Some(5_000_000 + 1_000_000 * number),
        stop: Some(5_400_000 + 1_000_000 * number),
        channels: 16,
        started: 16,
        stopped: 16,
        interface: 6,
    }
}

#[test]
fn what_was_written_is_read_once_and_in_order() {
    let (mut file, mut reader) = (File::new(), Reader::default());
    assert_eq!(file.read(&mut reader).unwrap(), Batch::default());
    let mut read = Vec::new();
    for number in 0..3 * SLOTS as u64 {
        file.write(number, &record(number));
        if number % 1777 == 0 {
            let batch = file.read(&mut reader).unwrap();
            assert_eq!(batch.lost, 0);
            read.extend(batch.records);
        }
    }
    read.extend(file.read(&mut reader).unwrap().records);
    assert!(read.into_iter().eq((0..3 * SLOTS as u64).map(record)));
    // Absent times stay absent.
    let untimed = Record {
        start: None,
        stop: None,
        started: 0,
        stopped: 0,
        ..record(0)
    };
    file.write(3 * SLOTS as u64, &untimed);
    file.set(AT_DROPPED, 9);
    let batch = file.read(&mut reader).unwrap();
    assert_eq!((batch.records, batch.dropped), (vec![untimed], 9));
}

#[test]
fn what_was_overwritten_is_counted() {
    let (mut file, mut reader) = (File::new(), Reader::default());
    let count = 2 * SLOTS as u64 + 5;
    (0..count).for_each(|number| file.write(number, &record(number)));
    let batch = file.read(&mut reader).unwrap();
    assert_eq!(
        (batch.records.len(), batch.lost),
        (SLOTS, count - SLOTS as u64)
    );
    assert_eq!(batch.records[0], record(count - SLOTS as u64));
}

#[test]
fn a_record_with_a_wrong_bit_is_none() {
    let mut file = File::new();
    file.write(0, &record(0));
    for bit in 0..RECORD * 8 {
        file.0[HEADER + bit / 8] ^= 1 << (bit % 8);
        let mut reader = Reader::default();
        let first = file.read(&mut reader).unwrap();
        let second = file.read(&mut reader).unwrap();
        assert_eq!(
            (&*first.records, &*second.records),
            (&[][..], &[][..]),
            "bit {bit}"
        );
        file.0[HEADER + bit / 8] ^= 1 << (bit % 8);
    }
    // Nor is one whose number is that of another place.
    file.set(AT_BEGUN, 0);
    file.write(SLOTS as u64, &record(0));
    file.set(AT_BEGUN, 1);
    assert_eq!(file.read(&mut Reader::default()).unwrap().records, []);
}

#[test]
fn a_record_that_is_never_finished_holds_up_those_behind_it_once() {
    let (mut file, mut reader) = (File::new(), Reader::default());
    (0..4).for_each(|number| file.write(number, &record(number)));
    file.0[HEADER + RECORD..HEADER + 2 * RECORD].fill(0);
    let batch = file.read(&mut reader).unwrap();
    assert_eq!((batch.records, batch.lost), (vec![record(0)], 0));
    let mut late = reader.clone();
    let batch = file.read(&mut reader).unwrap();
    assert_eq!((batch.records, batch.lost), (vec![record(2), record(3)], 1));
    // One that is finished in between is not lost.
    file.write(1, &record(1));
    file.set(AT_BEGUN, 4);
    let batch = file.read(&mut late).unwrap();
    assert_eq!(
        (batch.records, batch.lost),
        ((1..4).map(record).collect(), 0)
    );
}

#[test]
fn no_file_makes_the_reader_fail_or_work_for_long() {
    let mut seed = 1_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed >> 11
    };
    for _ in 0..50 {
        let mut file = File(vec![0; BYTES]);
        for byte in &mut file.0 {
            *byte = random() as u8;
        }
        assert!(matches!(
            file.read(&mut Reader::default()),
            Err(Unreadable::Foreign)
        ));
        file.set(AT_MAGIC, MAGIC);
        let mut reader = Reader::default();
        for begun in [random() % 100, u64::MAX - 70_000, u64::MAX] {
            file.set(AT_BEGUN, begun);
            let reads = Cell::new(0);
            let batch = reader.read(|at, bytes| {
                reads.set(reads.get() + 1);
                bytes.copy_from_slice(&file.0[at as usize..at as usize + bytes.len()]);
                Ok(())
            });
            assert_eq!(batch.unwrap().records, []);
            assert!(reads.get() <= 2 + SLOTS / 512, "{} reads", reads.get());
        }
        file.set(AT_BEGUN, 5);
        let rewound = file.read(&mut reader);
        assert!(matches!(
            rewound,
            Err(Unreadable::Rewound {
                from: u64::MAX,
                to: 5
            })
        ));
    }
    let mut file = File::new();
    file.write(0, &record(0));
    file.0.truncate(HEADER + RECORD / 2);
    assert!(matches!(
        file.read(&mut Reader::default()),
        Err(Unreadable::Io(_))
    ));
    file.0.truncate(7);
    assert!(matches!(
        file.read(&mut Reader::default()),
        Err(Unreadable::Io(_))
    ));
}

#[test]
fn functions_are_those_that_nccl_names() {
    for name in [
        "AllReduce",
        "AllGather",
        "ReduceScatter",
        "Broadcast",
        "Reduce",
        "AlltoAll",
        "Gather",
        "Scatter",
    ] {
        let function = Function::named(name.as_bytes());
        assert_eq!(
            (function.name(), Function::of_code(function as u8)),
            (name, function)
        );
    }
    assert_eq!(Function::named(b"Invalid"), Function::Other);
    assert_eq!(Function::of_code(200), Function::Other);
}

#[test]
fn only_a_collective_all_of_whose_channels_ended_is_whole() {
    let whole = record(1);
    assert!(whole.is_whole());
    assert!(
        !Record {
            stopped: 15,
            ..whole
        }
        .is_whole()
    );
    assert!(
        !Record {
            started: 15,
            stopped: 15,
            ..whole
        }
        .is_whole()
    );
    assert!(
        !Record {
            start: None,
            stop: None,
            started: 0,
            stopped: 0,
            ..whole
        }
        .is_whole()
    );
    assert!(
        !Record {
            start: Some(9),
            stop: Some(8),
            ..whole
        }
        .is_whole()
    );
    // RCCL announced 224 channels where it had not set their number, and NCCL none in symmetric kernels.
    assert!(
        Record {
            channels: 224,
            ..whole
        }
        .is_whole()
    );
    assert!(
        Record {
            channels: 0,
            ..whole
        }
        .is_whole()
    );
    assert!(
        !Record {
            channels: 224,
            stopped: 3,
            ..whole
        }
        .is_whole()
    );
}

#[test]
fn the_unit_of_a_clock_is_told_by_the_hosts() {
    let of = |unit: u64, count: u64| {
        let tick = |it: u64| record(it).start.map(|start| start / unit);
        let records = (0..count).map(|it| Record {
            start: tick(it),
            ..record(it)
        });
        Tick::of(Vec::from_iter(records).iter())
    };
    assert_eq!(of(1, 5000), Some(Tick::Nanosecond));
    assert_eq!(of(10, 5000), Some(Tick::TenNanoseconds));
    assert_eq!(of(1, 900), None, "less than a second");
    assert_eq!(of(1000, 5000), None, "no GPU counts microseconds");
    assert_eq!(Tick::TenNanoseconds.times(123), Some(Nanos(1230)));
    assert_eq!(Tick::TenNanoseconds.times(u64::MAX / 3), None);
    assert_eq!(Tick::Nanosecond.times(1 << 63), None);
}

#[test]
fn collectives_are_kept_by_communicator_and_rank() {
    let mut all = Communicators::default();
    let of = |communicator: u64, rank: u32, number: u64| Record {
        communicator,
        rank,
        ..record(number)
    };
    for number in 0..3_000 {
        all.add([of(1, 0, number), of(1, 5, number), of(2, 5, number)]);
        all.add([
            Record {
                stopped: 3,
                ..of(1, 0, number)
            },
            of(1, 8, number),
        ]);
    }
    // Rank 8 of 8 is none, and a communicator with one rank here shows no wait.
    let shared = Vec::from_iter(
        all.shared()
            .map(|(communicator, newest)| (communicator, newest.sequence)),
    );
    assert_eq!(shared, [(1, 2_999)]);
    let within = all.within(1, 1_000_000_000, 1_002_000_000);
    assert_eq!(within.keys().copied().collect::<Vec<_>>(), [0, 5]);
    let timed = |sequence: u64| Timed {
        function: "ReduceScatter",
        sequence,
        bytes: 1 << 30,
        start: Nanos(5_000_000 + 1_000_000 * sequence as i64),
        end: Nanos(5_400_000 + 1_000_000 * sequence as i64),
    };
    assert_eq!(within[&0], [timed(1_000), timed(1_001)]);
    assert_eq!(all.within(3, 0, u64::MAX), BTreeMap::new());
    all.forget_before(2_500_000_000);
    assert_eq!(
        all.within(1, 0, u64::MAX),
        BTreeMap::new(),
        "too short for the unit of the clock"
    );
    all.forget_before(u64::MAX);
    assert_eq!(all.shared().count(), 0);
}

#[test]
fn a_process_that_makes_up_communicators_takes_a_bounded_amount_of_memory() {
    let mut all = Communicators::default();
    for number in 0..20_000 {
        all.add([Record {
            communicator: number,
            ..record(number)
        }]);
        all.add([Record {
            communicator: 0,
            ..record(number)
        }]);
    }
    assert_eq!(
        all.within(0, 0, u64::MAX)[&3].len(),
        Communicators::MOST_OF_RANK
    );
    let known = (0..20_000)
        .filter(|&it| !all.within(it, 0, u64::MAX).is_empty())
        .count();
    assert_eq!(
        known, 1,
        "the others have one collective each, which tells no unit"
    );
    let new = |rank: u32| Record {
        communicator: 1 << 40,
        rank,
        ..record(30_000)
    };
    all.add([new(0), new(1)]);
    assert_eq!(all.shared().count(), 0, "there is no room for more");
    all.forget_before(30_000_000_000);
    all.add([new(0), new(1)]);
    assert_eq!(all.shared().count(), 1);
    let ranks = (0..100).flat_map(|rank| (0..2_000).map(move |it| (rank, it)));
    let many = ranks.map(|(rank, it)| Record {
        rank,
        ranks: 100,
        ..record(40_000 + it)
    });
    all.add(many);
    let within = all.within(record(0).communicator, 0, u64::MAX);
    let kept: usize = within.values().map(Vec::len).sum();
    assert!(
        (Communicators::MOST - 2_000..=Communicators::MOST).contains(&kept),
        "{kept}"
    );
}

#[test]
fn what_was_passed_over_is_not_read_later() {
    let (mut file, mut reader) = (File::new(), Reader::default());
    (0..40).for_each(|number| file.write(number, &record(number)));
    let skip = |file: &File, reader: &mut Reader| {
        reader.skip(|at, bytes| {
            let from = at as usize;
            let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
            bytes.copy_from_slice(file.0.get(from..from + bytes.len()).ok_or_else(short)?);
            Ok(())
        })
    };
    skip(&file, &mut reader).unwrap();
    assert_eq!(file.read(&mut reader).unwrap(), Batch::default());
    (40..43).for_each(|number| file.write(number, &record(number)));
    let batch = file.read(&mut reader).unwrap();
    assert!(batch.records.into_iter().eq((40..43).map(record)) && batch.lost == 0);
    file.set(AT_BEGUN, 3);
    assert!(matches!(
        skip(&file, &mut reader),
        Err(Unreadable::Rewound { from: 43, to: 3 })
    ));
    file.set(AT_MAGIC, 3);
    assert!(matches!(skip(&file, &mut reader), Err(Unreadable::Foreign)));
}

#[test]
fn ranks_are_compared_by_the_communicator_that_has_all_of_them() {
    let of = |communicator, rank, ranks, count: u64| {
        let one = move |number| Record {
            communicator,
            rank,
            ranks,
            ..record(number)
        };
        (0..count).map(one)
    };
    // Two pairs, and all four with fewer collectives; one process is in a communicator of its own.
    let told = |rank: u32| {
        let pair = of(u64::from(rank / 2), rank % 2, 2, 30);
        let alone = of(77, rank, 4, if rank == 1 { 99 } else { 0 });
        pair.chain(of(9, rank, 4, 5))
            .chain(of(8, rank, 4, 3))
            .chain(alone)
    };
    let mut all: Vec<Vec<Record>> = (0..4).map(|rank| told(rank).collect()).collect();
    assert_eq!(common(&all), Ok(9));
    // Of it a process says that it is two ranks, another's rank, or none that there is.
    for lie in [of(9, 1, 4, 1), of(9, 0, 5, 1), of(9, 7, 4, 1)] {
        let mut lying = all.clone();
        lying[2].extend(lie);
        assert_eq!(common(&lying), Ok(8));
    }
    let twin = all[0].clone();
    all[1] = twin;
    assert_eq!(common(&all), Err(NoCommon::Apart));
    assert_eq!(common(&[vec![], vec![]]), Err(NoCommon::Silent));
    assert_eq!(common(&[]), Err(NoCommon::Silent));
}
