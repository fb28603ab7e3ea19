"""Measures kernels and collectives for `litctl predict calibrate` (EnergyLens, 3.3 and 4.1).

Each is repeated for 20 s to reach a steady state and then for 40 s more, over which its latency and
the board's energy counter are read. The files have the columns that `litctl predict` reads.

    python -m litd.inference gemm --shapes 16x4096x4096,8192x4096x4096 --output gemm.csv
    torchrun --nproc-per-node 8 -m litd.inference nccl --sizes 65536 --sms 0,1,4 --output nccl.csv

Without a GPU, `--stand-in` runs the same on CPUs with a made-up power of 100 W: what it writes
is SIMULATED, and its files say so in their names.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import itertools
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from litd.ranks import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WARM_UP_S = 20.0
"""Repeated for so long before anything counts."""

MEASURED_S = 40.0
"""Measured over so long."""

BATCH_S = 0.1
"""Calls are sent in batches of about this length: waiting for each would measure the host."""

STEP_S = 0.005
"""How often the energy counter is looked at around its steps: each look takes 3 ms on an H100."""

STEPS = 24
"""So many looks see a step: an H100's counter moves every 100 ms."""

STAND_IN_W = 100.0
"""The power of a board that is made up."""

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
"""By the names that tables have."""


class Meter(Protocol):
    """A board's energy."""

    def joules(self) -> float:
        """All energy since some moment in the past."""

    def limit_w(self) -> float:
        """The power limit in force."""


class StandInMeter:
    """A board that draws 100 W all the time: SIMULATED."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock

    def joules(self) -> float:
        """What 100 W are since the clock's origin."""
        return STAND_IN_W * self._clock()

    def limit_w(self) -> float:
        """Twice what it draws."""
        return 2 * STAND_IN_W


class NvmlMeter:
    """NVML's counter, in mJ since the driver was loaded."""

    def __init__(self, pci_address: str) -> None:
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        text = ctypes.c_char_p(pci_address.encode())
        self._call("nvmlDeviceGetHandleByPciBusId_v2", text, ctypes.byref(self._device))

    def joules(self) -> float:
        """All energy since the driver was loaded."""
        energy = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self._device, ctypes.byref(energy))
        return energy.value * 1e-3

    def limit_w(self) -> float:
        """The limit that the driver enforces."""
        limit = ctypes.c_uint()
        self._call("nvmlDeviceGetEnforcedPowerLimit", self._device, ctypes.byref(limit))
        return limit.value * 1e-3

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._nvml, name)(*arguments)
        if status != 0:
            raise OSError(f"{name} failed with NVML status {status}")


@dataclass(frozen=True)
class Measured:
    """A call that was repeated."""

    latency_ms: float
    power_w: float
    repeats: int


def measure(
    call: Callable[[], object],
    wait: Callable[[], None],
    meter: Meter,
    *,
    agree: Callable[[int], int] = lambda repeats: repeats,
    clock: Callable[[], float] = time.monotonic,
    warm_up_s: float = WARM_UP_S,
    measured_s: float = MEASURED_S,
) -> Measured:
    """Repeats a call until its state is steady, and measures it from then on.

    `wait` returns once all calls are done. Ranks of a collective must repeat equally often: `agree`
    turns each one's number of repeats into the number of all.
    """
    call()
    wait()
    begin = clock()
    call()
    wait()
    once = max(clock() - begin, 1e-7)

    def repeat(seconds: float) -> int:
        repeats = agree(max(1, round(seconds / once)))
        batch = agree(max(1, round(BATCH_S / once)))
        for sent in range(repeats):
            call()
            if (sent + 1) % batch == 0:
                wait()
        wait()
        return repeats

    begin = clock()
    warmed = repeat(warm_up_s)
    # The first call was cold: later ones say better how many fit.
    once = max((clock() - begin) / warmed, 1e-7)
    calls = agree(max(1, round(STEP_S / once)))
    energy, since = at_step(call, calls, meter, clock)
    wait()
    begin = clock()
    repeats = repeat(measured_s)
    took = clock() - begin
    energy_after, until = at_step(call, calls, meter, clock)
    wait()
    return Measured(
        latency_ms=1e3 * took / repeats,
        power_w=(energy_after - energy) / (until - since),
        repeats=repeats,
    )


def at_step(
    call: Callable[[], object], calls: int, meter: Meter, clock: Callable[[], float]
) -> tuple[float, float]:
    """The energy and the time at the next step of the counter, while calls go on.

    Between its steps a counter stands still: a second between two reads may hold the energy of 0.9
    or of 1.1. As many calls are made whenever that is: other ranks take part in them.
    """
    before, found = meter.joules(), None
    for _ in range(STEPS):
        for _ in range(calls):
            call()
        now = meter.joules()
        if found is None and now != before:
            found = (now, clock())
    return found or (meter.joules(), clock())


def shapes(text: str) -> list[tuple[int, int, int]]:
    """Reads "16x4096x4096,..." as m, n and k."""
    found = []
    for word in text.split(","):
        try:
            m, n, k = (int(size) for size in word.strip().split("x"))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{word!r} is no MxNxK") from None
        if min(m, n, k) < 1:
            raise argparse.ArgumentTypeError(f"{word!r} has a size below 1")
        found.append((m, n, k))
    return found


def numbers(text: str) -> list[int]:
    """Reads "1,4,16"."""
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of whole numbers") from None
    if min(found) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} has a number below 0")
    return found


class Bench:
    """Where calls run: a device of torch, and the board's meter."""

    def __init__(self, torch: Any, seconds: tuple[float, float], *, stand_in: bool) -> None:
        self.torch = torch
        self.seconds = seconds
        self.stand_in = stand_in
        self.meter: Meter
        if stand_in:
            self.device = torch.device("cpu")
            self.meter = StandInMeter()
            return
        from litd import gpu

        index = torch.cuda.current_device()
        found = gpu.address(torch, index)
        if found is None or gpu.is_rocm(torch):
            raise OSError("the energy counter is read through NVML: an NVIDIA GPU is needed")
        self.device = torch.device("cuda", index)
        self.meter = NvmlMeter(found)

    def wait(self) -> None:
        """Until the device is idle."""
        if not self.stand_in:
            self.torch.cuda.synchronize(self.device)

    def measured(
        self, call: Callable[[], object], agree: Callable[[int], int] = lambda it: it
    ) -> Measured:
        """A call, measured here."""
        warm_up_s, measured_s = self.seconds
        return measure(
            call,
            self.wait,
            self.meter,
            agree=agree,
            warm_up_s=warm_up_s,
            measured_s=measured_s,
        )

    def empty(self, *sizes: int) -> Any:
        """A tensor of bfloat16 with numbers as weights have them."""
        made = self.torch.randn(*sizes, device=self.device)
        return made.to(self.torch.bfloat16)


def gemms(bench: Bench, wanted: Sequence[tuple[int, int, int]]) -> list[dict[str, object]]:
    """A row of each product."""
    rows: list[dict[str, object]] = []
    for m, n, k in wanted:
        left, right = bench.empty(m, k), bench.empty(k, n)
        found = bench.measured(lambda left=left, right=right: left @ right)  # type: ignore[misc]
        rows.append(
            {
                "m": m,
                "n": n,
                "k": k,
                "latency_ms": found.latency_ms,
                "power_w": found.power_w,
                "power_limit_w": bench.meter.limit_w(),
            }
        )
    return rows


def collectives(bench: Bench, sizes: Sequence[int], sms: Sequence[int]) -> list[dict[str, object]]:
    """A row of each collective, size and number of multiprocessors; 0 leaves that to NCCL."""
    import torch.distributed as dist

    rows: list[dict[str, object]] = []
    ranks = dist.get_world_size()
    for each in sms:
        group = limited_group(dist, each, stand_in=bench.stand_in)

        def agree(repeats: int, group: Any = group) -> int:
            most = bench.torch.tensor([repeats], device=bench.device)
            dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
            return int(most.item())

        for name, size in itertools.product(COLLECTIVES, sizes):
            # Bytes of the whole buffer, in bfloat16 and equal parts.
            numbers_each = max(1, size // (2 * ranks))
            call = collective(bench, dist, name, numbers_each, group)
            if call is None:
                continue
            found = bench.measured(call, agree)
            rows.append(
                {
                    "op_name": name,
                    "num_gpus": ranks,
                    "bytes": 2 * ranks * numbers_each,
                    "sms": each,
                    "latency_ms": found.latency_ms,
                    "power_w": found.power_w,
                    "power_limit_w": bench.meter.limit_w(),
                }
            )
    return rows


def limited_group(dist: Any, sms: int, *, stand_in: bool) -> Any:
    """A group whose collectives take so many multiprocessors: each of NCCL's CTAs occupies one."""
    if sms == 0 or stand_in:
        return dist.group.WORLD
    return dist.new_group(pg_options=limited(dist, sms))


def limited(dist: Any, sms: int) -> Any:
    """Options of a group of so many multiprocessors; `None` for 0, with which NCCL chooses."""
    if sms == 0:
        return None
    options = dist.ProcessGroupNCCL.Options()
    options.config.min_ctas = sms
    options.config.max_ctas = sms
    return options


def collective(
    bench: Bench, dist: Any, name: str, numbers_each: int, group: Any
) -> Callable[[], object] | None:
    """A call of a collective; `None` for those that the CPU's backend does not have."""
    ranks = dist.get_world_size()
    whole = bench.empty(ranks * numbers_each)
    part = bench.empty(numbers_each)
    if name == "all_reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if name == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, part, group=group)
    if bench.stand_in:
        return None
    if name == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(part, whole, group=group)
    other = bench.empty(ranks * numbers_each)
    return lambda: dist.all_to_all_single(other, whole, group=group)


def write(path: Path, rows: Sequence[dict[str, object]]) -> None:
    """The rows as `litctl predict` reads them."""
    if not rows:
        raise ValueError("nothing was measured")
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def named(path: Path, *, stand_in: bool) -> Path:
    """The file's name, which says where power is made up."""
    return path.with_name(f"SIMULATED_{path.name}") if stand_in else path


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m litd.inference", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    gemm = commands.add_parser("gemm", help="matrix products")
    which = "the products to measure: M rows, N columns, K summands each"
    gemm.add_argument("--shapes", type=shapes, required=True, metavar="MxNxK,...", help=which)
    nccl = commands.add_parser("nccl", help="collectives, under torchrun")
    which = "the sizes to measure, in bytes"
    nccl.add_argument("--sizes", type=numbers, required=True, metavar="BYTES,...", help=which)
    most = "the most SMs (multiprocessors) that NCCL may take; 0: as NCCL chooses [default: 0]"
    nccl.add_argument("--sms", type=numbers, default=[0], metavar="SMS,...", help=most)
    repeated = "seconds that a kernel is repeated before it is measured [default: %(default)g]"
    lasts = "seconds that a kernel is measured [default: %(default)g]"
    for command in (gemm, nccl):
        written = "the CSV to write, for `litctl predict calibrate`"
        command.add_argument("--output", type=Path, required=True, metavar="FILE", help=written)
        command.add_argument("--warm-up", type=float, default=WARM_UP_S, metavar="S", help=repeated)
        command.add_argument("--measured", type=float, default=MEASURED_S, metavar="S", help=lasts)
        command.add_argument("--stand-in", action="store_true", help="run on CPUs, power SIMULATED")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measures what the command line asks for."""
    args = arguments().parse_args(argv)
    import torch

    output = named(args.output, stand_in=args.stand_in)
    seconds = (args.warm_up, args.measured)
    if args.command == "gemm":
        write(output, gemms(Bench(torch, seconds, stand_in=args.stand_in), args.shapes))
        return 0
    with joined(stand_in=args.stand_in) as dist:
        rows = collectives(Bench(torch, seconds, stand_in=args.stand_in), args.sizes, args.sms)
        if dist.get_rank() == 0:
            write(output, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
