"""One rank of a small job on gloo whose transformer blocks run as a plan says.

    overlap.py JOB.json

`JOB.json` has `training`, `layers`, `steps`, `plans` (paths, of one for each rank), `parts` (into
how many nanobatches each microbatch is divided), and `kill`: the rank that dies, if any.

Prints one line of JSON: losses as exact texts, what was begun, the clocks asked for, and how far
losses and gradients are from those of the same nanobatches one after another, and of one process
with whole weights and whole microbatches.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from litd.overlap import Block, Event, Model, Overlap, Training, megatron_ranks, positions, read

MODEL = Model(
    hidden_size=16,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
    intermediate_size=24,
)
SEQUENCE, RATE = 8, 0.05
Function: Any = torch.autograd.Function


class Sum(Function):
    """Summed on the way forward."""

    @staticmethod
    def forward(ctx: Any, value: Any, group: Any) -> Any:
        value = value.clone()
        dist.all_reduce(value, group=group)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, None


class Copy(Function):
    """Summed on the way back."""

    @staticmethod
    def forward(ctx: Any, value: Any, group: Any) -> Any:
        ctx.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Gather(Function):
    """Gathered on the way forward; on the way back summed, and each has its part."""

    @staticmethod
    def forward(ctx: Any, value: Any, group: Any) -> Any:
        ctx.group = group
        parts = [torch.empty_like(value) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, value.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient.chunk(dist.get_world_size(ctx.group))[dist.get_rank(ctx.group)], None


def one_after_another(blocks: Any, hidden: Any, groups: dict[str, Any], parts: int) -> Any:
    """So many nanobatches, by autograd alone."""
    ends = []
    for part in hidden.chunk(parts, dim=1):
        stream, update = part.contiguous(), torch.zeros_like(part)
        for block in blocks:
            stream, normed = block.attention_norm(stream, update)
            q, kv = block.rope(*block.qkv(Copy.apply(normed, groups["tensor"])))
            (heads,) = block.attention(q, Gather.apply(kv, groups["context"]))
            update = Sum.apply(*block.out(heads), groups["tensor"])
            stream, normed = block.mlp_norm(stream, update)
            (up,) = block.up(Copy.apply(normed, groups["tensor"]))
            update = Sum.apply(*block.down(*block.activation(up)), groups["tensor"])
        ends.append(stream + update)
    return torch.cat(ends, dim=1)


def whole_weights(layers: int) -> list[dict[str, Any]]:
    """Of every block, by the names that blocks have."""
    torch.manual_seed(0)
    query = MODEL.num_attention_heads * MODEL.head_dim
    key = MODEL.num_key_value_heads * MODEL.head_dim
    hidden, mlp = MODEL.hidden_size, MODEL.intermediate_size
    sizes = {
        "attention_norm_weight": (hidden,),
        "q": (query, hidden),
        "k": (key, hidden),
        "v": (key, hidden),
        "out_weight": (hidden, query),
        "mlp_norm_weight": (hidden,),
        "gate": (mlp, hidden),
        "up": (mlp, hidden),
        "down_weight": (hidden, mlp),
    }
    made = [
        {name: torch.randn(*size, dtype=torch.float64) / 4 for name, size in sizes.items()}
        for _ in range(layers)
    ]
    return [{name: it.requires_grad_() for name, it in own.items()} for own in made]


def share(own: dict[str, Any], rank: int, ranks: int) -> dict[str, Any]:
    """A rank's part of a block's weights, or of their gradients."""

    def rows(*names: str) -> Any:
        return torch.cat([own[name].chunk(ranks)[rank] for name in names])

    return {
        "attention_norm_weight": own["attention_norm_weight"],
        "qkv_weight": rows("q", "k", "v"),
        "out_weight": own["out_weight"].chunk(ranks, dim=1)[rank],
        "mlp_norm_weight": own["mlp_norm_weight"],
        "up_weight": rows("gate", "up"),
        "down_weight": own["down_weight"].chunk(ranks, dim=1)[rank],
    }


def whole(weights: list[dict[str, Any]], hidden: Any) -> Any:
    """The blocks without anything parallel, in other words than `Block`'s."""
    size, batch, _ = hidden.shape
    at = torch.arange(size, dtype=torch.float64)
    half = MODEL.head_dim // 2
    speeds = torch.tensor([10_000.0 ** (-it / half) for it in range(half)], dtype=torch.float64)
    turn = torch.polar(torch.ones(size, half, dtype=torch.float64), at[:, None] * speeds)

    def normed(value: Any, weight: Any) -> Any:
        return value / (value.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight

    def turned(heads: Any) -> Any:
        pairs = torch.complex(heads[..., :half], heads[..., half:]) * turn[:, None, None]
        return torch.cat([pairs.real, pairs.imag], dim=-1)

    def split(value: Any) -> Any:
        return value.reshape(size, batch, -1, MODEL.head_dim)

    for own in weights:
        value = normed(hidden, own["attention_norm_weight"])
        q, k, v = (split(value @ own[name].T) for name in ("q", "k", "v"))
        groups = MODEL.num_attention_heads // MODEL.num_key_value_heads
        k, v = (it.repeat_interleave(groups, dim=2) for it in (turned(k), v))
        scores = torch.einsum("qbhd,kbhd->bhqk", turned(q), k) / math.sqrt(MODEL.head_dim)
        scores = scores + torch.full((size, size), -math.inf).triu(1)
        heads = torch.einsum("bhqk,kbhd->qbhd", scores.softmax(-1), v)
        hidden = hidden + heads.reshape(size, batch, -1) @ own["out_weight"].T
        value = normed(hidden, own["mlp_norm_weight"])
        gate = value @ own["gate"].T
        hidden = hidden + (gate * gate.sigmoid() * (value @ own["up"].T)) @ own["down_weight"].T
    return hidden


def descend(weights: Any) -> None:
    """One step of gradient descent."""
    for weight in weights:
        weight.data.sub_(RATE * weight.grad)
        weight.grad = None


class Job:
    """What one rank does of the job."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.said = said
        self.training = Training(**said["training"])
        self.ranks = megatron_ranks(dist.get_world_size(), self.training.parallel)
        self.groups: dict[str, Any] = {}
        for axis, lists in self.ranks.items():
            made = [(own, dist.new_group(own)) for own in lists]
            self.groups[axis] = next(it for own, it in made if dist.get_rank() in own)
        self.place = dist.get_rank(self.groups["context"])
        self.own = positions(self.place, self.training.context_parallel, SEQUENCE)
        self.events: list[Event] = []
        self.clocks: list[int] = []
        self.plan = Path(said["plans"][dist.get_rank()])
        rows = json.loads(self.plan.read_text())["stages"][0]["instructions"]
        self.order = [(row["instruction"], row["microbatch"]) for row in rows]

    def set_clock(self, megahertz: int) -> None:
        self.clocks.append(megahertz)

    def record(self, event: Event) -> None:
        self.events.append(event)
        if self.said.get("kill") == dist.get_rank() and len(self.events) == 30:
            os.kill(os.getpid(), signal.SIGKILL)

    def blocks(self) -> Any:
        parallel, rank = self.training.parallel, dist.get_rank(self.groups["tensor"])
        made = []
        for own in whole_weights(self.said["layers"]):
            block = Block(MODEL, parallel, rank=self.place, sequence=SEQUENCE).double()
            with torch.no_grad():
                for name, part in share(own, rank, parallel.tensor).items():
                    getattr(block, name).copy_(part)
            made.append(block)
        return torch.nn.ModuleList(made)

    def inputs(self, step: int) -> tuple[Any, Any]:
        """Of every microbatch: what comes in, and what should come out."""
        torch.manual_seed(100 + step)
        sizes = (self.training.microbatches, SEQUENCE, self.training.microbatch, MODEL.hidden_size)
        return torch.randn(*sizes, dtype=torch.float64), torch.randn(*sizes, dtype=torch.float64)

    def step(self, run: Any, step: int, own: Any) -> tuple[list[float], list[Any]]:
        """Losses and the inputs' gradients of an iteration, in the plan's order."""
        given, wanted = (it[:, own] for it in self.inputs(step))
        given = [it.clone().requires_grad_() for it in given]
        losses: dict[int, Any] = {}
        for kind, number in self.order:
            if kind == "forward":
                error = run(given[number], number) - wanted[number]
                losses[number] = error.square().sum() / wanted[number].shape[1] / SEQUENCE
            else:
                losses[number].backward()
        found = [losses[number].detach().clone() for number in sorted(losses)]
        return found, [it.grad for it in given]

    def train(self, run: Any, blocks: Any) -> list[Any]:
        """Of every step: losses, the inputs' gradients, and the weights'."""
        said = []
        for step in range(self.said["steps"]):
            losses, inputs = self.step(run, step, self.own)
            for loss in losses:
                dist.all_reduce(loss, group=self.groups["context"])
            for weight in blocks.parameters():
                dist.all_reduce(weight.grad, group=self.groups["context"])
            found = {name: it.grad.clone() for name, it in blocks.named_parameters()}
            said.append((losses, inputs, found))
            descend(blocks.parameters())
        return said

    def train_whole(self) -> list[Any]:
        """The same in one process, as far as this rank has a part of it."""
        weights, said = whole_weights(self.said["layers"]), []
        rank, ranks = dist.get_rank(self.groups["tensor"]), self.training.tensor_parallel
        for step in range(self.said["steps"]):
            everything = torch.arange(SEQUENCE)
            losses, inputs = self.step(lambda it, _: whole(weights, it), step, everything)
            found: dict[str, Any] = {}
            for layer, own in enumerate(weights):
                parts = share({name: it.grad for name, it in own.items()}, rank, ranks)
                found |= {f"{layer}.{name}": part for name, part in parts.items()}
            said.append((losses, [it[self.own] for it in inputs], found))
            descend(weight for own in weights for weight in own.values())
        return said


def flat(said: list[Any]) -> list[Any]:
    """All tensors in an order."""
    return [
        it
        for losses, inputs, found in said
        for it in (*losses, *inputs, *(found[name] for name in sorted(found)))
    ]


def apart(one: list[Any], other: list[Any]) -> float:
    """The largest difference, relative to the largest number of each tensor."""
    pairs = zip(flat(one), flat(other), strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    said = json.loads(Path(sys.argv[1]).read_text())
    job = Job(said)
    plan = read(job.plan, 0, job.training)
    blocks = job.blocks()
    overlap = Overlap(blocks, job.training, plan, job.ranks, hook=job, record=job.record)
    hidden = job.inputs(0)[0][0]
    with torch.no_grad():
        # No microbatch of an iteration: the first one is yet to come.
        evaluated = overlap(hidden[job.own])
        job.events.clear()
        wanted = whole(whole_weights(said["layers"]), hidden)[job.own]
    found = job.train(lambda it, _: overlap(it), blocks)
    plain = job.blocks()
    reference = job.train(
        lambda it, number: one_after_another(plain, it, job.groups, said["parts"][number]), plain
    )
    result = {
        "losses": [it.item().hex() for losses, _, _ in found for it in losses],
        "one_after_another": [it.item().hex() for losses, _, _ in reference for it in losses],
        "is_identical": all(
            torch.equal(a, b) for a, b in zip(flat(found), flat(reference), strict=True)
        ),
        "from_whole": apart(found, job.train_whole()),
        "evaluated_from_whole": float((evaluated - wanted).abs().max() / wanted.abs().max()),
        "clocks": job.clocks,
        "communicators": [f"{axis} {sms}" for axis, sms in overlap.communicator_bytes],
        "events": [told(event) for event in job.events],
    }
    print(json.dumps(result), flush=True)
    dist.destroy_process_group()


def told(event: Event) -> str:
    """Like `A1 up`, `A1 ~up` (its gradients) or `A1 ar mlp 6`: block 1 of the first nanobatch."""
    who = f"{'AB'[event.nanobatch]}{event.began.layer}"
    collective = getattr(event.began, "collective", None)
    if collective is None:
        undone = "~" if event.began.undo else ""  # type: ignore[union-attr]
        return f"{who} {undone}{event.began.computation.key}"  # type: ignore[union-attr]
    return f"{who} {collective.kind} {event.partition or 'alone'} {event.sms}"


if __name__ == "__main__":
    main()
