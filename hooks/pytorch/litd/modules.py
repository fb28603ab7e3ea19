"""Measures an iteration without a profiler: device events where modules begin and end.

While an iteration is measured, and only then, calls of modules go through a function that puts a
mark into the stream where a module begins and ends, and one where the gradient of its output
arrives. What lies between two marks of a stream is treated as one kernel, named by the classes of
the modules around it. Nothing is put on modules: they can be saved, copied, scripted as ever.

Such a piece also holds the time in which the device waits for the host. Where the device had
caught up with the host for much of the iteration, pieces tell of the host, and no sample is made.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from litd import wire
from litd.kernels import Columns, Expectation, Measured, NameTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from litd.gpu import Clock

log = logging.getLogger("litd")

MOST_MARKS = 20_000
"""An iteration with more modules is not measured."""

MOST_IDLE = 0.2
"""Share of an iteration that the device may spend on pieces at whose end it waited for the host."""

PATIENCE_SECONDS = 60.0
"""The device comes to the end of an iteration within so long."""

PART = 256
"""So many marks are read at once."""

PAUSE = 50e-6


class _Mark(NamedTuple):
    """The beginning of a piece."""

    event: Any
    stream: int
    name: str
    idle: bool
    """The device had come to the mark before this one already: it waits for the host."""


class ModuleMeasure:
    """Measures iterations by device events at module boundaries."""

    name = "modules"

    def __init__(self, torch: Any, clock: Clock) -> None:
        self._torch = torch
        self._clock = clock
        self._compiling = _compiling(torch)
        self._expected = Expectation("pieces")
        self._recorder: _Recorder | None = None
        self._original: Any = None
        self._mine: Any = None

    def begin(self) -> bool:
        """Begins to measure; false while the user's own profiler runs, which would see it."""
        if _profiles(self._torch):
            return False
        self._clock.anchor()
        self._recorder = recorder = _Recorder(self._clock, self._compiling)
        recorder.mark("")
        module = self._torch.nn.Module
        # An interrupt may have left it there.
        if module.__call__ is not self._mine:
            if self._original is not module.__call__:
                # The same function each time: what was compiled meanwhile stays valid.
                self._original = module.__call__
                self._mine = self._wrapped(self._original, self._compiling)
            module.__call__ = self._mine
        return True

    def end(self, iteration: int) -> ModulePieces | None:
        """Ends the measured iteration; what it was made of is collected later."""
        recorder = self._stop()
        if recorder is None:
            return None
        recorder.mark("")
        marks = recorder.take()
        why = recorder.failure
        if len(marks) >= MOST_MARKS:
            why = f"an iteration calls more than {MOST_MARKS // 2} modules"
        return ModulePieces(
            iteration=iteration, marks=marks, clock=self._clock, expected=self._expected, why=why
        )

    def abort(self) -> None:
        """Stops measuring, whatever was measured."""
        self._stop()

    def close(self) -> None:
        """Ends for good."""
        self._stop()

    def _wrapped(self, original: Any, compiling: Callable[[], bool]) -> Any:
        def call(module: Any, /, *args: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(module, *args, **kwargs)
            recorder = self._recorder
            if recorder is None or not recorder.enter(module):
                return original(module, *args, **kwargs)
            name = ""
            try:
                result = original(module, *args, **kwargs)
            finally:
                name = recorder.leave()
            recorder.follow(result, name)
            return result

        return call

    def _stop(self) -> _Recorder | None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.stop()
            module = self._torch.nn.Module
            # Whoever has wrapped it since calls this one, which then only passes on.
            if module.__call__ is self._mine:
                module.__call__ = self._original
        return recorder


def _profiles(torch: Any) -> bool:
    """Whether somebody profiles: all that is measured here is a profiler's to see."""
    enabled: Callable[[], bool] | None = getattr(torch.autograd, "_profiler_enabled", None)
    return enabled is not None and enabled()


def _compiling(torch: Any) -> Callable[[], bool]:
    """Whether torch.compile reads the code that runs: it must see nothing of this."""
    for place in (getattr(torch, "compiler", None), getattr(torch, "_utils", None)):
        known: Callable[[], bool] | None = getattr(place, "is_compiling", None)
        if known is not None:
            return known
    return lambda: False


class _Recorder:
    """The marks of one iteration. Keeps no module and no tensor alive."""

    def __init__(self, clock: Clock, compiling: Callable[[], bool]) -> None:
        self._clock = clock
        self._compiling = compiling
        self._marks: list[_Mark] = []
        self._last: dict[int, Any] = {}
        self._path: list[str] = [""]
        self._thread = threading.get_ident()
        self._pid = os.getpid()
        self._is_on = True
        self.failure = ""
        """What went wrong with the marks: some are missing."""

    def stop(self) -> None:
        """Takes no more calls."""
        self._is_on = False

    def take(self) -> list[_Mark]:
        """The marks, which are not kept."""
        marks, self._marks, self._last = self._marks, [], {}
        return marks

    def enter(self, module: Any) -> bool:
        """A module begins. False if it is not to be measured."""
        if not self._is_on or threading.get_ident() != self._thread:
            return False
        if self._pid != os.getpid():
            return False
        name = f"{self._path[-1]}/{type(module).__name__}"
        self._path.append(name)
        self.mark(name)
        return True

    def leave(self) -> str:
        """The innermost module ends; answers with its name."""
        name = self._path.pop()
        if self._is_on:
            self.mark(self._path[-1])
        return name

    def follow(self, result: Any, name: str) -> None:
        """Marks where the gradient of a module's output arrives."""
        if not self._is_on:
            return
        try:
            tensor = _differentiable(result)
            if tensor is not None:
                tensor.register_hook(self._arrived(name))
        except Exception:
            log.debug("the output of %s is not followed", name, exc_info=True)

    def _arrived(self, name: str) -> Callable[[Any], None]:
        compiling = self._compiling

        def arrived(_gradient: Any) -> None:
            # Where the backward pass is compiled, hooks are: of this one nothing must be seen.
            if not compiling() and self._is_on:
                self.mark(f"{name}'")

        return arrived

    def mark(self, name: str) -> None:
        """Puts a mark into the stream. Never raises."""
        # A child that was forked meanwhile must not touch the device.
        if len(self._marks) >= MOST_MARKS or self._pid != os.getpid():
            return
        try:
            made = self._clock.mark()
            if made is None:
                return
            event, stream = made
            before = self._last.get(stream)
            idle = before is not None and self._clock.is_reached(before)
            self._last[stream] = event
            self._marks.append(_Mark(event, stream, name, idle))
        except Exception as error:
            self._is_on = False
            self.failure = f"device events fail: {error}"
            log.debug("no mark at %s", name, exc_info=True)


def _differentiable(result: Any, depth: int = 0) -> Any:
    """The first tensor in a module's output that a gradient will arrive at."""
    # Hooks on leaves would stay on parameters.
    if getattr(result, "grad_fn", None) is not None and hasattr(result, "register_hook"):
        return result
    if depth < 3 and isinstance(result, (tuple, list, dict)):
        parts = result.values() if isinstance(result, dict) else result
        for part in parts:
            found = _differentiable(part, depth + 1)
            if found is not None:
                return found
    return None


@dataclass(kw_only=True)
class ModulePieces(Measured):
    """A measured iteration: its marks, of which the device may not have come to all yet."""

    marks: list[_Mark]
    clock: Clock
    expected: Expectation

    def collect(self, names: NameTable, wanted: Callable[[], bool]) -> Columns | None:
        """The pieces between the marks; `None` if they tell of the host, or some are missing."""
        if self.why:
            return None
        deadline = time.monotonic() + PATIENCE_SECONDS
        last = {mark.stream: mark.event for mark in self.marks}
        while not all(self.clock.is_reached(event) for event in last.values()):
            if time.monotonic() > deadline:
                self.why = f"the GPU has not finished its work within {PATIENCE_SECONDS:.0f} s"
            if self.why or not wanted():
                return None
            time.sleep(0.002)
        columns, idle = self._pieces(names)
        total = sum(columns.duration_ns)
        if idle > MOST_IDLE * total:
            share = idle / max(1, total)
            self.why = f"the GPU waited for its host in {100 * share:.0f} % of the time"
            return None
        if not len(columns):
            return None
        missing = self.expected.missing(columns)
        if missing:
            self.why = f"timing modules has found {missing}"
            return None
        return columns

    def _pieces(self, names: NameTable) -> tuple[Columns, int]:
        """The pieces, and how long those were at whose end the device waited for the host."""
        columns = Columns()
        idle = 0
        begun: dict[int, tuple[str, int]] = {}
        for at, mark in enumerate(self.marks):
            if at % PART == PART - 1:
                time.sleep(PAUSE)
            now = self.clock.time_ns(mark.event)
            if mark.stream in begun:
                name, start = begun[mark.stream]
                columns.add(
                    names.id_of(name or "outside modules"),
                    mark.stream,
                    wire.Class.COMPUTATION,
                    start,
                    max(start, now),
                )
                idle += max(0, now - start) if mark.idle else 0
            begun[mark.stream] = (mark.name, now)
        return columns, idle
