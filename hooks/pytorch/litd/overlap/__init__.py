"""Runs transformer blocks with communication beside computation, as Kareus plans it.

    training = Training(microbatch=8, microbatches=16, tensor_parallel=4, recompute=True)
    plan = read(Path("plan.json"), stage=0, training=training)  # of litctl plan kareus --plan
    overlap = Overlap(blocks, training, plan, megatron_ranks(4, training.parallel), hook=hook)
    for microbatch in batch:
        loss(overlap(embedding(microbatch))).backward()

A microbatch is divided into two nanobatches; while one computes, the other communicates on a
stream of its own. The plan says with which computation that begins, how many multiprocessors it
has, and the microbatch's clock. A plan that does not fit is a `MisfitError` before the first step.
"""

from __future__ import annotations

from litd.overlap.block import Block, Model, positions
from litd.overlap.engine import Overlap
from litd.overlap.network import megatron_ranks
from litd.overlap.plan import MisfitError, Plan, Training, fitted, read
from litd.overlap.runner import Event

__all__ = [
    "Block",
    "Event",
    "MisfitError",
    "Model",
    "Overlap",
    "Plan",
    "Training",
    "fitted",
    "megatron_ranks",
    "positions",
    "read",
]
