"""The plan that `litctl plan kareus --plan plan.json` writes, and whether it fits."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from litd.overlap.program import Parallel
from litd.overlap.turns import backward_stretches, forward_stretches, partitions
from litd.perseus import plan_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from litd.overlap.program import Axis, Collective, Segment
    from litd.perseus import Schedule

MOST_SMS = 32
"""NCCL has no more CTAs for a kernel (ncclConfig_t.maxCTAs), and only logs that it takes fewer."""

PASSES = ("forward", "backward")


class MisfitError(ValueError):
    """A plan that does not fit what runs here. The message names what does not."""


@dataclass(frozen=True)
class Training:
    """How the blocks are trained, in the words of the job that was planned."""

    microbatch: int
    """Sequences in a microbatch."""
    microbatches: int
    """Microbatches in an iteration."""
    tensor_parallel: int = 1
    context_parallel: int = 1
    pipeline_parallel: int = 1
    recompute: bool = False

    @classmethod
    def of(cls, job: Any) -> Training:
        """Of a job's description, as `litctl plan kareus --job` reads it."""
        said = job["training"]
        return cls(**{it.name: said[it.name] for it in fields(cls) if it.name in said})

    @property
    def parallel(self) -> Parallel:
        """How many GPUs share what."""
        return Parallel(self.tensor_parallel, self.context_parallel)


@dataclass(frozen=True)
class Launch:
    """How the communication of a partition runs."""

    at: str
    """The computation with which it starts."""
    sms: int
    """How many multiprocessors it has."""


Launches = dict[str, Launch]
"""Of a microbatch's pass, by partition; empty: nothing overlaps."""


@dataclass(frozen=True)
class Plan:
    """An iteration of one stage."""

    stage: int
    """The stage's number."""
    launches: Mapping[tuple[str, int], Launches]
    """By pass and microbatch."""
    clocks: Schedule
    """For `litd.perseus.Controller`."""
    budgets: frozenset[tuple[Axis, int]]
    """The communicators that this stage needs: axis and multiprocessors."""
    all_budgets: frozenset[tuple[Axis, int]]
    """Those of all stages: every process takes part in making each."""
    digest: str
    """Of the plan and how the blocks are trained: the same in every process."""


def read(path: Path, stage: int, training: Training, *, gpu_sms: int | None = None) -> Plan:
    """A stage's part of a plan contract (docs/planner.md), checked.

    A `MisfitError` names what does not fit, in any stage, because all stages run the plan together.
    `gpu_sms` is how many multiprocessors the GPU has, where that is known.
    """
    try:
        return fitted(json.loads(path.read_text()), stage, training, gpu_sms=gpu_sms)
    except ValueError as error:
        raise MisfitError(f"{path}: {error}") from None


def fitted(plan: Any, stage: int, training: Training, *, gpu_sms: int | None = None) -> Plan:
    """As `read`, of what JSON says."""
    clocks = plan_schedule(plan, stage)
    numbers = [it.get("stage") if isinstance(it, dict) else None for it in plan["stages"]]
    if any(type(number) is not int for number in numbers) or len(set(numbers)) != len(numbers):
        raise MisfitError(f"stages have a number each, and not {numbers}")
    stages = {it["stage"]: _instructions(it) for it in plan["stages"]}
    if sorted(stages) != list(range(training.pipeline_parallel)):
        raise MisfitError(
            f"{len(plan['stages'])} stages are planned, and {training.pipeline_parallel} are here"
        )
    partitions = _partitions(training)
    most = min(gpu_sms or MOST_SMS, MOST_SMS)
    problems = [
        f"stage {number}: {problem}"
        for number, instructions in sorted(stages.items())
        for problem in _problems(instructions, training, partitions, most)
    ]
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise MisfitError("; ".join(problems[:SHOWN]) + more)
    launches = {
        number: {(it.kind, it.microbatch): it.launches for it in instructions}
        for number, instructions in stages.items()
    }
    budgets = {number: _budgets(own, partitions) for number, own in launches.items()}
    said = json.dumps([plan, asdict(training)], sort_keys=True).encode()
    return Plan(
        stage=stage,
        launches=launches[stage],
        clocks=clocks,
        budgets=budgets[stage],
        all_budgets=frozenset().union(*budgets.values()),
        digest=hashlib.sha256(said).hexdigest(),
    )


SHOWN = 5
"""More problems than this are only counted."""

Partitions = dict[str, dict[str, "tuple[Segment, Collective]"]]
"""Of each pass, by name."""


def _partitions(training: Training) -> Partitions:
    """The partitions that each pass of these blocks has; two blocks have all that more have."""
    parallel = training.parallel
    if parallel.tensor * parallel.context == 1:
        raise MisfitError("one GPU for each stage communicates nothing, so nothing can overlap")
    if training.recompute and parallel.tensor == 1:
        raise MisfitError("recomputation is overlapped only where GPUs share tensors")
    if training.microbatch % 2:
        raise MisfitError(f"a microbatch of {training.microbatch} has no equal halves")
    back = backward_stretches(parallel, 2, recompute=training.recompute)
    return {"forward": partitions(forward_stretches(parallel, 2)), "backward": partitions(back)}


@dataclass(frozen=True)
class _Instruction:
    kind: str
    microbatch: int
    launches: Launches
    unknown: tuple[str, ...]
    """What it asks for that can't be done."""

    def __str__(self) -> str:
        return f"{self.kind} of microbatch {self.microbatch}"


def _instructions(stage: Any) -> list[_Instruction]:
    """A stage's instructions. A `ValueError` names the place that is no plan."""
    place = f"stage {stage.get('stage')}"
    rows = stage.get("instructions")
    if not isinstance(rows, list):
        raise ValueError(f"{place}: it has no instructions")  # noqa: TRY004
    return [_instruction(row, f"{place}, instruction {at}") for at, row in enumerate(rows)]


def _instruction(row: Any, place: str) -> _Instruction:
    launches: Launches = {}
    unknown = (
        [f"chunk {row['chunk']} of interleaved layers"] if _get(row, "chunk", place, 0) else []
    )
    for own in _get(row, "partitions", place, []):
        name = _get(own, "name", place, "")
        if name in launches:
            raise ValueError(f"{place}: {name} is there twice")
        launches[name] = Launch(_get(own, "launch", place, ""), _get(own, "sms", place, 0))
        if own.get("end") is not None:
            unknown.append(f"an end of {name}'s communication, {own['end']}")
    kind, microbatch = _get(row, "instruction", place, ""), _get(row, "microbatch", place, -1)
    return _Instruction(kind, microbatch, launches, tuple(unknown))


Value = TypeVar("Value", int, str, "list[Any]")


def _get(row: Any, key: str, place: str, default: Value) -> Value:
    """What is there by a key, of the default's type."""
    found = row.get(key, default) if isinstance(row, dict) else None
    if not isinstance(found, type(default)) or isinstance(found, bool):
        raise ValueError(f"{place}: {key} can't be {found!r}")  # noqa: TRY004
    return found


def _problems(
    instructions: Sequence[_Instruction], training: Training, partitions: Partitions, most: int
) -> Iterator[str]:
    """What does not fit in a stage."""
    counts = Counter(str(it) for it in instructions)
    wanted = [
        f"{kind} of microbatch {it}" for it in range(training.microbatches) for kind in PASSES
    ]
    yield from (f"{it} is missing" for it in wanted if it not in counts)
    yield from (f"{it} is not what runs here" for it in counts if it not in wanted)
    yield from (f"{it} is there {count} times" for it, count in counts.items() if count > 1)
    for it in instructions:
        yield from (f"{it}: {what} is not supported" for what in it.unknown)
        if it.launches and it.kind in partitions:
            yield from (
                f"{it}: {what}" for what in _misfits(it.launches, partitions[it.kind], most)
            )


def _misfits(
    launches: Launches, partitions: Mapping[str, tuple[Segment, Collective]], most: int
) -> Iterator[str]:
    """What does not fit in a microbatch's pass."""
    yield from (f"partition {name} is missing" for name in partitions if name not in launches)
    for name, launch in launches.items():
        if name not in partitions:
            yield f"there is no partition {name} (there are {', '.join(partitions)})"
            continue
        computations = partitions[name][0].computations
        if launch.at not in computations:
            yield f"{name} has no computation {launch.at} (it has {', '.join(computations)})"
        if not 1 <= launch.sms <= most:
            yield f"{name}: a communication can have 1 to {most} SMs, not {launch.sms}"


def _budgets(
    launches: Mapping[tuple[str, int], Launches], partitions: Partitions
) -> frozenset[tuple[Axis, int]]:
    return frozenset(
        (partitions[kind][name][1].axis, launch.sms)
        for (kind, _), own in launches.items()
        for name, launch in own.items()
    )
