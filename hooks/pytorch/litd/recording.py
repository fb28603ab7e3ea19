"""Writes a few iterations as Kineto files, one per rank, for `litctl analyze`.

No daemon is needed for this, and no word is said to one.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
from pathlib import Path
from typing import Any

from litd import gpu, place
from litd.scope import OVER, Scope
from litd.steps import StepCounter

log = logging.getLogger("litd")


class Recorder(Scope):
    """Records iterations by torch's profiler. Made by `litd.record`."""

    def __init__(
        self, directory: str | Path, optimizer: Any = None, *, skip: int = 10, iterations: int = 3
    ) -> None:
        # The iteration before the first one warms the profiler up.
        if skip < 2 or iterations < 1:
            raise ValueError("skip must be at least 2, iterations at least 1")
        self.path: Path | None = None
        """The file, once it is written."""
        self._pid = os.getpid()
        self._directory = Path(directory)
        self._first, self._end = skip, skip + iterations
        self._steps = 0
        self._profile: Any = None
        self._is_over = False
        self._torch: Any = importlib.import_module("torch")
        self._counter = StepCounter(lambda _optimizer: self.step())
        if not self._counter.follow(self._torch, optimizer):
            log.warning("litd.record can't see the steps: call step() after each iteration")
        atexit.register(self.close)

    def step(self) -> None:
        """Tells that an iteration is over, where no optimizer tells it. Never raises."""
        if self._is_over or self._pid != os.getpid():
            return
        try:
            self._step()
        except Exception:
            log.warning("recording has failed; training goes on", exc_info=True)
            self._end_quietly()

    def close(self, reason: str = OVER) -> None:
        """Ends; says so if not all iterations have been recorded. Never raises."""
        if self._is_over or self._pid != os.getpid():
            return
        recorded = max(0, self._steps - self._first)
        log.warning(
            "recording has ended early (%s): %d of %d iterations; %s",
            reason,
            recorded,
            self._end - self._first,
            "they are written" if recorded else f"training did not get to iteration {self._first}",
        )
        try:
            if recorded:
                self._write()
        except Exception:
            log.warning("recording has failed", exc_info=True)
        self._end_quietly()

    def _step(self) -> None:
        self._steps += 1
        if self._steps == self._first - 1:
            self._begin()
        elif self._profile is not None:
            # The mark of the next iteration; the last one gets none.
            if self._steps < self._end:
                self._profile.step()
            else:
                self._write()
                self._end_quietly()

    def _begin(self) -> None:
        """Host activity, too: it marks iterations, and tells what collectives are."""
        profiler = self._torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if gpu.in_use(self._torch):
            activities.append(profiler.ProfilerActivity.CUDA)
        else:
            log.warning("no GPU is in use: the recording will hold no kernels to analyze")
        profile = profiler.profile(
            activities=activities,
            schedule=profiler.schedule(wait=0, warmup=1, active=self._end),
        )
        profile.start()
        self._profile = profile

    def _write(self) -> None:
        profile, self._profile = self._profile, None
        profile.stop()
        self._directory.mkdir(parents=True, exist_ok=True)
        found = place.find(self._torch)
        path = self._directory / f"rank{found.rank if found else 0}.json.gz"
        profile.export_chrome_trace(str(path))
        self.path = path
        log.info("recorded %s", path)

    def _end_quietly(self) -> None:
        self._is_over = True
        self._counter.stop()
        atexit.unregister(self.close)
        profile, self._profile = self._profile, None
        if profile is not None:
            try:
                profile.stop()
            except Exception:
                log.debug("the profiler did not end", exc_info=True)
