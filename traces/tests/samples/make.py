#!/usr/bin/env python3
"""Writes the samples in this folder from the two Kineto files of a SIMULATED iteration in kineto/.

    litlab simulate --workload tests/data/oracle/tiny-fsdp.json --speeds 1,1.05 --contention 1.4 \\
        --write-kineto traces/tests/samples/kineto
    pip install perfetto zstandard && python3 traces/tests/samples/make.py [FOLDER]

FOLDER is where they are written; this one, if it is left out.
Perfetto's files are encoded by the classes of Python's package `perfetto`, SQLite files by
Python's sqlite3; xplane.pb, of which no package of reasonable size has the classes, by the few
lines below. Nothing of the Rust code is used.
"""
import gzip
import json
import os
import sqlite3
import sys
import zlib

import zstandard
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

HERE = os.path.dirname(os.path.abspath(__file__))
THERE = sys.argv[1] if len(sys.argv) > 1 else HERE
BEGIN, END = pb.TrackEvent.TYPE_SLICE_BEGIN, pb.TrackEvent.TYPE_SLICE_END


def nanos(text, base):
    """Microseconds with up to three decimals, as text, to nanoseconds."""
    whole, _, part = text.partition(".")
    return base + int(whole) * 1000 + int((part + "000")[:3])


def load():
    """(gpu, stream, name, start, end) of all kernels, in nanoseconds; in order of start per GPU."""
    kernels = []
    for gpu in (0, 1):
        with gzip.open(f"{HERE}/kineto/rank{gpu}.json.gz", "rt") as file:
            trace = json.load(file, parse_float=str, parse_int=str)
        base = int(trace["baseTimeNanoseconds"])
        for event in trace["traceEvents"]:
            if event.get("cat") == "kernel":
                start = nanos(event["ts"], base)
                stream = int(event["args"]["stream"])
                kernels.append((gpu, stream, event["name"], start, start + nanos(event["dur"], 0)))
    return sorted(kernels, key=lambda k: (k[0], k[3], k[4]))


def launch(kernel_start):
    """When the host launched a kernel, where a format tells."""
    return kernel_start - 1_000


def write(name, data):
    with open(f"{THERE}/{name}", "wb") as file:
        file.write(data)


def packed(name, data):
    write(name + ".gz", gzip.compress(data, 9, mtime=0))


# Perfetto


class Variant:
    """One way to say the same in Perfetto's terms."""

    def __init__(
        self, interned=False, clock=None, defaults=False, split=False, lost=False, order="pairs", calls=False
    ):
        self.interned, self.clock, self.defaults, self.calls = interned, clock, defaults, calls
        self.split, self.lost, self.order = split, lost, order
        self.trace, self.cleared, self.ids, self.last = pb.Trace(), set(), {}, {}

    def packet(self, sequence, time=None):
        packet = self.trace.packet.add()
        packet.trusted_packet_sequence_id = sequence
        if sequence not in self.cleared:
            self.start(packet, sequence)
            packet = self.trace.packet.add()
            packet.trusted_packet_sequence_id = sequence
        packet.sequence_flags = 2
        if time is not None:
            if self.clock:
                packet.timestamp = (time - self.last[sequence]) // self.clock
                self.last[sequence] = time
            else:
                packet.timestamp = time
        return packet

    def start(self, packet, sequence):
        self.cleared.add(sequence)
        self.ids[sequence] = {}
        packet.sequence_flags = 1
        packet.incremental_state_cleared = True
        if self.defaults:
            packet.trace_packet_defaults.track_event_defaults.track_uuid = 10
        if self.clock:
            packet.trace_packet_defaults.timestamp_clock_id = 64
            snapshot = packet.clock_snapshot
            self.last[sequence] = FIRST
            snapshot.clocks.add(clock_id=6, timestamp=FIRST)
            snapshot.clocks.add(
                clock_id=64, timestamp=7_000 // self.clock, is_incremental=True, unit_multiplier_ns=self.clock
            )

    def intern(self, packet, sequence, table, text):
        ids = self.ids[sequence]
        if (table, text) not in ids:
            ids[(table, text)] = len(ids) + 1
            entry = getattr(packet.interned_data, table).add(iid=ids[(table, text)])
            if table == "debug_annotation_string_values":
                entry.str = text.encode()
            else:
                entry.name = text
        return ids[(table, text)]

    def annotate(self, packet, sequence, event, name, value):
        annotation = event.debug_annotations.add()
        if self.interned:
            annotation.name_iid = self.intern(packet, sequence, "debug_annotation_names", name)
        else:
            annotation.name = name
        if isinstance(value, int):
            annotation.uint_value = value
        elif self.interned:
            annotation.string_value_iid = self.intern(packet, sequence, "debug_annotation_string_values", value)
        else:
            annotation.string_value = value

    def begin(self, sequence, track, kernel):
        gpu, stream, name, start, end = kernel
        packet = self.packet(sequence, start)
        event = packet.track_event
        event.type = BEGIN
        if not self.defaults or track != 10:
            event.track_uuid = track
        if self.interned:
            event.name_iid = self.intern(packet, sequence, "event_names", name)
            event.category_iids.append(self.intern(packet, sequence, "event_categories", "kernel_dispatch"))
        else:
            event.name = name
            event.categories.append("kernel_dispatch")
        self.annotate(packet, sequence, event, "agent", f"Agent-{gpu}")
        self.annotate(packet, sequence, event, "kernel_id", 7)
        if self.calls:
            event.flow_ids.append(self.flow(kernel))

    def flow(self, kernel):
        """What a kernel has in common with the call that launched it."""
        return 0xF00D000000000000 ^ (kernel[3] << 2 | kernel[0] << 1 | kernel[1])

    def call(self, kernel):
        """The call of the host that launched a kernel, on a track of its own."""
        at = launch(kernel[3])
        packet = self.packet(1, at)
        event = packet.track_event
        event.type, event.track_uuid, event.name = BEGIN, 99, "hipLaunchKernel"
        if self.interned:
            event.category_iids.append(self.intern(packet, 1, "event_categories", "hip_api"))
        else:
            event.categories.append("hip_api")
        event.flow_ids.append(self.flow(kernel))
        event = self.packet(1, at + 500).track_event
        event.type, event.track_uuid = END, 99

    def end(self, sequence, track, kernel):
        event = self.packet(sequence, kernel[4]).track_event
        event.type = END
        if not self.defaults or track != 10:
            event.track_uuid = track

    def build(self, kernels):
        for track in (10, 11, 20, 21):
            descriptor = self.packet(1).track_descriptor
            descriptor.uuid = track
            descriptor.name = f"STREAM [{track}]"
        if self.order == "time":
            edges = []
            for kernel in kernels:
                track = 10 * (kernel[0] + 1) + kernel[1]
                edges.append((kernel[4], 0, self.end, track, kernel))
                edges.append((kernel[3], 1, self.begin, track, kernel))
            edges.sort(key=lambda edge: edge[:2])
            for _, _, write_edge, track, kernel in edges:
                write_edge(1, track, kernel)
        else:
            for at, kernel in enumerate(kernels):
                track = 10 * (kernel[0] + 1) + kernel[1]
                sequence = kernel[0] + 1 if self.split else 1
                if self.lost and at == 40:
                    # What comes now can't be understood, until the state is declared anew.
                    lost = self.packet(1)
                    lost.previous_packet_dropped = 1
                    self.begin(1, track, (0, 0, "garbage after a loss", kernel[3], kernel[4]))
                    self.cleared.discard(1)
                self.begin(sequence, track, kernel)
                self.end(sequence, track, kernel)
        for kernel in kernels if self.calls else []:
            self.call(kernel)
        return self.trace


def render_stages(kernels):
    trace = pb.Trace()
    first = trace.packet.add(trusted_packet_sequence_id=1, sequence_flags=1)
    names = sorted({kernel[2] for kernel in kernels})
    for at, name in enumerate(["stream 0", "stream 1"] + names):
        first.interned_data.gpu_specifications.add(iid=at + 1, name=name, category=2)
    for gpu, stream, name, start, end in kernels:
        packet = trace.packet.add(trusted_packet_sequence_id=1, sequence_flags=2, timestamp=start)
        event = packet.gpu_render_stage_event
        event.event_id, event.gpu_id, event.duration = len(trace.packet), gpu, end - start
        event.hw_queue_iid, event.stage_iid = stream + 1, names.index(name) + 3
    return trace


def compressed(trace, how):
    """The same packets in bundles of 50."""
    result = pb.Trace()
    for first in range(0, len(trace.packet), 50):
        bundle = pb.Trace(packet=trace.packet[first : first + 50]).SerializeToString()
        if how == "zlib":
            result.packet.add(compressed_packets=zlib.compress(bundle))
        else:
            key = 133 << 3 | 2
            data = zstandard.compress(bundle)
            field = varint(key) + varint(len(data)) + data
            packet = pb.TracePacket()
            packet.ParseFromString(field)
            result.packet.append(packet)
    return result


# xplane.pb


def varint(number):
    data = b""
    while number > 127:
        data, number = data + bytes([number & 127 | 128]), number >> 7
    return data + bytes([number])


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def xplane(kernels):
    space = block(1, number(1, 9) + block(2, "/host:CPU") + block(3, number(1, 1) + block(2, "python")))
    for gpu in (0, 1):
        mine = [kernel for kernel in kernels if kernel[0] == gpu]
        names = sorted({kernel[2] for kernel in mine})
        lines = b""
        for stream, title in ((0, "Stream #3(Kernel)"), (1, "Stream #4(Kernel)"), (0, "XLA Ops")):
            line = number(1, stream + 3) + block(2, title) + number(3, FIRST)
            for kernel in mine:
                if kernel[1] == stream:
                    event = number(1, names.index(kernel[2]) + 1)
                    event += number(2, (kernel[3] - FIRST) * 1000) + number(3, (kernel[4] - kernel[3]) * 1000)
                    line += block(4, event)
            lines += block(3, line)
        plane = number(1, gpu) + block(2, f"/device:GPU:{gpu}") + lines
        for at, name in enumerate(names):
            plane += block(4, number(1, at + 1) + block(2, number(1, at + 1) + block(2, name)))
        space += block(1, plane)
    return space


# SQLite


def database(name, script, rows):
    path = f"{THERE}/{name}"
    if os.path.exists(path):
        os.remove(path)
    with sqlite3.connect(path) as connection:
        connection.executescript("PRAGMA page_size = 1024;" + script)
        for table, values in rows:
            marks = ",".join("?" * len(values[0]))
            connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)
    connection.close()
    with open(path, "rb") as file:
        packed(name, file.read())
    os.remove(path)


def numbered(kernels):
    names = sorted({kernel[2] for kernel in kernels})
    return names, [(at + 1, *kernel) for at, kernel in enumerate(kernels)]


def rpd(kernels):
    names, rows = numbered(kernels)
    strings = [(1, ""), (2, "KernelExecution"), (3, "Barrier"), (4, "unused")]
    strings += [(at + 10, name) for at, name in enumerate(names)]
    ops = [(i, g, s, 0, "", start, end, names.index(n) + 10, 2) for i, g, s, n, start, end in rows]
    ops.append((len(ops) + 1, 0, 0, 0, "", FIRST, FIRST + 5, 1, 3))
    script = """CREATE TABLE rocpd_string(id INTEGER PRIMARY KEY, string);
        CREATE TABLE rocpd_op(id INTEGER PRIMARY KEY, gpuId, queueId, sequenceId, completionSignal,
            start, end, description_id, opType_id);
        CREATE TABLE rocpd_api(id INTEGER PRIMARY KEY, pid, tid, start, end, apiName_id);
        CREATE TABLE rocpd_api_ops(id INTEGER PRIMARY KEY, api_id, op_id);"""
    calls = [(2 * i, 1, 1, launch(start), launch(start) + 500, 4) for i, _, _, _, start, _ in rows]
    links = [(i, 2 * i, i) for i, *_ in rows]
    data = [("rocpd_string", strings), ("rocpd_op", ops), ("rocpd_api", calls), ("rocpd_api_ops", links)]
    database("sample.rpd", script, data)


def rocpd(kernels, indirect):
    names, rows = numbered(kernels)
    uuid = "_0f5d"
    agents = [(1, "CPU", 0, 0), (2, "GPU", 1, 0), (3, "GPU", 2, 1)]
    symbols = [(at + 1, f"{name}.kd", name) for at, name in enumerate(names)]
    script = f"""CREATE TABLE "rocpd_info_agent{uuid}"(id INTEGER PRIMARY KEY, type, absolute_index, type_index);
        CREATE TABLE "rocpd_info_process{uuid}"(id INTEGER PRIMARY KEY, pid);
        CREATE TABLE "rocpd_info_kernel_symbol{uuid}"(id INTEGER PRIMARY KEY, kernel_name, display_name);"""
    data = [("rocpd_info_agent", agents), ("rocpd_info_process", [(1, 4711)]), ("rocpd_info_kernel_symbol", symbols)]
    # The event of kernel i is i, that of its call i and the number of kernels.
    script += f'CREATE TABLE "rocpd_event{uuid}"(id INTEGER PRIMARY KEY, stack_id, parent_stack_id, correlation_id);'
    events = [(i + more, i, i, 0) for more in (0, len(rows)) for i, *_ in rows]
    data.append(("rocpd_event", events))
    if indirect:
        script += f"""CREATE TABLE "rocpd_timestamp{uuid}"(id INTEGER PRIMARY KEY, value);
            CREATE TABLE "rocpd_track{uuid}"(id INTEGER PRIMARY KEY, pid, agent_id, queue_id, stream_id);
            CREATE TABLE "rocpd_kernel_dispatch{uuid}"(id INTEGER PRIMARY KEY, track_id, kernel_id, start_id, end_id,
            event_id);
            CREATE TABLE "rocpd_region{uuid}"(id INTEGER PRIMARY KEY, track_id, name_id, start_id, end_id, event_id);"""
        tracks = [(2 * g + s + 1, 1, g + 2, 5, s + 1) for g in (0, 1) for s in (0, 1)] + [(9, 1, None, None, None)]
        times = [t for i, _, _, _, start, end in rows for t in ((3 * i, start), (3 * i + 1, end), (3 * i + 2, launch(start)))]
        regions = [(i, 9, 1, 3 * i + 2, 3 * i, len(rows) + i) for i, *_ in rows]
        data += [("rocpd_timestamp", times), ("rocpd_track", tracks)]
        dispatches = [(i, 2 * g + s + 1, names.index(n) + 1, 3 * i, 3 * i + 1, i) for i, g, s, n, _, _ in rows]
    else:
        script += f"""CREATE TABLE "rocpd_kernel_dispatch{uuid}"(id INTEGER PRIMARY KEY, nid, pid, tid, agent_id,
            kernel_id, dispatch_id, queue_id, stream_id, start, end, event_id);
            CREATE TABLE "rocpd_region{uuid}"(id INTEGER PRIMARY KEY, nid, pid, tid, name_id, start, end, event_id);
            CREATE VIEW rocpd_kernel_dispatch AS SELECT * FROM "rocpd_kernel_dispatch{uuid}";"""
        dispatches = [
            (i, 1, 1, 1, g + 2, names.index(n) + 1, i, 5, s + 1, start, end, i) for i, g, s, n, start, end in rows
        ]
        regions = [(i, 1, 1, 1, 1, launch(start), start, len(rows) + i) for i, _, _, _, start, _ in rows]
    data.append(("rocpd_region", regions))
    data.append(("rocpd_kernel_dispatch", dispatches))
    name = "rocpd_timestamps.db" if indirect else "rocpd.db"
    database(name, script, [(table + uuid, values) for table, values in data])


def nsys(kernels):
    names, rows = numbered(kernels)
    script = """CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL,
            contextId INT NOT NULL, streamId INT NOT NULL, correlationId INT, globalPid INT,
            demangledName INT NOT NULL, shortName INT NOT NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INT NOT NULL, end INT NOT NULL, globalTid INT, correlationId INT,
            nameId INT NOT NULL);"""
    strings = [(at + 1, name) for at, name in enumerate(names)] + [(len(names) + 1, "cudaLaunchKernel_v7000")]
    calls = [(launch(start), start, (77 << 24) + 5, i, len(names) + 1) for i, _, _, _, start, _ in rows]
    data = [(start, end, g, 1, s + 7, i, 77 << 24, names.index(n) + 1, 1) for i, g, s, n, start, end in rows]
    tables = [("StringIds", strings), ("CUPTI_ACTIVITY_KIND_KERNEL", data), ("CUPTI_ACTIVITY_KIND_RUNTIME", calls)]
    database("nsys.sqlite", script, tables)


# rocprofv3's text


def rocprof(kernels):
    names, rows = numbered(kernels)
    lines = [
        '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name",'
        '"Correlation_Id","Start_Timestamp","End_Timestamp"'
    ]
    dispatches, calls = [], []
    for i, gpu, stream, name, start, end in rows:
        quoted = name.replace('"', '""')
        lines.append(f'"KERNEL_DISPATCH","Agent {gpu}",{5 + stream},0,1,{i},{i},"{quoted}",{i},{start},{end}')
        dispatch = {"agent_id": {"handle": 100 + gpu}, "queue_id": {"handle": 5 + stream}}
        dispatch |= {"kernel_id": names.index(name), "dispatch_id": i}
        dispatches.append(
            {
                "thread_id": 1,
                "correlation_id": {"internal": i, "external": 0},
                "start_timestamp": start,
                "end_timestamp": end,
                "dispatch_info": dispatch,
                "stream_id": {"handle": 0},
            }
        )
        call = {"thread_id": 1, "correlation_id": {"internal": i, "external": 0}}
        calls.append(call | {"start_timestamp": launch(start), "end_timestamp": start})
    packed("kernel_trace.csv", ("\r\n".join(lines) + "\r\n").encode())
    agents = [{"id": {"handle": 99}, "type": 1, "logical_node_type_id": 0}]
    agents += [{"id": {"handle": 100 + g}, "type": 2, "logical_node_type_id": g, "node_id": g + 1} for g in (0, 1)]
    symbols = [{"kernel_id": at, "kernel_name": f"{n}.kd", "formatted_kernel_name": n} for at, n in enumerate(names)]
    tool = {
        "metadata": {"pid": 7},
        "buffer_records": {"kernel_dispatch": dispatches, "hip_api": calls, "memory_copy": []},
        "agents": agents,
        "kernel_symbols": symbols,
    }
    text = json.dumps({"rocprofiler-sdk-tool": [tool]}, separators=(",", ":")).encode()
    write("results.json.zst", zstandard.compress(text, 19))


# rocprof, the profiler before rocprofv3


def rocprof_v1(kernels):
    lines = ['"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","DispatchNs","BeginNs","EndNs"']
    events, ops = [], []
    for i, (gpu, stream, name, start, end) in enumerate(kernels):
        quoted = name.replace('"', '""')
        lines.append(f'{i},"{quoted}.kd",{gpu},{stream},0,7,7,{start},{start},{end}')
        ops.append((start, end, gpu, 0, name, 7, 7, stream + 1, i))
        args = {"BeginNs": start, "EndNs": end, "dev-id": gpu, "queue-id": 0, "Name": name, "stream-id": stream}
        args = {key: str(value) for key, value in args.items()}
        events.append({"ph": "X", "name": name, "pid": str(6 + gpu), "tid": str(stream), "ts": "1", "dur": "1", "args": args})
    packed("results_v1.csv", ("\n".join(lines) + "\n").encode())
    named = ((2, "CPU HIP API"), (1, "COPY"), (6, "GPU0"), (518, "GPU Barriers0"), (7, "GPU1"))
    names = [{"args": {"name": name}, "ph": "M", "pid": pid, "name": "process_name"} for pid, name in named]
    call = {"ph": "X", "name": "hipLaunchKernel", "pid": "2", "tid": "7", "ts": "0", "dur": "9", "args": {"BeginNs": "1"}}
    lines = [json.dumps(event, separators=(",", ":")) for event in names + [call] + events]
    text = '{ "traceEvents":[{}\n,' + "\n,".join(lines) + '\n],\n"otherData": {\n  }\n}'
    packed("results_v1.json", text.encode())
    script = """CREATE TABLE OPS("BeginNs" INTEGER, "EndNs" INTEGER, "dev-id" INTEGER, "queue-id" INTEGER, "Name" TEXT,
        "pid" INTEGER, "tid" INTEGER, "stream-id" INTEGER, "Index" INTEGER);
        CREATE TABLE HIP("BeginNs" INTEGER, "EndNs" INTEGER, "Name" TEXT);"""
    database("results_v1.db", script, [("OPS", ops)])


# What nsys stats prints


def nsys_stats(kernels):
    lines = ["", "Processing [report.sqlite] with [cuda_gpu_trace.py]... "]
    lines.append("Start (ns),Duration (ns),CorrId,GrdX,Bytes (MB),Device,Ctx,GreenCtx,Strm,Name")
    for i, (gpu, stream, name, start, end) in enumerate(kernels):
        quoted = name.replace('"', '""')
        lines.append(f'{start},{end - start},{i},1,,NVIDIA H100 80GB HBM3 ({gpu}),1,,{stream},"{quoted}"')
    packed("gpu_trace.csv", ("\n".join(lines) + "\n").encode())


kernels = load()
FIRST = min(kernel[3] for kernel in kernels)
for name, variant in {
    "plain": Variant(calls=True),
    "interned": Variant(interned=True, calls=True),
    "in_time_order": Variant(interned=True, order="time"),
    "incremental": Variant(interned=True, clock=1, order="time"),
    "defaults": Variant(defaults=True),
    "split": Variant(interned=True, split=True),
    "lost": Variant(interned=True, lost=True),
}.items():
    packed(f"{name}.pftrace", variant.build(kernels).SerializeToString())
plain = Variant(interned=True).build(kernels)
write("zlib.pftrace", compressed(plain, "zlib").SerializeToString())
write("zstd.pftrace", compressed(plain, "zstd").SerializeToString())
packed("render_stages.pftrace", render_stages(kernels).SerializeToString())
packed("sample.xplane.pb", xplane(kernels))
rpd(kernels)
rocpd(kernels, False)
rocpd(kernels, True)
nsys(kernels)
rocprof(kernels)
rocprof_v1(kernels)
nsys_stats(kernels)
