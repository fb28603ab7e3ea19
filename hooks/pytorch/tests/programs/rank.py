"""One rank of a job on a simulated node, without torch: the real hook with raw profiler events.

    rank.py GPU TRAIN-SOCKET INGEST-SOCKET

The GPU's kernels come from `litd-rig-train`, or from a recorded trace. Reads commands, a line each,
and answers each with a line:

    run N      N iterations of the simulated job
    play FILE  one iteration that was recorded
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.modules["torch"] = None  # type: ignore[assignment]

from litd import hook as hooks
from litd import profiler
from litd.hook import Hook
from litd.patience import Patience
from litd.profiler import ProfilerMeasure
from tests.programs.ways import Ways
from tests.standin import NewEvent, OldEvent, Profile, recorded, wait_for

PLAYED = 60
"""The iteration that is played: the same one on all ranks."""


class Rank:
    """A rank: its GPU, its hook, and a clock that its iterations move."""

    def __init__(self, gpu: int, train: str, ingest: str) -> None:
        self.gpu = gpu
        self.now = 0
        self.events: list[Any] = []
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(train)
        self.node = stream.makefile("rw", encoding="utf-8")
        assert self.ask(f"hold {gpu} {os.getpid()}") == "ok"
        # A simulated iteration lasts as long as the node says, not as long as it takes here.
        clock: Any = SimpleNamespace(perf_counter_ns=lambda: self.now)
        hooks.time = profiler.time = clock  # type: ignore[attr-defined]
        # Some with a new torch, some with an old one, which has microseconds only.
        self.event = OldEvent if gpu == 3 else NewEvent
        measure = ProfilerMeasure(SimpleNamespace(), make=lambda _: Profile(self.take))
        self.hook = Hook(
            gpu_address=f"0000:{5 + 16 * gpu:02x}:00.0",
            socket=ingest,
            ways=Ways(measure),
            patience=Patience(0.05, 0.2),
        )
        self.hook.step()
        wait_for("welcome", lambda: self.hook.is_connected)

    def ask(self, line: str) -> str:
        self.node.write(line + "\n")
        self.node.flush()
        answer = self.node.readline().strip()
        assert answer, "the simulated node is gone"
        return answer

    def take(self) -> list[Any]:
        events, self.events = self.events, []
        return events

    def run(self, iterations: int) -> None:
        for _ in range(iterations):
            measured = self.hook._measuring is not None
            told = json.loads(self.ask("step profiled" if measured else "step"))
            self.now += told["length_ns"]
            self.events = [
                self.event(name, start, duration, stream=stream)
                for name, stream, start, duration in told["kernels"]
            ]
            self.events.append(NewEvent("cudaLaunchKernel", 1, 1, device_type=0))
            if self.event is OldEvent:
                self.events.pop()
            self.hook.step()

    def play(self, file: str) -> None:
        link = self.hook._link
        assert link is not None
        wait_for("directive", lambda: link.directive.profiles(PLAYED))
        while self.hook.iteration < PLAYED:
            self.now += 1_000_000
            self.hook.step()
        self.events = recorded(Path(file), NewEvent)
        self.now += 10_000_000
        assert self.hook._measuring is not None
        self.hook.step()


def main() -> None:
    gpu, train, ingest = sys.argv[1:]
    rank = Rank(int(gpu), train, ingest)
    print("ready", flush=True)
    for line in sys.stdin:
        what, value = line.split(maxsplit=1)
        if what == "run":
            rank.run(int(value))
        else:
            rank.play(value.strip())
        print("done", flush=True)
        time.sleep(0)
    rank.hook.close()


if __name__ == "__main__":
    main()
