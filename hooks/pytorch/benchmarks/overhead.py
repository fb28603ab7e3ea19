"""What the hook costs a real training loop on a real GPU. Says SKIPPED where there is none.

    LITD_RUNTIME_DIR=/tmp/litd-bench python benchmarks/overhead.py [--layers 8] [--steps 300]

A small Llama trains on one GPU, as it is and with its step captured into a CUDA graph, with each
way to measure. Parts of the run, interleaved so that heat is the same for all:

    bare         without the hook
    unprofiled   with the hook, iterations that are not measured     limit: +0.1 %
    measured     the measured iterations themselves
    after        unprofiled ones after the last measured one          limit: +0.1 %
    period 10    all iterations, one in ten measured
    converged    all iterations, one in a thousand measured

Each is the median, and for the last two the mean, of iterations timed by the host between device
synchronisations; the interval is of the difference to `bare`, by bootstrap over blocks. The kernels
that the hook has sent are compared with those of an exported trace of the same iteration. No
setting of the GPU is read or changed.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from litd.gpu import TorchClock
from litd.kernels import Columns, NameTable, extract
from litd.modules import ModuleMeasure
from litd.profiler import ProfilerMeasure

if TYPE_CHECKING:
    from collections.abc import Callable

    from litd.measures import Measure

LIMIT_PERCENT = 0.1
BLOCK = 25


def skipped(why: str) -> int:
    """Nothing can be measured here."""
    print(f"SKIPPED: {why}")
    return 0


def loop(torch: Any, layers: int, *, graphed: bool) -> Callable[[], None]:
    """One training step of a small Llama, captured into a CUDA graph or not."""
    example = importlib.import_module("examples.llama_fsdp2")
    torch.manual_seed(0)
    shape = example.Shape(dim=1024, layers=layers, heads=16, vocabulary=8192, context=1024)
    model = example.Llama(shape).cuda().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), capturable=graphed)
    tokens = torch.randint(0, shape.vocabulary, (4, shape.context), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        logits = model(tokens).flatten(0, 1).float()
        torch.nn.functional.cross_entropy(logits, tokens.flatten()).backward()
        optimizer.step()

    if not graphed:
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Callable[[], None] = graph.replay
    return replay


class Timed:
    """Runs iterations and says how long each took, in seconds."""

    def __init__(self, torch: Any, step: Callable[[], None], measure: Any) -> None:
        self._torch, self._step, self._measure = torch, step, measure
        self._names = NameTable()
        self.kernels = 0

    def run(self, count: int, period: int = 0) -> tuple[list[float], list[float]]:
        """Iterations that were not measured, and those that were: each `period`-th."""
        plain: list[float] = []
        measured: list[float] = []
        for at in range(count):
            wanted = period > 0 and at % period == period - 1
            self._torch.cuda.synchronize()
            began = time.perf_counter()
            if wanted:
                self._measure.begin()
            self._step()
            pending = self._measure.end(at) if wanted else None
            self._torch.cuda.synchronize()
            (measured if wanted else plain).append(time.perf_counter() - began)
            if pending is not None:
                columns = pending.collect(self._names, lambda: True)
                self.kernels = len(columns) if columns is not None else 0
        return plain, measured


def interval(these: list[float], those: list[float]) -> tuple[float, float]:
    """95 % of the relative difference of medians in percent, over blocks."""
    chance = random.Random(1)

    def blocks(values: list[float]) -> list[list[float]]:
        return [values[at : at + BLOCK] for at in range(0, len(values), BLOCK)]

    def median(parts: list[list[float]]) -> float:
        drawn = [chance.choice(parts) for _ in parts]
        return statistics.median(value for part in drawn for value in part)

    one, other = blocks(these), blocks(those)
    ratios = sorted(100 * (median(one) / median(other) - 1) for _ in range(1000))
    return ratios[25], ratios[974]


def same_kernels(torch: Any, step: Callable[[], None]) -> str:
    """Compares what the hook reads from raw events with the exported trace of that iteration."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    events = list(profile.profiler.kineto_results.events())
    columns = extract(events, NameTable()) or Columns()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        profile.export_chrome_trace(str(path))
        document = json.loads(gzip.decompress(path.read_bytes()))
    wanted = ("kernel", "gpu_memcpy", "gpu_memset")
    exported = [one for one in document["traceEvents"] if one.get("cat") in wanted]
    # Microseconds with decimals: to the nanosecond.
    theirs = sorted(round(1e3 * one["dur"]) for one in exported)
    ours = sorted(columns.duration_ns)
    if len(ours) != len(theirs):
        return f"NOT EQUAL: {len(ours)} kernels read, {len(theirs)} exported"
    apart = max((abs(a - b) for a, b in zip(ours, theirs, strict=True)), default=0)
    return f"{len(ours)} kernels read, as many exported; durations at most {apart} ns apart"


def main() -> int:
    """Prints a table; 1 if a limit is broken for certain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300, help="of each part, in each round")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return skipped("no torch")
    if not torch.cuda.is_available():
        return skipped("no GPU that torch can use")
    os.environ.setdefault("LITD_SOCKET", "/nonexistent")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    broken = False
    for graphed in (False, True):
        step = loop(torch, options.layers, graphed=graphed)
        print(f"{'with' if graphed else 'without'} CUDA graphs: {same_kernels(torch, step)}")
        measures: dict[str, Measure] = {
            "modules": ModuleMeasure(torch, TorchClock(torch, torch.cuda.current_device())),
            "profiler": ProfilerMeasure(torch, torch.cuda.current_device()),
        }
        for name, measure in measures.items():
            broken |= part(Timed(torch, step, measure), name, options)
            measure.close()
    return int(broken)


def part(timed: Timed, name: str, options: argparse.Namespace) -> bool:
    """One way to measure."""
    bare: list[float] = []
    found: dict[str, list[float]] = {
        label: [] for label in ("unprofiled", "measured", "after", "period 10", "converged")
    }
    timed.run(50)
    for _ in range(options.rounds):
        bare += timed.run(options.steps)[0]
        plain, measured = timed.run(options.steps, 10)
        found["unprofiled"] += plain
        found["measured"] += measured
        found["period 10"] += [*plain, *measured]
        found["after"] += timed.run(options.steps)[0]
        plain, measured = timed.run(1000, 1000)
        found["converged"] += [*plain, *measured]
    base = statistics.median(bare)
    print(f"  {name}, {timed.kernels} kernels or pieces: bare {1e3 * base:.3f} ms")
    broken = False
    for label, values in found.items():
        averaged = label in ("period 10", "converged")
        value = (statistics.fmean if averaged else statistics.median)(values)
        reference = statistics.fmean(bare) if averaged else base
        low, high = interval(values, bare)
        limited = label in ("unprofiled", "after")
        limit = f"  limit +{LIMIT_PERCENT} %" if limited else ""
        percent = 100 * (value / reference - 1)
        print(f"    {label:11} {percent:+7.2f} %  (medians {low:+.2f} to {high:+.2f} %){limit}")
        broken |= limited and low > LIMIT_PERCENT
    return broken


if __name__ == "__main__":
    sys.exit(main())
