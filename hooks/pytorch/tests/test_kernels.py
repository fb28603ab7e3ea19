"""From raw events of a profiler to the columns of a sample."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from litd import kernels, wire
from litd.kernels import Expectation, NameTable, extract
from tests.standin import SHARED, Event, NewEvent, OldEvent, nanoseconds, read_kineto, recorded

START = 1_762_646_400_000_000_000
TRACES = SHARED / "traces"
RECORDED = [
    "param_dlrm_v100x8/worker0_step_12.1694128201545.pt.trace.json.gz",
    "param_dlrm_v100x8/worker5_step_12.1694128201549.pt.trace.json.gz",
    "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "tracelens/traces/mi300/resnet_act_checkpoint.json.gz",
    "tracelens/traces/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
]


def trace(name: str) -> Path:
    path = TRACES / name
    if not path.is_file():
        print(f"SKIPPED: no recorded traces: {path}", file=sys.stderr)
        pytest.skip("no recorded traces")
    return path


def unrelated(cls: type[Event]) -> list[Event]:
    """What else a profiler has, around the times of kernels."""
    host: dict[str, Any] = {"device_type": 0, "device": -1}
    return [
        cls("cudaLaunchKernel", START + 5, 3000, kind="cuda_runtime", **host),
        cls("aten::mm", START, 9000, kind="cpu_op", **host),
        cls("cuda_profiler_range", START, 1, kind="overhead", **host),
        cls("ProfilerStep#12", START, 99_000, kind="gpu_user_annotation"),
        cls("nccl:_all_gather_base", START, 9000, kind="gpu_user_annotation", stream=20),
    ]


@pytest.mark.parametrize("cls", [NewEvent, OldEvent])
def test_only_work_of_the_gpu_is_taken(cls: type[Event]) -> None:
    events: list[Any] = [
        cls("gemm", START + 7000, 2000, stream=7),
        cls("ncclDevKernel_AllGather", START + 8000, 5000, stream=20),
        cls("Memcpy HtoD (Pageable -> Device)", START + 1000, 1000, stream=7, kind="gpu_memcpy"),
        cls("Memset (Device)", START + 4000, 1000, stream=7, kind="gpu_memset"),
        cls("gemm", START + 9000, 2000, stream=7),
        *unrelated(cls),
    ]
    names = NameTable()
    columns = extract(events, names)
    assert columns is not None
    assert [names.since(0)[name] for name in columns.name] == [
        "gemm",
        "ncclDevKernel_AllGather",
        "Memcpy HtoD (Pageable -> Device)",
        "Memset (Device)",
        "gemm",
    ]
    assert columns.stream == [7, 20, 7, 7, 7]
    assert columns.kernel_class == [0, 0, wire.Class.COPY, wire.Class.COPY, 0]
    assert [start - START for start in columns.start_ns] == [7000, 8000, 1000, 4000, 9000]
    assert columns.duration_ns == [2000, 5000, 1000, 1000, 2000]


def test_nanoseconds_are_kept_where_the_profiler_gives_them() -> None:
    columns = extract([NewEvent("gemm", START + 1, 1234)], NameTable())
    assert columns is not None
    assert (columns.start_ns, columns.duration_ns) == ([START + 1], [1234])


def test_annotations_are_told_by_the_event_where_only_that_is_possible() -> None:
    class Between(OldEvent):
        def is_user_annotation(self) -> bool:
            return "annotation" in str(self._more.get("kind"))

    events: list[Any] = [
        Between("gemm", START, 1000),
        Between("my own range", START, 1000, kind="gpu_user_annotation"),
    ]
    columns = extract(events, NameTable())
    assert columns is not None
    assert len(columns) == 1


def test_the_gpu_that_did_most_is_taken() -> None:
    events = [NewEvent("gemm", START + at, 1, device=at % 3 == 0) for at in range(30)]
    columns = extract(list(events), NameTable())
    assert columns is not None
    assert len(columns) == 20
    assert all((start - START) % 3 for start in columns.start_ns)


def test_too_many_kernels_are_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MOST_KERNELS", 2000)
    events: list[Any] = [NewEvent("gemm", at, 1) for at in range(50_000)]
    with pytest.raises(kernels.TooManyError, match="2000"):
        extract(events, NameTable())
    assert events == []
    with pytest.raises(kernels.TooManyError):
        extract([NewEvent("gemm", at, 1) for at in range(2001)], NameTable())
    events = [NewEvent("gemm", at, 1) for at in range(2000)]
    assert len(extract(events, NameTable()) or []) == 2000


def test_what_nobody_wants_is_not_extracted() -> None:
    assert extract([NewEvent("gemm", START, 1)], NameTable(), lambda: False) is None
    columns = extract([], NameTable())
    assert columns is not None
    assert len(columns) == 0


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("cls", [NewEvent, OldEvent])
def test_recorded_events_yield_all_kernels_of_the_trace(name: str, cls: type[Event]) -> None:
    document = read_kineto(trace(name))
    base = int(document.get("baseTimeNanoseconds", 0))
    unit = 1000 if cls is OldEvent else 1
    expected: Counter[tuple[str, int, int]] = Counter()
    for event in document["traceEvents"]:
        kind = str(event.get("cat", "")).lower()
        if event.get("ph") == "X" and kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            start = (base + nanoseconds(event["ts"])) // unit * unit
            expected[str(event["name"]), start, nanoseconds(event["dur"]) // unit * unit] += 1
    names = NameTable()
    events: list[Any] = [*recorded(trace(name), cls), *unrelated(cls)]
    columns = extract(events, names)
    assert columns is not None
    texts = names.since(0)
    found = Counter(
        (texts[at], start, duration)
        for at, start, duration in zip(
            columns.name, columns.start_ns, columns.duration_ns, strict=True
        )
    )
    assert sum(expected.values()) >= 16
    longest = kernels.LONGEST_NAME
    assert found == Counter(
        {key: count for key, count in expected.items() if len(key[0]) <= longest}
    ) + Counter({key: count for key, count in found.items() if len(key[0]) > longest})
    assert len(columns) == sum(expected.values())


def test_names_stay_within_what_litd_takes() -> None:
    names = NameTable()
    long = ["void kernel<" + "int, " * 1000 + end for end in ("a>", "b>")]
    first, second = (names.id_of(name) for name in long)
    assert first != second
    assert names.id_of(long[0]) == first
    ids = [names.id_of(f"kernel {at}") for at in range(2 * kernels.MOST_NAMES)]
    assert len(names) <= kernels.MOST_NAMES + 1
    assert names.since(ids[-1]) == [kernels.ONE_OF_MANY]
    assert sum(len(name.encode()) for name in names.since(0)) < 1 << 20
    assert names.since(names.id_of("bell\x07 \ud800")) in ([kernels.ONE_OF_MANY],)


def sample(count: int, streams: tuple[int, ...] = (7, 20)) -> kernels.Columns:
    columns = kernels.Columns()
    for at in range(count):
        columns.add(0, streams[at % len(streams)], wire.Class.UNSPECIFIED, at, at + 1)
    return columns


def test_a_sample_that_misses_a_stream_or_kernels_is_not_whole() -> None:
    expected = Expectation()
    assert expected.missing(sample(1000)) == ""
    assert expected.missing(sample(995)) == ""
    # Against the fullest one: losses don't add up unseen.
    assert "985 kernels of 1000" in expected.missing(sample(985))
    assert "1 stream" in expected.missing(sample(1000, (7,)))
    assert expected.missing(sample(1000)) == ""


def test_what_comes_three_times_is_the_new_work() -> None:
    expected = Expectation()
    assert expected.missing(sample(1000)) == ""
    assert expected.missing(sample(500))
    assert expected.missing(sample(502))
    assert expected.missing(sample(501)) == ""
    assert expected.missing(sample(501)) == ""
    # Losses that differ are no new work.
    assert [bool(expected.missing(sample(count))) for count in (400, 300, 200, 100)] == [True] * 4
