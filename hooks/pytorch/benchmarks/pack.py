"""How long a sample of 100,000 kernels is packed, and how large it is, beside the limits.

    python benchmarks/pack.py

The kernels are like a training iteration's: 400 names, two streams, gaps and durations of
microseconds to milliseconds. Time is that of one core; the pauses in which the training thread may
run are none of it. What lies between two pauses may keep the training thread from running.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from litd import columns, kernels, wire
from litd.groups import Reach
from litd.kernels import Columns, Expectation, NameTable, extract
from litd.profiler import ProfiledEvents
from tests.standin import NewEvent

KERNELS = 100_000
RUNS = 7
LIMIT_MS = 100
LIMIT_BYTES = 24
LIMIT_PAUSE_MS = 1


def events() -> list[Any]:
    """Raw events in the order of their starts."""
    chance = random.Random(1)
    names = [f"void at::native::elementwise_kernel<{number}>" for number in range(400)]
    now = time.time_ns()
    made = []
    for _ in range(KERNELS):
        now += int(chance.lognormvariate(9, 1))
        stream = 20 if chance.random() < 0.1 else 7
        duration = int(chance.lognormvariate(10, 1.2))
        made.append(NewEvent(chance.choice(names), now, duration, stream=stream))
    return made


class Pauses:
    """Python's time module, which notes how long a thread computes between two pauses."""

    def __init__(self) -> None:
        self.spans: list[float] = []
        self._since = time.thread_time()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, _seconds: float) -> None:
        """A pause."""
        self.spans.append(1e3 * (time.thread_time() - self._since))
        time.sleep(0)
        self._since = time.thread_time()


def between_pauses(made: list[Any]) -> tuple[float, float]:
    """Milliseconds between two pauses from raw events to a frame: in 99 of 100 cases, and at most.

    Of three runs each the best one counts, since an interrupt is nobody's fault.
    """
    best = (float("inf"), float("inf"))
    for _ in range(3):
        pauses: Any = Pauses()
        pending = ProfiledEvents(
            iteration=1, events=list(made), expected=Expectation(), reach=Reach((3,), (5,))
        )
        modules: tuple[Any, ...] = (kernels, columns)
        for module in modules:
            module.time = pauses
        try:
            found = pending.collect(names := NameTable(), lambda: True) or Columns()
            wire.frame(found.message(1, 10**9, names.since(0)).encode())
            pauses.sleep(0)
        finally:
            for module in modules:
                module.time = time
        spans = sorted(pauses.spans)
        best = min(best[0], spans[len(spans) * 99 // 100]), min(best[1], spans[-1])
    return best


def main() -> int:
    """Prints the figures; 1 if one is above its limit."""
    names = NameTable()
    extracting, packing, sizes = [], [], []
    made = events()
    for _ in range(RUNS):
        given = list(made)
        began = time.thread_time()
        found = extract(given, names)
        extracting.append((time.thread_time() - began) * 1e3)
        assert found is not None
        message = found.message(1, 10**9, names.since(0))
        began = time.thread_time()
        frame = wire.frame(message.encode())
        packing.append((time.thread_time() - began) * 1e3)
        sizes.append(len(frame) / KERNELS)
    milliseconds, size = statistics.median(packing), statistics.median(sizes)
    print(f"{KERNELS:,} kernels, median of {RUNS}:")
    print(f"  packing     {milliseconds:6.1f} ms of one core    limit {LIMIT_MS} ms")
    print(f"  on the wire {size:6.1f} bytes per kernel  limit {LIMIT_BYTES} bytes")
    tail, most = between_pauses(made)
    print(f"  between two pauses {tail:.2f} ms in 99 % of cases, at most {most:.2f} ms; limit 1 ms")
    print(f"  (reading raw events from stand-ins written in Python: {min(extracting):.0f} ms)")
    return int(milliseconds > LIMIT_MS or size > LIMIT_BYTES or tail > LIMIT_PAUSE_MS)


if __name__ == "__main__":
    sys.exit(main())
