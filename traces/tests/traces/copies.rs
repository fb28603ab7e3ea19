//! Copies make no GPU: whatever a profiler says of their places, a device without kernels is no
//! rank, and a copy belongs to the GPU that receives or, where that is the host, sends.

use crate::wire::{message, slice, track};
use litd_traces::{Choice, KernelClass, ReadError, Timeline, Trace, folder, formats};

fn read(bytes: &[u8]) -> Trace {
    formats::read(bytes, None, "made.trace", None).unwrap()
}

/// Kernels that compute and copies of each rank.
fn counts(timelines: &[Timeline]) -> Vec<(u32, usize, usize)> {
    let of = |timeline: &Timeline| {
        let copies = timeline.kernels.iter();
        let copies = copies
            .filter(|kernel| kernel.class == KernelClass::Copy)
            .count();
        (timeline.rank, timeline.kernels.len() - copies, copies)
    };
    timelines.iter().map(of).collect()
}

const AGENT: &str = "agent";
const FROM: &str = "src_agent";
const TO: &str = "dst_agent";
const KERNEL: (&str, &str) = ("kernel_dispatch", "gemm");
const COPY: (&str, &str) = ("memory_copy", "MEMORY_COPY_HOST_TO_DEVICE");

#[test]
fn rocprofv3_puts_kernels_and_copies_on_one_track_of_a_stream() {
    let mut trace = track(message(), 1, "STREAM [1]");
    for k in 0..4 {
        let at = 1_000 * k;
        trace = slice(
            trace,
            1,
            COPY,
            (at, at + 300),
            &[(FROM, "Agent-0"), (TO, "Agent-4")],
        );
        // It overlaps the copy before it, as on a track it may.
        trace = slice(
            trace,
            1,
            KERNEL,
            (at + 200, at + 900),
            &[(AGENT, "Agent-4")],
        );
        trace = slice(
            trace,
            1,
            COPY,
            (at + 900, at + 950),
            &[(FROM, "Agent-4"), (TO, "Agent-0")],
        );
    }
    let trace = read(&trace.0);
    assert_eq!(counts(&trace.timelines), [(0, 4, 8)]);
    let first = &trace.timelines[0].kernels[1];
    assert_eq!((first.start.0, first.end.0), (200, 900));
    assert_eq!(trace.timelines[0].streams.len(), 1);
}

#[test]
fn copies_to_the_host_are_the_senders_where_queues_have_tracks() {
    let mut trace = message();
    for (number, name) in [
        (1, "COMPUTE Agent [4] QUEUE [0] GPU"),
        (2, "COMPUTE Agent [5] QUEUE [0] GPU"),
        (3, "COPY to AGENT [0] THREAD [0] (CPU)"),
        (4, "COPY to AGENT [5] THREAD [0] (GPU)"),
    ] {
        trace = track(trace, number, name);
    }
    for k in 0..3 {
        let at = 1_000 * k;
        trace = slice(trace, 1, KERNEL, (at, at + 500), &[(AGENT, "Agent-4")]);
        trace = slice(trace, 2, KERNEL, (at, at + 400), &[(AGENT, "Agent-5")]);
        trace = slice(
            trace,
            3,
            COPY,
            (at, at + 100),
            &[(FROM, "Agent-5"), (TO, "Agent-0")],
        );
        trace = slice(
            trace,
            4,
            COPY,
            (at, at + 100),
            &[(FROM, "Agent-4"), (TO, "Agent-5")],
        );
    }
    let trace = read(&trace.0);
    assert_eq!(counts(&trace.timelines), [(0, 3, 0), (1, 3, 6)]);
}

#[test]
fn a_hosts_number_is_not_a_gpus() {
    // --agent-index type-relative: CPU-0 and GPU-0 are two things.
    let trace = track(message(), 1, "STREAM [1]");
    let trace = slice(trace, 1, KERNEL, (0, 10), &[(AGENT, "GPU-0")]);
    let trace = slice(trace, 1, KERNEL, (0, 10), &[(AGENT, "GPU-1")]);
    let trace = slice(trace, 1, COPY, (20, 30), &[(FROM, "GPU-1"), (TO, "CPU-0")]);
    assert_eq!(counts(&read(&trace.0).timelines), [(0, 1, 0), (1, 1, 1)]);
}

#[test]
fn rocprofv3s_json_names_the_host_as_a_receiver() {
    let record = |from: u32, to: u32| {
        format!(
            r#"{{"start_timestamp":20,"end_timestamp":30,"src_agent_id":{{"handle":{from}}},"dst_agent_id":{{"handle":{to}}}}}"#
        )
    };
    let kernel = r#"{"start_timestamp":1,"end_timestamp":9,"dispatch_info":{"agent_id":{"handle":7},"kernel_id":1,"queue_id":{"handle":3}}}"#;
    let text = format!(
        r#"{{"rocprofiler-sdk-tool":[{{"agents":[{{"id":{{"handle":5}},"type":1}},{{"id":{{"handle":7}},"type":2,"node_id":1}}],
            "kernel_symbols":[{{"kernel_id":1,"formatted_kernel_name":"gemm"}}],
            "buffer_records":{{"kernel_dispatch":[{kernel}],"memory_copy":[{},{}]}}}}]}}"#,
        record(7, 5),
        record(5, 7),
    );
    assert_eq!(counts(&read(text.as_bytes()).timelines), [(0, 1, 2)]);
}

/// An XSpace with one GPU whose lines have one event each.
fn xspace(lines: &[(&str, u64)]) -> Vec<u8> {
    let name = |number: u64, text: &str| {
        let inner = message().number(1, number).text(2, text);
        message().number(1, number).block(2, inner)
    };
    let mut plane = message().number(1, 1).text(2, "/device:GPU:0");
    for (line, event) in lines {
        let event = message()
            .number(1, *event)
            .number(2, 1_000)
            .number(3, 5_000);
        plane = plane.block(3, message().text(2, line).number(3, 100).block(4, event));
    }
    plane = plane.block(4, name(1, "gemm")).block(4, name(2, "unnamed"));
    plane = plane.block(4, name(3, "MemcpyD2D"));
    message().block(1, plane).0
}

#[test]
fn xlas_lines_of_copies_are_copies_whatever_their_events_are_called() {
    let lines = [
        ("Stream #8(MemcpyOther)", 2),
        ("Stream #9(MemcpyH2D,MemcpyD2H)", 2),
        ("Stream #7(Compute)", 1),
        ("Stream #6(Compute,MemcpyD2D)", 3),
        ("Stream #5", 1),
    ];
    assert_eq!(counts(&read(&xspace(&lines)).timelines), [(0, 2, 3)]);
}

const TABLE: &str = "Kind,Agent_Id,Kernel_Name,Start_Timestamp,End_Timestamp\n";

#[test]
fn some_of_several_gpus_may_be_chosen() {
    let line = |agent: u32| format!("KERNEL_DISPATCH,Agent {agent},gemm,1,{agent}\n");
    let text = format!("{TABLE}{}{}{}", line(4), line(10), line(9));
    let chosen = |devices: &[&str]| {
        let devices = Vec::from_iter(devices.iter().map(|device| (*device).to_owned()));
        let choice = Choice {
            devices: &devices,
            ..Choice::default()
        };
        formats::read_chosen(text.as_bytes(), None, "made.csv", choice)
    };
    let ends = |devices: &[&str]| {
        let trace = chosen(devices).unwrap();
        Vec::from_iter(trace.timelines.iter().map(|one| one.kernels[0].end.0))
    };
    assert_eq!(ends(&[]), [4, 9, 10]);
    assert_eq!(ends(&["10", "4"]), [4, 10]);
    assert_eq!(ends(&["9"]), [9]);
    let error = chosen(&["3"]).unwrap_err().to_string();
    let told = "made.csv: has none of the devices 3 (--devices); it has 4, 9, 10";
    assert_eq!(error, told);
}

#[test]
fn copies_alone_are_no_trace() {
    let copies = "Kind,Direction,Source_Agent_Id,Destination_Agent_Id,Start_Timestamp,End_Timestamp\n\
        MEMORY_COPY,HOST_TO_DEVICE,0,2,1,2\n";
    let error = formats::read(copies.as_bytes(), None, "made.csv", None).unwrap_err();
    assert!(
        matches!(error, ReadError::OnlyCopies { copies: 1, .. }),
        "{error}"
    );
}

#[test]
fn a_gpu_that_another_only_copies_to_is_told_of_and_no_rank() {
    let trace = track(message(), 1, "STREAM [1]");
    let trace = slice(trace, 1, KERNEL, (0, 10), &[(AGENT, "Agent-4")]);
    let trace = slice(
        trace,
        1,
        COPY,
        (20, 30),
        &[(FROM, "Agent-9"), (TO, "Agent-9")],
    );
    let trace = read(&trace.0);
    assert_eq!(counts(&trace.timelines), [(0, 1, 0)]);
    let notes = trace.notes.join("\n");
    assert!(
        notes.contains("device 9 has copies only (1), so it is no rank"),
        "{notes}"
    );
}

#[test]
fn copies_in_a_table_of_their_own_count_with_the_kernels_beside_them() {
    let here = tempfile::tempdir().unwrap();
    let kernels = |rank| here.path().join(format!("rank{rank}_kernel_trace.csv"));
    for rank in 0..2 {
        let header = "Kind,Agent_Id,Queue_Id,Kernel_Name,Start_Timestamp,End_Timestamp";
        let kernel = format!("{header}\nKERNEL_DISPATCH,Agent 2,1,gemm,{rank},10\n");
        std::fs::write(kernels(rank), kernel).unwrap();
        let header =
            "Kind,Direction,Source_Agent_Id,Destination_Agent_Id,Start_Timestamp,End_Timestamp";
        let to_host = "MEMORY_COPY,MEMORY_COPY_DEVICE_TO_HOST,Agent 2,Agent 0,40,90";
        let from_host = "MEMORY_COPY,MEMORY_COPY_HOST_TO_DEVICE,Agent 0,Agent 2,12,30";
        let copies = format!("{header}\n{to_host}\n{from_host}\n");
        let file = format!("rank{rank}_memory_copy_trace.csv");
        std::fs::write(here.path().join(file), copies).unwrap();
    }
    let whole = [here.path().to_owned()];
    for named in [&whole[..], &[kernels(0), kernels(1)]] {
        let files = folder::files(named).unwrap();
        assert_eq!(files.len(), 2);
        let (traces, notes) = folder::traces(&files, Choice::default(), &|_| ()).unwrap();
        assert_eq!(notes, Vec::<String>::new());
        for trace in traces {
            assert_eq!(counts(&trace.timelines), [(trace.timelines[0].rank, 1, 2)]);
            let notes = trace.notes.join("\n");
            assert!(notes.contains("its copies count beside"), "{notes}");
        }
    }
    // What a profiler that was killed leaves, and one that saw no copies.
    for none in ["", "Kind,Direction,Start_Timestamp,End_Timestamp\n"] {
        std::fs::write(here.path().join("rank1_memory_copy_trace.csv"), none).unwrap();
        let files = folder::files(&whole).unwrap();
        let (traces, _) = folder::traces(&files, Choice::default(), &|_| ()).unwrap();
        let [_, without] = &traces[..] else {
            panic!("two ranks, {none:?}");
        };
        assert_eq!(
            counts(&without.timelines),
            [(without.timelines[0].rank, 1, 0)]
        );
        assert_eq!(without.notes, Vec::<String>::new());
    }
}

/// What `kernels` and `copies` beside it hold, below their headers, read as one rank.
fn beside(kernels: &str, copies: &str) -> Result<Trace, ReadError> {
    let here = tempfile::tempdir().unwrap();
    let header = "Kind,Agent_Id,Queue_Id,Kernel_Name,Start_Timestamp,End_Timestamp";
    let path = here.path().join("rank0_kernel_trace.csv");
    std::fs::write(&path, format!("{header}\n{kernels}")).unwrap();
    let header =
        "Kind,Direction,Source_Agent_Id,Destination_Agent_Id,Start_Timestamp,End_Timestamp";
    let file = here.path().join("rank0_memory_copy_trace.csv");
    std::fs::write(file, format!("{header}\n{copies}")).unwrap();
    formats::read_chosen(
        std::fs::File::open(&path).unwrap(),
        Some(&path),
        "rank0",
        Choice::default(),
    )
}

#[test]
fn damaged_copies_leave_the_kernels_beside_them() {
    const KERNEL: &str = "KERNEL_DISPATCH,Agent 2,1,gemm,1,10\n";
    const GOOD: &str = "MEMORY_COPY,MEMORY_COPY_HOST_TO_DEVICE,Agent 0,Agent 2,12,30\n";
    for (bad, why) in [
        ("MEMORY_COPY,X,Agent 0,Agent 2,twelve,30\n", "no time"),
        ("MEMORY_COPY,X,Agent 0,Agent 2,40,30\n", "backwards"),
        ("MEMORY_COPY,X\n", "2 fields"),
    ] {
        let trace = beside(KERNEL, &format!("{GOOD}{bad}{GOOD}")).unwrap();
        assert_eq!(counts(&trace.timelines), [(0, 1, 0)], "{bad}");
        let [note] = &trace.notes[..] else {
            panic!("{:?}", trace.notes);
        };
        let told = ["rank0_memory_copy_trace.csv", "line 3: ", why];
        assert!(told.iter().all(|word| note.contains(word)), "{note}");
    }
    // Copies of a recording that holds no kernels make no rank, and are no reason to refuse it for.
    let error = beside("", "damaged\n").unwrap_err();
    assert!(matches!(error, ReadError::NoKernels { .. }), "{error}");
    let error = beside("", GOOD).unwrap_err();
    assert!(matches!(error, ReadError::NoKernels { .. }), "{error}");
}
