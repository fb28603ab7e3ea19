"""A transformer block in plain PyTorch, of which this process has a part.

Of the weights it has the part of one of the GPUs that share tensors, and of sequences the part of
one of those that share these. Its methods are the computations of `litd.overlap.program`; it
communicates nothing. Values are [sequence, batch, width].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as f

if TYPE_CHECKING:
    from litd.overlap.program import Parallel

Module: Any = torch.nn.Module


@dataclass(frozen=True)
class Model:
    """The sizes of a whole block, in the words of Hugging Face's config.json."""

    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int

    @classmethod
    def of(cls, job: Any) -> Model:
        """Of a job's description, as `litctl plan kareus --job` reads it."""
        said = job["model"]
        heads = said["num_attention_heads"]
        return cls(
            hidden_size=said["hidden_size"],
            num_attention_heads=heads,
            num_key_value_heads=said.get("num_key_value_heads") or heads,
            head_dim=said.get("head_dim") or said["hidden_size"] // heads,
            intermediate_size=said["intermediate_size"],
        )

    def check(self, parallel: Parallel) -> None:
        """Raises a `ValueError` where GPUs can't share it equally."""
        for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
            if getattr(self, name) % parallel.tensor:
                raise ValueError(
                    f"{name} of {getattr(self, name)} can't be shared by {parallel.tensor} GPUs"
                )


def positions(rank: int, ranks: int, sequence: int) -> Any:
    """The positions of a sequence that one of the GPUs has that share it.

    So that causal attention is the same work for each, the sequence has two parts for each GPU, one
    from its front and one from its back.
    """
    if sequence % (2 * ranks):
        raise ValueError(f"a sequence of {sequence} has no {2 * ranks} equal parts")
    if ranks == 1:
        return torch.arange(sequence)
    parts = torch.arange(sequence).chunk(2 * ranks)
    return torch.cat([parts[rank], parts[2 * ranks - 1 - rank]])


class Block(Module):
    """One block's part of one process."""

    def __init__(self, model: Model, parallel: Parallel, *, rank: int = 0, sequence: int) -> None:
        """`rank` is this process's among those that share sequences of this length."""
        super().__init__()
        model.check(parallel)
        self.parallel = parallel
        self.head_dim = model.head_dim
        self.heads = model.num_attention_heads // parallel.tensor
        self.key_heads = model.num_key_value_heads // parallel.tensor
        self.mlp = model.intermediate_size // parallel.tensor
        hidden, query = model.hidden_size, self.heads * self.head_dim
        self.attention_norm_weight = torch.nn.Parameter(torch.ones(hidden))
        self.qkv_weight = _weight(query + 2 * self.key_heads * self.head_dim, hidden)
        self.out_weight = _weight(hidden, query)
        self.mlp_norm_weight = torch.nn.Parameter(torch.ones(hidden))
        self.up_weight = _weight(2 * self.mlp, hidden)
        self.down_weight = _weight(hidden, self.mlp)
        own = positions(rank, parallel.context, sequence)
        keys = [positions(it, parallel.context, sequence) for it in range(parallel.context)]
        self.register_buffer("own", own, persistent=False)
        self.register_buffer("keys", torch.cat(keys), persistent=False)
        angles = torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim
        turns = own[:, None, None, None] * 10_000.0**-angles
        self.register_buffer("cos", turns.cos(), persistent=False)
        self.register_buffer("sin", turns.sin(), persistent=False)

    def attention_norm(self, stream: Any, update: Any) -> tuple[Any, ...]:
        """Adds the last block's result, and normalises the sum."""
        return _add_norm(stream, update, self.attention_norm_weight)

    def qkv(self, normed: Any) -> tuple[Any, ...]:
        """Queries, and keys with values: these are gathered as one."""
        sequence, batch, _ = normed.shape
        both = f.linear(normed, self.qkv_weight)
        both = both.view(sequence, batch, -1, self.head_dim)
        q, kv = both.split([self.heads, 2 * self.key_heads], dim=2)
        return q, kv

    def rope(self, q: Any, kv: Any) -> tuple[Any, ...]:
        """Turns queries and keys by their positions."""
        keys, values = kv.chunk(2, dim=2)
        return self._turned(q), torch.cat([self._turned(keys), values], dim=2)

    def attention(self, q: Any, kv: Any) -> tuple[Any, ...]:
        """Causal attention of this process's queries to all keys."""
        sequence, batch = q.shape[:2]
        keys, values = (it.permute(1, 2, 0, 3) for it in kv.chunk(2, dim=2))
        groups = self.heads // self.key_heads
        if groups > 1:
            keys, values = (it.repeat_interleave(groups, dim=1) for it in (keys, values))
        mask = None if self.parallel.context == 1 else self.keys <= self.own[:, None]
        heads = _attend(q.permute(1, 2, 0, 3), keys, values, mask)
        return (heads.permute(2, 0, 1, 3).reshape(sequence, batch, -1),)

    def out(self, heads: Any) -> tuple[Any, ...]:
        """The part of the sum over heads that these heads are."""
        return (f.linear(heads, self.out_weight),)

    def mlp_norm(self, stream: Any, update: Any) -> tuple[Any, ...]:
        """Adds what attention found, and normalises the sum."""
        return _add_norm(stream, update, self.mlp_norm_weight)

    def up(self, normed: Any) -> tuple[Any, ...]:
        """Gates and values of the MLP."""
        return (f.linear(normed, self.up_weight),)

    def activation(self, up: Any) -> tuple[Any, ...]:
        """Values, as far as their gates are open."""
        gate, value = up.chunk(2, dim=-1)
        return (f.silu(gate) * value,)

    def down(self, up: Any) -> tuple[Any, ...]:
        """The part of the sum over the MLP's width that is here."""
        return (f.linear(up, self.down_weight),)

    def _turned(self, heads: Any) -> Any:
        even, odd = heads.chunk(2, dim=-1)
        cos, sin = self.cos.to(heads.dtype), self.sin.to(heads.dtype)
        return torch.cat([even * cos - odd * sin, even * sin + odd * cos], dim=-1)


def _weight(rows: int, columns: int) -> Any:
    return torch.nn.Parameter(torch.randn(rows, columns) / math.sqrt(columns))


def _add_norm(stream: Any, update: Any, weight: Any) -> tuple[Any, Any]:
    added = stream + update
    scale = torch.rsqrt(added.square().mean(-1, keepdim=True) + 1e-6)
    return added, added * scale * weight


def _attend(q: Any, keys: Any, values: Any, mask: Any) -> Any:
    """Attention where the mask allows it; without one all positions are here, in their order."""
    if hasattr(f, "scaled_dot_product_attention"):
        return f.scaled_dot_product_attention(q, keys, values, mask, is_causal=mask is None)
    # Torch 1.13 has none.
    scores = q @ keys.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    return torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1) @ values
