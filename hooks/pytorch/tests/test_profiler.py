"""With a real torch: its profiler, and a user's own beside it."""

from __future__ import annotations

import os
import queue
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from litd.kernels import NameTable
from litd.profiler import ProfilerError, ProfilerMeasure
from tests.nets import model, torch
from tests.standin import NewEvent, Profile, wait_for


def test_the_raw_events_of_this_torch_have_what_is_read() -> None:
    activities = [torch.profiler.ProfilerActivity.CPU]
    measure = ProfilerMeasure(torch, make=lambda one: one.profiler.profile(activities=activities))
    assert measure.begin()
    # Of the host a profiler sees its own thread alone, of a device everything.
    measure._worker.do(lambda: model()(torch.randn(4, 8)), 30)
    pending = measure.end(3)
    measure.close()
    assert pending is not None
    event = pending.events[0]
    for method in ("name", "device_type", "device_index", "device_resource_id"):
        assert getattr(event, method)() is not None
    unit = "ns" if hasattr(event, "start_ns") else "us"
    start = getattr(event, f"start_{unit}")() * (1 if unit == "ns" else 1000)
    assert abs(start - time.time_ns()) < 600e9
    assert getattr(event, f"duration_{unit}")() >= 0
    assert int(event.device_type()) == 0
    # Of the host's events none is taken.
    assert pending.collect(NameTable(), lambda: True) is None


def profiling(events: Any = (), **more: Any) -> ProfilerMeasure:
    return ProfilerMeasure(torch, make=lambda _torch: Profile(lambda: list(events)), **more)


def test_a_profiled_iteration_is_its_kernels() -> None:
    host = NewEvent("host", 1, 1, device_type=0)
    measure = profiling([host])
    assert measure.begin()
    pending = measure.end(2)
    assert pending is not None
    assert pending.collect(NameTable(), lambda: True) is None
    assert pending.why == "the profiler has no kernels"
    measure.close()
    measure = profiling([NewEvent("gemm", 10, 5), host])
    assert measure.begin()
    pending = measure.end(3)
    assert pending is not None
    columns = pending.collect(NameTable(), lambda: True)
    assert columns is not None
    assert (columns.start_ns, columns.duration_ns) == ([10], [5])
    measure.close()


def test_what_it_takes_to_start_and_to_stop_is_told_and_waiting_for_the_gpu_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0]

    def takes(nanoseconds: int) -> None:
        now[0] += nanoseconds

    class Slow(Profile):
        def start(self) -> None:
            takes(200)
            super().start()

        def stop(self) -> None:
            takes(30)
            super().stop()

    cuda = SimpleNamespace(
        is_available=lambda: True,
        set_device=lambda _index: None,
        synchronize=lambda _index: takes(1_000_000),
    )
    on_a_gpu = SimpleNamespace(cuda=cuda, profiler=torch.profiler, autograd=torch.autograd)
    clock = SimpleNamespace(perf_counter_ns=lambda: now[0], monotonic=time.monotonic)
    measure = ProfilerMeasure(on_a_gpu, make=lambda _torch: Slow(list))
    monkeypatch.setattr("litd.profiler.time", clock)
    assert measure.begin()
    pending = measure.end(1)
    assert pending is not None
    assert pending.overhead_ns == 230
    measure.close()


def test_nobody_waits_for_a_profilers_thread_that_has_ended() -> None:
    # What another rank found out ends it from the link's thread, whatever the training thread does.
    measure = profiling()
    measure.close()
    with pytest.raises(ProfilerError, match="has ended"):
        measure.begin()
    measure = profiling()
    assert measure.begin()
    measure.close()
    assert measure.end(3) is None
    with pytest.raises(ProfilerError, match="has ended"):
        measure.begin()


def test_a_profiler_that_starts_while_it_is_closed_does_not_stay_on() -> None:
    starts, ends = threading.Event(), threading.Event()
    profile = Profile(list)

    def slow(_torch: Any) -> Any:
        starts.set()
        ends.wait(30)
        return profile

    measure = ProfilerMeasure(torch, make=slow)
    trains = threading.Thread(target=measure.begin)
    trains.start()
    starts.wait(30)
    closes = threading.Thread(target=measure.close)
    closes.start()
    wait_for("closing", lambda: not measure._worker._is_open)
    ends.set()
    trains.join(30)
    closes.join(30)
    assert not profile.is_on
    assert measure.end(1) is None


def test_a_profiler_whose_start_was_interrupted_is_stopped() -> None:
    profile = Profile(list)
    measure = ProfilerMeasure(torch, make=lambda _torch: profile)
    # The training thread has been interrupted while it waited; the profiler's thread goes on.
    measure._worker.do(lambda: None, 30)
    measure._worker._tasks.put((measure._start, queue.SimpleQueue()))
    measure.abort()
    assert not profile.is_on
    assert measure.begin()
    assert profile.is_on
    measure.close()
    assert not profile.is_on


def test_a_profiler_that_wakes_up_from_hanging_is_stopped() -> None:
    wakes = threading.Event()
    profile = Profile(list)

    def hanging(_torch: Any) -> Any:
        wakes.wait(30)
        return profile

    measure = ProfilerMeasure(torch, make=hanging, hang_seconds=0.1)
    with pytest.raises(ProfilerError, match="hung"):
        measure.begin()
    measure.close()
    thread = measure._worker._thread
    assert thread is not None
    wakes.set()
    thread.join(30)
    assert not thread.is_alive()
    assert not profile.is_on


def test_a_child_that_is_forked_while_we_profile_has_its_profiler_to_itself() -> None:
    measure = profiling()
    assert measure.begin()
    child = os.fork()
    if child == 0:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            torch.zeros(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert measure.end(3) is not None
    measure.close()


def test_the_users_own_profiler_goes_first() -> None:
    measure = profiling([NewEvent("gemm", 10, 5)])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert not measure.begin()
    assert measure.begin()
    # It may also begin while ours runs.
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        model()(torch.randn(4, 8))
        assert measure.end(3) is None
    assert any("addmm" in event.key for event in theirs.key_averages())
    assert measure.begin()
    assert measure.end(4) is not None
    measure.close()


def test_a_user_who_warms_a_profiler_up_has_it_to_himself() -> None:
    measure = profiling()
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=1)
    cpu = torch.profiler.ProfilerActivity.CPU
    free = []
    with torch.profiler.profile(activities=[cpu], schedule=schedule) as theirs:
        for _ in range(4):
            free.append(measure.begin())
            measure.abort()
            theirs.step()
    assert free == [True, False, False, True]
    measure.close()


def test_torchs_functions_are_its_own_again() -> None:
    module = torch.autograd.profiler
    before = (module._prepare_profiler, module._enable_profiler, module._disable_profiler)
    measure = profiling()
    measure.begin()
    measure.close()
    assert (module._prepare_profiler, module._enable_profiler, module._disable_profiler) == before
    assert not [one for one in threading.enumerate() if one.name == "litd-profiler"]


def test_a_profiler_that_raises_or_hangs_is_told_of() -> None:
    def broken(_torch: Any) -> Any:
        raise RuntimeError("CUPTI is in use")

    measure = ProfilerMeasure(torch, make=broken)
    with pytest.raises(ProfilerError, match="CUPTI is in use"):
        measure.begin()
    measure.close()

    gate = threading.Event()

    def hanging(_torch: Any) -> Any:
        gate.wait(60)
        return Profile(list)

    measure = ProfilerMeasure(torch, make=hanging, hang_seconds=0.1)
    with pytest.raises(ProfilerError, match="hung"):
        measure.begin()
    began = time.monotonic()
    with pytest.raises(ProfilerError, match="hangs"):
        measure.begin()
    measure.close()
    assert time.monotonic() - began < 20
    gate.set()
    wait_for("thread ends", lambda: True)
