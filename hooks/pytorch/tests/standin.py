"""Stand-ins: a daemon that is told what to say, a device's clock, a profiler's raw events."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litd import columns, wire

SOON = 30.0
"""Long enough for anything that does happen, on a loaded machine."""

SHARED = Path(__file__).resolve().parents[3] / ".." / "shared"


def wait_for(what: str, done: Callable[[], Any], seconds: float = SOON) -> Any:
    """Waits until something is so, and answers with it."""
    deadline = time.monotonic() + seconds
    while not (result := done()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.002)
    return result


# What a hook says, decoded with the same walk over protobuf's fields, and otherwise anew.


def _number(message: bytes, number: int) -> int:
    return next((part.uint() for part in wire.fields(message) if part.number == number), 0)


def _text(message: bytes, number: int) -> str:
    return next((part.text() for part in wire.fields(message) if part.number == number), "")


def _column(message: bytes, number: int) -> list[int]:
    values = []
    for part in wire.fields(message):
        if part.number == number:
            packed, at = part.bytes(), 0
            while at < len(packed):
                value, at = wire.varint(packed, at)
                values.append(value)
    return values


@dataclass
class Said:
    """A message of a hook: its kind, and its fields by their names in the proto file."""

    kind: str
    fields: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.fields[name]


def _versions(message: bytes) -> dict[str, str]:
    entries = [part.bytes() for part in wire.fields(message) if part.number == 9]
    return {_text(entry, 1): _text(entry, 2) for entry in entries}


def _starts(deltas: list[int]) -> list[int]:
    starts, now = [], 0
    for delta in deltas:
        now += (delta >> 1) ^ -(delta & 1)
        starts.append(now)
    return starts


def decode(frame: bytes) -> Said:
    """A frame of a hook."""
    [member] = list(wire.fields(frame))
    body = member.bytes()
    if member.number == 1:
        names = ("protocol", "", "rank", "local_rank", "world_size", "local_world_size")
        said: dict[str, Any] = {name: _number(body, at) for at, name in enumerate(names, 1) if name}
        texts = {"job": 2, "gpu": 7, "framework": 8, "group": 10}
        said |= {name: _text(body, at) for name, at in texts.items()}
        return Said("hello", {**said, "versions": _versions(body)})
    if member.number == 2:
        return Said(
            "kernels",
            {
                "iteration": _number(body, 1),
                "duration_ns": _number(body, 2),
                "new_names": [part.text() for part in wire.fields(body) if part.number == 3],
                "name": _column(body, 4),
                "stream": _column(body, 5),
                "kernel_class": _column(body, 6),
                "start_ns": _starts(_column(body, 7)),
                "kernel_duration_ns": _column(body, 8),
                "shows_collectives": bool(_number(body, 9)),
            },
        )
    if member.number == 3:
        keys = ("iteration", "duration_ns", "profiled", "overhead_ns")
        return Said("tick", {name: _number(body, at) for at, name in enumerate(keys, 1)})
    if member.number == 4:
        return Said("bye", {"reason": _text(body, 1)})
    if member.number == 6:
        return Said("set_clock", {"megahertz": _number(body, 1)})
    return Said(
        "notice", {"kind": _number(body, 1), "text": _text(body, 2), "samples": _number(body, 3)}
    )


# What litd says.


def _uint(number: int, value: int) -> bytes:
    return columns.varint(number << 3) + columns.varint(value) if value else b""


def _sized(number: int, body: bytes) -> bytes:
    return columns.varint(number << 3 | 2) + columns.varint(len(body)) + body


def directive_body(first: int = 0, period: int = 0, *, pause: bool = False) -> bytes:
    return _uint(1, first) + _uint(2, period) + _uint(3, int(pause))


def directive(first: int = 0, period: int = 0, *, pause: bool = False) -> bytes:
    return wire.frame(_sized(2, directive_body(first, period, pause=pause)))


def welcome(
    first: int = 0,
    period: int = 0,
    *,
    protocol: int = 1,
    profiling: wire.Profiling = wire.Profiling.UNSPECIFIED,
    reason: str = "",
) -> bytes:
    body = _uint(1, protocol) + _sized(2, b"stand-in") + _sized(3, directive_body(first, period))
    body += _uint(4, profiling) + (_sized(5, reason.encode()) if reason else b"")
    return wire.frame(_sized(1, body))


def refusal(code: wire.Code, retry_after_ms: int = 0, reason: str = "because") -> bytes:
    body = _uint(1, code) + _sized(2, reason.encode()) + _uint(3, retry_after_ms)
    return wire.frame(_sized(3, body))


@dataclass
class Session:
    """A hook's connection."""

    stream: socket.socket
    said: list[Said] = field(default_factory=list)
    ended: bool = False

    def of(self, kind: str) -> list[Said]:
        return [said for said in list(self.said) if said.kind == kind]

    def say(self, answer: bytes) -> None:
        self.stream.sendall(answer)


class StandIn:
    """A daemon that answers hellos with `answer` and remembers what it hears."""

    def __init__(self, path: Path, answer: bytes = b"", *, reads: bool = True) -> None:
        self.path = path
        self.answer = answer
        self.reads = reads
        self.sessions: list[Session] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._start(self._accept)

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for session in self.sessions:
            with contextlib.suppress(OSError):
                session.stream.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(SOON)
        for session in self.sessions:
            session.stream.close()
        self.path.unlink(missing_ok=True)

    def session(self, number: int = 0) -> Session:
        """The so manyth connection, once it has said hello."""
        wait_for(
            f"connection {number}",
            lambda: len(self.sessions) > number and self.sessions[number].said,
        )
        return self.sessions[number]

    def heard(self, kind: str) -> list[Said]:
        return [said for session in list(self.sessions) for said in session.of(kind)]

    def _start(self, run: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                stream, _ = self._listener.accept()
                session = Session(stream)
                self.sessions.append(session)
                self._start(self._serve, session)

    def _serve(self, session: Session) -> None:
        reader = wire.FrameReader(8 << 20)
        with contextlib.suppress(OSError):
            while self.reads and (data := session.stream.recv(1 << 16)):
                for frame in reader.take(data):
                    session.said.append(decode(frame))
                    if session.said[-1].kind == "hello":
                        session.stream.sendall(self.answer)
        session.ended = self.reads


# Devices.


class StandInClock:
    """A device whose clock is the host's, and which is always `behind` the host, or never."""

    def __init__(self, *, behind: bool = True) -> None:
        self.behind = behind
        self.marks = 0
        self.stream = 7
        self._last = 0

    def anchor(self) -> None:
        pass

    def mark(self) -> tuple[Any, int] | None:
        self.marks += 1
        return (time.time_ns(), threading.get_ident()), self.stream

    def is_reached(self, mark: Any) -> bool:
        # The thread that marks sees a device that is behind; the one that waits sees it come.
        return not self.behind or threading.get_ident() != mark[1]

    def time_ns(self, mark: Any) -> int:
        # Each mark is later than the one before.
        self._last = max(self._last + 1, int(mark[0]))
        return self._last


class Event:
    """A raw event of torch's profiler, with the methods that torch's has."""

    def __init__(self, name: str, start: int, duration: int, **more: Any) -> None:
        self._name, self._start, self._duration = name, start, duration
        self._more = more

    def name(self) -> str:
        # A new text each time, as from C++.
        return str(self._name.encode(), "utf-8")

    def device_type(self) -> int:
        return int(self._more.get("device_type", 1))

    def device_index(self) -> int:
        return int(self._more.get("device", 0))

    def device_resource_id(self) -> int:
        return int(self._more.get("stream", 7))

    def correlation_id(self) -> int:
        return int(self._more.get("correlation", 0))

    def linked_correlation_id(self) -> int:
        return 0


class NewEvent(Event):
    """As of torch 2.6 and later: nanoseconds, and a type."""

    def start_ns(self) -> int:
        return self._start

    def duration_ns(self) -> int:
        return self._duration

    def activity_type(self) -> str:
        return str(self._more.get("kind", "kernel"))

    def is_user_annotation(self) -> bool:
        return "annotation" in self.activity_type()


class OldEvent(Event):
    """As of torch 1.13: microseconds, and only the name tells what it is."""

    def start_us(self) -> int:
        return self._start // 1000

    def duration_us(self) -> int:
        return self._duration // 1000


def read_kineto(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    document: dict[str, Any] = json.loads(data, parse_float=str)
    return document


def nanoseconds(text: Any) -> int:
    """A number of microseconds, exactly, in nanoseconds."""
    whole, _, part = str(text).partition(".")
    return int(whole) * 1000 + int((part + "000")[:3])


def recorded(path: Path, cls: type[Event]) -> list[Event]:
    """The events of a Kineto file as the profiler had them before it wrote that file."""
    document = read_kineto(path)
    base = int(document.get("baseTimeNanoseconds", 0))
    events = []
    for event in document["traceEvents"]:
        if event.get("ph") != "X":
            continue
        kind = str(event.get("cat", "")).lower()
        # Where events have no type, these need the host's annotations, which are not recorded.
        if kind == "gpu_user_annotation" and cls is OldEvent:
            continue
        arguments = event.get("args", {})
        is_work = kind in ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")
        stream = arguments.get("stream", event["tid"]) if is_work else event["tid"]
        more = {
            "device_type": 1 if is_work else 0,
            "device": int(arguments.get("device", 0)) if is_work else 0,
            "stream": int(stream) if str(stream).lstrip("-").isdecimal() else 0,
            "correlation": int(arguments.get("correlation", 0) or 0),
            "kind": kind,
        }
        start = base + nanoseconds(event["ts"])
        events.append(cls(str(event["name"]), start, nanoseconds(event["dur"]), **more))
    return events


class Profile:
    """`torch.profiler.profile` that yields given events."""

    def __init__(self, events: Callable[[], list[Any]]) -> None:
        self.events_of = events
        self.profiler = self
        self.kineto_results = self
        self.is_on = False

    def start(self) -> None:
        self.is_on = True

    def stop(self) -> None:
        assert self.is_on
        self.is_on = False

    def events(self) -> list[Any]:
        return self.events_of()


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
