"""The messages of `crates/proto/ingest.proto` as bytes, and back.

The messages are few and small, so they are encoded here by hand: no protobuf runtime is needed,
and none that a training script has can be of the wrong version. Fields, units and limits are
those of the proto file; `tests/data/ingest.json` holds bytes that this file and litd's own code
both agree on.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from litd import columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PROTOCOL = 1
"""The protocol that this package speaks, and the highest it understands."""

MAX_FRAME = 4 << 20
"""The longest message that litd takes by default, in bytes."""

_HEADER = struct.Struct("<I")


class WireError(ValueError):
    """Bytes that are no message, or no frame: the connection is of no more use."""


class Kind(IntEnum):
    """What a notice is about."""

    UNSPECIFIED = 0
    PROFILING_OFF = 1
    PROFILING_SAFE = 2


class Code(IntEnum):
    """Why litd does not listen."""

    UNSPECIFIED = 0
    PROTOCOL = 1
    MALFORMED = 2
    LIMITS = 3
    NOT_HOLDER = 4
    OTHER_USER = 5
    GPU_UNKNOWN = 6
    GPU_TAKEN = 7
    GPU_SHARED = 8
    BUSY = 9

    @classmethod
    def _missing_(cls, value: object) -> Code:  # noqa: ARG003
        return cls.UNSPECIFIED


class Class(IntEnum):
    """What a kernel does."""

    UNSPECIFIED = 0
    """litd tells by the kernel's name."""
    COMPUTATION = 1
    COMMUNICATION = 2
    COPY = 3
    COMMUNICATION_INSIDE = 4
    """All of its ranks are on this node."""
    COMMUNICATION_OUTSIDE = 5
    """Some of its ranks are on other nodes."""


class Profiling(IntEnum):
    """What the node knows of a profiler."""

    UNSPECIFIED = 0
    """litd does not say."""
    TRY = 1
    """This job is the first, and is to tell how it went."""
    WAIT = 2
    """Another job is the first."""
    SAFE = 3
    OFF = 4

    @classmethod
    def _missing_(cls, value: object) -> Profiling:  # noqa: ARG003
        return cls.UNSPECIFIED


# From a hook to litd.


@dataclass(frozen=True)
class Hello:
    """Who the hook is: the first message of a connection."""

    job: str
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    gpu: str
    protocol: int = PROTOCOL
    framework: str = "pytorch"
    versions: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    """Ranks that say the same here do equal work; empty: all do, as far as this hook knows."""

    def encode(self) -> bytes:
        """The frame's message."""
        numbers = (self.rank, self.local_rank, self.world_size, self.local_world_size)
        body = _uint(1, self.protocol) + _text(2, self.job)
        body += b"".join(_uint(at, number) for at, number in enumerate(numbers, 3))
        body += _text(7, self.gpu) + _text(8, self.framework)
        for name, version in sorted(self.versions.items()):
            body += _bytes(9, _text(1, name) + _text(2, version))
        return _bytes(1, body + _text(10, self.group))


@dataclass(frozen=True)
class Kernels:
    """One profiled iteration. The columns are equally long; times in nanoseconds."""

    iteration: int
    duration_ns: int
    new_names: Sequence[str]
    name: Sequence[int]
    stream: Sequence[int]
    kernel_class: Sequence[int]
    start_ns: Sequence[int]
    kernel_duration_ns: Sequence[int]
    shows_collectives: bool = False
    """Every collective is a kernel of its own."""

    def encode(self) -> bytes:
        """The frame's message."""
        parts = [_uint(1, self.iteration), _uint(2, self.duration_ns)]
        parts += [_key(3, 2) + _sized(name.encode()) for name in self.new_names]
        for number, column in (
            (4, columns.varints(self.name)),
            (5, columns.varints(self.stream)),
            (6, columns.varints(self.kernel_class)),
            (7, columns.deltas(self.start_ns)),
            (8, columns.varints(self.kernel_duration_ns)),
        ):
            parts.append(_bytes(number, column) if column else b"")
        parts.append(_uint(9, int(self.shows_collectives)))
        return _bytes(2, b"".join(parts))


@dataclass(frozen=True)
class Tick:
    """One iteration, profiled or not."""

    iteration: int
    duration_ns: int
    profiled: bool = False
    overhead_ns: int = 0
    """What measuring cost the training loop before it began and after it ended."""

    def encode(self) -> bytes:
        """The frame's message."""
        body = _uint(1, self.iteration) + _uint(2, self.duration_ns) + _uint(3, int(self.profiled))
        return _bytes(3, body + _uint(4, self.overhead_ns))


@dataclass(frozen=True)
class Bye:
    """The hook goes."""

    reason: str = ""

    def encode(self) -> bytes:
        """The frame's message."""
        return _bytes(4, _text(1, self.reason))


@dataclass(frozen=True)
class Notice:
    """Something that the node's operator should know."""

    kind: Kind
    text: str
    samples: int = 0
    """So many samples in a row the profiler has lost nothing."""

    def encode(self) -> bytes:
        """The frame's message."""
        body = _uint(1, self.kind) + _text(2, self.text) + _uint(3, self.samples)
        return _bytes(5, body)


@dataclass(frozen=True)
class SetClock:
    """The clock that this rank's GPU is to have from now on."""

    megahertz: int
    """0: the driver chooses."""

    def encode(self) -> bytes:
        """The frame's message."""
        return _bytes(6, _uint(1, self.megahertz))


# From litd to a hook.


@dataclass(frozen=True)
class Directive:
    """Which iterations to profile; replaces every earlier one. The default: none."""

    first: int = 0
    period: int = 0
    pause: bool = False

    def profiles(self, iteration: int) -> bool:
        """Whether this iteration is to be profiled."""
        if self.pause or self.period == 0 or iteration < self.first:
            return False
        return (iteration - self.first) % self.period == 0


@dataclass(frozen=True)
class Welcome:
    """litd listens."""

    protocol: int = 0
    daemon: str = ""
    directive: Directive = Directive()
    profiling: Profiling = Profiling.UNSPECIFIED
    profiling_reason: str = ""


@dataclass(frozen=True)
class Refusal:
    """litd does not listen, and closes the connection."""

    code: Code = Code.UNSPECIFIED
    reason: str = ""
    retry_after_ms: int = 0
    """When to try again; 0: don't."""


ToHook = Welcome | Directive | Refusal


def decode(message: bytes) -> ToHook | None:
    """Reads one frame (without its length) that litd sent; `None` for a kind not known here."""
    member: tuple[int, bytes] | None = None
    for part in fields(message):
        if part.number > 3:
            continue
        if member is not None:
            raise WireError("more than one message in a frame")
        member = (part.number, part.bytes())
    if member is None:
        return None
    number, body = member
    if number == 1:
        return _welcome(body)
    return _directive(body) if number == 2 else _refusal(body)


def _welcome(body: bytes) -> Welcome:
    protocol, daemon, directive = 0, "", Directive()
    profiling, reason = Profiling.UNSPECIFIED, ""
    for part in fields(body):
        if part.number == 1:
            protocol = part.uint32()
        elif part.number == 2:
            daemon = part.text()
        elif part.number == 3:
            directive = _directive(part.bytes())
        elif part.number == 4:
            profiling = Profiling(part.uint32())
        elif part.number == 5:
            reason = part.text()
    return Welcome(protocol, daemon, directive, profiling, reason)


def _directive(body: bytes) -> Directive:
    first, period, pause = 0, 0, False
    for part in fields(body):
        if part.number == 1:
            first = part.uint()
        elif part.number == 2:
            period = part.uint()
        elif part.number == 3:
            pause = part.uint() != 0
    return Directive(first, period, pause)


def _refusal(body: bytes) -> Refusal:
    code, reason, after = Code.UNSPECIFIED, "", 0
    for part in fields(body):
        if part.number == 1:
            code = Code(part.uint32())
        elif part.number == 2:
            reason = part.text()
        elif part.number == 3:
            after = part.uint32()
    return Refusal(code, reason, after)


# Frames.


def frame(message: bytes) -> bytes:
    """A message with its length in front."""
    return _HEADER.pack(len(message)) + message


@lru_cache(maxsize=512)
def clock_frame(megahertz: int) -> bytes:
    """`SetClock` as a frame. A plan has a few clocks, and the driver has to wait for this."""
    return frame(SetClock(megahertz).encode())


class FrameReader:
    """Takes a stream of bytes apart into messages."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def take(self, more: bytes) -> Iterator[bytes]:
        """The messages that are whole with what has arrived now.

        Raises `WireError` for a length that no frame has.
        """
        self._buffer += more
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            if not 0 < length <= self._limit:
                raise WireError(f"a frame of {length} bytes")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            message = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield message


# Protobuf.


class Field(NamedTuple):
    """One field of a message: a number or bytes."""

    number: int
    value: int | bytes

    def uint(self) -> int:
        """The field as a number."""
        if isinstance(self.value, int):
            return self.value
        raise WireError(f"field {self.number} is no number")

    def uint32(self) -> int:
        """The field as a number of 32 bits; protobuf cuts off what is too long."""
        return self.uint() & 0xFFFF_FFFF

    def bytes(self) -> bytes:
        """The field as bytes, such as a message."""
        if isinstance(self.value, bytes):
            return self.value
        raise WireError(f"field {self.number} is a number")

    def text(self) -> str:
        """The field as a text, without characters that could forge lines of a log."""
        try:
            text = self.bytes().decode()
        except UnicodeDecodeError as error:
            raise WireError(f"field {self.number} is no text") from error
        return printable(text)


def printable(text: str) -> str:
    """The text with a replacement character for each control character."""
    return "".join("\ufffd" if ord(sign) < 32 or 127 <= ord(sign) < 160 else sign for sign in text)


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message in their order; numbers of fixed length are passed over."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, wire = key >> 3, key & 7
        if number == 0 or key > 0xFFFF_FFFF:
            raise WireError("a field has an impossible number")
        if wire == 0:
            value, at = varint(message, at)
            yield Field(number, value)
            continue
        if wire == 2:
            length, at = varint(message, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise WireError("a field has a wire type out of use")
        if length > len(message) - at:
            raise WireError("a message is cut off")
        if wire == 2:
            yield Field(number, bytes(message[at : at + length]))
        at += length


def varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where the next thing begins."""
    value = shift = 0
    for position in range(at, min(at + 10, len(message))):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise WireError("a number has more than 64 bits")
            return value, position + 1
        shift += 7
    cut = len(message) < at + 10
    raise WireError("a message is cut off" if cut else "a number has more than 64 bits")


def _key(number: int, wire: int) -> bytes:
    return columns.varint(number << 3 | wire)


def _sized(body: bytes) -> bytes:
    return columns.varint(len(body)) + body


def _uint(number: int, value: int) -> bytes:
    return _key(number, 0) + columns.varint(value) if value else b""


def _bytes(number: int, body: bytes) -> bytes:
    # A sample is copied once, and not once per part.
    return b"".join((_key(number, 2), columns.varint(len(body)), body))


def _text(number: int, text: str) -> bytes:
    return _bytes(number, text.encode()) if text else b""
