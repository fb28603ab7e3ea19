"""A job's partitions and sequences, each to be executed again and again by itself, on made-up data.

Names are those of `litctl plan candidates`: forward/attention is a partition, a turn of two
nanobatches; in the sequences forward/block, forward/embedding and so on nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as f

from litd.overlap.nanobatch import Nanobatch, divided
from litd.overlap.network import LIBRARY
from litd.overlap.program import Collective
from litd.overlap.turns import Exchange, backward_stretches, forward_stretches, turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litd.overlap.nanobatch import Weights
    from litd.overlap.network import Beside
    from litd.overlap.plan import Launch, Training
    from litd.overlap.program import Axis
    from litd.overlap.runner import Runner
    from litd.overlap.turns import Stretch, Turn

Call = Callable[[], None]

LAYERS = 2
"""So many blocks have every turn that more have."""

State = tuple[dict[str, Any], dict[str, Any]]
"""A nanobatch's values and gradients."""


@dataclass(frozen=True)
class Partition:
    """A turn, with its nanobatches as they are before it."""

    turn: Turn
    nanobatches: Sequence[Nanobatch]
    states: Sequence[State]
    weights: Weights

    @property
    def axis(self) -> Axis:
        """Among which GPUs it communicates."""
        return self.turn.beside.collective.axis  # type: ignore[union-attr]

    def run(self, runner: Runner, launch: Launch) -> None:
        """Executes it once."""
        for nanobatch, (values, gradients) in zip(self.nanobatches, self.states, strict=True):
            nanobatch.values, nanobatch.gradients = dict(values), dict(gradients)
        runner.turn(self.turn, self.nanobatches, dict(self.weights), launch)


def partitions(
    training: Training, blocks: Sequence[Any], hidden: Any, runner: Runner
) -> dict[str, Partition]:
    """Every partition by its name; `hidden` is a microbatch before these two blocks."""
    parallel = training.parallel
    there = forward_stretches(parallel, LAYERS)
    back = backward_stretches(parallel, LAYERS, recompute=False)
    keeps: Any = "inputs" if training.recompute else "graphs"
    found = _turns("forward", there, _nanobatches(blocks, keeps, hidden, 2), runner)
    nanobatches = _nanobatches(blocks, "graphs", hidden, 2)
    for nanobatch in nanobatches:
        runner.sequential(there, nanobatch, {})
        _begin_backward(nanobatch)
    return found | _turns("backward", back, nanobatches, runner)


def _turns(
    kind: str, stretches: Sequence[Stretch], nanobatches: Sequence[Nanobatch], runner: Runner
) -> dict[str, Partition]:
    """Runs a pass, and keeps what was there before the first turn of each partition."""
    found: dict[str, Partition] = {}
    weights: Weights = {}
    for turn in turns(stretches):
        name = f"{kind}/{turn.partition}"
        if name not in found and turn.is_whole:
            states = [(dict(it.values), dict(it.gradients)) for it in nanobatches]
            # Once the pass is over there are gradients of all weights, to which others are added.
            found[name] = Partition(turn, nanobatches, states, weights)
        runner.turn(turn, nanobatches, weights, None)
    return found


def blocks_alone(
    training: Training, blocks: Sequence[Any], hidden: Any, runner: Runner
) -> dict[str, Call]:
    """A whole microbatch's block without overlap."""
    parallel = training.parallel
    there = forward_stretches(parallel, 1)
    back = backward_stretches(parallel, 1, recompute=False)
    keeps: Any = "inputs" if training.recompute else "graphs"
    (first,) = _nanobatches(blocks, keeps, hidden, 1)
    (second,) = _nanobatches(blocks, "graphs", hidden, 1)
    values = dict(first.values)
    runner.sequential(there, second, {})
    _begin_backward(second)
    gradients = dict(second.gradients)
    weights: Weights = {}

    def forward() -> None:
        first.values = dict(values)
        runner.sequential(there, first, {})

    def backward() -> None:
        second.gradients = dict(gradients)
        runner.sequential(back, second, dict(weights))

    return {"forward/block": forward, "backward/block": backward}


def ends(training: Training, vocabulary: int, hidden: Any, network: Beside) -> dict[str, Call]:
    """The first stage's embedding, and the last one's norm, output layer and loss."""
    sequence, batch, width = hidden.shape
    rows = vocabulary // training.tensor_parallel
    table = torch.randn(rows, width, device=hidden.device).to(hidden.dtype).requires_grad_()
    norm = torch.ones_like(table[0]).requires_grad_()
    tokens = torch.randint(rows, (sequence, batch), device=hidden.device)
    last = hidden.detach().requires_grad_()

    def loss() -> Any:
        logits = f.linear(f.layer_norm(last, [width], norm), table).float()
        picked = logits.gather(-1, tokens[..., None])
        return (logits.logsumexp(-1, keepdim=True) - picked).sum()

    def add_up(value: Any) -> None:
        if training.tensor_parallel > 1:
            nanobatch = Nanobatch([], "nothing", values={"update": value})
            network.launch(Exchange(0, Collective("ar", "tensor", "update")), nanobatch, LIBRARY)()

    embedded, said = f.embedding(tokens, table), loss()

    def embedding() -> None:
        with torch.no_grad():
            add_up(f.embedding(tokens, table))

    def embedding_backward() -> None:
        torch.autograd.grad(embedded, table, hidden, retain_graph=True)

    def output() -> None:
        loss()

    def output_backward() -> None:
        add_up(torch.autograd.grad(said, [last, norm, table], retain_graph=True)[0])

    return {
        "forward/embedding": embedding,
        "backward/embedding": embedding_backward,
        "forward/output": output,
        "backward/output": output_backward,
    }


def _nanobatches(blocks: Sequence[Any], keeps: Any, hidden: Any, parts: int) -> list[Nanobatch]:
    """A microbatch's nanobatches before the first block, to be run repeatedly."""
    return [
        Nanobatch(
            blocks, keeps, repeats=True, values={"stream": it, "update": torch.zeros_like(it)}
        )
        for it in divided(hidden, parts)
    ]


def _begin_backward(nanobatch: Nanobatch) -> None:
    """Gives the last block's results gradients."""
    gradient = torch.randn_like(nanobatch.values["stream"])
    nanobatch.gradients = {"stream": gradient, "update": gradient}
