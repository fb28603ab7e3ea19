"""A sample: the kernels of one iteration in columns, their names in a table.

What a profiler recorded comes in as raw Kineto events: objects with methods such as `name()`,
`start_ns()` (older torch: `start_us()`), `device_type()` and `device_resource_id()`, which is the
stream. Everything but the work of one GPU is dropped.
"""

from __future__ import annotations

import enum
import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from litd import wire
from litd.columns import distinct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_KERNELS = 100_000
"""Kernels that litd takes in one sample as it is configured by default."""

MOST_NAMES = 4_000
"""Names that a job may have: litd takes 4,096."""

MOST_NAME_BYTES = 900_000
"""Bytes of all names: litd takes a megabyte."""

LONGEST_NAME = 1_000
"""Letters of one name. Templates make names of thousands."""

ONE_OF_MANY = "(one of too many names)"

PART = 256
"""So many events are read at once: less than half a millisecond."""

PAUSE = 50e-6
"""So long the training thread may have Python's lock in between, in seconds."""


class NameTable:
    """Kernel names of this process, each called by its place. Used by one thread."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._names: list[str] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._names)

    def id_of(self, name: str) -> int:
        """The id of a name, which is added if it is new and there is room."""
        known = self._ids.get(name)
        return self._add(name) if known is None else known

    def since(self, count: int) -> list[str]:
        """The names after the first so many."""
        return self._names[count:]

    def _add(self, name: str) -> int:
        text = _shortened(wire.printable(name)).encode(errors="replace").decode()
        full = len(self._names) >= MOST_NAMES or self._bytes + len(text.encode()) > MOST_NAME_BYTES
        if full:
            text = ONE_OF_MANY
        known = self._ids.get(text)
        if known is None:
            known = self._ids[text] = len(self._names)
            self._names.append(text)
            self._bytes += len(text.encode())
        if not full:
            self._ids[name] = known
        return known


def _shortened(name: str) -> str:
    """The name, or its beginning and a hash: two names must not become one."""
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:16]
    return f"{name[:LONGEST_NAME]}...{digest}"


@dataclass
class Columns:
    """The kernels of one iteration: equally long columns, times in nanoseconds."""

    name: list[int] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    kernel_class: list[int] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    duration_ns: list[int] = field(default_factory=list)
    shows_collectives: bool = False
    """Every collective is a kernel of its own."""

    def __len__(self) -> int:
        return len(self.name)

    def add(self, name: int, stream: int, kind: wire.Class, start_ns: int, end_ns: int) -> None:
        """Adds a kernel."""
        self.name.append(name)
        self.stream.append(stream)
        self.kernel_class.append(int(kind))
        self.start_ns.append(start_ns)
        self.duration_ns.append(max(0, end_ns - start_ns))

    def message(self, iteration: int, duration_ns: int, new_names: Sequence[str]) -> wire.Kernels:
        """The message that litd takes."""
        return wire.Kernels(
            iteration,
            duration_ns,
            new_names,
            self.name,
            self.stream,
            self.kernel_class,
            self.start_ns,
            self.duration_ns,
            self.shows_collectives,
        )


@dataclass(kw_only=True)
class Measured:
    """A measured iteration: what a link needs to know of any."""

    iteration: int
    duration_ns: int = 0
    ended_ns: int = 0
    """When it was over, by `time.perf_counter_ns`; 0: when it was handed over."""
    overhead_ns: int = 0
    """What measuring it cost the training loop before it began and after it was over."""
    why: str = ""
    """Why it is no sample, in words."""

    def drop(self) -> None:
        """Nobody wants it."""


_HOST = 0
"""`DeviceType.CPU`, as a number."""

_COPIES = frozenset(("gpu_memcpy", "gpu_memset"))
_WORK = _COPIES | {"kernel"}

# Where the profiler doesn't tell what an event is, its name must: spans that people or collectives
# name are shown on the GPU's streams, too.
_SPANS = ("ProfilerStep#", "nccl:", "gloo:", "Optimizer.step#", "Optimizer.zero_grad#", "## ")
_COPY_NAMES = ("Memcpy", "Memset")


class TooManyError(Exception):
    """More kernels than litd takes in one sample."""


def extract(
    events: list[Any], names: NameTable, wanted: Callable[[], bool] = lambda: True
) -> Columns | None:
    """The kernels, copies and fills of one GPU among raw profiler events, which are used up.

    Of several GPUs that one is taken which did most. `None` if nobody wants them any more.
    """
    if not events:
        return Columns()
    kind_of = _kinds(events[0])
    start_of, duration_of, scale = _clock(events[0])
    by_device: dict[int, Columns] = {}
    events.reverse()
    while events:
        # The last part's events are freed here, and not all at once in the end.
        part = events[: -PART - 1 : -1]
        del events[-PART:]
        time.sleep(PAUSE)
        if not wanted():
            return None
        for event in part:
            if int(event.device_type()) == _HOST:
                continue
            name = event.name()
            kind = kind_of(event, name)
            if kind is None:
                continue
            start = start_of(event) * scale
            columns = by_device.get(device := event.device_index())
            if columns is None:
                columns = by_device[device] = Columns()
            end = start + duration_of(event) * scale
            columns.add(
                names.id_of(name), event.device_resource_id() & 0xFFFF_FFFF, kind, start, end
            )
        if max(map(len, by_device.values()), default=0) > MOST_KERNELS:
            drop(events)
            raise TooManyError(f"an iteration has more than {MOST_KERNELS} kernels")
    return max(by_device.values(), key=len, default=Columns())


def drop(events: list[Any]) -> None:
    """Frees events, with the lock given away in between."""
    while events:
        del events[-PART:]
        time.sleep(PAUSE)


def _kinds(event: Any) -> Callable[[Any, str], wire.Class | None]:
    """How to tell what an event is; `None` means: no work."""

    def by_type(event: Any, _name: str) -> wire.Class | None:
        kind = event.activity_type()
        if kind not in _WORK:
            return None
        return wire.Class.COPY if kind in _COPIES else wire.Class.UNSPECIFIED

    def by_name(event: Any, name: str) -> wire.Class | None:
        if name.startswith(_SPANS) or (has_annotations and event.is_user_annotation()):
            return None
        return wire.Class.COPY if name.startswith(_COPY_NAMES) else wire.Class.UNSPECIFIED

    has_annotations = hasattr(event, "is_user_annotation")
    return by_type if hasattr(event, "activity_type") else by_name


def _clock(event: Any) -> tuple[Callable[[Any], int], Callable[[Any], int], int]:
    """Start and duration of events of this torch, and how many nanoseconds their unit has."""
    if hasattr(event, "start_ns"):
        return _start_ns, _duration_ns, 1
    return _start_us, _duration_us, 1000


def _start_ns(event: Any) -> int:
    return int(event.start_ns())


def _duration_ns(event: Any) -> int:
    return int(event.duration_ns())


def _start_us(event: Any) -> int:
    return int(event.start_us())


def _duration_us(event: Any) -> int:
    return int(event.duration_us())


class Loss(enum.Enum):
    """What a profiler's sample lacks."""

    NOTHING = enum.auto()
    """Nothing: it is whole."""
    ALL = enum.auto()
    """It has no kernel."""
    SOME = enum.auto()
    """It has fewer than those before."""
    UNTAKEN = enum.auto()
    """It has more than litd takes."""


class Expectation:
    """What a whole sample has, learned from those before.

    Profilers lose kernels silently, and modules may run unseen. A sample that misses a stream, or
    more than 1 % of the kernels or of what is treated as such, is not whole. If three in a row say
    the same, the work has changed.
    """

    CHANGED = 3

    def __init__(self, what: str = "kernels") -> None:
        self._what = what
        self._kernels = 0
        self._streams: frozenset[int] = frozenset()
        self._doubts: list[tuple[int, frozenset[int]]] = []

    def missing(self, columns: Columns) -> str:
        """What is missing, in words; empty if nothing is."""
        kernels, streams = len(columns), distinct(columns.stream)
        what = ""
        if lost := self._streams - streams:
            what = f"nothing of {_count(len(lost), 'stream')}"
        elif kernels < 0.99 * self._kernels:
            what = f"{kernels} {self._what} of {self._kernels}"
        if not what:
            self._kernels, self._streams = max(kernels, self._kernels), streams | self._streams
        elif self._is_change(kernels, streams):
            self._kernels, self._streams = kernels, streams
        else:
            return what
        self._doubts.clear()
        return ""

    def _is_change(self, kernels: int, streams: frozenset[int]) -> bool:
        self._doubts.append((kernels, streams))
        del self._doubts[: -self.CHANGED]
        counts = [count for count, _ in self._doubts]
        same = max(counts) <= 1.01 * min(counts) and len({known for _, known in self._doubts}) == 1
        return len(self._doubts) == self.CHANGED and same and kernels > 0


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"
