"""Which ranks do equal work."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from litd import stages


def torch(rank: int, **groups: list[int]) -> Any:
    """A torch.distributed with these process groups, by their descriptions."""
    ranks = {
        SimpleGroup(desc): {member: at for at, member in enumerate(members)}
        for desc, members in groups.items()
    }
    c10d = SimpleNamespace(_world=SimpleNamespace(pg_group_ranks=ranks))
    return SimpleNamespace(
        distributed=SimpleNamespace(distributed_c10d=c10d, get_rank=lambda: rank)
    )


class SimpleGroup:
    def __init__(self, desc: str) -> None:
        self.group_desc = desc


def test_a_plain_job_is_one_group() -> None:
    assert stages.group(torch(3, default_pg=list(range(8)), mesh_dp=[1, 3])) == ""
    # Whatever is missing or odd.
    assert stages.group(SimpleNamespace()) == ""
    assert stages.group(torch(3, mesh_pp=[3])) == ""


def test_the_dimension_of_a_mesh_tells_the_stage() -> None:
    for rank, stage in ((1, 0), (5, 1)):
        here = torch(rank, mesh_tp=[4, 5], mesh_pp=[1, 5])
        assert stages.group(here) == f"stage {stage}"


def test_megatron_tells_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    state: Any = ModuleType("megatron.core.parallel_state")
    state.model_parallel_is_initialized = lambda: True
    state.get_pipeline_model_parallel_world_size = lambda: 4
    state.get_pipeline_model_parallel_rank = lambda: 2
    monkeypatch.setitem(sys.modules, stages._MEGATRON, state)
    assert stages.group(torch(3)) == "stage 2"
    state.get_pipeline_model_parallel_world_size = lambda: 1
    assert stages.group(torch(3)) == ""
    state.model_parallel_is_initialized = lambda: 1 / 0
    assert stages.group(torch(3)) == ""


class Stage:
    def __init__(self, index: int, count: int) -> None:
        self.stage_index, self.num_stages = index, count


class Derived(Stage):
    pass


def test_stages_of_torchs_own_pipelines_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType(stages._PIPELINING)
    module._PipelineStageBase = Stage
    monkeypatch.setitem(sys.modules, stages._PIPELINING, module)
    # To import it is not to use it.
    assert stages.group(torch(0)) == ""
    one = Derived(1, 4)
    assert stages.group(torch(0)) == "stage 1"
    other = Derived(3, 4)
    assert stages.group(torch(0)) == "stages 1, 3"
    del one, other
    alone = Stage(0, 1)
    assert stages.group(torch(0)) == ""
    del alone
