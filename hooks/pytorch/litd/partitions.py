"""Measures partitions for `litctl plan kareus`, as Kareus does (section 5.3).

    torchrun --nproc-per-node 8 -m litd.partitions --job job.json --results results.csv

asks `litctl plan candidates` what to measure, executes each candidate at its clock (through litd),
with its SMs and its launch, for 5 s after a cooldown, adds a row to the results, and asks again
until nothing is left. What is in the results already is not measured again. The static
power that `litctl plan kareus` needs is measured first, and printed (footnote 4: a GPU in its state
P0 with nothing to do).

Without GPUs, `--stand-in` runs the same on CPUs with a made-up power: the first line of its file is
SIMULATED.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from litd.blocking import waiting_power
from litd.inference import Meter, NvmlMeter, measure
from litd.ranks import joined, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litd.perseus import SetsClock

MEASURED_S = 5.0
"""Shorter windows vary with the steps of the energy counter (section 6.7)."""

WARM_UP_S = 1.0
"""Executed for so long before a window."""

COOLDOWN_S = 5.0
"""Waited for at least before each candidate."""

LONGEST_COOLDOWN_S = 60.0
"""After so long a GPU that still becomes cooler counts as cool."""

IDLE_S = 10.0
"""Static power is measured for so long."""

LOOK_S = 0.25
"""How often the clock is looked at meanwhile."""

OFF = 0.02
"""A clock that is higher than asked for by more than this part was not set."""

SIMULATED = "# SIMULATED"
"""The first line of results that nobody measured."""

COLUMNS = ("name", "frequency", "sms", "launch", "time", "energy", "clock", "temperature")


class Board(Meter, Protocol):
    """A GPU as far as measuring needs it."""

    def clock_mhz(self) -> float:
        """The SM clock."""

    def temperature_c(self) -> float:
        """The GPU's temperature."""

    def is_ready(self) -> bool:
        """Whether it is in its state P0."""


class NvmlBoard(NvmlMeter):
    """An NVIDIA GPU."""

    def clock_mhz(self) -> float:
        """The SM clock."""
        return self._number("nvmlDeviceGetClockInfo", 1)

    def temperature_c(self) -> float:
        """The GPU's temperature."""
        return self._number("nvmlDeviceGetTemperature", 0)

    def is_ready(self) -> bool:
        """Whether it is in its state P0."""
        return self._number("nvmlDeviceGetPerformanceState") == 0

    def _number(self, name: str, *of: int) -> float:
        found = ctypes.c_uint()
        self._call(name, self._device, *of, ctypes.byref(found))
        return float(found.value)


class StandInBoard:
    """A board whose power is made up: 40 W, and up to 60 W more by the cube of its clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._time = clock
        self._since, self._joules, self._megahertz = clock(), 0.0, 0

    def set_clock(self, megahertz: int) -> None:
        """As litd would; 0 is a GPU with nothing to do."""
        self._joules, self._since = self.joules(), self._time()
        self._megahertz = megahertz

    def joules(self) -> float:
        """All energy until now."""
        watts = 40.0 + 60.0 * (self._megahertz / 1410.0) ** 3
        return self._joules + watts * (self._time() - self._since)

    def limit_w(self) -> float:
        """More than it draws."""
        return 200.0

    def clock_mhz(self) -> float:
        """The clock that was set."""
        return float(self._megahertz)

    def temperature_c(self) -> float:
        """Never warm."""
        return 30.0

    def is_ready(self) -> bool:
        """Always."""
        return True


class Seconds(NamedTuple):
    """How long is measured and waited."""

    measured: float
    warm_up: float
    cooldown: float
    longest_cooldown: float


class Candidate(NamedTuple):
    """A row of `litctl plan candidates`; one of a sequence has neither SMs nor a launch."""

    name: str
    frequency: float
    sms: int | None
    launch: str


def candidates(text: str) -> list[Candidate]:
    """What `litctl plan candidates` prints."""
    return [
        Candidate(
            row["name"],
            float(row["frequency"]),
            int(row["sms"]) if row["sms"] else None,
            row["launch"],
        )
        for row in csv.DictReader(io.StringIO(text))
    ]


def cool(board: Board, *, sleep: Callable[[float], None], least_s: float, longest_s: float) -> None:
    """Waits until the GPU becomes no cooler within a second."""
    sleep(least_s)
    waited, before = least_s, board.temperature_c()
    while waited < longest_s:
        sleep(1.0)
        waited += 1.0
        now = board.temperature_c()
        if now >= before:
            return
        before = now


def static_power(
    board: Board,
    hook: SetsClock,
    seconds: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> float:
    """What the GPU draws in its state P0 with nothing to do, in watts (footnote 4)."""
    hook.set_clock(0)
    power = waiting_power(board, seconds / 2, seconds, sleep=sleep, clock=clock)
    if not board.is_ready():
        raise OSError("the GPU is not in its state P0: something must hold it ready")
    return power


class Watched:
    """A call that also looks at the GPU's clock every so often."""

    def __init__(self, call: Callable[[], None], board: Board) -> None:
        self._call, self._board = call, board
        self._next = 0.0
        self._seen: list[float] = []

    def __call__(self) -> None:
        """Calls."""
        self._call()
        now = time.monotonic()
        if now >= self._next:
            self._next = now + LOOK_S
            self._seen.append(self._board.clock_mhz())

    def mean_mhz(self) -> float:
        """The mean of the later half, by which the window had begun."""
        half = self._seen[len(self._seen) // 2 :]
        return sum(half) / len(half)


class Bench:
    """A job's blocks on this rank's GPU, where candidates are executed."""

    def __init__(self, job: dict[str, Any], *, stand_in: bool) -> None:
        import torch
        import torch.distributed as dist

        from litd import overlap
        from litd.overlap import network, prepared, runner

        self._torch, self._dist = torch, dist
        self.board, self.hook = _stand_in() if stand_in else _gpu(torch)
        self._device = torch.device("cpu" if stand_in else torch.cuda.current_device())
        training = overlap.Training.of(job)
        parallel = training.parallel
        if dist.get_world_size() != parallel.tensor * parallel.context:
            wanted = parallel.tensor * parallel.context
            raise ValueError(f"{dist.get_world_size()} processes, and the job needs {wanted}")
        ranks = overlap.megatron_ranks(dist.get_world_size(), parallel)
        self._communicators = network.Communicators(ranks, (), self._device)
        # Averages stay as large as they are, however often they are taken; sums would not.
        op = None if stand_in else dist.ReduceOp.AVG
        beside = network.Beside(self._communicators, self._device, op=op)
        self._runner = runner.Runner(beside)
        sequence = int(job["training"]["sequence"])
        rank = dist.get_rank(self._communicators.group("context", network.LIBRARY))
        model = overlap.Model.of(job)
        dtype = torch.float32 if stand_in else torch.bfloat16
        blocks = [
            overlap.Block(model, parallel, rank=rank, sequence=sequence).to(self._device, dtype)
            for _ in range(prepared.LAYERS)
        ]
        sizes = (sequence // parallel.context, training.microbatch, model.hidden_size)
        hidden = torch.randn(*sizes, device=self._device).to(dtype)
        self._partitions = prepared.partitions(training, blocks, hidden, self._runner)
        self._sequences = prepared.blocks_alone(training, blocks, hidden, self._runner)
        vocabulary = int(job["model"]["vocab_size"])
        self._sequences |= prepared.ends(training, vocabulary, hidden, beside)

    @property
    def communicator_bytes(self) -> dict[tuple[str, int], int]:
        """What each communicator takes of the GPU's memory."""
        return self._communicators.memory

    def prepare(self, asked: Sequence[Candidate]) -> None:
        """Makes the communicators that candidates need; all ranks at the same time."""
        budgets = {
            (self._partitions[it.name].axis, it.sms) for it in asked if it.name in self._partitions
        }
        self._communicators.add(budgets)  # type: ignore[arg-type]
        self._communicators.connect(budgets)  # type: ignore[arg-type]

    def call(self, candidate: Candidate) -> Callable[[], None]:
        """What executes a candidate once."""
        from litd.overlap.plan import Launch

        if candidate.name in self._sequences:
            return self._sequences[candidate.name]
        partition = self._partitions.get(candidate.name)
        if partition is None or candidate.sms is None:
            raise ValueError(f"{candidate.name} is no partition or sequence of this job")
        launch = Launch(candidate.launch, candidate.sms)
        return lambda: partition.run(self._runner, launch)

    def wait(self) -> None:
        """Until the GPU is idle."""
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)

    def agree(self, repeats: int) -> int:
        """The most repeats of any rank."""
        most = self._torch.tensor([repeats], device=self._device)
        self._dist.all_reduce(most, op=self._dist.ReduceOp.MAX)
        return int(most.item())

    def highest(self, number: float) -> float:
        """The highest of any rank."""
        most = self._torch.tensor([number], dtype=self._torch.float64, device=self._device)
        self._dist.all_reduce(most, op=self._dist.ReduceOp.MAX)
        return float(most.item())

    def mean(self, numbers: Sequence[float]) -> list[float]:
        """The ranks' means."""
        both = self._torch.tensor(numbers, dtype=self._torch.float64, device=self._device)
        self._dist.all_reduce(both)
        means: list[float] = (both / self._dist.get_world_size()).tolist()
        return means

    def share(self, said: Any) -> Any:
        """What rank 0 says, on all ranks."""
        shared = [said]
        self._dist.broadcast_object_list(shared)
        return shared[0]


def _gpu(torch: Any) -> tuple[Board, SetsClock]:
    import litd
    from litd import gpu

    found = gpu.address(torch, torch.cuda.current_device())
    if found is None or gpu.is_rocm(torch):
        raise OSError("the energy counter is read through NVML: an NVIDIA GPU is needed")
    hook = litd.attach(steps_by_hand=True)
    return NvmlBoard(found), hook


def _stand_in() -> tuple[Board, SetsClock]:
    board = StandInBoard()
    return board, board


def row(bench: Bench, candidate: Candidate, seconds: Seconds) -> dict[str, object]:
    """A candidate's row in the results."""
    board, watched = bench.board, Watched(bench.call(candidate), bench.board)
    bench.hook.set_clock(round(candidate.frequency))
    cool(board, sleep=time.sleep, least_s=seconds.cooldown, longest_s=seconds.longest_cooldown)
    temperature = board.temperature_c()
    found = measure(
        watched,
        bench.wait,
        board,
        agree=bench.agree,
        warm_up_s=seconds.warm_up,
        measured_s=seconds.measured,
    )
    took = 1e-3 * found.latency_ms
    mean = bench.mean([took, took * found.power_w, watched.mean_mhz(), temperature])
    highest = bench.highest(watched.mean_mhz())
    if highest > candidate.frequency * (1.0 + OFF):
        raise OSError(
            f"{candidate.frequency:.0f} MHz were asked for, and a GPU runs at {highest:.0f}: "
            "does litd steer it (litctl status)?"
        )
    sms = "" if candidate.sms is None else candidate.sms
    said = (candidate.name, candidate.frequency, sms, candidate.launch, *mean)
    return dict(zip(COLUMNS, said, strict=True))


class Results:
    """The file that `litctl plan kareus --results` reads; rows are added as they are measured."""

    def __init__(self, path: Path, *, stand_in: bool) -> None:
        self.path = path
        if not path.exists():
            header = f"{SIMULATED}\n" if stand_in else ""
            path.write_text(f"{header}{','.join(COLUMNS)}\n")
            return
        with path.open() as file:
            if file.readline().startswith(SIMULATED) != stand_in:
                raise ValueError(f"{path}: measured and SIMULATED results can't be in one file")

    def add(self, found: dict[str, object]) -> None:
        """Adds a row."""
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(found)

    def is_empty(self) -> bool:
        """Whether there is no row yet."""
        lines = [it for it in self.path.read_text().splitlines() if not it.startswith("#")]
        return len(lines) < 2


def asked(args: argparse.Namespace, results: Results, watts: float) -> list[Candidate]:
    """What `litctl plan candidates` wants to be measured next."""
    command = [args.litctl, "plan", "candidates", "--job", args.job, "--static-power", str(watts)]
    command += ["--seed", str(args.seed)]
    command += ["--gpu", args.gpu] if args.gpu else []
    command += [] if results.is_empty() else ["--results", str(results.path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise OSError(f"litctl plan candidates: {ended.stderr.strip()}")
    return candidates(ended.stdout)


def run(args: argparse.Namespace, bench: Bench, is_first: bool) -> dict[str, object]:
    """Measures until nothing is left. The first rank asks, and writes."""
    seconds = Seconds(args.measured, args.warm_up, args.cooldown, args.longest_cooldown)
    watts = args.static_power
    if watts is None:
        (watts,) = bench.mean([static_power(bench.board, bench.hook, args.idle)])
    results = Results(args.results, stand_in=args.stand_in) if is_first else None
    count = 0
    while rows := bench.share(asked(args, results, watts) if results else None):
        bench.prepare(rows)
        for candidate in rows:
            found = row(bench, candidate, seconds)
            if results:
                results.add(found)
            count += 1
    bench.hook.set_clock(0)
    memory = {f"{axis} {sms}": own for (axis, sms), own in bench.communicator_bytes.items()}
    return {"static_power_w": watts, "measured": count, "communicator_bytes": memory}


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m litd.partitions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    known = "as for `litctl plan kareus`"
    parser.add_argument("--job", required=True, metavar="JOB.json", help=f"the job, {known}")
    written = "the results, as CSV: rows are added to the file, which is made if missing"
    parser.add_argument("--results", type=Path, required=True, metavar="RESULTS.csv", help=written)
    which = f"the GPU, {known} [default: the paper's A100]"
    parser.add_argument("--gpu", metavar="GPU.json", help=which)
    seed = "the seed of the search [default: %(default)s]"
    parser.add_argument("--seed", type=int, default=1, help=seed)
    static = "a GPU's static power, in watts [default: it is measured first]"
    parser.add_argument("--static-power", type=float, metavar="W", help=static)
    program = "the program litctl [default: %(default)s]"
    parser.add_argument("--litctl", default="litctl", metavar="PATH", help=program)
    for name, default, what in (
        ("measured", MEASURED_S, "that a candidate is measured"),
        ("warm-up", WARM_UP_S, "that a candidate is executed before that"),
        ("cooldown", COOLDOWN_S, "without work before each candidate, at least"),
        (
            "longest-cooldown",
            LONGEST_COOLDOWN_S,
            "without work, at most, even if the GPU still cools",
        ),
        ("idle", IDLE_S, "for which static power is measured"),
    ):
        text = f"seconds {what} [default: %(default)g]"
        parser.add_argument(f"--{name}", type=float, default=default, metavar="S", help=text)
    parser.add_argument("--stand-in", action="store_true", help="run on CPUs, power SIMULATED")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measures what litctl asks for, and says what a plan needs besides the results."""
    args = arguments().parse_args(argv)
    with joined(stand_in=args.stand_in) as dist:
        bench = Bench(json.loads(Path(args.job).read_text()), stand_in=args.stand_in)
        said = run(args, bench, dist.get_rank() == 0)
        if dist.get_rank() == 0:
            say(said, stand_in=args.stand_in)
    return 0


if __name__ == "__main__":
    sys.exit(main())
