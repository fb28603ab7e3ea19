"""Ranks, jobs and GPUs, from torch and from launchers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from litd import gpu, place
from litd.place import Place

TORCHRUN = {
    "RANK": "11",
    "LOCAL_RANK": "3",
    "WORLD_SIZE": "16",
    "LOCAL_WORLD_SIZE": "8",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}
SLURM = {
    "SLURM_JOB_ID": "812",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "20",
    "SLURM_STEP_TASKS_PER_NODE": "8(x2),4",
    "SLURM_NODEID": "1",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "prterun-1",
}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "2", "MPI_LOCALNRANKS": "4"}


def torch(rank: int, world_size: int, devices: int = 0) -> Any:
    group = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: rank,
        get_world_size=lambda: world_size,
    )
    return SimpleNamespace(
        distributed=group,
        cuda=SimpleNamespace(device_count=lambda: devices, is_initialized=lambda: True),
    )


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (TORCHRUN, Place("node0:29500", 11, 3, 16, 8)),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "llama"}, Place("llama", 11, 3, 16, 8)),
        (SLURM, Place("slurm-812.0", 9, 1, 20, 8)),
        ({**SLURM, "SLURM_NODEID": "2"}, Place("slurm-812.0", 9, 1, 20, 4)),
        (OPENMPI, Place("pmix-prterun-1", 5, 1, 8, 4)),
        # torchrun is one task of Slurm: its own ranks count, and Slurm names the job.
        (
            {**SLURM, "SLURM_LOCALID": "0", "SLURM_NTASKS": "2", **TORCHRUN},
            Place("slurm-812.0/node0:29500", 11, 3, 16, 8),
        ),
        # A script that hands Slurm's ranks to torch, but no local ones.
        (
            {**SLURM, "RANK": "9", "WORLD_SIZE": "20"},
            Place("slurm-812.0", 9, 1, 20, 8),
        ),
        ({**TORCHRUN, "LITD_JOB": "mine\n"}, Place("mine?", 11, 3, 16, 8)),
    ],
)
def test_launchers_tell_the_place(env: dict[str, str], expected: Place) -> None:
    assert place.find(None, env) == expected


def test_mpich_tells_no_job() -> None:
    found = place.find(None, MPICH)
    assert found is not None
    assert (found.rank, found.local_rank, found.world_size, found.local_world_size) == (2, 2, 4, 4)


def test_torch_knows_ranks_better_than_the_launcher() -> None:
    assert place.find(torch(7, 8), {**TORCHRUN, "RANK": "6", "WORLD_SIZE": "8"}) == Place(
        "node0:29500", 7, 3, 8, 8
    )


def test_ranks_without_a_launcher_are_local_if_the_node_has_gpus_for_all() -> None:
    env = {"MASTER_ADDR": "localhost", "MASTER_PORT": "1234"}
    assert place.find(torch(3, 4, devices=4), env) == Place("localhost:1234", 3, 3, 4, 4)
    assert place.find(torch(3, 16, devices=8), env) is None


def test_a_script_may_tell_local_ranks_by_itself() -> None:
    env = {"MASTER_PORT": "1234", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert place.find(torch(3, 4, devices=0), env) == Place("localhost:1234", 3, 1, 4, 2)
    half = {"MASTER_PORT": "1234", "LOCAL_RANK": "1"}
    assert place.find(torch(3, 4, devices=0), half) is None
    # A rank of what job nobody tells: one of its own.
    alone = place.find(None, env)
    assert alone is not None
    assert (alone.rank, alone.world_size) == (0, 1)


def test_a_process_alone_is_a_job_of_one_rank() -> None:
    found = place.find(None, {})
    assert found is not None
    assert (found.rank, found.local_rank, found.world_size, found.local_world_size) == (0, 0, 1, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"RANK": "16"},
        {"LOCAL_RANK": "8"},
        {"LOCAL_WORLD_SIZE": "17"},
    ],
)
def test_places_that_can_not_be_are_none(change: dict[str, str]) -> None:
    assert place.find(None, {**TORCHRUN, **change}) is None


def test_what_is_no_number_is_as_if_it_were_not_there() -> None:
    found = place.find(None, {**TORCHRUN, "RANK": "one", **OPENMPI})
    assert found is not None
    assert found.rank == 5


@pytest.mark.parametrize("rank", ["9" * 5000, "-1", "1.0", "", " 1", "0x1"])
def test_absurd_numbers_are_as_if_they_were_not_there(rank: str) -> None:
    found = place.find(None, {**TORCHRUN, "RANK": rank, **OPENMPI})
    assert found is not None
    assert found.rank == 5


def test_gpus_are_counted_only_where_they_are_in_use() -> None:
    script = torch(3, 4, devices=4)
    script.cuda.is_initialized = lambda: False
    assert place.find(script, {"MASTER_PORT": "1234"}) is None


def test_an_absurd_text_of_slurm_costs_nothing() -> None:
    env = {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "8(x99999999999)", "SLURM_NODEID": "7"}
    found = place.find(None, env)
    assert found is not None
    assert found.local_world_size == 8


def properties(**fields: Any) -> Any:
    return SimpleNamespace(
        cuda=SimpleNamespace(get_device_properties=lambda _index: SimpleNamespace(**fields)),
        version=SimpleNamespace(hip=None, cuda="12.8"),
    )


def test_gpus_are_called_by_their_pci_address() -> None:
    found = gpu.address(properties(pci_domain_id=0, pci_bus_id=0x85, pci_device_id=0), 0)
    assert found == "0000:85:00.0"
    assert gpu.address(properties(pci_domain_id=1, pci_bus_id=5, pci_device_id=3), 0) == (
        "0001:05:03.0"
    )


def test_where_no_address_is_told_the_uuid_serves() -> None:
    assert gpu.address(properties(uuid="6f3c"), 0) == "GPU-6f3c"
    assert gpu.address(properties(), 0) is None
