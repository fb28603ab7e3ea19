"""Measures the power of a GPU that waits for another one (Perseus, section 5: P_blocking).

One rank waits in a receive while the other sleeps, and the power of the one that waits is measured:

    torchrun --nproc_per_node 2 -m litd.blocking

prints a line of JSON; its `blocking_w` is for the option --blocking of `litctl plan frontier`,
`lookup` and `timeline`, and of litd-planner. Once for each model of GPU is enough. Without GPUs,
`--stand-in` runs the same on CPUs with a made-up power of 100 W: what it prints is SIMULATED, and
says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from litd.inference import STEP_S, Bench, at_step
from litd.ranks import joined, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litd.inference import Meter

SETTLE_S = 5.0
"""Waited for so long before anything counts: the power of a busy GPU takes seconds to fall."""

MEASURED_S = 10.0
"""Measured over so long."""

SLACK_S = 3.0
"""The other rank sleeps longer by this, so that the measurement ends before the message comes."""


def waiting_power(
    meter: Meter,
    settle_s: float,
    measured_s: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> float:
    """The mean power (W) of a board from `settle_s` seconds on, over `measured_s` seconds."""

    def look() -> tuple[float, float]:
        return at_step(lambda: sleep(STEP_S), 1, meter, clock)

    sleep(settle_s)
    energy, since = look()
    sleep(measured_s)
    energy_after, until = look()
    return (energy_after - energy) / (until - since)


def measured(
    dist: Any,
    bench: Bench,
    seconds: tuple[float, float],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> float | None:
    """What rank 0 draws while it waits for rank 1, which gets `None`."""
    if dist.get_world_size() != 2:
        raise ValueError("one rank waits for one other: start two, torchrun --nproc_per_node 2")
    message = bench.torch.zeros(1, device=bench.device)
    # The first message sets up the connection, which takes power of its own.
    if dist.get_rank() == 1:
        dist.send(message, dst=0)
        sleep(sum(seconds) + SLACK_S)
        dist.send(message, dst=0)
        bench.wait()
        return None
    dist.recv(message, src=1)
    bench.wait()
    receives = dist.irecv(message, src=1)
    power = waiting_power(bench.meter, *seconds, sleep=sleep, clock=clock)
    if receives.is_completed():
        raise TimeoutError("the other rank's message came before the measurement ended: run again")
    receives.wait()
    bench.wait()
    return power


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m litd.blocking", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    waits = "seconds that the GPU waits before the measurement begins [default: %(default)g]"
    parser.add_argument("--settle", type=float, default=SETTLE_S, metavar="S", help=waits)
    lasts = "seconds that the measurement lasts [default: %(default)g]"
    parser.add_argument("--measured", type=float, default=MEASURED_S, metavar="S", help=lasts)
    parser.add_argument("--stand-in", action="store_true", help="run on CPUs, power SIMULATED")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, and prints what rank 0 found."""
    args = arguments().parse_args(argv)
    import torch

    with joined(stand_in=args.stand_in) as dist:
        bench = Bench(torch, (args.settle, args.measured), stand_in=args.stand_in)
        power = measured(dist, bench, bench.seconds)
        if power is not None:
            found = {"blocking_w": round(power, 1), "measured_s": args.measured}
            say(found, stand_in=args.stand_in)
    return 0


if __name__ == "__main__":
    sys.exit(main())
