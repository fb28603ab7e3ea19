"""Chooses how an iteration is measured.

With torch's profiler where that is known to be safe, and by timing modules everywhere else.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any, Protocol

from litd import gpu, stacks
from litd.modules import ModuleMeasure
from litd.profiler import ProfilerError, ProfilerMeasure
from litd.wire import Kind, Notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from litd.link import Pending

log = logging.getLogger("litd")

WATCH_SECONDS = 5.0
"""So often is looked what other processes have found out."""


class Measure(Protocol):
    """A way to measure one iteration. All but collecting is done by the training thread."""

    name: str

    def begin(self) -> bool:
        """Begins; false if that is not possible now."""

    def end(self, iteration: int) -> Pending | None:
        """Ends; what was measured is collected later."""

    def abort(self) -> None:
        """Stops, whatever was measured."""

    def close(self) -> None:
        """Ends for good."""


class Measures:
    """The ways to measure that this process has, and which of them is for the next iteration.

    `LITD_PROFILER` says whether the profiler is used: `auto` by the allow-list, `off` never, `on`
    as if the stack were on the list.
    """

    def __init__(self, torch: Any, index: int) -> None:
        self.modules: Measure = ModuleMeasure(torch, gpu.TorchClock(torch, index))
        self.profiler: ProfilerMeasure | None = None
        self.canary: stacks.Canary | None = None
        self._torch = torch
        self._index = index
        self._record: stacks.NodeRecord | None = None
        self._looked_at = 0.0
        self.tell: Callable[[Notice], None] = lambda _notice: None
        """Tells litd something."""

    # For the link's thread.

    def prepare(self, job: str) -> None:
        """Finds out whether the profiler may be used. Asks the file system."""
        wish = os.environ.get("LITD_PROFILER", "auto")
        stack = stacks.of(self._torch)
        if wish == "off" or (wish != "on" and not stack.is_allowed()):
            return
        directory = stacks.runtime_directory()
        if directory is None:
            log.info("the profiler is not used: there is no folder to keep in what it does")
            return
        record = stacks.NodeRecord(directory, stack, job)
        verdict = record.enter()
        log.info("the profiler on this node: %s %s", verdict.state, verdict.reason)
        if verdict.state in ("taken", "off"):
            return
        self._record = record
        self.canary = stacks.Canary() if verdict.state == "canary" else None
        self.profiler = ProfilerMeasure(self._torch, self._index)

    def watch(self) -> None:
        """Judges the canary, and looks what other processes have found. Called now and then."""
        record, canary = self._record, self.canary
        if record is None:
            return
        now = time.monotonic()
        verdict = canary.verdict(now) if canary is not None else None
        if verdict is not None:
            self.canary = None
            record.profiling(is_on=False)
            if verdict.state == "off":
                self._turn_off(verdict.reason)
            else:
                record.settle("passed")
        elif now > self._looked_at + WATCH_SECONDS:
            self._looked_at = now
            known = record.look()
            if known is not None and known.state == "off":
                self._turn_off(known.reason)

    # For the training thread.

    def choose(self) -> Measure | None:
        """How the next iteration is measured; `None`: not at all."""
        if self.profiler is None:
            return self.modules
        if self.canary is None:
            return self.profiler
        if self.canary.is_ready():
            if self._record is not None:
                self._record.profiling(is_on=True)
            self.canary.profiled(time.monotonic())
            return self.profiler
        # Around its one profiled iteration the canary is to be compared with itself.
        return None if self.canary.has_profiled() else self.modules

    def step(self, seconds: float, *, measured: bool) -> None:
        """An iteration has ended."""
        if self.canary is not None:
            self.canary.step(seconds, time.monotonic(), measured=measured)

    def failed(self, error: Exception) -> None:
        """A way to measure has failed. The profiler is not given a second chance."""
        if isinstance(error, ProfilerError):
            self._turn_off(str(error))
        else:
            log.debug("measuring failed", exc_info=error)

    def close(self) -> None:
        """Ends for good."""
        self.modules.close()
        if self.profiler is not None:
            self.profiler.close()
        if self._record is not None:
            self._record.leave()
            self._record = None

    def _turn_off(self, reason: str) -> None:
        profiler, self.profiler = self.profiler, None
        self.canary = None
        if profiler is None:
            return
        log.warning("the profiler is not used any more, modules are timed instead: %s", reason)
        self.tell(Notice(Kind.PROFILING_OFF, f"the profiler is off for this stack: {reason}"[:500]))
        if self._record is not None:
            self._record.profiling(is_on=False)
            self._record.settle("off", reason)
        profiler.close()
