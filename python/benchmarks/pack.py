"""How long a sample of 100,000 kernels is packed, and how large it is, beside the limits.

    python benchmarks/pack.py

The kernels are like a training iteration's: 400 names, two streams, gaps and durations of
microseconds to milliseconds. Time is that of one core; the pauses in which the training thread may
run are none of it.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from litd import wire
from litd.kernels import NameTable, extract
from tests.standin import NewEvent

KERNELS = 100_000
RUNS = 7
LIMIT_MS = 100
LIMIT_BYTES = 24


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


def main() -> int:
    """Prints both figures; 1 if one is above its limit."""
    names = NameTable()
    extracting, packing, sizes = [], [], []
    made = events()
    for _ in range(RUNS):
        given = list(made)
        began = time.thread_time()
        columns = extract(given, names)
        extracting.append((time.thread_time() - began) * 1e3)
        assert columns is not None
        message = columns.message(1, 10**9, names.since(0))
        began = time.thread_time()
        frame = wire.frame(message.encode())
        packing.append((time.thread_time() - began) * 1e3)
        sizes.append(len(frame) / KERNELS)
    milliseconds, size = statistics.median(packing), statistics.median(sizes)
    print(f"{KERNELS:,} kernels, median of {RUNS}:")
    print(f"  packing     {milliseconds:6.1f} ms of one core    limit {LIMIT_MS} ms")
    print(f"  on the wire {size:6.1f} bytes per kernel  limit {LIMIT_BYTES} bytes")
    print(f"  (reading raw events from stand-ins written in Python: {min(extracting):.0f} ms)")
    return int(milliseconds > LIMIT_MS or size > LIMIT_BYTES)


if __name__ == "__main__":
    sys.exit(main())
