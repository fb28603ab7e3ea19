"""Chooses how an iteration is measured.

With torch's profiler where that is known to be safe, and by timing modules everywhere else.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any, Protocol

from litd import gpu, stacks
from litd.groups import Groups
from litd.modules import ModuleMeasure
from litd.profiler import ProfilerError, ProfilerMeasure
from litd.slowdown import Slowdown
from litd.wire import Kind, Notice, Profiling, Welcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from litd.link import Pending
    from litd.place import Place

log = logging.getLogger("litd")

WATCH_SECONDS = 5.0
"""So often is looked what other processes have found out."""

BASELINE = 50
"""Iterations of a job that nothing has measured come before its first profiled one, to compare."""

PAUSE = 50e-6
"""So long the training thread may have Python's lock between two comparisons, in seconds."""


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
        self._slowdown = Slowdown()
        self._unmeasured = 0
        self._chose_profiler = False
        self.tell: Callable[[Notice], None] = lambda _notice: None
        """Tells litd something."""

    # For the link's thread.

    def prepare(self, job: str, at: Place) -> dict[str, str]:
        """Finds out whether the profiler may be used. Asks the file system.

        If so litd is told by what library: it may know more.
        """
        wish = os.environ.get("LITD_PROFILER", "auto")
        stack = stacks.of(self._torch)
        if wish == "off" or (wish != "on" and not stack.is_allowed()):
            return {}
        directory = stacks.runtime_directory()
        if directory is None:
            log.info("the profiler is not used: there is no folder to keep in what it does")
            return {}
        record = stacks.NodeRecord(directory, stack, job)
        verdict = record.enter()
        log.info("the profiler on this node: %s %s", verdict.state, verdict.reason)
        told = {"profiler": stack.profiler}
        if verdict.state == "off":
            # litd outlives what this node's temporary folders know, and serves other users.
            self._tell_off(verdict.reason)
            return told
        if verdict.state == "taken":
            return {}
        self._record = record
        self.canary = stacks.Canary() if verdict.state == "canary" else None
        several = at.world_size > at.local_world_size
        groups = Groups(self._torch, at) if several else None
        self.profiler = ProfilerMeasure(self._torch, self._index, groups=groups)
        return told

    def welcomed(self, welcome: Welcome) -> None:
        """What other users' jobs, and earlier boots, have found out: litd remembers it."""
        record = self._record
        if record is None:
            return
        if welcome.profiling is Profiling.OFF:
            self._turn_off(welcome.profiling_reason or "litd says so", known=True)
        elif welcome.profiling is Profiling.WAIT:
            log.info("the profiler is not used: %s", welcome.profiling_reason)
            profiler, self.profiler, self.canary = self.profiler, None, None
            self._record = None
            record.leave()
            if profiler is not None:
                profiler.close()
        elif welcome.profiling is Profiling.SAFE:
            self.canary = None
            record.settle("passed")
        elif welcome.profiling is Profiling.TRY and self.canary is None and self.profiler:
            self._tell_safe("it was tried since this node booted")

    def watch(self) -> None:
        """Judges what profiling did, and looks what other processes have found.

        Called now and then.
        """
        record, canary = self._record, self.canary
        if record is None:
            return
        slower = self._slowdown.judge(lambda: time.sleep(PAUSE))
        if slower is not None:
            percent = slower.percent
            self._turn_off(f"iterations stay {percent:.1f} % slower after a profiled one")
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
                self._tell_safe(f"iterations took as long as before, {self._how_sure()}")
        elif now > self._looked_at + WATCH_SECONDS:
            self._looked_at = now
            known = record.look()
            if known is not None and known.state == "off":
                self._turn_off(known.reason)

    # For the training thread.

    def choose(self) -> Measure | None:
        """How the next iteration is measured; `None`: not at all."""
        # The link's thread may take them away meanwhile.
        profiler, canary, record = self.profiler, self.canary, self._record
        if profiler is None:
            return self.modules
        if canary is None:
            self._chose_profiler = self._unmeasured >= BASELINE
            return profiler if self._chose_profiler else self.modules
        if canary.is_ready():
            if record is not None:
                record.profiling(is_on=True)
            canary.profiled(time.monotonic())
            self._chose_profiler = True
            return profiler
        # Around its one profiled iteration the canary is to be compared with itself.
        return None if canary.has_profiled() else self.modules

    def step(self, seconds: float, *, measured: bool) -> None:
        """An iteration has ended."""
        profiled, self._chose_profiler = measured and self._chose_profiler, False
        self._unmeasured += not measured
        if self.profiler is not None:
            self._slowdown.step(seconds, profiled=profiled, measured=measured)
        canary = self.canary
        if canary is not None:
            canary.step(seconds, time.monotonic(), measured=measured)

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

    def _how_sure(self) -> str:
        """What the last comparison could have told from chance."""
        last = self._slowdown.last
        if last is None:
            return "but there were too few to tell by how much"
        return (
            f"or what is less than {last.resolution:.2g} % slower, which can't be told from chance"
        )

    def _turn_off(self, reason: str, *, known: bool = False) -> None:
        profiler, self.profiler = self.profiler, None
        self.canary = None
        if profiler is None:
            return
        log.warning("the profiler is not used any more, modules are timed instead: %s", reason)
        if not known:
            self._tell_off(reason)
        if self._record is not None:
            self._record.profiling(is_on=False)
            self._record.settle("off", reason)
        profiler.close()

    def _tell_off(self, reason: str) -> None:
        self.tell(Notice(Kind.PROFILING_OFF, f"the profiler is off for this stack: {reason}"[:500]))

    def _tell_safe(self, reason: str) -> None:
        self.tell(Notice(Kind.PROFILING_SAFE, f"the profiler does no harm here: {reason}"[:500]))
