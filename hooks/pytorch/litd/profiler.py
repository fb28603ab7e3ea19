"""Measures an iteration with torch's profiler: device activity alone, raw events.

The profiler is started and stopped in a thread of its own, and the training thread waits for that
only for so long: a profiler that hangs must not hang the job. A profiler of the user's own goes
first: while one runs nothing is measured here, and one that begins ends ours.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from litd import denied
from litd.kernels import (
    Columns,
    Expectation,
    Loss,
    Measured,
    NameTable,
    TooManyError,
    drop,
    extract,
)
from litd.threads import background

if TYPE_CHECKING:
    from collections.abc import Callable

    from litd.groups import Groups, Reach

log = logging.getLogger("litd")

HANG_SECONDS = 30.0
"""Starting or stopping the profiler takes no longer, unless it hangs."""

_GUARDED = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")


class ProfilerError(RuntimeError):
    """The profiler failed, or hangs: it is not used again."""


def torch_profile(torch: Any) -> Any:
    """A profiler for device activity alone."""
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])


class ProfilerMeasure:
    """Measures iterations with torch's profiler, or with what `make` yields."""

    name = "profiler"

    def __init__(
        self,
        torch: Any,
        index: int = 0,
        *,
        make: Callable[[Any], Any] = torch_profile,
        hang_seconds: float = HANG_SECONDS,
        groups: Groups | None = None,
        told: Callable[[Loss, str], None] = lambda _loss, _why: None,
    ) -> None:
        """`told` hears of each sample, in the link's thread, whether it is whole."""
        self._torch = torch
        self._told = told
        self._index = index
        self._make = make
        self._hang_seconds = hang_seconds
        self._groups = groups
        self._profile: Any = None
        self._starting_ns = 0
        self._expected = Expectation()
        self._worker = _Worker()
        self._turns = _Turns(torch, self._worker, self.abort)

    def begin(self) -> bool:
        """Begins to measure; false while the user's own profiler runs."""
        if self._turns.is_others():
            return False
        self._worker.do(self._start, self._hang_seconds)
        if self._groups is not None:
            self._groups.begin()
        return self._profile is not None

    def end(self, iteration: int) -> ProfiledEvents | None:
        """Ends the measured iteration; what it was made of is collected later."""
        if self._profile is None:
            return None
        reach = self._groups.end() if self._groups is not None else None
        ended_ns, stopped_ns, events = self._worker.do(self._stop, self._hang_seconds)
        return ProfiledEvents(
            iteration=iteration,
            events=events,
            expected=self._expected,
            reach=reach,
            told=self._told,
            ended_ns=ended_ns,
            overhead_ns=self._starting_ns + stopped_ns - ended_ns,
        )

    def abort(self) -> None:
        """Stops measuring, whatever was measured, also if it is still about to begin."""
        if self._worker.is_running:
            self._worker.do(self._stop_if_on, self._hang_seconds)

    def close(self) -> None:
        """Ends for good. Another thread may begin to measure at this very moment."""
        self._turns.close()
        self._worker.close(self._stop_if_on, self._hang_seconds)

    # In the profiler's thread.

    def _start(self) -> None:
        # The device is not idle while it is waited for: only what comes then holds training up.
        self._synchronize()
        _detach_afterwards(self._torch)
        began_ns = time.perf_counter_ns()
        profile = self._make(self._torch)
        profile.start()
        self._starting_ns = time.perf_counter_ns() - began_ns
        # Some releases build a tree of all events when they stop, which takes seconds.
        inner: Any = getattr(profile, "profiler", None)
        if hasattr(inner, "_parse_kineto_results"):
            inner._parse_kineto_results = _nothing  # noqa: SLF001
        self._profile = profile

    def _stop(self) -> tuple[int, int, list[Any]]:
        """When the iteration was over, when the profiler had stopped, and what it has seen."""
        profile, self._profile = self._profile, None
        # What was launched belongs to the iteration; what the profiler does then does not.
        self._synchronize()
        ended_ns = time.perf_counter_ns()
        profile.stop()
        events = list(profile.profiler.kineto_results.events())
        _let_go(profile)
        return ended_ns, time.perf_counter_ns(), events

    def _stop_if_on(self) -> None:
        if self._profile is not None:
            self._stop()

    def _synchronize(self) -> None:
        cuda = getattr(self._torch, "cuda", None)
        if cuda is not None and cuda.is_available():
            cuda.set_device(self._index)
            cuda.synchronize(self._index)


def _nothing(_results: Any) -> list[Any]:
    return []


def _detach_afterwards(torch: Any) -> None:
    """Has Kineto detach CUPTI after each profile, as it does by itself since 2026.

    A CUPTI that stays attached makes training 10 to 20 % slower (pytorch#146604). Before CUDA 12.6
    detaching crashes jobs with CUDA graphs; those stacks are denied. Who has set the variable knows
    better, and so does torch, which sets it where it has reason to.
    """
    cuda = getattr(getattr(torch, "version", None), "cuda", None)
    if cuda and denied.numbers(str(cuda)) >= (12, 6):
        os.environ.setdefault("TEARDOWN_CUPTI", "1")


def _let_go(profile: Any) -> None:
    """Frees a profile now: it refers to itself, and scripts turn the collector off."""
    with contextlib.suppress(Exception):
        inner = profile.profiler
        profile.profiler = None
        inner.kineto_results = None
        profile.action_map = {}


@dataclass(kw_only=True)
class ProfiledEvents(Measured):
    """A profiled iteration: raw events, of which most are no kernels."""

    events: list[Any]
    expected: Expectation
    reach: Reach | None = None
    told: Callable[[Loss, str], None] = lambda _loss, _why: None

    def collect(self, names: NameTable, wanted: Callable[[], bool]) -> Columns | None:
        """The kernels; `None` if there are none, too many, or some are missing."""
        try:
            columns = extract(self.events, names, wanted)
        except TooManyError as error:
            return self._lacks(Loss.UNTAKEN, str(error))
        if columns is None:
            return None
        if not len(columns):
            return self._lacks(Loss.ALL, "the profiler has no kernels")
        if missing := self.expected.missing(columns):
            return self._lacks(Loss.SOME, f"the profiler has {missing}")
        self.told(Loss.NOTHING, "")
        columns.shows_collectives = True
        if self.reach is not None:
            self.reach.mark(columns, names)
        return columns

    def _lacks(self, loss: Loss, why: str) -> Columns | None:
        self.why = why
        self.told(loss, why)
        return None

    def drop(self) -> None:
        """Nobody wants it."""
        drop(self.events)


class _Worker:
    """A thread that does one thing at a time, and may be given up."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]] | None]
        self._tasks = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._hangs = False
        self._is_open = True
        self._opening = threading.Lock()
        self._pid = os.getpid()

    @property
    def is_running(self) -> bool:
        """Whether there is anything that it could be doing."""
        return self._thread is not None and self._is_open

    def is_me(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def do(self, task: Callable[[], Any], seconds: float) -> Any:
        """Has something done and waits for it. `ProfilerError` if it fails or takes longer."""
        if self._hangs:
            raise ProfilerError("the profiler hangs")
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with self._opening:
            self._put(task, done)
        try:
            result, error = done.get(timeout=seconds)
        except queue.Empty:
            self._hangs = True
            raise ProfilerError(f"the profiler has hung for {seconds:.0f} s") from None
        if error is not None:
            raise ProfilerError(f"the profiler failed: {error}") from error
        return result

    def _put(self, task: Callable[[], Any], done: queue.SimpleQueue[Any]) -> None:
        # Nobody would do it, and whoever asked would wait for long.
        if not self._is_open or self._pid != os.getpid():
            raise ProfilerError("the profiler's thread has ended")
        if self._thread is None:
            self._thread = background(self._run, "litd-profiler")
            self._thread.start()
        self._tasks.put((task, done))

    def close(self, last: Callable[[], None], seconds: float) -> None:
        """Has something done last, and ends the thread. One that hangs does so if it wakes up."""
        with self._opening:
            was_open, self._is_open = self._is_open, False
            if not was_open or self._thread is None or self._pid != os.getpid():
                return
            self._tasks.put((last, queue.SimpleQueue()))
            self._tasks.put(None)
        if not self._hangs:
            self._thread.join(seconds)

    def _run(self) -> None:
        while (entry := self._tasks.get()) is not None:
            task, done = entry
            result: Any = None
            failure: Exception | None = None
            try:
                result = task()
            except Exception as error:
                failure = error
            done.put((result, failure))
            # A thread that waits must not keep a sample alive.
            del entry, task, done, result, failure


class _Turns:
    """Knows whether somebody else's profiler runs, and lets it go first.

    While this rank is attached, the three functions through which torch's profilers begin and end
    go through here.
    """

    def __init__(self, torch: Any, worker: _Worker, abort: Callable[[], None]) -> None:
        self._worker = worker
        self._abort = abort
        self._running = 0
        self._enabled: Callable[[], bool] = lambda: False
        self._module: Any = None
        self._replaced: dict[str, tuple[Any, Any]] = {}
        module = getattr(getattr(torch, "autograd", None), "profiler", None)
        if module is None or not all(hasattr(module, name) for name in _GUARDED):
            return
        self._module = module
        self._enabled = getattr(torch.autograd, "_profiler_enabled", self._enabled)
        for name in _GUARDED:
            original = getattr(module, name)
            mine = self._guarded(name, original)
            self._replaced[name] = (original, mine)
            setattr(module, name, mine)

    def is_others(self) -> bool:
        """Whether a profiler of the user's own runs, or is about to."""
        return self._running > 0 or self._enabled()

    def close(self) -> None:
        """Puts the functions back."""
        for name, (original, mine) in self._replaced.items():
            if getattr(self._module, name) is mine:
                setattr(self._module, name, original)
        self._replaced.clear()

    def _guarded(self, name: str, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._worker.is_me():
                self._theirs(name)
            return original(*args, **kwargs)

        return call

    def _theirs(self, name: str) -> None:
        if name == "_disable_profiler":
            self._running = 0
            return
        self._running = 1
        try:
            self._abort()
        except Exception:
            log.debug("the profiler did not end", exc_info=True)
