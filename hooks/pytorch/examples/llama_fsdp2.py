"""A small Llama with FSDP2, plainly as torchtitan does it, and two lines of litd.

    torchrun --nproc-per-node 8 examples/llama_fsdp2.py --steps 200
    torchrun --nproc-per-node 2 examples/llama_fsdp2.py --steps 5 --dim 64 --layers 2  # on CPUs

Needs torch 2.6 or newer. Data are random numbers: it shows how litd is attached, not how to train.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import litd


@dataclass
class Shape:
    """How large the model is."""

    dim: int = 1024
    layers: int = 16
    heads: int = 16
    vocabulary: int = 32_000
    context: int = 2048


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.wqkv = nn.Linear(shape.dim, 3 * shape.dim, bias=False)
        self.wo = nn.Linear(shape.dim, shape.dim, bias=False)

    def forward(self, x: Any, angles: Any) -> Any:
        """Attends; `x` is batch, time, dimension."""
        batch, length, dim = x.shape
        qkv = self.wqkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key = rotated(qkv[0], angles), rotated(qkv[1], angles)
        out = F.scaled_dot_product_attention(query, key, qkv[2], is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, dim))


def rotated(x: Any, angles: Any) -> Any:
    """Pairs of features turned by their position's angles."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Norm(nn.Module):
    """Root-mean-square normalisation."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Any) -> Any:
        """Normalises the last dimension."""
        scale = x.float().square().mean(-1, keepdim=True).add(1e-5).rsqrt()
        return (x.float() * scale).to(x.dtype) * self.weight


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        hidden = 8 * dim // 3
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x: Any) -> Any:
        """Feeds forward."""
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """One layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm, self.attention = Norm(shape.dim), Attention(shape)
        self.ffn_norm, self.feed_forward = Norm(shape.dim), FeedForward(shape.dim)

    def forward(self, x: Any, angles: Any) -> Any:
        """Attends and feeds forward."""
        x = x + self.attention(self.attention_norm(x), angles)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    """The model."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.dim)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.dim)
        self.output = nn.Linear(shape.dim, shape.vocabulary, bias=False)

    def forward(self, tokens: Any) -> Any:
        """Logits of the next token."""
        width = self.shape.dim // self.shape.heads
        rates = 10_000.0 ** (-torch.arange(0, width, 2, device=tokens.device) / width)
        angles = torch.outer(torch.arange(tokens.shape[1], device=tokens.device), rates)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, angles)
        return self.output(self.norm(x))


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches per step")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--dim", type=int, default=Shape.dim)
    parser.add_argument("--layers", type=int, default=Shape.layers)
    parser.add_argument("--context", type=int, default=Shape.context)
    parser.add_argument("--no-litd", action="store_true", help="train without the hook")
    return parser.parse_args()


def main() -> None:
    """Trains."""
    options = arguments()
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(kind, local_rank if kind == "cuda" else None)
    if kind == "cuda":
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl" if kind == "cuda" else "gloo")
    mesh = init_device_mesh(kind, (torch.distributed.get_world_size(),))

    torch.manual_seed(0)
    shape = Shape(dim=options.dim, layers=options.layers, context=options.context)
    model = Llama(shape).to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    # These are the two lines.
    hook = None if options.no_litd else litd.attach(optimizer)

    torch.manual_seed(torch.distributed.get_rank())
    for step in range(options.steps):
        began = time.perf_counter()
        for _ in range(options.accumulate):
            size = (options.batch, shape.context + 1)
            tokens = torch.randint(shape.vocabulary, size, device=device)
            logits = model(tokens[:, :-1]).float()
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            (loss / options.accumulate).backward()
        optimizer.step()
        optimizer.zero_grad()
        if torch.distributed.get_rank() == 0:
            seconds = time.perf_counter() - began
            print(f"step {step} loss {loss.item():.6f} {seconds * 1e3:.1f} ms", flush=True)
    if hook is not None:
        hook.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
