//! Profilers whose files nobody here has: rocprof before rocprofv3, what `nsys stats` prints, jobs
//! whose launcher tells ranks in the environment; and what is said of files that are not read.

use std::path::Path;

use litd_traces::{KernelClass, ReadError, Timeline, Trace, formats, join};
use rusqlite::Connection;

fn read(text: &str) -> Trace {
    formats::read(text.as_bytes(), None, "made.trace", None).unwrap()
}

fn refusal(bytes: &[u8], file: &str) -> String {
    let error = formats::read(bytes, None, file, None)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with(file), "{error}");
    error
}

/// Name, class, stream, start and end of each kernel of a rank.
fn kernels(timeline: &Timeline) -> Vec<(&str, KernelClass, &str, i64, i64)> {
    let kernel = |kernel: &litd_traces::Kernel| {
        let stream = timeline.streams[usize::from(kernel.stream.0)].as_ref();
        let times = (kernel.start.0, kernel.end.0);
        (
            timeline.names.get(kernel.name),
            kernel.class,
            stream,
            times.0,
            times.1,
        )
    };
    timeline.kernels.iter().map(kernel).collect()
}

use KernelClass::{Communication, Computation, Copy};

#[test]
fn rocprofs_csv_is_read() {
    // Columns in the order of ROCm 5.
    let header = "\"Index\",\"KernelName\",\"gpu-id\",\"queue-id\",\"queue-index\",\"pid\",\"tid\",\"grd\",\"sig\",\"DispatchNs\",\"BeginNs\",\"EndNs\",\"CompleteNs\",\"DurationNs\"\n";
    let line = |gpu: u32, queue: u32, name: &str, begin: u32, end: u32| {
        format!(
            "0,\"{name} [clone .kd]\",{gpu},{queue},0,77,77,64,\"0x0\",1,{begin},{end},{end},9\n"
        )
    };
    let text = [
        header.to_owned(),
        line(9, 0, "gemm(float*, int)", 100, 150),
        line(10, 1, "ncclKernel_AllReduce", 100, 190),
        line(10, 0, "gemm(float*, int)", 50, 90),
    ];
    let trace = read(&text.concat());
    let [first, second] = &trace.timelines[..] else {
        panic!("{trace:?}");
    };
    assert_eq!(
        kernels(first),
        [("gemm(float*, int)", Computation, "queue 0", 100, 150)]
    );
    assert_eq!(
        kernels(second),
        [
            ("gemm(float*, int)", Computation, "queue 0", 50, 90),
            ("ncclKernel_AllReduce", Communication, "queue 1", 100, 190),
        ]
    );
}

/// What rocprof writes for viewers: HIP's calls, copies, kernels and barriers of two GPUs.
const ROCPROF_JSON: &str = r#"{ "traceEvents":[{}
,{"args":{"name":"CPU HIP API"},"ph":"M","pid":2,"name":"process_name","sort_index":0}
,{"args":{"name":"COPY"},"ph":"M","pid":1,"name":"process_name","sort_index":1}
,{"args":{"name":"GPU0"},"ph":"M","pid":6,"name":"process_name","sort_index":2}
,{"args":{"name":"GPU Barriers0"},"ph":"M","pid":518,"name":"process_name","sort_index":3}
,{"args":{"name":"GPU1"},"ph":"M","pid":7,"name":"process_name","sort_index":4}
,{"ph":"X","name":"hipLaunchKernel","pid":"2","tid":"77","ts":"0","dur":"9",
  "args":{
    "BeginNs":"1000","EndNs":"9000","pid":"77","tid":"77","Name":"hipLaunchKernel","DurationNs":"8000"
  }
}
,{"ph":"X","name":"gemm","pid":"6","tid":"2","ts":"1","dur":"1",
  "args":{
    "BeginNs":"1000","EndNs":"2500","dev-id":"0","queue-id":"0","Name":"gemm","stream-id":"2","DurationNs":"1500"
  }
}
,{"ph":"X","name":"gemm","pid":"7","tid":"2","ts":"1","dur":"1",
  "args":{
    "BeginNs":"1100","EndNs":"2600","dev-id":"1","queue-id":"0","Name":"gemm","stream-id":"2","DurationNs":"1500"
  }
}
,{"ph":"X","name":"<barrier packet>","pid":"518","tid":"0","ts":"1","dur":"1",
  "args":{
    "BeginNs":"1100","EndNs":"1200","dev-id":"0","queue-id":"0"
  }
}
,{"ph":"X","name":"CopyDeviceToHost","pid":"1","tid":"0","ts":"1","dur":"1",
  "args":{
    "BeginNs":"3000","EndNs":"3100","dev-id":"1","queue-id":"0","Name":"CopyDeviceToHost"
  }
}
,{"ts":1,"ph":"s","cat":"DataFlow","id":0,"pid":2,"tid":77,"name":"dep"}
],
"otherData": {
    "a": "b"
  }
}"#;

#[test]
fn rocprofs_json_is_read() {
    let trace = read(ROCPROF_JSON);
    let [first, second] = &trace.timelines[..] else {
        panic!("{trace:?}");
    };
    assert_eq!(kernels(first), [("gemm", Computation, "2", 1000, 2500)]);
    assert_eq!(
        kernels(second),
        [
            ("gemm", Computation, "2", 1100, 2600),
            ("CopyDeviceToHost", Copy, "0", 3000, 3100)
        ]
    );
    let error = refusal(&ROCPROF_JSON.as_bytes()[..900], "made.json");
    assert!(error.contains("the JSON is cut"), "{error}");
    let broken = ROCPROF_JSON.replace("\"EndNs\":\"2500\"", "\"EndNs\":\"later\"");
    assert!(refusal(broken.as_bytes(), "made.json").contains("BeginNs or EndNs"));
}

fn database(script: &str) -> Result<Trace, ReadError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.db");
    Connection::open(&path)
        .unwrap()
        .execute_batch(script)
        .unwrap();
    formats::read_file(&path, None)
}

#[test]
fn rocprofs_database_is_read() {
    let columns = "(BeginNs INTEGER, EndNs INTEGER, \"dev-id\" INTEGER, \"queue-id\" INTEGER, Name TEXT, \"stream-id\" INTEGER)";
    let trace = database(&format!(
        "CREATE TABLE HIP(BeginNs INTEGER, EndNs INTEGER, Name TEXT);
        CREATE TABLE OPS{columns}; CREATE TABLE COPY{columns};
        INSERT INTO OPS VALUES (100, 200, 1, 0, 'gemm', 3), (100, 300, 0, 0, '\"gemm.kd\"', 3),
            (150, 160, 0, 0, '<barrier packet>', 3);
        INSERT INTO COPY VALUES (400, 500, 0, 0, 'CopyHostToDevice', 0);"
    ));
    let trace = trace.unwrap();
    let [first, second] = &trace.timelines[..] else {
        panic!("{trace:?}");
    };
    assert_eq!(
        kernels(first),
        [
            ("gemm", Computation, "3", 100, 300),
            ("CopyHostToDevice", Copy, "queue 0", 400, 500)
        ]
    );
    assert_eq!(kernels(second), [("gemm", Computation, "3", 100, 200)]);
    let dispatches = database(
        "CREATE TABLE KERN(\"Index\" INTEGER, KernelName TEXT, \"gpu-id\" INTEGER, \"queue-id\" INTEGER, BeginNs INTEGER, EndNs INTEGER);
        INSERT INTO KERN VALUES (0, '\"gemm [clone .kd]\"', 4, 1, 10, 20);",
    );
    assert_eq!(
        kernels(&dispatches.unwrap().timelines[0]),
        [("gemm", Computation, "queue 1", 10, 20)]
    );
}

#[test]
fn kernels_of_hip_graphs_are_kernels_in_rocm_profile_data() {
    let trace = database(
        "CREATE TABLE rocpd_string(id INTEGER PRIMARY KEY, string);
        CREATE TABLE rocpd_op(id INTEGER PRIMARY KEY, gpuId, queueId, start, end, description_id, opType_id);
        INSERT INTO rocpd_string VALUES (1, ''), (2, 'KernelExecution'), (3, 'Task'), (4, 'Barrier'),
            (5, 'gemm'), (6, 'ncclDevKernel_AllReduce'), (7, 'CopyDeviceToHost');
        INSERT INTO rocpd_op VALUES (1, 0, 0, 100, 200, 5, 2), (2, 0, 0, 200, 300, 5, 3),
            (3, 0, 0, 300, 400, 6, 3), (4, 0, 0, 400, 500, 1, 4), (5, 0, 0, 500, 600, 1, 3),
            (6, 0, 0, 600, 700, 1, 7);",
    );
    let trace = trace.unwrap();
    assert_eq!(
        kernels(&trace.timelines[0]),
        [
            ("gemm", Computation, "0", 100, 200),
            ("gemm", Computation, "0", 200, 300),
            ("ncclDevKernel_AllReduce", Communication, "0", 300, 400),
            ("Task", Computation, "0", 500, 600),
            ("CopyDeviceToHost", Copy, "0", 600, 700),
        ]
    );
    let notes = trace.notes.join("; ");
    assert!(
        notes.contains("1 operations of type Task, which take 0.000 ms together, have no name"),
        "{notes}"
    );
}

/// What nsys prints before the table and in it.
const NSYS_CSV: &str = "
NOTICE: Existing SQLite export found: x.sqlite
        It is assumed file was previously exported from: x.nsys-rep

Processing [x.sqlite] with [/opt/cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name
100,50,7,1,1,1,1,1,1,9,0.0,0.0,,,,,NVIDIA H100 80GB HBM3 (0),1,,7,\"void gemm<float, 4>(int)\"
90,10,8,,,,,,,,,,0.1,5,Pageable,Device,NVIDIA H100 80GB HBM3 (0),1,,7,[CUDA memcpy Host-to-Device]
100,60,9,1,1,1,1,1,1,9,0.0,0.0,,,,,NVIDIA H100 80GB HBM3 (1),1,,20,ncclDevKernel_AllReduce
";

#[test]
fn what_nsys_stats_prints_is_read_with_what_it_says_before() {
    let table = NSYS_CSV.split_once("]...\n").unwrap().1;
    for text in [NSYS_CSV, table] {
        let trace = read(text);
        let [first, second] = &trace.timelines[..] else {
            panic!("{trace:?}");
        };
        assert_eq!(
            kernels(first),
            [
                ("[CUDA memcpy Host-to-Device]", Copy, "7", 90, 100),
                ("void gemm<float, 4>(int)", Computation, "7", 100, 150),
            ]
        );
        assert_eq!(
            kernels(second),
            [("ncclDevKernel_AllReduce", Communication, "20", 100, 160)]
        );
    }
    let damaged = NSYS_CSV.replace("100,60,9", "100,9223372036854775807,9");
    assert!(refusal(damaged.as_bytes(), "made.csv").contains("not a time that fits"));
}

/// Two processes of a rocpd file, each on its own GPU 0, with environments.
fn rocpd(environments: [&str; 2], machines: &str) -> Result<Trace, ReadError> {
    let of = |at: usize| {
        let (uuid, environment) = (format!("_{at}"), environments[at]);
        format!(
            "CREATE TABLE rocpd_info_node{uuid}(id, machine_id TEXT); INSERT INTO rocpd_info_node{uuid} VALUES (1, '{}');
            CREATE TABLE rocpd_info_process{uuid}(id INTEGER, pid INTEGER, environment TEXT);
            INSERT INTO rocpd_info_process{uuid} VALUES (1, 77, '{environment}');
            CREATE TABLE rocpd_info_agent{uuid}(id INTEGER, type TEXT, type_index INTEGER);
            INSERT INTO rocpd_info_agent{uuid} VALUES (2, 'GPU', {at});
            CREATE TABLE rocpd_info_kernel_symbol{uuid}(id INTEGER, display_name TEXT);
            INSERT INTO rocpd_info_kernel_symbol{uuid} VALUES (1, 'gemm');
            CREATE TABLE rocpd_kernel_dispatch{uuid}(id, pid INTEGER, agent_id INTEGER, kernel_id INTEGER, queue_id, stream_id, start INTEGER, end INTEGER);
            INSERT INTO rocpd_kernel_dispatch{uuid} VALUES (1, 1, 2, 1, 1, 1, {at}, 9);",
            &machines[at..=at]
        )
    };
    database(&(of(0) + &of(1)))
}

#[test]
fn ranks_come_from_the_environment_that_rocprofv3_recorded() {
    let starts = |environments: [&str; 2]| {
        let trace = rocpd(environments, "mm").unwrap();
        let of = |timeline: &Timeline| (timeline.rank, timeline.kernels[0].start.0);
        (
            Vec::from_iter(trace.timelines.iter().map(of)),
            trace.rank_known,
        )
    };
    let torch = [
        r#"{"RANK":"5","WORLD_SIZE":"8"}"#,
        r#"{"RANK":"4","WORLD_SIZE":"8"}"#,
    ];
    assert_eq!(starts(torch), (vec![(4, 1), (5, 0)], true));
    let mpi = ["OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_RANK=0"];
    assert_eq!(starts(mpi), (vec![(0, 1), (1, 0)], true));
    // Two processes with one rank tell nothing.
    assert_eq!(starts(["RANK=0", "RANK=0"]).0, [(0, 0), (1, 1)]);
    assert_eq!(rocpd(torch, "mm").unwrap().timelines[0].world_size, Some(8));
}

#[test]
fn one_file_of_one_machine_has_one_clock() {
    let clock = |machines: &str| {
        let trace = rocpd(["RANK=0", "RANK=1"], machines).unwrap();
        let (mut timelines, _) = join(vec![trace]).unwrap();
        litd_traces::study::remove_skew(&mut timelines).one_clock
    };
    assert!(clock("mm"));
    assert!(!clock("mn"));
}

#[test]
fn processes_are_ordered_by_their_numbers_and_not_as_text() {
    let process = |pid: u32, start: u32| {
        format!(
            r#"{{"metadata":{{"pid":{pid}}},"agents":[{{"id":{{"handle":1}},"type":2,"logical_node_type_id":0}}],"kernel_symbols":[],
            "buffer_records":{{"kernel_dispatch":[{{"start_timestamp":{start},"end_timestamp":99,"dispatch_info":{{"agent_id":{{"handle":1}}}}}}]}}}}"#
        )
    };
    let text = format!(
        r#"{{"rocprofiler-sdk-tool":[{},{}]}}"#,
        process(10_000, 2),
        process(9_999, 1)
    );
    let trace = read(&text);
    let starts = trace
        .timelines
        .iter()
        .map(|timeline| timeline.kernels[0].start.0);
    assert_eq!(Vec::from_iter(starts), [1, 2]);
    assert!(
        trace.notes[0].contains("0 of process 9999, 0 of process 10000"),
        "{:?}",
        trace.notes
    );
}

#[test]
fn files_that_are_not_read_get_the_command_that_makes_what_is() {
    for (file, bytes, says) in [
        (
            "a/run.nsys-rep",
            &b"\x01\x02\x03"[..],
            "nsys export --type sqlite -o OUT.sqlite a/run.nsys-rep",
        ),
        ("run.qdrep", b"\x01", "nsys export --type sqlite"),
        ("run.ncu-rep", b"NVR\x00", "nsys profile --trace=cuda"),
        (
            "sums.csv",
            b"Time (%),Total Time (ns),Instances,Avg (ns),Name\n1,2,3,4,gemm\n",
            "nsys stats --report cuda_gpu_trace --format csv",
        ),
        (
            "stats.csv",
            b"\"Name\",\"Calls\",\"TotalDurationNs\"\n\"gemm\",1,2\n",
            "results.csv",
        ),
        (
            "hip.csv",
            b"Domain,Function,Start_Timestamp,End_Timestamp\n",
            "*_kernel_trace.csv",
        ),
        (
            "counters.csv",
            b"Index,KernelName,gpu-id,queue-id,SQ_WAVES\n",
            "rocprof --timestamp on",
        ),
    ] {
        let error = refusal(bytes, file);
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn nsight_files_without_gpus_are_told_nsights_command_and_no_others() {
    let empty = database(
        "CREATE TABLE StringIds(id INTEGER, value TEXT); CREATE TABLE TARGET_INFO_SYSTEM_ENV(name TEXT, value TEXT);",
    );
    let error = empty.unwrap_err().to_string();
    assert!(error.contains("nsys profile --trace=cuda"), "{error}");
    assert!(
        !error.contains("PyTorch") && !error.contains("rocprof"),
        "{error}"
    );
    let graphs = database(
        "CREATE TABLE TARGET_INFO_GPU(id); CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start, end);
        INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1, 2);",
    );
    let error = graphs.unwrap_err().to_string();
    assert!(error.contains("--cuda-graph-trace=node"), "{error}");
    assert!(!error.contains("without device activity"), "{error}");
}

#[test]
fn nsight_tells_when_each_process_launched_its_kernels() {
    // Two processes count calls alike; the number of a process stands above 24 bits of a thread's.
    let (one, other) = (5 << 24, 6 << 24);
    let trace = database(&format!(
        "CREATE TABLE StringIds(id INTEGER, value TEXT);
        INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaLaunchKernel_v7000'), (3, 'cudaDeviceSynchronize');
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid, demangledName);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
            (100, 200, 0, 7, 11, {one}, 1), (300, 400, 0, 7, 12, {one}, 1), (500, 600, 0, 7, 13, {one}, 1),
            (100, 200, 0, 7, 11, {other}, 1);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
            (50, 60, {one} + 9, 11, 2), (70, 80, {one} + 9, 12, 2), (40, 45, {one} + 9, 12, 2),
            (90, 95, {one} + 9, 13, 3), (60, 65, {other} + 9, 11, 2), ('x', 0, {one}, 'y', NULL);"
    ))
    .unwrap();
    let launches = |timeline: &Timeline| {
        let kernels = 0..timeline.kernels.len();
        Vec::from_iter(kernels.map(|at| timeline.launch(at).map(|at| at.0)))
    };
    // The first of several calls launched it, when it returned; one that waits launches nothing.
    assert_eq!(launches(&trace.timelines[0]), [Some(60), Some(45), None]);
    assert_eq!(launches(&trace.timelines[1]), [Some(65)]);
}

#[test]
fn without_device_activity_is_said_only_where_that_is_so() {
    let event = |category: &str| {
        format!(
            r#"{{"schemaVersion":1,"traceEvents":[{{"ph":"X","cat":"{category}","name":"x","ts":1,"dur":1}}]}}"#
        )
    };
    let host = refusal(event("cpu_op").as_bytes(), "a.json");
    assert!(
        host.contains("without device activity") && host.contains("ProfilerActivity.CUDA"),
        "{host}"
    );
    assert!(
        !host.contains("rocprof") && !host.contains("nsys"),
        "{host}"
    );
    let mtia = refusal(event("mtia_ccp_events").as_bytes(), "a.json");
    assert!(
        mtia.contains("1 events of another device, such as mtia_ccp_events"),
        "{mtia}"
    );
    assert!(!mtia.contains("without device activity"), "{mtia}");
    // What a browser records is of no profiler of GPUs.
    let browser =
        r#"{"traceEvents":[{"ph":"X","cat":"toplevel","name":"RunTask","ts":1,"dur":1}]}"#;
    let browser = refusal(browser.as_bytes(), "a.json");
    assert!(
        browser.contains("nothing tells that Kineto wrote it"),
        "{browser}"
    );
    let bare = r#"[{"ph":"X","cat":"cpu_op","name":"aten::mm","ts":1,"dur":1}]"#;
    let bare = refusal(bare.as_bytes(), "a.json");
    assert!(bare.contains("without device activity"), "{bare}");
}

#[test]
fn other_tables_of_nsight_are_no_traces_of_gpus() {
    let calls = "\nProcessing [a.sqlite] with [cuda_api_trace.py]...\nStart (ns),Duration (ns),Name,Result,CorrID,Pid,Tid\n1,2,cudaMalloc,0,1,1,1\n";
    let error = refusal(calls.as_bytes(), "calls.csv");
    assert!(error.contains("--report cuda_gpu_trace"), "{error}");
    let seconds =
        "Start (s),Duration (s),CorrId,Device,Ctx,Strm,Name\n1.0,0.5,1,H100 (0),1,7,gemm\n";
    let error = refusal(seconds.as_bytes(), "seconds.csv");
    assert!(error.contains("--timeunit nsec"), "{error}");
}

#[test]
fn archives_are_to_be_unpacked() {
    for (head, packed) in [(&b"PK\x03\x04\x14\0"[..], "zip"), (&tar(), "tar")] {
        let error = refusal(head, "traces");
        assert!(
            error.contains(&format!("a {packed} archive")) && error.contains("unpack"),
            "{error}"
        );
    }
}

/// How an archive of one file begins.
fn tar() -> Vec<u8> {
    let mut head = vec![0; 1024];
    head[..10].copy_from_slice(b"rank0.json");
    head[257..262].copy_from_slice(b"ustar");
    head
}

#[test]
fn ranks_of_one_file_are_told_apart_where_they_do_not_belong_together() {
    let line =
        |agent: u32, start: u32| format!("KERNEL_DISPATCH,{agent},gemm,{start},{}\n", start + 5);
    let text = format!(
        "Kind,Agent_Id,Kernel_Name,Start_Timestamp,End_Timestamp\n{}{}",
        line(1, 10),
        line(2, 1_000_000)
    );
    let error = join(vec![read(&text)]).unwrap_err().to_string();
    let told = "rank 1 of made.trace and rank 0 of made.trace do not belong together";
    assert!(error.starts_with(told), "{error}");
}

#[test]
fn a_path_in_a_table_of_own_formats_is_read_where_its_content_is_known() {
    // A trace that somebody named after Nsight is a trace.
    let text =
        "Kind,Agent_Id,Kernel_Name,Start_Timestamp,End_Timestamp\nKERNEL_DISPATCH,1,gemm,1,2\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.nsys-rep");
    std::fs::write(&path, text).unwrap();
    assert!(formats::read_file(Path::new(&path), None).is_ok());
}
