"""A training job that is divided anew between tensor and data parallelism, on CPUs.

    litctl carbon run --profile P.csv --tokens 200000 --deadline-hours 12 --progress ckpt/tokens \
        --state run --trace T.csv -- python carbon_reshard.py ckpt 200000

It starts `LITD_TP` x `LITD_DP` processes that talk through gloo and train one layer of a linear
model: with tensor parallelism each process holds some of its columns, with data parallelism some
of each batch. The checkpoint holds the whole layer, whatever its division was, so that training
goes on in any other one. It is written beside and renamed: a crash leaves the last one.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import litd

FEATURES = 32
OUTPUTS = 16
BATCH = 64
RATE = 0.05
#: Iterations between two checkpoints.
EVERY = 20


def target() -> torch.Tensor:
    """What is to be learned."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(OUTPUTS, FEATURES, generator=generator)


def load(folder: Path) -> tuple[torch.Tensor, int, list[float]]:
    """The last checkpoint: the whole layer, its tokens, and the losses until then."""
    file = folder / "checkpoint.pt"
    if not file.exists():
        return torch.zeros(OUTPUTS, FEATURES), 0, []
    saved = torch.load(file)
    return saved["layer"], saved["tokens"], saved["losses"]


def save(folder: Path, layer: torch.Tensor, tokens: int, losses: list[float]) -> None:
    """Writes the checkpoint in one step, then how many tokens it has."""
    beside = folder / "checkpoint.new"
    torch.save({"layer": layer, "tokens": tokens, "losses": losses}, beside)
    beside.replace(folder / "checkpoint.pt")
    beside = folder / "tokens.new"
    beside.write_text(str(tokens))
    beside.replace(folder / "tokens")


def train(rank: int, degrees: tuple[int, int], folder: Path, total: int, store: str) -> None:
    """One process: column block `rank % tp` of the layer, part `rank // tp` of each batch."""
    tp, dp = degrees
    world = tp * dp
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    teams = [dist.new_group([replica * tp + at for at in range(tp)]) for replica in range(dp)]
    replicas = [dist.new_group([other * tp + at for other in range(dp)]) for at in range(tp)]
    own, part = rank % tp, rank // tp
    whole, tokens, losses = load(folder)
    width = FEATURES // tp
    columns = slice(own * width, (own + 1) * width)
    layer = whole[:, columns].clone()
    wanted = target()
    iteration = 0
    while tokens < total:
        # The same batch whatever the division is.
        generator = torch.Generator().manual_seed(tokens + 7)
        batch = torch.randn(BATCH, FEATURES, generator=generator)
        mine = batch[part * BATCH // dp : (part + 1) * BATCH // dp]
        output = mine[:, columns] @ layer.T
        dist.all_reduce(output, group=teams[part])
        error = output - mine @ wanted.T
        gradient = error.T @ mine[:, columns]
        dist.all_reduce(gradient, group=replicas[own])
        layer -= RATE * gradient / BATCH
        loss = (error**2).sum()
        dist.all_reduce(loss, group=replicas[own])
        losses.append(float(loss) / BATCH)
        tokens += BATCH
        iteration += 1
        # All decide alike: the first one looks.
        due = torch.tensor([float(rank == 0 and litd.checkpoint_due())])
        dist.all_reduce(due)
        if due.item() > 0 or iteration % EVERY == 0 or tokens >= total:
            blocks = [torch.empty_like(layer) for _ in range(tp)]
            dist.all_gather(blocks, layer.contiguous(), group=teams[part])
            if rank == 0:
                save(folder, torch.cat(blocks, dim=1), tokens, losses)
            dist.barrier()
            if due.item() > 0:
                break
        time.sleep(0.02)
    dist.destroy_process_group()


def main() -> None:
    """Starts the processes of this configuration."""
    folder, total = Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(exist_ok=True)
    tp, dp = int(os.environ["LITD_TP"]), int(os.environ["LITD_DP"])
    _, tokens, _ = load(folder)
    print(f"TP={tp} DP={dp} from {tokens} tokens", flush=True)
    store = folder.resolve() / f"store-{os.getpid()}"
    mp.spawn(train, args=((tp, dp), folder, total, str(store)), nprocs=tp * dp)


if __name__ == "__main__":
    main()
