"""The connection to litd, served by a thread of its own.

The training thread only appends to a queue and reads an attribute. Whatever the other end does
(it is not there, goes, refuses, is slow, talks nonsense) is this thread's business: it tries again
later, and later each time, and warns once.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import struct
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from litd import wire
from litd.files import Owned, ready_within
from litd.patience import Patience
from litd.threads import background

if TYPE_CHECKING:
    from collections.abc import Callable

    from litd.kernels import Columns, NameTable

log = logging.getLogger("litd")

DEFAULT_SOCKET = "/run/litd/ingest.sock"

WELCOME_SECONDS = 30.0
"""litd asks a driver before it answers a hello."""

QUEUE_SECONDS = 10.0
"""So long it waits for a place where many connect to litd at once."""

STUCK_SECONDS = 10.0
"""A litd that has read nothing for so long is left alone for a while."""

LASTING_SECONDS = 10.0
"""After a connection that lasted for longer the next try is soon: litd was well."""

QUEUED = 10_000
"""Messages that wait for the thread, at most."""

FULL = 1 << 20
"""With so many bytes unsent nothing more is queued behind them."""

MISSES = 3
"""After so many iterations in a row of which there is no sample litd is told why."""

LOST = "this process has closed the hook's files"

CHUNK = 1 << 16

HEARD = 1 << 10
"""So many bytes are read at once: what litd says is short."""

LONGEST = 1 << 14
"""The longest message of litd that is read, in bytes."""

MOST_HEARD = 1 << 16
"""So many bytes a second litd never says: reading them all would cost the job time."""


class Pending(Protocol):
    """A measured iteration whose kernels are still to be collected, which may take a while."""

    iteration: int
    duration_ns: int
    ended_ns: int
    """When the iteration was over, by `time.perf_counter_ns`; 0: when it was handed over."""

    overhead_ns: int
    """What measuring it cost the training loop before it began and after it was over."""

    why: str
    """Why it is no sample, in words; empty if it is one, or nobody wants it."""

    def collect(self, names: NameTable, wanted: Callable[[], bool]) -> Columns | None:
        """The kernels; `None` if they can't be had, or are not `wanted` any more."""

    def drop(self) -> None:
        """Nobody wants them."""


class _LeftError(Exception):
    """The connection has ended; tells why."""

    def __init__(self, why: str, *, wait: float = 0.0, final: bool = False) -> None:
        super().__init__(why)
        self.wait = wait
        self.final = final


@dataclass
class _Connection:
    """What goes with one connection and ends with it."""

    socket: socket.socket
    reader: wire.FrameReader = field(default_factory=lambda: wire.FrameReader(LONGEST))
    heard: int = 0
    """Bytes since the second `second` began."""
    second: float = 0.0
    unsent: bytearray = field(default_factory=bytearray)
    names_sent: int = 0
    welcomed: bool = False
    since: float = field(default_factory=time.monotonic)
    progress: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.owned = Owned(self.socket)


class Link:
    """Keeps a connection to litd for as long as the job trains.

    `introduce` is asked once, by the thread, who this rank is; `None` ends the link. `watch` is
    called about once a second, `told` with each welcome.
    """

    def __init__(
        self,
        path: str,
        introduce: Callable[[], wire.Hello | None],
        names: NameTable,
        watch: Callable[[], None] | None = None,
        *,
        patience: Patience | None = None,
        told: Callable[[wire.Welcome], None] | None = None,
    ) -> None:
        self.directive = wire.Directive()
        """What litd wants profiled now; nothing while there is no connection."""
        self.welcomed = False
        self._path = path
        self._introduce = introduce
        self._names = names
        self._watch = watch
        self._patience = patience or Patience()
        self._told = told
        self._queue: deque[wire.Tick | Pending] = deque()
        self._notices: deque[wire.Notice] = deque(maxlen=8)
        self._clock: int | None = None
        self._clock_waits = False
        self._writing = threading.Lock()
        self._failures = 0
        self._warned = False
        self._warned_of_samples = False
        self._misses = 0
        self._told_why = False
        self._closing = False
        self._signalled = False
        self._bye = ""
        self._connection: _Connection | None = None
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self._owned = Owned(self._ear), Owned(self._bell)
        self._pid = os.getpid()
        self._thread = background(self._run, "litd")
        _links.add(self)

    # For the training thread.

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def send(self, message: wire.Tick | wire.Notice | Pending) -> None:
        """Queues a message. Only notices wait for a connection; others are dropped without one."""
        if isinstance(message, wire.Notice):
            self._notices.append(message)
        elif self.welcomed and len(self._queue) < QUEUED:
            self._queue.append(message)
        else:
            return
        self._ring()

    def set_clock(self, megahertz: int) -> None:
        """Has litd set this rank's GPU to a clock, 0: the driver's choice. Never waits.

        It goes out from the calling thread, which saves waking the link's; where that can't be,
        the link's thread sends the latest. A new connection begins with it. Not for a process that
        was forked off.
        """
        self._clock = megahertz
        connection = self._connection
        if not self.welcomed or connection is None:
            return
        if not self._send_now(connection, wire.clock_frame(megahertz)):
            self._clock_waits = True
            self._ring()

    def _send_now(self, connection: _Connection, frame: bytes) -> bool:
        if not self._writing.acquire(False):
            return False
        try:
            # Within a frame that is half sent there is no place for another.
            if connection.unsent or not connection.owned.is_ours():
                return False
            sent = connection.socket.send(frame)
            connection.unsent[0:0] = frame[sent:]
        except OSError:
            return False
        finally:
            self._writing.release()
        if sent < len(frame):
            self._ring()
        return True

    def close(self, reason: str, timeout: float = 2.0) -> None:
        """Says goodbye and ends the thread, within `timeout` seconds."""
        if self._pid != os.getpid():
            return
        self._bye = reason
        self._closing = True
        self._ring()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            # Without its files it may not hear of it for a minute.
            self._thread.join(timeout if self._has_files() else 0.0)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _ring(self) -> None:
        if self._signalled or not self._owned[1].is_ours():
            return
        self._signalled = True
        # If it is full it has rung; if it is closed nobody is there to hear.
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    # The thread.

    def _run(self) -> None:
        try:
            hello = self._introduce()
            while hello is not None and not self._closing:
                self._sleep(self._attempt(hello))
        except Exception:
            log.exception("litd's thread has failed; training goes on without litd")
        finally:
            self._disconnect()
            for owned in self._owned:
                owned.close()

    def _attempt(self, hello: wire.Hello) -> float:
        """Connects and serves until the connection ends; answers after how long to try again."""
        try:
            self._serve(hello)
        except _LeftError as left:
            if left.final:
                self._closing = True
            return self._failed(str(left), left.wait)
        except (OSError, ValueError) as error:
            if not self._has_files():
                return self._lost()
            return self._failed(f"{self._path}: {error}", 0.0)
        finally:
            self._disconnect()
        return 0.0

    def _has_files(self) -> bool:
        return all(owned.is_ours() for owned in self._owned)

    def _lost(self) -> float:
        self._closing = True
        return self._failed(LOST, 0.0)

    def _failed(self, why: str, wait: float) -> float:
        if self._closing and self._bye:
            return 0.0
        connection = self._connection
        lasted = time.monotonic() - connection.since if connection and connection.welcomed else 0.0
        self._failures = 1 if lasted > LASTING_SECONDS else self._failures + 1
        wait = max(wait, self._patience.after(self._failures))
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        then = "no further try" if self._closing else "trying again from time to time"
        log.log(level, "no connection to litd (training goes on; %s): %s", then, why)
        return wait

    def _disconnect(self) -> None:
        self.welcomed = False
        self.directive = wire.Directive()
        self._forget()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.owned.close()

    def _forget(self) -> None:
        while self._queue:
            message = self._queue.popleft()
            if not isinstance(message, wire.Tick):
                message.drop()

    def _serve(self, hello: wire.Hello) -> None:
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection = self._connection = _Connection(stream)
        self._connect(stream)
        stream.setblocking(False)
        connection.unsent += wire.frame(hello.encode())
        while not self._closing:
            self._turn(connection)
        if connection.welcomed and connection.owned.is_ours():
            # Of what is queued, samples are not waited for any more.
            self._drain(connection)
            connection.unsent += wire.frame(wire.Bye(self._bye[:500]).encode())
            stream.settimeout(0.5)
            stream.sendall(connection.unsent)

    def _connect(self, stream: socket.socket) -> None:
        """Connects, and waits for a place in litd's queue if that is full.

        A socket that Python gives a timeout does not block: it would be told EAGAIN at once. So the
        kernel waits, for half a second each time.
        """
        stream.settimeout(None)
        half_a_second = struct.pack("@ll", 0, 500_000)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, half_a_second)
        deadline = time.monotonic() + QUEUE_SECONDS
        while error := stream.connect_ex(self._path):
            if error != errno.EAGAIN or self._closing or time.monotonic() > deadline:
                raise OSError(error, os.strerror(error))

    def _turn(self, connection: _Connection) -> None:
        """Waits until there is something to do, and does it."""
        stream = connection.socket
        # A deadline wants to be looked at; otherwise nothing happens by itself.
        busy = connection.unsent or not connection.welcomed or self._watch
        ready = ready_within(
            {
                self._ear: select.POLLIN,
                stream: select.POLLIN | (select.POLLOUT if connection.unsent else 0),
            },
            1.0 if busy else 60.0,
        )
        # While this thread slept their numbers may have become other files'.
        if not self._has_files():
            raise _LeftError(LOST, final=True)
        if not connection.owned.is_ours():
            raise _LeftError("this process has closed the connection's file")
        if ready.get(self._ear.fileno()):
            self._hear()
        if self._watch:
            self._watch()
        if ready.get(stream.fileno(), 0) & ~select.POLLOUT:
            self._receive(connection)
        if connection.welcomed:
            self._drain(connection)
        if ready.get(stream.fileno(), 0) & select.POLLOUT:
            self._write(connection)
        self._check(connection)

    def _hear(self) -> None:
        try:
            self._ear.recv(CHUNK)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                raise
        # What is queued after this rings again.
        self._signalled = False

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(HEARD)
        except BlockingIOError:
            return
        if not data:
            raise _LeftError("litd has closed the connection")
        now = time.monotonic()
        if now - connection.second > 1.0:
            connection.second, connection.heard = now, 0
        connection.heard += len(data)
        if connection.heard > MOST_HEARD:
            raise _LeftError("litd has sent more than this hook accepts")
        try:
            for message in connection.reader.take(data):
                self._take(connection, wire.decode(message))
        except wire.WireError as error:
            raise _LeftError(f"a message from litd can't be read: {error}") from error

    def _take(self, connection: _Connection, message: wire.ToHook | None) -> None:
        match message:
            case wire.Welcome(protocol, daemon):
                if not 1 <= protocol <= wire.PROTOCOL:
                    raise _LeftError(
                        f"litd {daemon} wants protocol {protocol}, which this hook does not know",
                        final=True,
                    )
                log.info("connected to litd %s", daemon)
                self._clock_waits = self._clock is not None
                connection.welcomed = self.welcomed = True
                # Before anything is measured.
                if self._told:
                    self._told(message)
                self.directive = message.directive
            case wire.Directive() if connection.welcomed:
                self.directive = message
            case wire.Refusal(code, reason, after):
                why = f"refused ({code.name.lower()}): {reason}"
                raise _LeftError(why, wait=after / 1e3, final=after == 0)
            case _:
                pass

    def _drain(self, connection: _Connection) -> None:
        while self._notices:
            connection.unsent += wire.frame(self._notices.popleft().encode())
        if self._clock_waits and self._clock is not None:
            self._clock_waits = False
            connection.unsent += wire.clock_frame(self._clock)
        while self._queue:
            message = self._queue.popleft()
            full = len(connection.unsent) > FULL
            if isinstance(message, wire.Tick):
                connection.unsent += b"" if full else wire.frame(message.encode())
            elif full:
                message.drop()
            else:
                self._collect(connection, message)

    def _collect(self, connection: _Connection, pending: Pending) -> None:
        try:
            columns = pending.collect(self._names, lambda: not self._closing)
            if columns is None:
                self._missed(pending)
                return
            self._misses = 0
            new = self._names.since(connection.names_sent)
            message = columns.message(pending.iteration, pending.duration_ns, new)
            frame = wire.frame(message.encode())
        except Exception:
            level = logging.DEBUG if self._warned_of_samples else logging.WARNING
            self._warned_of_samples = True
            log.log(level, "iteration %d was not collected", pending.iteration, exc_info=True)
            return
        if len(frame) <= wire.MAX_FRAME:
            connection.names_sent += len(new)
            connection.unsent += frame

    def _missed(self, pending: Pending) -> None:
        """There is no sample: if that goes on litd is told why, once."""
        if not pending.why:
            return
        log.info("iteration %d is no sample: %s", pending.iteration, pending.why)
        self._misses += 1
        if self._misses == MISSES and not self._told_why:
            self._told_why = True
            self._notices.append(wire.Notice(wire.Kind.UNSPECIFIED, f"no samples: {pending.why}"))

    def _write(self, connection: _Connection) -> None:
        with self._writing:
            try:
                sent = connection.socket.send(memoryview(connection.unsent)[:CHUNK].tobytes())
            except BlockingIOError:
                return
            del connection.unsent[:sent]
        connection.progress = time.monotonic()

    def _check(self, connection: _Connection) -> None:
        now = time.monotonic()
        if not connection.unsent:
            connection.progress = now
        elif now - connection.progress > STUCK_SECONDS:
            raise _LeftError(f"litd has read nothing for {STUCK_SECONDS:.0f} s")
        if not connection.welcomed and now - connection.since > WELCOME_SECONDS:
            raise _LeftError(f"litd has not answered within {WELCOME_SECONDS:.0f} s")

    def _sleep(self, seconds: float) -> None:
        """Sleeps, unless the link is closed meanwhile."""
        end = time.monotonic() + seconds
        while not self._closing and (left := end - time.monotonic()) > 0:
            if self._watch:
                self._watch()
                left = min(left, 1.0)
            is_rung = ready_within({self._ear: select.POLLIN}, left)
            if not self._has_files():
                self._lost()
            elif is_rung:
                self._hear()

    # A forked child has the sockets, and neither the thread nor any business with them.

    def _forked(self) -> None:
        self.welcomed = False
        self.directive = wire.Directive()
        self._ear.close()
        self._bell.close()
        if self._connection is not None:
            self._connection.socket.close()


_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _after_fork() -> None:
    for link in list(_links):
        link._forked()  # noqa: SLF001


os.register_at_fork(after_in_child=_after_fork)
