"""How long the hook keeps the training thread outside a profiled iteration, beside the limit.

    python benchmarks/step.py

Thousands of steps with each kind of daemon, in a process of its own: none, a good one, one that
reads nothing, one that talks garbage, one that comes and goes. Each step's time in the training
thread is measured, of which the limit is 1 ms. On a busy machine the operating system takes the
thread away now and then, with or without the hook: so the peer is a function that computes for as
long as a step takes.
"""

from __future__ import annotations

import contextlib
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from litd.hook import Hook
from litd.patience import Patience
from tests import standin
from tests.standin import StandIn, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEPS = 5_000
PAUSE = 0.0005
LIMIT_US = 1000.0

KINDS = (
    "no daemon",
    "a directory for a socket",
    "a daemon",
    "one that reads nothing",
    "one that talks garbage",
    "one that comes and goes",
)

PLACE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}


def serve(kind: str, path: Path) -> None:
    """Plays a daemon until its process is ended."""
    if kind == "one that comes and goes":
        while True:
            with StandIn(path, standin.welcome()):
                time.sleep(0.1)
    garbage = b"\x07" * 999 if kind == "one that talks garbage" else standin.welcome()
    with StandIn(path, garbage, reads=kind != "one that reads nothing"):
        time.sleep(3600)


@contextlib.contextmanager
def daemon(kind: str, path: Path) -> Iterator[None]:
    """A daemon of this kind, in a process of its own; none for the first two kinds."""
    if kind in KINDS[:2]:
        yield
        return
    process = subprocess.Popen([sys.executable, __file__, kind, str(path)])
    try:
        wait_for("daemon", path.exists)
        yield
    finally:
        process.kill()
        process.wait()


def busy(microseconds: float) -> None:
    """Computes for so long."""
    end = time.perf_counter_ns() + 1e3 * microseconds
    while time.perf_counter_ns() < end:
        pass


def timed(step: Callable[[], None]) -> list[float]:
    """Microseconds of each step, sorted."""
    taken = []
    for _ in range(STEPS):
        began = time.perf_counter_ns()
        step()
        taken.append((time.perf_counter_ns() - began) / 1e3)
        time.sleep(PAUSE)
    return sorted(taken)


def row(name: str, taken: list[float]) -> float:
    """Prints a row; the 99.9th percentile."""
    median, tail, most = taken[STEPS // 2], taken[-STEPS // 1000], taken[-1]
    print(f"  {name:26}{median:9.1f}{tail:11.1f}{most:11.1f}")
    return tail


def main() -> int:
    """Prints a table; 1 if a tail is above the limit, and above what it is without the hook."""
    logging.disable()
    print(f"{STEPS:,} steps each; microseconds of the training thread, limit {LIMIT_US:.0f}")
    print(f"  {'':26}{'median':>9}{'p99.9':>11}{'longest':>11}")
    tails, medians = [], []
    with tempfile.TemporaryDirectory() as folder, standin.environment(**PLACE):
        for number, kind in enumerate(KINDS):
            path = Path(folder) / str(number)
            if number == 1:
                path.mkdir()
            with daemon(kind, path):
                hook = Hook(
                    gpu_address="0000:05:00.0",
                    socket=str(path),
                    patience=Patience(0.02, 0.1),
                    steps_by_hand=True,
                )
                taken = timed(hook.step)
                hook.close()
            tails.append(row(kind, taken))
            medians.append(taken[STEPS // 2])
    length = statistics.median(medians)
    peer = row("without the hook, as long", timed(lambda: busy(length)))
    return int(max(tails) > max(LIMIT_US, 2 * peer))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1], Path(sys.argv[2]))
    else:
        sys.exit(main())
