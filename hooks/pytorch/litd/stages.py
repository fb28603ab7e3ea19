"""Which ranks of a job do equal work: those of one stage of a pipeline.

litd compares GPUs that do equal work. The stages of a pipeline don't, and wait for each other by
their schedule. Who knows the stage of this rank is asked: Megatron's `parallel_state`, process
groups that a device mesh has made for a dimension of that name, and stages of
`torch.distributed.pipelining`. Where none of them knows one, all ranks count as one group.
"""

from __future__ import annotations

import gc
import logging
import sys
from typing import Any

log = logging.getLogger("litd")

_NAMES = frozenset(("pp", "pipe", "pipeline", "stage", "stages", "pipeline_parallel"))
"""What the dimension of a device mesh for stages is called."""

_MEGATRON = "megatron.core.parallel_state"
_PIPELINING = "torch.distributed.pipelining.stage"


def group(torch: Any) -> str:
    """The group of equal work that this rank is in; empty if there is one only. Never raises."""
    for find in (_of_megatron, _of_meshes, _of_stages):
        try:
            found = find(torch)
        except Exception:
            log.debug("the stage of this rank is not known", exc_info=True)
            continue
        if found:
            return found
    return ""


def _of_megatron(_torch: Any) -> str:
    state: Any = sys.modules.get(_MEGATRON)
    if state is None or not state.model_parallel_is_initialized():
        return ""
    if state.get_pipeline_model_parallel_world_size() < 2:
        return ""
    return f"stage {int(state.get_pipeline_model_parallel_rank())}"


def _of_meshes(torch: Any) -> str:
    """A mesh calls the group of its dimension `pp` `mesh_pp`; its ranks are the stages."""
    c10d = torch.distributed.distributed_c10d
    for process_group, members in list(c10d._world.pg_group_ranks.items()):  # noqa: SLF001
        name = str(getattr(process_group, "group_desc", "")).removeprefix("mesh_").lower()
        if name in _NAMES and len(members) > 1:
            return f"stage {members[torch.distributed.get_rank()]}"
    return ""


def _of_stages(_torch: Any) -> str:
    """Of the stages that this rank has: one, or several in turn. Nobody lists them but Python."""
    module: Any = sys.modules.get(_PIPELINING)
    base = getattr(module, "_PipelineStageBase", None)
    if base is None:
        return ""
    stages = [one for one in gc.get_objects() if base in type(one).__mro__]
    held = sorted({int(stage.stage_index) for stage in stages if int(stage.num_stages) > 1})
    if not held:
        return ""
    return f"stage {held[0]}" if len(held) == 1 else f"stages {', '.join(map(str, held))}"
