"""Which rank of which job this process is: from torch.distributed, or from its launcher.

Launchers tell by environment variables. torchrun may run inside Slurm and mpirun inside either, so
the innermost one is asked first: the one that started this very process.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from litd import gpu

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_JOB = 200
"""Letters of a job's name."""


@dataclass(frozen=True)
class Place:
    """One rank of one job."""

    job: str
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int


class _Launcher(NamedTuple):
    """Environment variables that tell the numbers of a process."""

    rank: str
    local_rank: str
    world_size: str
    local_world_size: str


_LAUNCHERS = (
    _Launcher("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),  # torchrun
    _Launcher(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    _Launcher("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"),  # MPICH, Intel MPI
    _Launcher(
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    _Launcher("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "LITD_SLURM_LOCAL_TASKS"),
)

_JOBS = (
    ("SLURM_JOB_ID", "slurm"),
    ("PBS_JOBID", "pbs"),
    ("LSB_JOBID", "lsf"),
    ("FLUX_JOB_ID", "flux"),
    ("PMIX_NAMESPACE", "pmix"),
    ("OMPI_MCA_ess_base_jobid", "ompi"),
)


def find(torch: Any = None, environment: Mapping[str, str] | None = None) -> Place | None:
    """Where this process is; `None` if nothing tells it.

    Ranks that torch.distributed knows of go before those of the launcher. Without either this is
    a job of one rank.
    """
    env = dict(os.environ if environment is None else environment)
    _count_slurm_tasks(env)
    known = [numbers for launcher in _LAUNCHERS if (numbers := _numbers(env, launcher))]
    told = _distributed(torch) or next((one for one in known if "rank" in one), None)
    if told is None:
        return Place(job_name(env), 0, 0, 1, 1)
    rank, world_size = told["rank"], told["world_size"]
    told_local = {what: number for numbers in reversed(known) for what, number in numbers.items()}
    # Without a launcher that tells, all ranks may be on this node, if it has GPUs for so many.
    alone = world_size <= max(1, _devices(torch))
    local_rank = told_local.get("local_rank", rank if alone else None)
    local_size = told_local.get("local_world_size", world_size if alone else None)
    if local_rank is None or local_size is None:
        return None
    if not (0 <= rank < world_size and 0 <= local_rank < local_size <= world_size):
        return None
    return Place(job_name(env), rank, local_rank, world_size, local_size)


def _numbers(env: Mapping[str, str], launcher: _Launcher) -> dict[str, int]:
    """What a launcher's variables say: of this rank, of its place on the node, or of both.

    Empty if it did not start this process. A script may have set those of the node by itself.
    """
    found = {
        what: int(text)
        for what, name in launcher._asdict().items()
        # As large as the protocol's numbers.
        if (text := env.get(name, "")).isdecimal() and len(text) < 10
    }
    if {"rank", "world_size"} <= found.keys():
        return found
    names: tuple[str, ...] = ("local_rank", "local_world_size")
    return {what: found[what] for what in names} if found.keys() >= set(names) else {}


def _distributed(torch: Any) -> dict[str, int] | None:
    try:
        group = torch.distributed
        if group.is_available() and group.is_initialized():
            return {"rank": group.get_rank(), "world_size": group.get_world_size()}
    except (AttributeError, RuntimeError, ValueError):
        pass
    return None


def _devices(torch: Any) -> int:
    try:
        return int(torch.cuda.device_count()) if gpu.in_use(torch) else 0
    except (AttributeError, RuntimeError):
        return 0


def _count_slurm_tasks(env: dict[str, str]) -> None:
    """Slurm tells the tasks of each node in one text: `8(x2),4` is 8, 8 and 4."""
    text = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE", "")
    node = env.get("SLURM_NODEID", "")
    tasks: list[str] = []
    for tally, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        tasks += [tally] * min(int(times or 1), 100_000)
    if node.isdecimal() and int(node) < len(tasks):
        env["LITD_SLURM_LOCAL_TASKS"] = tasks[int(node)]


def job_name(env: Mapping[str, str]) -> str:
    """The same name in all ranks of a job on this node, and another in other jobs."""
    if given := env.get("LITD_JOB"):
        return tidy(given)
    parts = [f"{kind}-{env[name]}" for name, kind in _JOBS if env.get(name)][:1]
    if parts and parts[0].startswith("slurm-") and env.get("SLURM_STEP_ID"):
        parts[0] += f".{env['SLURM_STEP_ID']}"
    run = env.get("TORCHELASTIC_RUN_ID", "none")
    # Every torchrun that was given no id has this one; then its port tells it from others.
    if run != "none":
        parts.append(run)
    elif env.get("MASTER_PORT"):
        parts.append(f"{env.get('MASTER_ADDR', 'localhost')}:{env['MASTER_PORT']}")
    return tidy("/".join(parts) or f"process-{os.getpid()}")


def tidy(name: str) -> str:
    """The name as litd takes it."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)[:LONGEST_JOB]
