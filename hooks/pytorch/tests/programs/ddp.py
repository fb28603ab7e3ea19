"""One rank of a small job on gloo that trains once per variant of the hook.

    ddp.py WRAPPER VARIANT=SOCKET ...

`WRAPPER` is `ddp`, `fsdp1`, `fsdp2` or `pipeline`.

Prints one line of JSON: per variant the losses as exact texts.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from litd.hook import Hook
from litd.modules import ModuleMeasure
from litd.patience import Patience
from litd.profiler import ProfilerMeasure
from tests.programs.ways import Ways
from tests.standin import NewEvent, Profile, StandInClock

STEPS = 40


def raising(_torch: Any) -> Any:
    raise RuntimeError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")


def hanging(_torch: Any) -> Any:
    threading.Event().wait()


def profile(_torch: Any) -> Any:
    now = time.time_ns()
    return Profile(lambda: [NewEvent("gemm", now + at, 1) for at in range(100)])


class BrokenClock(StandInClock):
    def mark(self) -> Any:
        raise RuntimeError("CUDA error: device-side assert triggered")


def ways(variant: str) -> Ways:
    if variant == "raises":
        return Ways(ProfilerMeasure(torch, make=raising))
    if variant == "hangs":
        return Ways(ProfilerMeasure(torch, make=hanging, hang_seconds=0.2))
    if variant == "profiles":
        return Ways(ProfilerMeasure(torch, make=profile))
    clock = BrokenClock() if variant == "breaks" else StandInClock()
    return Ways(ModuleMeasure(torch, clock))


def wrapped(wrapper: str, net: Any) -> Any:
    if wrapper == "ddp":
        return DistributedDataParallel(net)
    # Debian's torch 1.13 can't import it.
    fsdp: Any = importlib.import_module("torch.distributed.fsdp")
    if wrapper == "fsdp1":
        return fsdp.FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    fsdp.fully_shard(net[0], mesh=mesh)
    return fsdp.fully_shard(net, mesh=mesh)


def accumulated(net: Any) -> Any:
    """Two micro-batches are one iteration."""
    for _ in range(2):
        loss = net(torch.randn(8, 16)).square().mean()
        loss.backward()
    return loss


def pipelined(net: Any) -> Callable[[], Any]:
    """Of two stages one is here: four micro-batches, one forward and one backward in turn."""
    pipelining: Any = importlib.import_module("torch.distributed.pipelining")
    rank = torch.distributed.get_rank()
    stage = pipelining.PipelineStage(net, rank, 2, torch.device("cpu"))
    schedule = pipelining.Schedule1F1B(stage, 4, loss_fn=torch.nn.functional.mse_loss)

    def run() -> Any:
        if rank == 0:
            schedule.step(torch.randn(8, 16))
            return sum(part.square().sum() for part in net.parameters())
        losses: list[Any] = []
        schedule.step(target=torch.randn(8, 16), losses=losses)
        return torch.stack(losses).mean()

    return run


def train(wrapper: str, variant: str, socket: str) -> list[str]:
    torch.manual_seed(0)
    rank = torch.distributed.get_rank()
    layers = [torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1)]
    if wrapper == "pipeline":
        net: Any = torch.nn.Sequential(*layers)
        run = pipelined(net)
    else:
        net = wrapped(wrapper, torch.nn.Sequential(*layers, torch.nn.Linear(16, 1)))
        run = functools.partial(accumulated, net)
    optimizer = torch.optim.AdamW(net.parameters())
    hook = None
    if variant != "bare":
        hook = Hook(
            optimizer,
            job=variant,
            gpu_address=f"0000:0{rank}:00.0",
            socket=socket,
            ways=ways(variant),
            patience=Patience(0.02, 0.1),
        )
    torch.manual_seed(rank + 1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = run()
        optimizer.step()
        losses.append(loss.item().hex())
        time.sleep(0.01)
    if hook is not None:
        assert hook.iteration == STEPS, hook.iteration
        hook.close()
    return losses


def main() -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    wrapper, *arguments = sys.argv[1:]
    pairs = [argument.split("=", 1) for argument in arguments]
    result = {variant: train(wrapper, variant, socket) for variant, socket in pairs}
    print(json.dumps(result), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
