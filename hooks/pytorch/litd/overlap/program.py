"""The operations of a transformer block in order, and the partitions that they form.

Nothing here computes: operations name what they read and write, and the block has a method for each
computation. Names of partitions and of their computations are those of `litctl plan kareus`
(planners/kareus/src/partitioning.rs), so that its plans can be followed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Axis = Literal["tensor", "context"]
"""Whether GPUs share the work by weights or by the sequence."""


@dataclass(frozen=True)
class Parallel:
    """How many GPUs share tensors, and how many sequences."""

    tensor: int = 1
    context: int = 1


@dataclass(frozen=True)
class Computation:
    """A computation of a block."""

    key: str
    """The block's method."""
    name: str
    """What plans call it; norms count with the addition before them, as one."""
    part: str
    """The part of the block that partitions are named after."""
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    weights: tuple[str, ...] = ()


@dataclass(frozen=True)
class Collective:
    """A collective of the GPUs that share tensors or sequences."""

    kind: Literal["ar", "ag", "rs"]
    """Sum, gather, or sum and scatter."""
    axis: Axis
    value: str
    """The name of what is summed or gathered."""
    of: Literal["values", "gradients", "kept"] = "values"
    """Whether that is a value, a gradient, or a value that the backward pass needs once more."""


Operation = Computation | Collective

ATTENTION_NORM = Computation(
    "attention_norm",
    "norm",
    "",
    ("stream", "update"),
    ("stream", "normed"),
    ("attention_norm_weight",),
)
QKV = Computation("qkv", "linear", "qkv", ("normed",), ("q", "kv"), ("qkv_weight",))
ROPE = Computation("rope", "rope", "qkv", ("q", "kv"), ("q", "kv"))
ATTENTION = Computation("attention", "attn", "a", ("q", "kv"), ("heads",))
OUT = Computation("out", "linear", "o", ("heads",), ("update",), ("out_weight",))
MLP_NORM = Computation(
    "mlp_norm", "norm", "", ("stream", "update"), ("stream", "normed"), ("mlp_norm_weight",)
)
UP = Computation("up", "linear", "mlp", ("normed",), ("up",), ("up_weight",))
ACTIVATION = Computation("activation", "activation", "mlp", ("up",), ("up",))
DOWN = Computation("down", "linear", "mlp", ("up",), ("update",), ("down_weight",))


def forward(parallel: Parallel) -> list[Operation]:
    """A block's forward pass, from its first addition to its last sum."""
    gather = [Collective("ag", "context", "kv")] if parallel.context > 1 else []
    add_up = [Collective("ar", "tensor", "update")] if parallel.tensor > 1 else []
    attention: list[Operation] = [ATTENTION_NORM, QKV, ROPE, *gather, ATTENTION, OUT, *add_up]
    return [*attention, MLP_NORM, UP, ACTIVATION, DOWN, *add_up]


def backward(parallel: Parallel) -> list[Operation]:
    """A block's backward pass: each computation stands for its gradients.

    Keys and values of other GPUs are not kept from the forward pass, but gathered again.
    """
    shares = parallel.context > 1
    gather = [Collective("ag", "context", "kv", "kept")] if shares else []
    scatter = [Collective("rs", "context", "kv", "gradients")] if shares else []
    add_up = [Collective("ar", "tensor", "normed", "gradients")] if parallel.tensor > 1 else []
    mlp: list[Operation] = [DOWN, ACTIVATION, UP, *add_up, MLP_NORM]
    return [*mlp, OUT, *gather, ATTENTION, *scatter, ROPE, QKV, *add_up, ATTENTION_NORM]


@dataclass(frozen=True)
class Segment:
    """Computations from one communication to the next, as they are repeated block after block."""

    computations: tuple[str, ...]
    """Names within the segment: norm_0, linear_0, linear_1, ..."""
    before: str
    """The partition that it forms with the communication before it, which then is the other
    nanobatch's."""
    after: str
    """The partition that it forms with the communication after it."""
    collectives: tuple[Collective, Collective]
    """These communications: before, after."""

    @property
    def partitions(self) -> tuple[str, str]:
        """By the nanobatch that computes.

        The second one computes beside what the first has to communicate after this same segment.
        """
        return self.before, self.after


def segments(block: Sequence[Operation]) -> list[Segment]:
    """A block's segments, where blocks follow each other: the first after the last."""
    shift = begins(block)
    turned = list(split([*block[shift:], *block[:shift]]))
    found = []
    for place, (computations, after) in enumerate(turned):
        before = turned[place - 1][1]
        if before is None or after is None:
            raise ValueError("a block without a collective has no partitions")
        label = _label(computations)
        same = (before.kind, before.axis) == (after.kind, after.axis)
        names = [label if same else f"{label}_{it.kind}" for it in (before, after)]
        numbered = tuple(_numbered([it.name for it in computations]))
        found.append(Segment(numbered, names[0], names[1], (before, after)))
    return found


def begins(block: Sequence[Operation]) -> int:
    """The first computation that follows upon a collective, the first operation after the last."""
    for place, operation in enumerate(block):
        if isinstance(operation, Computation) and isinstance(block[place - 1], Collective):
            return place
    raise ValueError("a block without a collective has no partitions")


def split(
    operations: Sequence[Operation],
) -> Iterator[tuple[list[Computation], Collective | None]]:
    """Computations up to each collective, and what is left after the last one."""
    computations: list[Computation] = []
    for operation in operations:
        if isinstance(operation, Computation):
            computations.append(operation)
        else:
            yield computations, operation
            computations = []
    if computations:
        yield computations, None


PARTS = ("qkv", "a", "o", "mlp")


def _label(computations: Sequence[Computation]) -> str:
    """The name of a segment: after its parts."""
    own = {it.part for it in computations}
    label = "".join(part for part in PARTS if part in own)
    return {"qkvao": "attention", "qkvaomlp": "block"}.get(label, label)


def _numbered(names: Sequence[str]) -> Iterator[str]:
    """The second linear of a segment is linear_1."""
    counts: Counter[str] = Counter()
    for name in names:
        yield f"{name}_{counts[name]}"
        counts[name] += 1
