//! Files that the simulator writes are read back by the reader, to the nanosecond.

use litd_sim::{Plant, Scenario, kineto};
use litd_traces::{Collective, Kernel, KernelClass, NameId, Timeline};
use litd_units::Nanos;

fn assert_same(read: &Timeline, written: &Timeline) {
    assert_eq!(
        (read.rank, read.world_size),
        (written.rank, written.world_size)
    );
    assert_eq!(read.kernels.len(), written.kernels.len());
    let collective = |timeline: &Timeline, kernel: &Kernel| -> Option<Collective> {
        kernel
            .collective
            .map(|id| timeline.collectives[id.0.get() as usize].clone())
    };
    for (got, expected) in read.kernels.iter().zip(&written.kernels) {
        assert_eq!(read.name_of(got), written.name_of(expected));
        let stream = |timeline: &Timeline, kernel: &Kernel| {
            timeline.streams[kernel.stream.0 as usize].clone()
        };
        assert_eq!(stream(read, got), stream(written, expected));
        assert_eq!(collective(read, got), collective(written, expected));
        // Ids belong to their timelines; everything else must be the same.
        let without_ids = |kernel: &Kernel| Kernel {
            name: NameId(0),
            stream: litd_traces::StreamId(0),
            collective: None,
            ..*kernel
        };
        assert_eq!(without_ids(got), without_ids(expected));
    }
    assert_eq!(read.iterations, written.iterations);
}

fn read_back(timeline: &Timeline, text: &[u8]) -> Timeline {
    let mut trace = litd_traces::kineto::read(text, "written", None).unwrap();
    assert_eq!(trace.timelines.len(), 1, "rank {}", timeline.rank);
    trace.timelines.remove(0)
}

#[test]
fn a_plants_iterations_come_back() {
    let mut plant = Plant::new(&Scenario::builtin("default").unwrap(), 3).unwrap();
    for _ in 0..3 {
        plant.run_iteration();
    }
    for timeline in plant.timelines() {
        let mut text = Vec::new();
        kineto::write(&timeline, &mut text).unwrap();
        assert_same(&read_back(&timeline, &text), &timeline);
    }
}

#[test]
fn compressed_files_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut plant = Plant::new(&Scenario::builtin("late-host").unwrap(), 3).unwrap();
    plant.run_iteration();
    let timeline = &plant.timelines()[5];
    for name in ["rank5.json.gz", "rank5.json"] {
        let file = folder.path().join(name);
        kineto::write_file(timeline, &file).unwrap();
        let gzip = std::fs::read(&file).unwrap().starts_with(&[0x1f, 0x8b]);
        assert_eq!(gzip, name.ends_with(".gz"));
        let trace = litd_traces::kineto::read_file(&file, None).unwrap();
        assert_same(&trace.timelines[0], timeline);
    }
}

#[test]
fn hostile_names_and_times_are_written_as_they_are() {
    let mut timeline = Timeline::new(7, "test");
    timeline.world_size = Some(9);
    let stream = timeline.stream("20");
    for (name, start, end) in [
        (
            "void f<\"quoted\\\", \u{1}\n>(é)",
            1_762_646_400_000_000_001,
            1_762_646_400_000_000_001,
        ),
        ("a", 1_762_646_400_000_000_999, 1_762_646_400_001_000_000),
        (
            "{\"ph\":\"X\"}]}",
            1_762_646_401_000_000_000,
            1_762_646_409_123_456_789,
        ),
    ] {
        let kernel = Kernel {
            name: timeline.names.intern(name),
            stream,
            class: KernelClass::Computation,
            start: Nanos(start),
            end: Nanos(end),
            collective: None,
            iteration: None,
        };
        timeline.kernels.push(kernel);
    }
    let mut text = Vec::new();
    kineto::write(&timeline, &mut text).unwrap();
    assert_same(&read_back(&timeline, &text), &timeline);

    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(json["simulated"], true);
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("\"ts\":0.998,\"dur\":999.001"), "{text}");
}
