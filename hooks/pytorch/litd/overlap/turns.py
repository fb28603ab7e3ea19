"""Who computes and who communicates when: two nanobatches take turns through the blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litd.overlap.program import Computation, backward, begins, forward, segments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from litd.overlap.program import Collective, Operation, Parallel, Segment


@dataclass(frozen=True)
class Task:
    """A computation of one block; in the backward pass its gradients."""

    layer: int
    computation: Computation
    undo: bool = False


@dataclass(frozen=True)
class Exchange:
    """A collective of one block."""

    layer: int
    collective: Collective


@dataclass(frozen=True)
class Stretch:
    """A segment of one block, or what there is of it before the first or after the last block."""

    segment: Segment
    skipped: int
    """So many of the segment's computations are missing at its beginning."""
    tasks: tuple[Task, ...]
    exchange: Exchange | None
    """The communication after it."""
    prefix: str = ""
    """Before its partitions' names: recompute_ where the backward pass repeats a forward one."""

    def place(self, launch: str) -> int:
        """How many tasks come before that computation of the segment; it, or the next, is there."""
        place = self.segment.computations.index(launch) - self.skipped
        return min(max(place, 0), len(self.tasks) - 1)


@dataclass(frozen=True)
class Turn:
    """A nanobatch computes beside a communication of the other one."""

    nanobatch: int
    """The one that computes."""
    tasks: tuple[Task, ...]
    beside: Exchange | None
    stretch: Stretch | None
    """None: nothing is left to compute, and the communication is alone."""

    @property
    def partition(self) -> str | None:
        """The partition by its name in plans; None where nothing overlaps."""
        if self.stretch is None or self.beside is None:
            return None
        return self.stretch.prefix + self.stretch.segment.partitions[self.nanobatch]

    @property
    def is_whole(self) -> bool:
        """Whether it is a partition with all of its computations."""
        stretch = self.stretch
        count = 0 if stretch is None else len(stretch.segment.computations)
        return self.partition is not None and len(self.tasks) == count


def forward_stretches(parallel: Parallel, layers: int) -> list[Stretch]:
    """The forward pass of so many blocks."""
    return _stretches(forward(parallel), range(layers), undo=False)


def backward_stretches(parallel: Parallel, layers: int, *, recompute: bool) -> list[Stretch]:
    """The backward pass of so many blocks, each after its forward once more if that is asked for.

    A block's segments begin with the gradients of the norm above it: these wait for the block's
    recomputation, so that partitions are the same with it and without.
    """
    own = _stretches(backward(parallel), range(layers - 1, -1, -1), undo=True)
    if not recompute:
        return own
    count = len(segments(backward(parallel)))
    found: list[Stretch] = []
    for number in range(layers):
        layer = layers - 1 - number
        found += _stretches(forward(parallel), [layer], undo=False, prefix="recompute_")
        found += own[number * count : (number + 1) * count]
    return found + own[layers * count :]


def turns(stretches: Sequence[Stretch]) -> Iterator[Turn]:
    """The two nanobatches' turns: each computes a stretch while the other communicates.

    The first one computes beside the communication that the second has after the stretch before,
    the second beside the one that the first has after this same stretch.
    """
    before: Exchange | None = None
    for stretch in stretches:
        for nanobatch, beside in enumerate((before, stretch.exchange)):
            yield Turn(nanobatch, stretch.tasks, beside, stretch)
        before = stretch.exchange
    if before is not None:
        yield Turn(0, (), before, None)


def partitions(stretches: Sequence[Stretch]) -> dict[str, tuple[Segment, Collective]]:
    """Every partition among stretches, by its name, with the communication in it."""
    found = {}
    for stretch in stretches:
        pairs = zip(stretch.segment.partitions, stretch.segment.collectives, strict=True)
        for name, collective in pairs:
            found[stretch.prefix + name] = (stretch.segment, collective)
    return found


def _stretches(
    block: Sequence[Operation], layers: Iterable[int], *, undo: bool, prefix: str = ""
) -> list[Stretch]:
    """Blocks in this order as stretches."""
    cycle = segments(block)
    # Where a block does not begin with a segment, it begins with the end of the last one.
    start = len(cycle) - 1 if begins(block) else 0
    found: list[Stretch] = []
    tasks: list[Task] = []

    def close(exchange: Exchange | None) -> None:
        segment = cycle[(start + len(found)) % len(cycle)]
        skipped = 0 if found else len(segment.computations) - len(tasks)
        found.append(Stretch(segment, skipped, tuple(tasks), exchange, prefix))
        tasks.clear()

    for layer in layers:
        for operation in block:
            if isinstance(operation, Computation):
                tasks.append(Task(layer, operation, undo))
            else:
                close(Exchange(layer, operation))
    if tasks:
        close(None)
    return found
