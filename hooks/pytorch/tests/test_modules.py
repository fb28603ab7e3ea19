"""With a real torch: modules are timed, and nothing changes by that."""

from __future__ import annotations

import copy
import io
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from litd.kernels import NameTable
from litd.modules import ModuleMeasure
from tests.nets import IS_NEW, Module, model, torch, train
from tests.standin import StandInClock


def elsewhere(act: Callable[[], Any]) -> Any:
    """What comes of it in another thread, as the link's is."""
    out: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=lambda: out.put(act())).start()
    return out.get(timeout=30)


def collected(measure: ModuleMeasure, clock: StandInClock) -> list[tuple[str, int, int]]:
    pending = measure.end(3)
    assert pending is not None
    names = NameTable()
    columns = elsewhere(lambda: pending.collect(names, lambda: True))
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


def test_an_iteration_that_misses_modules_or_a_stream_is_no_sample() -> None:
    clock = StandInClock()
    measure = ModuleMeasure(torch, clock)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def why(run: Callable[[], Any]) -> str:
        measure.begin()
        run()
        pending = measure.end(3)
        assert pending is not None
        columns = elsewhere(lambda: pending.collect(NameTable(), lambda: True))
        assert (columns is None) == bool(pending.why)
        return pending.why

    def whole() -> None:
        train(net, optimizer, 1)
        clock.stream = 20
        net(torch.ones(4, 8))
        clock.stream = 7

    def part() -> None:
        train(net, optimizer, 1)
        clock.stream = 20
        net[1:](torch.ones(4, 8))
        clock.stream = 7

    def on_one_stream() -> None:
        train(net, optimizer, 1)
        net(torch.ones(4, 8))

    assert why(whole) == ""
    assert "pieces of" in why(part)
    assert why(whole) == ""
    assert why(on_one_stream) == "timing modules has found nothing of 1 stream"
    # What goes on is another kind of work.
    assert [bool(why(part)) for _ in range(4)] == [True, True, False, False]


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
