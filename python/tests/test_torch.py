"""With a real torch: steps, modules, the profiler, and what must not change by them."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import os
import pickle
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from litd.kernels import NameTable
from litd.modules import ModuleMeasure
from litd.profiler import ProfilerError, ProfilerMeasure
from litd.steps import REPLACED, StepCounter
from tests.standin import NewEvent, Profile, StandInClock, wait_for

torch: Any = pytest.importorskip("torch", reason="SKIPPED: no torch")

IS_NEW = hasattr(torch.optim.Optimizer, "register_step_post_hook")


Module: Any = torch.nn.Module


class Block(Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Linear(8, 8)
        self.two = torch.nn.Linear(8, 8)

    def forward(self, values: Any) -> Any:
        return values + self.two(torch.relu(self.one(values)))


def model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(Block(), Block(), torch.nn.Linear(8, 1))


def train(net: Any, optimizer: Any, steps: int, after: Callable[[], None] = lambda: None) -> Any:
    """Losses, exactly."""
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        after()
    return losses


@pytest.fixture
def counter() -> Iterator[Any]:
    counted: list[Any] = []
    one = StepCounter(counted.append)
    one.counted = counted  # type: ignore[attr-defined]
    yield one
    one.stop()


@pytest.mark.parametrize("named", [True, False])
def test_steps_are_counted_until_nobody_counts(counter: Any, named: bool) -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    assert counter.follow(torch, optimizer if named else None)
    train(net, optimizer, 3)
    assert counter.counted == [optimizer] * 3
    counter.stop()
    train(net, optimizer, 2)
    assert len(counter.counted) == 3


def test_only_the_named_or_the_first_optimizer_counts(counter: Any) -> None:
    net = model()
    first, second = (torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(2))
    assert counter.follow(torch)
    for _ in range(3):
        train(net, first, 1)
        train(net, second, 1)
    assert counter.counted == [first] * 3


@pytest.mark.parametrize("named", [True, False])
def test_a_step_within_a_step_is_one_iteration(counter: Any, named: bool) -> None:
    class Mine(torch.optim.Adam):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    net = model()
    # From here on torch calls hooks after Adam's own step as well.
    torch.optim.Adam(net.parameters())
    optimizer = Mine(net.parameters())
    assert counter.follow(torch, optimizer if named else None)
    train(net, optimizer, 5)
    assert counter.counted == [optimizer] * 5


@pytest.mark.parametrize("named", [True, False])
def test_an_optimizer_that_was_replaced_counts_no_more(counter: Any, named: bool) -> None:
    net = model()
    first, second, third = (torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(3))
    assert counter.follow(torch, first if named else None)
    train(net, first, 2)
    train(net, second, 250)
    assert counter.counted == [first] * 2 + [second] * (250 - REPLACED + 1)
    counter.counted.clear()
    # Its end needs no such proof.
    del second
    gc.collect()
    train(net, third, 2)
    assert counter.counted == [third] * 2


def test_one_optimizer_may_step_more_often_than_the_one_that_counts(counter: Any) -> None:
    net = model()
    generator, critic = (torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(2))
    assert counter.follow(torch, generator)
    for _ in range(30):
        train(net, critic, 5)
        train(net, generator, 1)
    assert counter.counted == [generator] * 30


def test_a_step_that_raises_is_no_iteration(counter: Any) -> None:
    class Fails(torch.optim.SGD):
        steps = 0

        def step(self, closure: Any = None) -> Any:
            self.steps += 1
            if self.steps % 2:
                raise RuntimeError("out of memory")
            return super().step(closure)

    optimizer = Fails(model().parameters(), lr=0.1)
    assert counter.follow(torch)
    for _ in range(6):
        with contextlib.suppress(RuntimeError):
            optimizer.step()
    assert counter.counted == [optimizer] * 3


def test_a_closure_that_is_called_many_times_is_one_step(counter: Any) -> None:
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=5)
    calls = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = net(torch.ones(4, 8)).square().mean()
        loss.backward()
        calls.append(1)
        return loss

    assert counter.follow(torch)
    for _ in range(3):
        optimizer.step(closure)
    assert len(calls) > 3
    assert len(counter.counted) == 3


def test_accumulated_gradients_are_one_step(counter: Any) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    assert counter.follow(torch)
    for micro in range(12):
        (net(torch.randn(4, 8)).mean() / 4).backward()
        if micro % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    assert len(counter.counted) == 3


def test_schedulers_and_wrappers_of_optimizers_change_nothing(counter: Any) -> None:
    net = model()
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1)

    class Wrapper:
        optimizer = inner

        def step(self) -> None:
            self.optimizer.step()

    assert counter.follow(torch, Wrapper())
    later = torch.optim.lr_scheduler.StepLR(inner, 1)
    for _ in range(2):
        train(net, inner, 1)
        scheduler.step()
        later.step()
    assert len(counter.counted) == 2
    pickle.dumps(inner)
    copy.deepcopy(inner)


def test_what_is_no_optimizer_can_not_be_followed(counter: Any) -> None:
    assert not counter.follow(torch, object())


def test_an_optimizer_that_steps_once_per_group_can_not_be_followed(counter: Any) -> None:
    class Zero:
        optimizer = torch.optim.SGD(model().parameters(), lr=0.1)

        def step(self) -> None:
            groups = self.optimizer.param_groups
            for group in groups:
                self.optimizer.param_groups = [group]
                self.optimizer.step()
            self.optimizer.param_groups = groups

    Zero.__module__ = "deepspeed.runtime.zero.stage_1_and_2"
    assert not counter.follow(torch, Zero())
    Zero().step()
    assert counter.counted == []


def test_optimizers_are_not_kept_alive(counter: Any) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    assert counter.follow(torch)
    train(net, optimizer, 1)
    counter.counted.clear()
    seen = weakref.ref(optimizer), weakref.ref(net)
    del optimizer, net
    gc.collect()
    assert [one() for one in seen] == [None, None]
    # And the next one takes its place.
    net = model()
    train(net, torch.optim.SGD(net.parameters(), lr=0.1), 2)
    assert len(counter.counted) == 2


# Modules.


def collected(measure: ModuleMeasure, clock: StandInClock) -> list[tuple[str, int, int]]:
    pending = measure.end(3)
    assert pending is not None
    names = NameTable()
    out: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=lambda: out.put(pending.collect(names, lambda: True))).start()
    columns = out.get(timeout=30)
    if columns is None:
        return []
    texts = names.since(0)
    ends = [
        start + duration
        for start, duration in zip(columns.start_ns, columns.duration_ns, strict=True)
    ]
    # One stream: where a piece ends the next begins.
    assert columns.start_ns[1:] == ends[:-1]
    return [
        (texts[at], start, duration)
        for at, start, duration in zip(
            columns.name, columns.start_ns, columns.duration_ns, strict=True
        )
    ]


def test_modules_are_pieces_forward_and_backward() -> None:
    clock = StandInClock()
    measure = ModuleMeasure(torch, clock)
    net = model()
    assert measure.begin()
    train(net, torch.optim.SGD(net.parameters(), lr=0.1), 1)
    names = [name for name, _, _ in collected(measure, clock)]
    block = ["/Sequential/Block", "/Sequential/Block/Linear", "/Sequential/Block"]
    block += ["/Sequential/Block/Linear", "/Sequential/Block", "/Sequential"]
    forward = ["outside modules", "/Sequential", *block, *block, "/Sequential/Linear"]
    assert names[: len(forward)] == forward
    backward = names[len(forward) :]
    assert backward[:2] == ["/Sequential", "outside modules"]
    assert sorted(backward[2:]) == sorted(
        ["/Sequential'", "/Sequential/Linear'"]
        + 2 * ["/Sequential/Block'"]
        + 4 * ["/Sequential/Block/Linear'"]
    )


def test_nothing_of_the_measuring_stays() -> None:
    before = torch.nn.Module.__call__
    clock = StandInClock()
    measure = ModuleMeasure(torch, clock)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    state = {name: dict(vars(module)) for name, module in net.named_modules()}
    measure.begin()
    assert torch.nn.Module.__call__ is not before
    output = net(torch.randn(4, 8))
    torch.save(net, io.BytesIO())
    copy.deepcopy(net)
    torch.jit.script(torch.nn.Linear(2, 2))
    torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2))
    torch.fx.symbolic_trace(net)
    measure.end(1)
    assert torch.nn.Module.__call__ is before
    marks = clock.marks
    # Gradients that arrive later are nobody's business.
    output.mean().backward()
    train(net, optimizer, 1)
    assert clock.marks == marks
    assert {name: set(vars(module)) for name, module in net.named_modules()} == {
        name: set(fields) for name, fields in state.items()
    }


def test_a_child_that_is_forked_meanwhile_touches_no_device() -> None:
    clock = StandInClock()
    measure = ModuleMeasure(torch, clock)
    assert measure.begin()
    child = os.fork()
    if child == 0:
        marks = clock.marks
        # As a data loader does with its transforms.
        torch.nn.Dropout()(torch.zeros(1))
        os._exit(int(clock.marks != marks))
    assert os.waitpid(child, 0)[1] == 0
    measure.abort()


def test_modules_are_not_timed_while_the_user_profiles() -> None:
    before = torch.nn.Module.__call__
    measure = ModuleMeasure(torch, StandInClock())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert not measure.begin()
        assert torch.nn.Module.__call__ is before
    assert measure.begin()
    measure.abort()


def test_what_an_interrupt_leaves_behind_is_cleared_away_next_time() -> None:
    before = torch.nn.Module.__call__
    clock = StandInClock()
    measure = ModuleMeasure(torch, clock)
    measure.begin()
    left = torch.nn.Module.__call__
    measure.abort()
    torch.nn.Module.__call__ = left
    model()(torch.randn(4, 8))
    assert measure.begin()
    model()(torch.randn(4, 8))
    names = {name for name, _, _ in collected(measure, clock)}
    assert "/Sequential/Linear" in names
    assert not any("Sequential/Sequential" in name for name in names)
    assert torch.nn.Module.__call__ is before


def test_losses_are_the_same_to_the_last_bit() -> None:
    def losses(measured: bool) -> Any:
        net = model()
        optimizer = torch.optim.AdamW(net.parameters())
        measure = ModuleMeasure(torch, StandInClock())

        def after() -> None:
            if measured:
                measure.end(1)
                measure.begin()

        result = train(net, optimizer, 10, after)
        measure.close()
        return result

    assert losses(True) == losses(False)


def test_an_iteration_at_the_hosts_pace_is_no_sample() -> None:
    clock = StandInClock(behind=False)
    measure = ModuleMeasure(torch, clock)
    measure.begin()
    net = model()
    train(net, torch.optim.SGD(net.parameters(), lr=0.1), 1)
    pending = measure.end(3)
    assert pending is not None
    assert pending.collect(NameTable(), lambda: True) is None
    assert "waited for its host" in pending.why


def test_odd_calls_odd_outputs_and_errors_go_through() -> None:
    class Odd(Module):
        def forward(self, kind: str, *, more: Any = None) -> Any:
            if kind == "raise":
                raise KeyError(kind)
            return {"a": [None, (more, kind)], "self": None}

    measure = ModuleMeasure(torch, StandInClock())
    measure.begin()
    odd = Odd()
    assert odd("x", more=5) == {"a": [None, (5, "x")], "self": None}
    with pytest.raises(KeyError):
        odd("raise")
    with pytest.raises(TypeError):
        odd()
    with pytest.raises(KeyboardInterrupt):
        Interrupted()()
    assert measure.end(1) is not None


class Interrupted(Module):
    def forward(self) -> None:
        raise KeyboardInterrupt


def test_a_clock_that_fails_ends_the_marks_and_nothing_else() -> None:
    class Broken(StandInClock):
        def mark(self) -> Any:
            if self.marks > 5:
                raise RuntimeError("CUDA error")
            return super().mark()

    measure = ModuleMeasure(torch, Broken())
    measure.begin()
    net = model()
    assert len(train(net, torch.optim.SGD(net.parameters(), lr=0.1), 2)) == 2
    pending = measure.end(3)
    assert pending is not None
    # Some marks are missing: a part is no sample.
    assert pending.collect(NameTable(), lambda: True) is None
    assert pending.why == "device events fail: CUDA error"


def test_modules_of_other_threads_are_theirs() -> None:
    clock = StandInClock()
    measure = ModuleMeasure(torch, clock)
    measure.begin()
    net = model()
    marks = clock.marks
    thread = threading.Thread(target=lambda: net(torch.randn(4, 8)))
    thread.start()
    thread.join()
    assert clock.marks == marks
    measure.close()


@pytest.mark.skipif(not IS_NEW, reason="SKIPPED: this torch is too old for torch.compile")
def test_compiled_code_does_not_see_the_measuring() -> None:
    def run(*measured: int) -> tuple[list[Any], int]:
        torch._dynamo.reset()
        compiles = 0

        def backend(graph: Any, _inputs: Any) -> Any:
            nonlocal compiles
            compiles += 1
            return graph.forward

        net = model()
        fast = torch.compile(net, backend=backend, fullgraph=True)
        measure = ModuleMeasure(torch, StandInClock())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        losses = []
        for step in range(8):
            if step in measured:
                measure.begin()
            losses += train(fast, optimizer, 1)
            measure.end(1)
        return losses, compiles

    losses, compiles = run()
    assert run(3, 4, 6) == (losses, compiles)
    # What is compiled while it measures is one graph, too, and compiled once more at most.
    again, more = run(0, 1, 3)
    assert again == losses
    assert more <= compiles + 1


@pytest.mark.skipif(not IS_NEW, reason="SKIPPED: this torch is too old for torch.compile")
def test_a_compiled_backward_pass_does_not_see_the_measuring() -> None:
    compiled = pytest.importorskip("torch._dynamo.compiled_autograd")
    if not hasattr(compiled, "_enable"):
        pytest.skip("SKIPPED: this torch has another way to compile backward passes")

    def run(*measured: int) -> tuple[list[float], int]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        net = model()
        measure = ModuleMeasure(torch, StandInClock())
        losses = []
        for step in range(20):
            if step in measured:
                measure.begin()
            loss = net(torch.ones(4, 8)).square().mean()
            # One graph, or an error.
            with compiled._enable(torch.compile(backend="eager", fullgraph=True)):
                loss.backward()
            measure.end(1)
            losses.append(loss.item())
        return losses, torch._dynamo.utils.counters["stats"]["unique_graphs"]

    losses, graphs = run()
    again, more = run(*range(1, 20, 2))
    assert again == losses
    assert more <= graphs + 1


# The profiler.


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
