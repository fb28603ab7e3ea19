"""Chooses how an iteration is measured.

With torch's profiler unless something speaks against it, and otherwise by timing modules. These
speak against it: the user (`LITD_PROFILER=off`), the administrator or what litd remembers (its
welcome), the list of denied stacks, another profiler in this process, and what the guards find.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from litd import denied, gpu, others, stacks
from litd.groups import Groups
from litd.kernels import Loss
from litd.modules import ModuleMeasure
from litd.profiler import ProfilerError, ProfilerMeasure
from litd.slowdown import Slowdown
from litd.stacks import State
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

GOOD = 20
"""After so many samples in a row without a loss a stack is good."""

LOSSES = 5
"""So many losses among the last `GOOD` samples: this job's kernels can't be had."""

EMPTY = 3
"""So many samples in a row without any kernel: the profiler sees nothing on this stack."""


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

    `LITD_PROFILER` says whether the profiler is used: `auto` (the default) unless something speaks
    against it, `off` never, `on` also on a denied stack and beside other profilers.
    """

    def __init__(self, torch: Any, index: int) -> None:
        self.modules: Measure = ModuleMeasure(torch, gpu.TorchClock(torch, index))
        self.profiler: ProfilerMeasure | None = None
        self.canary: stacks.Canary | None = None
        self._torch = torch
        self._index = index
        self._wish = "auto"
        self._record: stacks.NodeRecord | None = None
        self._looked_at = 0.0
        self._slowdown = Slowdown()
        self._unmeasured = 0
        self._chose_profiler = False
        self._whole = 0
        self._losses: deque[Loss] = deque(maxlen=GOOD)
        self.tell: Callable[[Notice], None] = lambda _notice: None
        """Tells litd something."""

    # For the link's thread.

    def prepare(self, job: str, at: Place) -> dict[str, str]:
        """Finds out whether the profiler may be used. Asks the file system.

        If so litd is told by what library: it may know more.
        """
        self._wish = os.environ.get("LITD_PROFILER", "auto")
        try:
            return self._prepare(job, at)
        except OSError as error:
            # Nobody would know of a process that dies of it.
            log.info(
                "the profiler is not used, because its result could not be saved on this node: %s",
                error,
            )
            return {}

    def _prepare(self, job: str, at: Place) -> dict[str, str]:
        stack = stacks.of(self._torch)
        if why := self._why_not(stack):
            log.info("the profiler is not used: %s", why)
            return {}
        directory = stacks.runtime_directory()
        if directory is None:
            log.info("the profiler is not used, because there is no folder to save its result in")
            return {}
        record = stacks.NodeRecord(directory, stack, job)
        verdict = record.enter()
        log.info("the profiler on this node: %s %s", verdict.state.value, verdict.reason)
        told = {"profiler": stack.profiler}
        if verdict.state is State.OFF:
            # litd outlives what this node's temporary folders know, and serves other users.
            self._tell_off(verdict.reason)
            return told
        if verdict.state in (State.TAKEN, State.MODULES):
            return {}
        self._record = record
        self.canary = stacks.Canary() if verdict.state is State.CANARY else None
        several = at.world_size > at.local_world_size
        groups = Groups(self._torch, at) if several else None
        self.profiler = ProfilerMeasure(
            self._torch, self._index, groups=groups, told=self._collected
        )
        return told

    def _why_not(self, stack: stacks.Stack) -> str:
        """What speaks against the profiler before it was ever used here."""
        if self._wish == "off":
            return "LITD_PROFILER is off"
        if self._wish == "on":
            return ""
        if not stack.is_known:
            return "torch reports neither CUDA nor ROCm"
        return denied.why(stack) or others.why()

    def welcomed(self, welcome: Welcome) -> None:
        """What other users' jobs, and earlier boots, have found out: litd remembers it."""
        record = self._record
        if record is None:
            return
        if welcome.profiling is Profiling.OFF:
            self._turn_off(welcome.profiling_reason or "litd says so", known=True)
        elif welcome.profiling is Profiling.WAIT:
            self._leave_it(welcome.profiling_reason)
        elif welcome.profiling is Profiling.SAFE:
            self.canary = None
            self._unmark()
            self._settle(State.PASSED)
        elif welcome.profiling is Profiling.TRY and self.canary is None and self.profiler:
            self._tell_safe("it was tried since this node booted", self._whole)

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
            self._unmark()
            if verdict.state is State.OFF:
                self._turn_off(verdict.reason)
            else:
                self._settle(State.PASSED)
                self._tell_safe(f"iterations took as long as before, {self._how_sure()}")
        elif now > self._looked_at + WATCH_SECONDS:
            self._looked_at = now
            self._look(record)

    def _look(self, record: stacks.NodeRecord) -> None:
        """What other processes, and other profilers in this one, have done meanwhile."""
        other = others.soon() if self._wish != "on" else ""
        if other:
            self._leave_it(other)
            return
        known = None
        with contextlib.suppress(OSError):
            known = record.look()
        if known is None:
            return
        if known.state is State.OFF:
            self._turn_off(known.reason)
        elif known.state is State.MODULES:
            self._leave_it(known.reason)

    def _collected(self, loss: Loss, why: str) -> None:
        """Counts what a profiled iteration has lost, once it is collected."""
        record = self._record
        if self.profiler is None or record is None:
            return
        self._losses.append(loss)
        self._whole = self._whole + 1 if loss is Loss.NOTHING else 0
        lost = sum(one is not Loss.NOTHING for one in self._losses)
        if list(self._losses)[-EMPTY:] == EMPTY * [Loss.ALL]:
            # Whoever has the profiler's events has them as long as he runs.
            if other := others.why():
                self._leave_it(other, job=True)
            else:
                self._turn_off(f"it has seen no kernel in {EMPTY} iterations")
        elif loss is Loss.UNTAKEN or lost >= LOSSES:
            self._leave_it(why, job=True)
        elif self._whole == GOOD and self.canary is None:
            self._settle(State.GOOD)
            self._tell_safe(f"it has lost nothing in {GOOD} iterations", GOOD)

    # For the training thread.

    def choose(self) -> Measure | None:
        """How the next iteration is measured; `None`: not at all."""
        # The link's thread may take them away meanwhile.
        profiler, canary, record = self.profiler, self.canary, self._record
        if profiler is None or record is None:
            return self.modules
        if canary is None:
            if self._unmeasured < BASELINE:
                return self.modules
        elif not canary.is_ready():
            # Around its one profiled iteration the canary is to be compared with itself.
            return None if canary.has_profiled() else self.modules
        try:
            record.begin()
        except OSError as error:
            log.debug("the profiler is not used now: it can't be marked", exc_info=error)
            return self.modules
        if self._record is not record:
            # It was taken away meanwhile, and nobody would take this mark away.
            record.end()
            return self.modules
        if canary is not None:
            canary.profiled(time.monotonic())
        self._chose_profiler = True
        return profiler

    def step(self, seconds: float, *, measured: bool) -> None:
        """An iteration has ended."""
        chosen, self._chose_profiler = self._chose_profiler, False
        profiled = measured and chosen
        self._unmeasured += not measured
        if self.profiler is not None:
            self._slowdown.step(seconds, profiled=profiled, measured=measured)
        canary = self.canary
        if canary is not None:
            canary.step(seconds, time.monotonic(), measured=measured)
        elif chosen:
            # The canary's mark stays until its verdict: it may also die a little later.
            self._unmark()

    def failed(self, error: Exception) -> None:
        """A way to measure has failed. The profiler is not given a second chance."""
        if not isinstance(error, ProfilerError):
            log.debug("measuring failed", exc_info=error)
        elif self._wish != "on" and (other := others.why()):
            self._leave_it(f"{error}; {other}", job=True)
        else:
            self._turn_off(str(error))

    def close(self) -> None:
        """Ends for good."""
        self.modules.close()
        if self.profiler is not None:
            self.profiler.close()
        record, self._record = self._record, None
        if record is not None:
            with contextlib.suppress(OSError):
                record.leave()

    def _how_sure(self) -> str:
        """What the last comparison could have told from chance."""
        last = self._slowdown.last
        if last is None:
            return "but there were too few to tell by how much"
        return f"or less than {last.resolution:.2g} % longer, which can't be told from chance"

    def _leave_it(self, why: str, *, job: bool = False) -> None:
        """Times modules from now on: nothing speaks against the stack itself.

        In all ranks of the `job`, if they are to be told: kernels are compared with kernels.
        """
        profiler, self.profiler = self.profiler, None
        record, self._record = self._record, None
        self.canary = None
        log.info("the profiler is not used, modules are timed instead: %s", why)
        if record is not None:
            with contextlib.suppress(OSError):
                if job:
                    record.time_modules(why)
                record.leave()
        if job:
            self.tell(Notice(Kind.UNSPECIFIED, f"modules are timed: {why}"[:500]))
        if profiler is not None:
            profiler.close()

    def _turn_off(self, reason: str, *, known: bool = False) -> None:
        """The profiler has done harm, or what counts as such: nobody is to use it on this stack."""
        profiler, self.profiler = self.profiler, None
        self.canary = None
        if profiler is None:
            return
        log.warning("the profiler is not used any more, modules are timed instead: %s", reason)
        if not known:
            self._tell_off(reason)
        self._unmark()
        self._settle(State.OFF, reason)
        profiler.close()

    def _settle(self, state: State, reason: str = "") -> None:
        if self._record is not None:
            with contextlib.suppress(OSError):
                self._record.settle(state, reason)

    def _unmark(self) -> None:
        if self._record is not None:
            with contextlib.suppress(OSError):
                self._record.end()

    def _tell_off(self, reason: str) -> None:
        self.tell(Notice(Kind.PROFILING_OFF, f"the profiler is off for this stack: {reason}"[:500]))

    def _tell_safe(self, reason: str, samples: int = 0) -> None:
        text = f"the profiler does no harm here: {reason}"[:500]
        self.tell(Notice(Kind.PROFILING_SAFE, text, samples))
