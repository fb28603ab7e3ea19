"""A nanobatch's way through the blocks: its values, and its gradients on the way back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch

from litd.overlap.program import ATTENTION_NORM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litd.overlap.turns import Task

Weights = dict[tuple[int, str], Any]
"""Gradients of weights, by block and name: the sum over the nanobatches that were there before."""


@dataclass
class Gathered:
    """A value of all GPUs, made of what each had."""

    own: Any
    whole: Any
    size: int = 0
    """Bytes of `whole`, whose memory is free while nobody needs it."""

    def free(self) -> None:
        """Gives the memory back."""
        storage = _storage(self.whole)
        self.size = self.size or storage.size()
        storage.resize_(0)

    def allocate(self) -> None:
        """Has memory again, with anything in it."""
        _storage(self.whole).resize_(self.size)


def _storage(tensor: Any) -> Any:
    # Torch 1.13 has no `untyped_storage`; its typed one counts elements instead of bytes.
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


@dataclass
class Nanobatch:
    """Some sequences of a microbatch."""

    blocks: Sequence[Any]
    keeps: Literal["graphs", "inputs", "nothing"]
    """For the backward pass: everything, what goes into each block, or nothing."""
    repeats: bool = False
    """Whether the same is computed again and again, to be measured: then all is kept for good."""
    inputs: dict[int, list[Any]] = field(default_factory=dict)
    """What goes into each block."""
    values: dict[str, Any] = field(default_factory=dict)
    gradients: dict[str, Any] = field(default_factory=dict)
    kept: dict[tuple[int, str], Gathered] = field(default_factory=dict)
    _tape: dict[tuple[int, str], tuple[list[Any], tuple[Any, ...]]] = field(default_factory=dict)

    def run(self, task: Task, weights: Weights) -> None:
        """A computation, or its gradients; those of weights are added to `weights`."""
        if task.undo:
            self._undo(task, weights)
        else:
            self._compute(task)

    def _compute(self, task: Task) -> None:
        own = task.computation
        method = getattr(self.blocks[task.layer], own.key)
        if task.layer in self.inputs and own is ATTENTION_NORM:
            self.values.update(zip(own.reads, self.inputs.pop(task.layer), strict=True))
        inputs = [self.values[name] for name in own.reads]
        if self.keeps == "graphs":
            # A graph for each computation, so that its gradients can be taken by themselves.
            inputs = [it.detach().requires_grad_() for it in inputs]
        elif self.keeps == "inputs" and own is ATTENTION_NORM:
            self.inputs[task.layer] = inputs
        with torch.set_grad_enabled(self.keeps == "graphs"):
            outputs = method(*inputs)
        self.values.update(zip(own.writes, (it.detach() for it in outputs), strict=True))
        if self.keeps == "graphs":
            self._tape[task.layer, own.key] = inputs, outputs
            for name in own.reads:
                if (task.layer, name) in self.kept and not self.repeats:
                    self.kept[task.layer, name].free()

    def _undo(self, task: Task, weights: Weights) -> None:
        own = task.computation
        inputs, outputs = self._tape[task.layer, own.key]
        block = self.blocks[task.layer]
        named = [(name, getattr(block, name)) for name in own.weights]
        named = [(name, weight) for name, weight in named if weight.requires_grad]
        found = torch.autograd.grad(
            outputs,
            [*inputs, *(weight for _, weight in named)],
            [self.gradients.pop(name) for name in own.writes],
            retain_graph=self.repeats,
        )
        for name, gradient in zip(own.reads, found, strict=False):
            before = self.gradients.get(name)
            self.gradients[name] = gradient if before is None else before + gradient
        for (name, _), gradient in zip(named, found[len(inputs) :], strict=True):
            key = (task.layer, name)
            weights[key] = weights[key] + gradient if key in weights else gradient
        if not self.repeats:
            del self._tape[task.layer, own.key]
            for name in own.reads:
                self.kept.pop((task.layer, name), None)


def divided(whole: Any, parts: int) -> list[Any]:
    """A value of so many nanobatches, each with memory of its own, which nobody else changes."""
    if parts == 1:
        return [whole.detach().clone(memory_format=torch.contiguous_format)]
    return [part.contiguous() for part in whole.chunk(parts, dim=1)]


def divided_anew(parts: Sequence[Any], count: int) -> Sequence[Any]:
    """A value of another number of nanobatches."""
    return parts if len(parts) == count else divided(torch.cat(list(parts), dim=1), count)
