"""The ranks of a measurement that torchrun has started, and what the first of them prints."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def joined(*, stand_in: bool) -> Iterator[Any]:
    """`torch.distributed` with all ranks, each on a GPU of its own; on CPUs for a stand-in."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo" if stand_in else "nccl")
    try:
        if not stand_in:
            torch.cuda.set_device(dist.get_node_local_rank())
        yield dist
    finally:
        dist.destroy_process_group()


def say(found: Mapping[str, object], *, stand_in: bool) -> None:
    """Prints a line of JSON, which says whether it is simulated."""
    json.dump({**found, "simulated": True} if stand_in else found, sys.stdout)
    sys.stdout.write("\n")
