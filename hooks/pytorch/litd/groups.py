"""Which of this rank's collectives leave the node, in a job over several.

A profiler shows when a collective ran, and on which stream, but not whose it was. Process groups
count their collectives, though. Where all groups that were used in an iteration leave the node, all
its collectives do. Where some do and others don't, each group has streams of its own, and those
are told apart by their number of collectives, if no two numbers are equal. All else stays unknown.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from litd.columns import distinct, parts
from litd.wire import Class

if TYPE_CHECKING:
    from litd.kernels import Columns, NameTable
    from litd.place import Place

log = logging.getLogger("litd")

_COLLECTIVES = ("nccl", "rccl")
"""What the kernels of collectives are called by, as litd's own reader has it."""

_PAIRS = "sendrecv"
"""Sends and receives are not counted with a group's collectives."""


@dataclass(frozen=True)
class Reach:
    """What the groups that were used in an iteration tell of its collectives."""

    inside: tuple[int, ...]
    """For each group within the node, how many collectives it ran."""
    outside: tuple[int, ...]
    """For each group that leaves the node, the same."""

    def mark(self, columns: Columns, names: NameTable) -> None:
        """Says of each collective what is known of it."""
        texts = names.since(0)
        used = {name: texts[name].lower() for name in distinct(columns.name)}
        collectives = {
            name for name, text in used.items() if any(map(text.__contains__, _COLLECTIVES))
        }
        pairs = {name for name in collectives if _PAIRS in used[name]}
        places = range(len(columns))
        at = [
            place for part in parts(places) for place in part if columns.name[place] in collectives
        ]
        if not at:
            return
        streams = Counter(columns.stream[place] for part in parts(at) for place in part)
        known = self._of_streams(streams)
        for part in parts(at):
            for place in part:
                kind = known.get(columns.stream[place])
                if kind is not None and columns.name[place] not in pairs:
                    columns.kernel_class[place] = kind

    def _of_streams(self, streams: Counter[int]) -> dict[int, Class]:
        if not self.inside and not self.outside:
            return {}
        if not self.inside:
            return dict.fromkeys(streams, Class.COMMUNICATION_OUTSIDE)
        if not self.outside:
            return dict.fromkeys(streams, Class.COMMUNICATION_INSIDE)
        counted = sorted((*self.inside, *self.outside))
        if counted != sorted(streams.values()) or set(self.inside) & set(self.outside):
            return {}
        return {
            stream: Class.COMMUNICATION_OUTSIDE
            if count in self.outside
            else Class.COMMUNICATION_INSIDE
            for stream, count in streams.items()
        }


class Groups:
    """The process groups of this rank, and how many collectives each has run so far.

    Nodes are taken to have consecutive ranks, as launchers number them; litd compares that with
    what the node's other ranks say.
    """

    def __init__(self, torch: Any, place: Place, device: str = "cuda") -> None:
        self._torch = torch
        self._device = device
        first = place.rank - place.local_rank
        self._here = frozenset(range(first, first + place.local_world_size))
        self._before: dict[int, tuple[int, bool]] | None = None

    def begin(self) -> None:
        """An iteration begins. Never raises."""
        self._before = self._count()

    def end(self) -> Reach | None:
        """What was used since; `None` if that can't be told. Never raises."""
        before, self._before = self._before, None
        now = self._count()
        if before is None or now is None:
            return None
        inside: list[int] = []
        outside: list[int] = []
        for group, (count, leaves) in now.items():
            used = count - before.get(group, (0, leaves))[0]
            if used < 0:
                return None
            if used > 0:
                (outside if leaves else inside).append(used)
        return Reach(tuple(inside), tuple(outside))

    def _count(self) -> dict[int, tuple[int, bool]] | None:
        """Per group how many collectives it has run, and whether it leaves the node."""
        try:
            c10d = self._torch.distributed.distributed_c10d
            world = getattr(c10d, "_world", None)
            ranks = world.pg_group_ranks if world is not None else c10d._pg_group_ranks  # noqa: SLF001
            counted = {}
            for group, members in list(ranks.items()):
                backend = self._backend(c10d, group)
                if backend is not None:
                    count = int(backend._get_sequence_number_for_group())  # noqa: SLF001
                    counted[id(group)] = (count, not self._here.issuperset(members))
        except Exception:
            log.debug("which collectives leave the node is not known", exc_info=True)
            return None
        return counted

    def _backend(self, c10d: Any, group: Any) -> Any:
        """What runs a group's collectives of this kind of device; `None`: nothing does."""
        if not hasattr(group, "_get_backend"):
            # Before torch 2.0 a group had one backend.
            wanted = "nccl" if self._device == "cuda" else "gloo"
            return group if c10d.get_backend(group) == wanted else None
        try:
            return group._get_backend(self._torch.device(self._device))  # noqa: SLF001
        except RuntimeError:
            return None
