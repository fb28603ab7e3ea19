"""A training job that is divided anew between tensor and data parallelism, on CPUs.

    litctl carbon run --profile P.csv --tokens 200000 --deadline-hours 12 --progress ckpt/tokens \
        --state run --trace T.csv -- python carbon_reshard.py ckpt 200000

It starts `LITD_TP` x `LITD_DP` processes that talk through gloo and train two layers with momentum:
with tensor parallelism each process holds a part of the hidden units, with data parallelism it sees
a part of each batch. Checkpoints are torch.distributed.checkpoint's: each process writes what it
holds, and reads what it will hold, whatever the division was. (PyTorch before 2.5 can't do that on
CPUs: there the first process gathers and writes it all.) A checkpoint is written beside and renamed
once it is whole: a crash leaves the last one.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import litd

try:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
except ImportError:
    dcp = None

FEATURES = 32
HIDDEN = 64
OUTPUTS = 16
BATCH = 64
RATE = 0.02
MOMENTUM = 0.8
#: Iterations between two checkpoints.
EVERY = 20
#: Which dimension of each tensor the hidden units are.
TENSORS = {"first": 0, "second": 1, "first_momentum": 0, "second_momentum": 1}


def target() -> torch.Tensor:
    """What is to be learned."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(OUTPUTS, FEATURES, generator=generator) / FEATURES**0.5


def untrained() -> dict[str, torch.Tensor]:
    """All tensors, whole, before the first iteration."""
    generator = torch.Generator().manual_seed(2)
    first = torch.randn(HIDDEN, FEATURES, generator=generator) / FEATURES**0.5
    second = torch.randn(OUTPUTS, HIDDEN, generator=generator) / HIDDEN**0.5
    momenta = torch.zeros_like(first), torch.zeros_like(second)
    return dict(zip(TENSORS, (first, second, *momenta), strict=True))


def newest(folder: Path) -> Path | None:
    """The last checkpoint that is whole."""
    whole = [it for it in folder.glob("at-*") if it.suffix != ".new"]
    return max(whole, key=lambda it: int(it.name[3:]), default=None)


class Division:
    """How this process and the others share the work, and how checkpoints are kept."""

    def __init__(self, rank: int, tp: int, dp: int) -> None:
        self.rank, self.tp, self.dp = rank, tp, dp
        self.part, self.own = divmod(rank, tp)
        grid = torch.arange(tp * dp).view(dp, tp)
        #: Those that hold the parts of one copy, and those that hold the same part.
        self.team = [dist.new_group(row) for row in grid.tolist()][self.part]
        self.replicas = [dist.new_group(column) for column in grid.T.tolist()][self.own]
        self.mesh = DeviceMesh("cpu", grid) if dcp else None

    def mine(self, name: str, whole: torch.Tensor) -> torch.Tensor:
        """The part of a tensor that this process holds."""
        return whole.chunk(self.tp, dim=TENSORS[name])[self.own].clone()

    def state(self, tensors: dict[str, torch.Tensor], tokens: int, losses: list[float]) -> Any:
        """What a checkpoint has: tensors that know of which whole they are a part."""

        def shared(name: str) -> Any:
            places = [Replicate(), Shard(TENSORS[name])]
            return DTensor.from_local(tensors[name].detach(), self.mesh, places)

        return {**{name: shared(name) for name in tensors}, "tokens": tokens, "losses": losses}

    def load(self, folder: Path) -> tuple[dict[str, torch.Tensor], int, list[float]]:
        """The last checkpoint: this process's part of it, its tokens, and the losses until then."""
        tensors = {name: self.mine(name, whole) for name, whole in untrained().items()}
        last = newest(folder)
        if last is None:
            return tensors, 0, []
        if dcp is None:
            saved = torch.load(last / "whole.pt")
            tensors = {name: self.mine(name, saved[name]) for name in TENSORS}
        else:
            saved = self.state(tensors, 0, [])
            dcp.load(saved, checkpoint_id=last)
            tensors = {name: saved[name].to_local() for name in TENSORS}
        return tensors, saved["tokens"], saved["losses"]

    def save(
        self, folder: Path, tensors: dict[str, torch.Tensor], tokens: int, losses: list[float]
    ) -> None:
        """Writes a checkpoint beside the last one, renames it, and tells how many tokens it has."""
        beside, at = folder / f"at-{tokens}.new", folder / f"at-{tokens}"
        if self.rank == 0:
            for left in folder.glob("at-*.new"):
                shutil.rmtree(left)
            beside.mkdir()
        dist.barrier()
        if dcp is None:
            whole = {name: self.gathered(name, tensors[name]) for name in TENSORS}
            if self.rank == 0:
                torch.save({**whole, "tokens": tokens, "losses": losses}, beside / "whole.pt")
        else:
            dcp.save(self.state(tensors, tokens, losses), checkpoint_id=beside)
        dist.barrier()
        if self.rank == 0:
            beside.rename(at)
            told = folder / "tokens.new"
            told.write_text(str(tokens))
            told.replace(folder / "tokens")
            for old in folder.glob("at-*"):
                if old != at:
                    shutil.rmtree(old)
        dist.barrier()

    def gathered(self, name: str, own: torch.Tensor) -> torch.Tensor:
        """The whole tensor of which each process of the team holds a part."""
        parts = [torch.empty_like(own) for _ in range(self.tp)]
        dist.all_gather(parts, own.detach().contiguous(), group=self.team)
        return torch.cat(parts, dim=TENSORS[name])


def step(division: Division, tensors: dict[str, torch.Tensor], tokens: int) -> float:
    """One iteration; its loss."""
    # The same batch whatever the division is.
    generator = torch.Generator().manual_seed(tokens + 7)
    batch = torch.randn(BATCH, FEATURES, generator=generator)
    mine = batch.chunk(division.dp)[division.part]
    first = tensors["first"].detach().requires_grad_()
    second = tensors["second"].detach().requires_grad_()
    partial = torch.relu(mine @ first.T) @ second.T
    whole = partial.detach().clone()
    dist.all_reduce(whole, group=division.team)
    # The value of all parts, and the gradient of this one.
    output = partial + (whole - partial).detach()
    loss = ((output - mine @ target().T) ** 2).sum() / BATCH
    loss.backward()
    for name, parameter in (("first", first), ("second", second)):
        gradient = parameter.grad
        assert gradient is not None
        dist.all_reduce(gradient, group=division.replicas)
        momentum = tensors[f"{name}_momentum"].mul_(MOMENTUM).add_(gradient)
        tensors[name] = parameter.detach() - RATE * momentum
    total = loss.detach().clone()
    dist.all_reduce(total, group=division.replicas)
    return float(total)


def train(rank: int, degrees: tuple[int, int], folder: Path, total: int, store: str) -> None:
    """One process: part `rank % tp` of the hidden units, part `rank // tp` of each batch."""
    tp, dp = degrees
    world = tp * dp
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    division = Division(rank, tp, dp)
    tensors, tokens, losses = division.load(folder)
    iteration = 0
    while tokens < total:
        losses.append(step(division, tensors, tokens))
        tokens += BATCH
        iteration += 1
        # All decide alike: the first one looks.
        due = torch.tensor([float(rank == 0 and litd.checkpoint_due())])
        dist.all_reduce(due)
        if due.item() > 0 or iteration % EVERY == 0 or tokens >= total:
            division.save(folder, tensors, tokens, losses)
            if due.item() > 0:
                break
        time.sleep(0.02)
    dist.destroy_process_group()


def main() -> None:
    """Starts the processes of this configuration."""
    folder, total = Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(exist_ok=True)
    tp, dp = int(os.environ["LITD_TP"]), int(os.environ["LITD_DP"])
    last = newest(folder)
    kind = "torch.distributed.checkpoint" if dcp else "whole tensors"
    print(f"TP={tp} DP={dp} from {last.name if last else 'nothing'}, {kind}", flush=True)
    store = folder.resolve() / f"store-{os.getpid()}"
    # Forked: each process would else import PyTorch anew.
    arguments = (tp, dp), folder, total, str(store)
    mp.start_processes(train, args=arguments, nprocs=tp * dp, start_method="fork")
    store.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
