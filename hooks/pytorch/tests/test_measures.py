"""Which way to measure is taken, and the device's clock."""

from __future__ import annotations

import logging
import random
import re
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from litd import markers, others, stacks
from litd.gpu import TorchClock
from litd.kernels import Loss
from litd.measures import BASELINE, GOOD, LOSSES, Measures
from litd.place import Place
from litd.profiler import ProfilerError
from litd.stacks import Canary, NodeRecord, State, Verdict
from litd.wire import Kind, Notice, Profiling, Welcome
from tests import standin


class CudaEvent:
    """An event of a device whose clock began an hour ago and is exact to a microsecond."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self, stream: Any) -> None:
        self.at = time.time() - 3600

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, later: CudaEvent) -> float:
        return (later.at - self.at) * 1e3


def torch(**cuda: Any) -> Any:
    stream = SimpleNamespace(cuda_stream=1234)
    return SimpleNamespace(
        __version__="2.9.1",
        version=SimpleNamespace(cuda="12.8", hip=None),
        device=lambda kind, index: (kind, index),
        nn=SimpleNamespace(Module=type("Module", (), {"__call__": lambda self: None})),
        cuda=SimpleNamespace(
            **{
                "Event": CudaEvent,
                "is_available": lambda: False,
                "synchronize": lambda _device: None,
                "current_stream": lambda _device: stream,
                "is_current_stream_capturing": lambda: False,
                **cuda,
            }
        ),
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this node's results are; nothing else is set."""
    for name in ("LITD_PROFILER", *others._VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LITD_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


def prepared(job: str = "job") -> tuple[Measures, list[Notice]]:
    measures = Measures(torch(), 0)
    told: list[Notice] = []
    measures.tell = told.append
    measures.prepare(job, Place(job, 0, 0, 8, 8))
    return measures, told


def profiled(measures: Measures) -> None:
    """A canary's life, until its verdict is in."""
    steps(measures, Canary.BEFORE)
    assert measures.choose() is measures.profiler
    steps(measures, 1, measured=True)
    steps(measures, Canary.AFTER + Canary.SETTLE)
    measures.watch()


def steps(measures: Measures, count: int, *, measured: bool = False) -> None:
    for _ in range(count):
        measures.step(0.001, measured=measured)


def test_the_profiler_is_used_unless_something_speaks_against_it(folder: Path) -> None:
    for wish in ("", "auto", "on", "nonsense"):
        with standin.environment(LITD_PROFILER=wish):
            measures, _ = prepared()
            assert measures.profiler is not None
            measures.close()
    measures, _ = prepared()
    assert measures.profiler is not None
    measures.close()


def modules_only(measures: Measures) -> bool:
    steps(measures, Canary.BEFORE)
    return measures.profiler is None and measures.choose() is measures.modules


def test_the_users_variable_turns_it_off(folder: Path) -> None:
    with standin.environment(LITD_PROFILER="off"):
        assert modules_only(prepared()[0])
    assert not folder.exists()


def test_a_denied_stack_is_left_alone_unless_the_user_says_on(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    old = torch()
    old.version.cuda = "12.4"
    at = Place("job", 0, 0, 8, 8)
    measures = Measures(old, 0)
    assert measures.prepare("job", at) == {}
    assert modules_only(measures)
    assert "pytorch/pull/146604" in caplog.text
    with standin.environment(LITD_PROFILER="on"):
        measures = Measures(old, 0)
        assert "profiler" in measures.prepare("job", at)
        measures.close()


def test_a_torch_that_tells_no_runtime_has_none(folder: Path) -> None:
    odd = torch()
    odd.version.cuda = None
    measures = Measures(odd, 0)
    assert measures.prepare("job", Place("job", 0, 0, 8, 8)) == {}


def test_beside_another_profiler_modules_are_timed_and_nobody_else_is_told(folder: Path) -> None:
    with standin.environment(CUDA_INJECTION64_PATH="/opt/nsys.so"):
        measures, told = prepared()
        assert modules_only(measures)
        assert told == []
    later, _ = prepared("a later job")
    assert later.canary is not None
    later.close()


def test_a_profiler_that_is_loaded_later_has_its_events(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litd.measures.WATCH_SECONDS", 0.0)
    measures, told = prepared()
    measures.watch()
    assert measures.profiler is not None
    monkeypatch.setitem(sys.modules, "cupti", ModuleType("cupti"))
    measures.watch()
    assert modules_only(measures)
    assert told == []


def test_a_folder_that_cant_be_written_to_costs_the_profiler_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_all: Any, **_more: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("litd.stacks.NodeRecord.enter", full)
        assert modules_only(prepared()[0])
    settled(folder)
    measures, told = prepared()
    monkeypatch.setattr("litd.measures.WATCH_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr("litd.stacks.NodeRecord.look", full)
        patch.setattr("litd.stacks.NodeRecord.settle", full)
        patch.setattr("litd.stacks.NodeRecord.leave", full)
        patch.setattr("litd.markers.Path.touch", full)
        measures.watch()
        steps(measures, BASELINE)
        # A process that dies of it would leave no mark.
        assert measures.choose() is measures.modules
        assert measures.profiler is not None
        measures.failed(ProfilerError("the profiler failed"))
        assert measures.choose() is measures.modules
        measures.close()
    assert [notice.kind for notice in told] == [Kind.PROFILING_OFF]


def collected(measures: Measures, *losses: Loss) -> None:
    for loss in losses:
        measures._collected(loss, f"the profiler has {loss.name.lower()}")


def test_a_stack_that_loses_nothing_for_so_long_is_good(folder: Path) -> None:
    settled(folder)
    measures, told = prepared()
    collected(measures, *[Loss.NOTHING] * (GOOD - 1), Loss.SOME, *[Loss.NOTHING] * (GOOD - 1))
    assert told == []
    collected(measures, Loss.NOTHING)
    [notice] = told
    assert (notice.kind, notice.samples) == (Kind.PROFILING_SAFE, GOOD)
    assert NodeRecord(folder, stacks.of(torch()), "x").look() == Verdict(State.GOOD)
    collected(measures, *[Loss.NOTHING] * GOOD)
    assert len(told) == 1
    # A litd that has forgotten hears of the samples again.
    welcomed(measures, Profiling.TRY)
    assert told[-1].samples == 2 * GOOD
    measures.close()


def test_a_profiler_that_sees_no_kernel_is_off_for_the_node(folder: Path) -> None:
    settled(folder)
    measures, told = prepared()
    collected(measures, Loss.ALL, Loss.ALL, Loss.NOTHING, Loss.ALL, Loss.ALL)
    assert measures.profiler is not None
    collected(measures, Loss.ALL)
    assert modules_only(measures)
    assert [notice.kind for notice in told] == [Kind.PROFILING_OFF]
    assert NodeRecord(folder, stacks.of(torch()), "x").enter().state is State.OFF


def test_kernels_that_another_profiler_has_speak_against_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(folder)
    measures, told = prepared()
    monkeypatch.setattr(others, "loaded", lambda: ["/opt/nsight/libToolsInjection64.so"])
    collected(measures, *[Loss.ALL] * 3)
    assert modules_only(measures)
    assert [notice.kind for notice in told] == [Kind.UNSPECIFIED]
    assert NodeRecord(folder, stacks.of(torch()), "another").enter().state is State.PASSED
    # And so it is where torch's profiler says itself that it is in use.
    measures, told = prepared("a third")
    measures.failed(ProfilerError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"))
    assert modules_only(measures)
    assert [notice.kind for notice in told] == [Kind.UNSPECIFIED]


@pytest.mark.parametrize(
    "losses", [[Loss.UNTAKEN], [*[Loss.NOTHING, Loss.SOME] * (LOSSES - 1), Loss.SOME]]
)
def test_a_job_whose_kernels_cant_be_had_times_modules(
    folder: Path, losses: list[Loss], monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(folder)
    monkeypatch.setattr("litd.measures.WATCH_SECONDS", 0.0)
    measures, told = prepared()
    other_rank, other_told = prepared()
    other_job, _ = prepared("another job")
    collected(measures, *losses)
    assert modules_only(measures)
    assert [notice.kind for notice in told] == [Kind.UNSPECIFIED]
    # Kernels of one rank are compared with kernels of the others.
    for one in (other_rank, other_job):
        one.watch()
    assert modules_only(other_rank)
    assert other_told == []
    assert other_job.profiler is not None
    other_job.close()


def marks(folder: Path) -> list[Path]:
    return list(folder.glob("*.profiling"))


def test_a_mark_is_there_for_as_long_as_a_profiled_iteration_lasts(folder: Path) -> None:
    settled(folder)
    measures, _ = prepared()
    steps(measures, BASELINE)
    assert marks(folder) == []
    assert measures.choose() is measures.profiler
    assert len(marks(folder)) == 1
    steps(measures, 1, measured=True)
    assert marks(folder) == []
    # The user's own profiler runs: there was nothing to survive.
    measures.choose()
    steps(measures, 1)
    assert marks(folder) == []
    measures.choose()
    measures.close()
    assert marks(folder) == []


def test_the_canarys_mark_stays_until_its_verdict(folder: Path) -> None:
    measures, _ = prepared()
    steps(measures, Canary.BEFORE)
    measures.choose()
    steps(measures, 1, measured=True)
    steps(measures, Canary.AFTER)
    assert len(marks(folder)) == 1
    steps(measures, Canary.SETTLE)
    measures.watch()
    assert marks(folder) == []
    measures.close()


def test_a_canary_profiles_once_and_then_waits_for_its_verdict(folder: Path) -> None:
    measures, told = prepared()
    other, _ = prepared("another job")
    assert other.profiler is None
    for _ in range(Canary.BEFORE):
        assert measures.choose() is measures.modules
        steps(measures, 1)
    assert measures.choose() is measures.profiler
    steps(measures, 1, measured=True)
    assert measures.choose() is None
    steps(measures, Canary.AFTER + Canary.SETTLE)
    measures.watch()
    assert measures.choose() is measures.profiler
    [notice] = told
    assert notice.kind == Kind.PROFILING_SAFE
    later, _ = prepared("a later job")
    # It, too, wants to know how long its iterations take without.
    assert later.choose() is later.modules
    steps(later, BASELINE)
    assert later.choose() is later.profiler
    for one in (measures, other, later):
        one.close()


def settled(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    NodeRecord(folder, stacks.of(torch()), "an earlier job").settle(State.PASSED)


def noisy(measures: Measures, count: int, seconds: float, chance: random.Random) -> None:
    for _ in range(count):
        measures.step(seconds * (1 + chance.gauss(0, 0.01)), measured=False)
        measures.watch()


@pytest.mark.parametrize("is_canary", [True, False])
def test_a_profiler_that_leaves_a_job_slower_is_off_for_the_node(
    folder: Path, is_canary: bool
) -> None:
    if not is_canary:
        settled(folder)
    chance = random.Random(1)
    measures, told = prepared()
    noisy(measures, Canary.BEFORE, 1.0, chance)
    assert measures.choose() is measures.profiler
    measures.step(3.0, measured=True)
    noisy(measures, 50, 1.1, chance)
    assert measures.choose() is measures.modules
    [notice] = told
    assert notice.kind == Kind.PROFILING_OFF
    assert re.search(r"stay (9|1\d)\.\d % slower after a profiled one", notice.text)
    later, _ = prepared("a later job")
    assert later.profiler is None
    measures.close()
    later.close()


def test_a_profiled_iteration_that_was_none_is_not_to_blame(
    folder: Path,
) -> None:
    settled(folder)
    chance = random.Random(1)
    measures, told = prepared()
    noisy(measures, BASELINE, 1.0, chance)
    # The user's own profiler runs, and this one doesn't begin.
    assert measures.choose() is measures.profiler
    noisy(measures, 50, 1.1, chance)
    assert measures.choose() is measures.profiler
    assert told == []
    measures.close()


def test_what_could_not_be_told_is_said(folder: Path) -> None:
    chance = random.Random(1)
    measures, told = prepared()
    noisy(measures, Canary.BEFORE, 1.0, chance)
    measures.choose()
    measures.step(3.0, measured=True)
    noisy(measures, Canary.AFTER + Canary.SETTLE, 1.002, chance)
    [notice] = told
    assert notice.kind == Kind.PROFILING_SAFE
    assert re.search(r"less than \d(\.\d)? % longer, which can't be told", notice.text)
    measures.close()


def test_a_profiler_that_fails_is_off_for_the_node_and_litd_is_told(folder: Path) -> None:
    measures, told = prepared()
    steps(measures, Canary.BEFORE)
    assert measures.choose() is measures.profiler
    measures.failed(ProfilerError("the profiler has hung for 30 s"))
    assert measures.choose() is measures.modules
    [notice] = told
    assert notice.kind == Kind.PROFILING_OFF
    assert "hung" in notice.text
    later, _ = prepared("a later job")
    assert later.profiler is None
    # A fault of another kind is no reason.
    later.failed(RuntimeError("CUDA error"))
    assert later.choose() is later.modules
    measures.close()
    later.close()


def test_what_another_rank_finds_out_holds_for_this_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litd.measures.WATCH_SECONDS", 0.0)
    measures, told = prepared()
    NodeRecord(folder, stacks.of(torch()), "job").settle(State.OFF, "it is slower")
    measures.watch()
    assert measures.choose() is measures.modules
    assert len(told) == 1
    measures.close()


def test_a_job_that_ends_early_leaves_the_canary_to_the_next(folder: Path) -> None:
    measures, _ = prepared()
    measures.close()
    later, _ = prepared("a later job")
    assert later.canary is not None
    later.close()
    assert NodeRecord(folder, stacks.of(torch()), "x").enter() == Verdict(State.CANARY)


def welcomed(measures: Measures, profiling: Profiling, reason: str = "") -> None:
    measures.welcomed(Welcome(1, "0.1.0", profiling=profiling, profiling_reason=reason))


def test_litd_is_told_of_the_library_only_if_it_is_to_be_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = stacks.Stack("2.9.1", "cuda 12.8", "cupti 12.8.90")
    monkeypatch.setattr(stacks, "of", lambda _torch: known)
    at = Place("job", 0, 0, 8, 8)
    measures = Measures(torch(), 0)
    assert measures.prepare("job", at) == {"profiler": "cupti 12.8.90"}
    measures.close()
    with standin.environment(LITD_PROFILER="off"):
        assert Measures(torch(), 0).prepare("job", at) == {}


def test_what_litd_remembers_of_a_profiler_holds(folder: Path) -> None:
    measures, told = prepared()
    welcomed(measures, Profiling.OFF, "12 % slower, on another user's job")
    assert measures.profiler is None
    assert measures.choose() is measures.modules
    assert told == []
    later, _ = prepared("a later job")
    assert later.profiler is None
    measures.close()
    later.close()


def test_one_job_on_the_node_tries_and_the_others_wait(folder: Path) -> None:
    measures, told = prepared()
    welcomed(measures, Profiling.WAIT, "another user's job tries it")
    assert measures.choose() is measures.modules
    measures.close()
    # Here nobody has tried it, then.
    later, told = prepared("a later job")
    welcomed(later, Profiling.TRY)
    profiled(later)
    assert [notice.kind for notice in told] == [Kind.PROFILING_SAFE]
    # A litd that has forgotten hears it again.
    welcomed(later, Profiling.TRY)
    assert [notice.kind for notice in told] == 2 * [Kind.PROFILING_SAFE]
    later.close()


def test_what_another_user_has_tried_needs_no_canary(folder: Path) -> None:
    measures, told = prepared()
    welcomed(measures, Profiling.SAFE)
    steps(measures, BASELINE)
    assert measures.choose() is measures.profiler
    assert told == []
    measures.close()


def test_a_process_that_died_of_its_profiler_is_told_to_litd(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    boot, space = markers.boot(), markers._namespace()
    (folder / f"{stacks.of(torch()).key}.{boot}.{space}.1.1.profiling").touch()
    measures, told = prepared()
    assert measures.profiler is None
    [notice] = told
    assert (notice.kind, "a process died" in notice.text) == (Kind.PROFILING_OFF, True)
    measures.close()


def test_the_devices_clock_is_told_in_the_hosts_time() -> None:
    clock = TorchClock(torch(), 0)
    clock.anchor()
    before = time.time_ns()
    made = clock.mark()
    after = time.time_ns()
    assert made is not None
    event, stream = made
    assert stream == 0
    assert clock.is_reached(event)
    # The clocks are compared to within the time that a comparison takes.
    assert before - 50_000_000 <= clock.time_ns(event) <= after + 50_000_000


def test_streams_under_capture_take_no_marks() -> None:
    clock = TorchClock(torch(is_current_stream_capturing=lambda: True), 0)
    assert clock.mark() is None
