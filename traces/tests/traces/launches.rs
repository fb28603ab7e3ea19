//! When the host launched kernels, as rocprofv3 tells in each of its formats where it records the
//! host's calls as well: one job in all of them.

use crate::wire::{Message, message, track};
use litd_traces::{AnalysisOptions, Split, Timeline, Trace, analyse, formats};
use litd_units::Nanos;
use rusqlite::Connection;

/// Kernels: the number in common with the launch, stream, start, end.
const KERNELS: [(u64, u64, u64, u64); 4] = [
    (11, 1, 100, 200),
    (12, 1, 300, 400),
    (13, 2, 500, 600),
    (14, 2, 700, 800),
];
/// Calls: their number and when each began. The last launched nothing.
const CALLS: [(u64, u64); 4] = [(11, 50), (12, 250), (13, 90), (99, 95)];
const LAUNCHES: [Option<i64>; 4] = [Some(50), Some(250), Some(90), None];

fn launches(timeline: &Timeline) -> Vec<Option<i64>> {
    let kernels = 0..timeline.kernels.len();
    Vec::from_iter(kernels.map(|at| timeline.launch(at).map(|at| at.0)))
}

/// The job, and where its time goes.
fn assert_told(trace: &Trace) {
    let each = Vec::from_iter(trace.timelines.iter().map(launches));
    assert_eq!(each, [LAUNCHES]);
    let options = AnalysisOptions::default();
    let report = analyse(&trace.timelines, &options).unwrap();
    let expected = Split {
        computation: Nanos(400),
        idle_launch: Nanos(100),
        idle_stream: Nanos(100),
        idle_other: Nanos(100),
        ..Split::default()
    };
    assert_eq!(report.ranks[0].time_ns, expected);
    assert!((report.ranks[0].launches_known - 0.75).abs() < 1e-12);
}

/// A slice on a track, with a flow in this field.
fn slice(
    trace: Message,
    (category, track): (&str, u64),
    (start, end): (u64, u64),
    (field, flow): (u64, u64),
) -> Message {
    let begin = message().number(9, 1).number(11, track);
    let begin = begin.text(22, category).text(23, "name");
    // Those of new are of a fixed size, those of old are not.
    let begin = match field {
        47 | 48 => begin.fixed(field, flow),
        _ => begin.number(field, flow),
    };
    let agent = message().text(10, "agent").text(6, "Agent-4");
    let begin = begin.block(4, agent);
    let end_of = message().number(9, 2).number(11, track);
    let packet = |time, event| message().number(8, time).number(10, 1).block(11, event);
    let trace = trace.block(1, packet(start, begin));
    trace.block(1, packet(end, end_of))
}

/// The job in Perfetto, with calls of this category; their numbers are the process's.
fn perfetto(category: &str, fields: [u64; 2]) -> Message {
    let flow = |number| number ^ 0xF00D_0000_0000_0001;
    let mut trace = track(message(), 1, "STREAM [1]");
    trace = track(trace, 2, "STREAM [2]");
    for (number, at) in CALLS {
        let place = (category, 9);
        trace = slice(trace, place, (at, at + 5), (fields[0], flow(number)));
    }
    for (number, stream, start, end) in KERNELS {
        let place = ("kernel_dispatch", stream);
        trace = slice(trace, place, (start, end), (fields[1], flow(number)));
    }
    trace
}

#[test]
fn perfetto_tells_launches_by_flows() {
    for category in ["hip_api", "hsa_api", "rccl_api", "rocm_hip_api"] {
        for fields in [[47, 47], [47, 48], [36, 36], [36, 42]] {
            let trace = perfetto(category, fields);
            let trace = formats::read(&trace.0[..], None, "made", None).unwrap();
            assert_told(&trace);
        }
    }
}

#[test]
fn flows_of_what_is_no_call_launch_nothing() {
    let trace = perfetto("marker_api", [47, 47]);
    let trace = formats::read(&trace.0[..], None, "made", None).unwrap();
    assert_eq!(launches(&trace.timelines[0]), [None; 4]);
}

/// The job in rocmProfileData's JSON, with arrows of this category.
fn rocm_profile_data(category: &str) -> Trace {
    let micros = |nanos: u64| format!("0.{nanos:03}");
    let slice = |place: &str, name: &str, start: u64, length: u64, description: &str| {
        let (start, length) = (micros(start), micros(length));
        format!(
            r#"{{{place},"name":"{name}","ts":"{start}","dur":"{length}","ph":"X","args":{{"desc":"{description}"}}}}"#
        )
    };
    let host = r#""pid":"77","tid":"78""#;
    let mut events = vec!["{}".into()];
    // The first kernel was launched by itself, the others by graphs.
    let description = |number| {
        if number == 11 {
            "KernelExecution"
        } else {
            "Task"
        }
    };
    for (number, stream, start, end) in KERNELS {
        let place = format!(r#""pid":"2","tid":"{stream}""#);
        events.push(slice(
            &place,
            "gemm",
            start,
            end - start,
            description(number),
        ));
        let end_of = format!(
            r#"{place},"cat":"{category}","name":"api_op","ts":"{}","id":"{number}","ph":"f","bp":"e""#,
            micros(start)
        );
        events.push(format!("{{{end_of}}}"));
    }
    for (number, at) in CALLS {
        events.push(slice(host, "hipGraphLaunch", at, 4, "stream=0"));
        // An arrow begins while the call runs.
        let begin = micros(at + 2);
        events.push(format!(
            r#"{{{host},"cat":"{category}","name":"api_op","ts":"{begin}","id":"{number}","ph":"s"}}"#
        ));
    }
    // A call that launches nothing, and one that does not end before the arrow begins elsewhere.
    events.push(slice(host, "hipGetDevice", 49, 9, ""));
    let text = format!("[{}]", events.join(","));
    formats::read(text.as_bytes(), None, "made", None).unwrap()
}

#[test]
fn rocm_profile_datas_json_tells_launches_by_arrows() {
    assert_told(&rocm_profile_data("api_op"));
    let other = rocm_profile_data("other");
    assert_eq!(launches(&other.timelines[0]), [None; 4]);
}

/// A process in rocprofv3's JSON, whose calls come so much later.
fn process(pid: u32, later: u64, calls: &str) -> String {
    let record = |number: u64, start: u64, more: &str| {
        format!(
            r#"{{"start_timestamp":{start},"correlation_id":{{"internal":{number},"external":7}}{more}}}"#
        )
    };
    let kernel = |(number, stream, start, end)| {
        let info = format!(
            r#","end_timestamp":{end},"stream_id":{{"handle":{stream}}},"dispatch_info":{{"agent_id":{{"handle":5}},"kernel_id":1}}"#
        );
        record(number, start, &info)
    };
    let kernels = KERNELS.map(kernel).join(",");
    let made = CALLS.map(|(number, at)| record(number, at + later, r#","end_timestamp":999"#));
    // A call without a time, and one without a number, tell nothing.
    let made = format!("{{}},{},{}", record(0, 1, ""), made.join(","));
    format!(
        r#"{{"metadata":{{"pid":{pid}}},"agents":[{{"id":{{"handle":5}},"type":2,"node_id":1}}],
        "kernel_symbols":[{{"kernel_id":1,"formatted_kernel_name":"gemm"}}],
        "buffer_records":{{"kernel_dispatch":[{kernels}],"{calls}":[{made}],"marker_api":[]}}}}"#
    )
}

#[test]
fn json_tells_launches_by_correlations_of_each_process() {
    let read = |processes: &[String]| {
        let text = format!("{{\"rocprofiler-sdk-tool\":[{}]}}", processes.join(","));
        formats::read(text.as_bytes(), None, "made", None).unwrap()
    };
    for calls in ["hip_api", "hsa_api", "rccl_api"] {
        assert_told(&read(&[process(1, 0, calls)]));
    }
    let none = read(&[process(1, 0, "scratch_memory")]);
    assert_eq!(launches(&none.timelines[0]), [None; 4]);
    let two = read(&[process(1, 0, "hip_api"), process(2, 3, "hip_api")]);
    let later = LAUNCHES.map(|at| at.map(|at| at + 3));
    assert_eq!(launches(&two.timelines[0]), LAUNCHES);
    assert_eq!(launches(&two.timelines[1]), later);
}

/// The tables of a process in rocpd, on the GPU of this number, whose calls come so much later; times stand in the rows, or in a
/// table of their own.
fn tables(name: &str, later: u64, environment: &str, direct: bool) -> String {
    let mut script = format!(
        "CREATE TABLE rocpd_info_process{name}(id, pid, environment);
        INSERT INTO rocpd_info_process{name} VALUES (1, 77, '{environment}');
        CREATE TABLE rocpd_info_agent{name}(id, type, type_index);
        INSERT INTO rocpd_info_agent{name} VALUES (2, 'GPU', {later});
        CREATE TABLE rocpd_info_kernel_symbol{name}(id, display_name);
        INSERT INTO rocpd_info_kernel_symbol{name} VALUES (1, 'gemm');
        CREATE TABLE rocpd_event{name}(id, stack_id, parent_stack_id, correlation_id);
        CREATE TABLE rocpd_timestamp{name}(id, value);
        CREATE TABLE rocpd_track{name}(id, pid, agent_id, queue_id, stream_id);
        INSERT INTO rocpd_track{name} VALUES (1, 1, 2, 1, 1), (2, 1, 2, 1, 2), (3, 1, NULL, NULL, NULL);"
    );
    let columns = match direct {
        true => [
            "id, pid, agent_id, stream_id, start, end",
            "id, pid, start, end",
        ],
        false => [
            "id, track_id, start_id, end_id",
            "id, track_id, start_id, end_id",
        ],
    };
    script += &format!(
        "CREATE TABLE rocpd_kernel_dispatch{name}({}, kernel_id, event_id);
        CREATE TABLE rocpd_region{name}({}, event_id);",
        columns[0], columns[1]
    );
    let mut event = 0;
    let mut row = |table: &str, number: u64, stream: Option<u64>, start: u64, end: u64| {
        event += 1;
        // Events are numbered apart from calls.
        let id = 1_000 - event;
        let place = match (direct, stream) {
            (true, Some(stream)) => format!("1, 2, {stream}, {start}, {end}"),
            (true, None) => format!("1, {start}, {end}"),
            (false, stream) => format!("{}, {}, {}", stream.unwrap_or(3), 2 * id, 2 * id + 1),
        };
        let kernel = if stream.is_some() { "1, " } else { "" };
        script += &format!(
            "INSERT INTO rocpd_event{name} VALUES ({id}, {number}, {number}, 0);
            INSERT INTO rocpd_timestamp{name} VALUES ({}, {start}), ({}, {end});
            INSERT INTO {table}{name} VALUES ({event}, {place}, {kernel}{id});",
            2 * id,
            2 * id + 1
        );
    };
    for (number, stream, start, end) in KERNELS {
        row("rocpd_kernel_dispatch", number, Some(stream), start, end);
    }
    for (number, at) in CALLS {
        row("rocpd_region", number, None, at + later, at + later + 5);
    }
    // A call that nobody understands tells nothing.
    script + &format!("INSERT INTO rocpd_region{name}(event_id) VALUES (999), ('x'), (NULL);")
}

fn database(script: &str) -> Trace {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(script).unwrap();
    drop(connection);
    formats::read_file(&path, None).unwrap()
}

#[test]
fn rocpd_tells_launches_by_stack_ids_of_each_process() {
    for direct in [true, false] {
        for environment in ["", "RANK=3"] {
            assert_told(&database(&tables("_a", 0, environment, direct)));
        }
        let two = ["_a", "_b"].map(|name| {
            let later = if name == "_a" { 0 } else { 3 };
            tables(name, later, "", direct)
        });
        let two = database(&two.concat());
        let later = LAUNCHES.map(|at| at.map(|at| at + 3));
        assert_eq!(launches(&two.timelines[0]), LAUNCHES);
        assert_eq!(launches(&two.timelines[1]), later);
    }
}

#[test]
fn rocpd_without_calls_tells_no_launches() {
    let script = tables("_a", 0, "", true) + "DROP TABLE rocpd_region_a;";
    assert_eq!(launches(&database(&script).timelines[0]), [None; 4]);
}
