"""A stage's blocks, which each microbatch runs through as the plan has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist

from litd.overlap.nanobatch import Nanobatch, divided, divided_anew
from litd.overlap.network import LIBRARY, Beside, Communicators
from litd.overlap.plan import MisfitError
from litd.overlap.runner import Runner
from litd.overlap.turns import backward_stretches, forward_stretches
from litd.perseus import Controller

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litd.overlap.nanobatch import Weights
    from litd.overlap.network import Ranks
    from litd.overlap.plan import Plan, Training
    from litd.overlap.runner import Event
    from litd.overlap.turns import Stretch
    from litd.perseus import SetsClock

Function: Any = torch.autograd.Function


class Overlap:
    """The blocks of this process's stage, to be called with each microbatch in its turn.

    Every process of the job makes one at the same time, from the same plan. What does not fit is a
    `MisfitError`, in each of them.
    """

    def __init__(
        self,
        blocks: Sequence[Any],
        training: Training,
        plan: Plan,
        ranks: Ranks,
        *,
        hook: SetsClock | None = None,
        record: Callable[[Event], object] | None = None,
    ) -> None:
        _check(blocks, training, plan, ranks)
        self._blocks, self._training, self._plan = blocks, training, plan
        parallel = training.parallel
        self._forward = forward_stretches(parallel, len(blocks))
        self._backward = backward_stretches(parallel, len(blocks), recompute=training.recompute)
        device = blocks[0].qkv_weight.device
        self._communicators = Communicators(ranks, plan.all_budgets, device)
        library = {(axis, LIBRARY) for axis, groups in ranks.items() if len(groups[0]) > 1}
        self._communicators.connect(plan.budgets | library)
        self._runner = Runner(Beside(self._communicators, device), record)
        self._controller = Controller(hook, plan.clocks) if hook is not None else None
        self._next = 0
        self._weights = [
            (layer, name)
            for layer, block in enumerate(blocks)
            for name, weight in block.named_parameters()
            if weight.requires_grad
        ]

    @property
    def communicator_bytes(self) -> dict[tuple[str, int], int]:
        """GPU memory that each communicator takes, by axis and multiprocessors (0: NCCL's own)."""
        return self._communicators.memory

    def __call__(self, hidden: Any) -> Any:
        """A microbatch's hidden states after the blocks; [sequence, batch, width], as before them.

        Microbatches come in their order, in each iteration as many as were planned. Where there are
        no gradients to come it is no microbatch of an iteration, and runs sequentially.
        """
        if hidden.shape[1] != self._training.microbatch:
            raise ValueError(
                f"a microbatch of {hidden.shape[1]} sequences, and the plan is for "
                f"{self._training.microbatch}"
            )
        if self._training.recompute and torch.is_autocast_enabled():
            raise ValueError(
                "what is recomputed would be computed without autocast: give the blocks their data "
                "type, or train without recomputation"
            )
        if not torch.is_grad_enabled():
            nanobatch = self._entered(hidden, "nothing")
            self._runner.sequential(self._forward, nanobatch, {})
            return _left(nanobatch)
        number = self._next
        self._next = (number + 1) % self._training.microbatches
        weights = [getattr(self._blocks[layer], name) for layer, name in self._weights]
        return _Through.apply(hidden, _Microbatch(self, number), *weights)

    def run_forward(self, hidden: Any, number: int) -> tuple[Any, list[Nanobatch]]:
        """A microbatch forwards: its hidden states, and the nanobatches that it was."""
        self._set_speed("forward")
        keeps: Any = "inputs" if self._training.recompute else "graphs"
        parts = divided(hidden, self._parts("forward", number))
        nanobatches = [self._entered(part, keeps) for part in parts]
        self._run(self._forward, "forward", number, nanobatches, {})
        return torch.cat([_left(it) for it in nanobatches], dim=1), nanobatches

    def run_backward(
        self, gradient: Any, number: int, nanobatches: Sequence[Nanobatch]
    ) -> tuple[Any, list[Any]]:
        """A microbatch backwards: the gradients of its hidden states, and of the weights."""
        self._set_speed("backward")
        parts = self._parts("backward", number)
        if self._training.recompute:
            nanobatches = self._again(nanobatches, parts)
        for nanobatch, part in zip(nanobatches, divided(gradient, parts), strict=True):
            # The hidden states were the sum of both.
            nanobatch.gradients = {"stream": part, "update": part}
        weights: Weights = {}
        self._run(self._backward, "backward", number, nanobatches, weights)
        found = torch.cat([it.gradients["stream"] for it in nanobatches], dim=1)
        return found, [weights[key] for key in self._weights]

    def _run(
        self,
        stretches: Sequence[Stretch],
        kind: str,
        number: int,
        nanobatches: Sequence[Nanobatch],
        weights: Weights,
    ) -> None:
        launches = self._plan.launches[kind, number]
        if launches:
            self._runner.overlapped(stretches, nanobatches, weights, launches)
        else:
            for nanobatch in nanobatches:
                self._runner.sequential(stretches, nanobatch, weights)

    def _parts(self, kind: str, number: int) -> int:
        """How many nanobatches a microbatch is.

        A sequential pass is undivided, unless the other pass overlaps and both use what the forward
        one kept: then both are divided, and the halves of the sequential one follow each other.
        """
        kinds = [kind] if self._training.recompute else ["forward", "backward"]
        return 2 if any(self._plan.launches[it, number] for it in kinds) else 1

    def _entered(self, hidden: Any, keeps: Any) -> Nanobatch:
        """A nanobatch before the first block, which adds what there was before: nothing."""
        update = hidden.new_zeros(()).expand_as(hidden)
        values = {"stream": hidden.detach(), "update": update}
        return Nanobatch(self._blocks, keeps, values=values)

    def _again(self, forward: Sequence[Nanobatch], parts: int) -> list[Nanobatch]:
        """Nanobatches that begin at the inputs of blocks which the forward pass has kept."""
        nanobatches = [Nanobatch(self._blocks, "graphs") for _ in range(parts)]
        for layer in range(len(self._blocks)):
            both = zip(*(it.inputs[layer] for it in forward), strict=True)
            anew = zip(*(divided_anew(parts_of_it, parts) for parts_of_it in both), strict=True)
            for nanobatch, inputs in zip(nanobatches, anew, strict=True):
                nanobatch.inputs[layer] = list(inputs)
        return nanobatches

    def _set_speed(self, kind: str) -> None:
        if self._controller is not None:
            self._controller.set_speed(kind)


def _left(nanobatch: Nanobatch) -> Any:
    """A nanobatch's hidden states after the last block."""
    return nanobatch.values["stream"] + nanobatch.values["update"]


def _check(blocks: Sequence[Any], training: Training, plan: Plan, ranks: Ranks) -> None:
    """Refuses what does not fit, on all ranks: one that ended alone would leave others waiting."""
    own = _Said(
        error=_misfit(blocks, training, ranks),
        digest=plan.digest,
        stage=(plan.stage, len(blocks), str(blocks[0].qkv_weight.dtype) if blocks else ""),
    )
    said: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(said, own)
    for rank, it in enumerate(said):
        if it.error:
            raise MisfitError(f"rank {rank}: {it.error}")
        if it.digest != said[0].digest:
            raise MisfitError(f"rank {rank} has another plan, or trains otherwise, than rank 0")
    for axis, groups in ranks.items():
        for group in groups:
            stages = {said[rank].stage for rank in group}
            if len(stages) > 1:
                raise MisfitError(
                    f"ranks {sorted(group)} share {axis}s, and have different stages, numbers of "
                    f"blocks or data types: {sorted(stages)}"
                )


class _Said(NamedTuple):
    """What a rank tells the others before the first step."""

    error: str | None
    digest: str
    stage: tuple[int, int, str]


def _misfit(blocks: Sequence[Any], training: Training, ranks: Ranks) -> str | None:
    """What does not fit on this rank."""
    parallel = training.parallel
    if not blocks or any(block.parallel != parallel for block in blocks):
        return f"the blocks of its stage are not made for {parallel}"
    for axis, size in (("tensor", parallel.tensor), ("context", parallel.context)):
        sizes = {len(group) for group in ranks[axis]}  # type: ignore[index]
        if sizes != {size}:
            return f"groups of {sorted(sizes)} ranks share {axis}s, and {size} in the plan"
    return None


class _Microbatch:
    """A microbatch between its forward and its backward pass."""

    def __init__(self, overlap: Overlap, number: int) -> None:
        self.overlap, self.number = overlap, number
        self.nanobatches: Sequence[Nanobatch] = ()


class _Through(Function):
    """The blocks as one function of autograd."""

    @staticmethod
    def forward(ctx: Any, hidden: Any, microbatch: _Microbatch, *_weights: Any) -> Any:
        ctx.microbatch = microbatch
        found, microbatch.nanobatches = microbatch.overlap.run_forward(hidden, microbatch.number)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        own = ctx.microbatch
        if not own.nanobatches:
            raise RuntimeError(
                "the microbatch's backward pass has run: nothing was kept for another"
            )
        nanobatches, own.nanobatches = own.nanobatches, ()
        hidden, weights = own.overlap.run_backward(gradient, own.number, nanobatches)
        return hidden, None, *weights
