"""Waiting for sockets, also for those that somebody else may close, as `os.closerange` does.

Their numbers may then be other files', which must neither be written to nor closed.
"""

from __future__ import annotations

import contextlib
import os
import select
from socket import SOL_SOCKET
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket


class Owned:
    """A socket, and what it was when it was made."""

    def __init__(self, socket: socket.socket) -> None:
        self._socket = socket
        self._identity = _identity(socket)

    def is_ours(self) -> bool:
        """Whether its number still stands for it."""
        try:
            # What `_identity` begins with, for a clock to be set the sooner.
            return self._socket.getsockopt(SOL_SOCKET, SO_COOKIE, 8) == self._identity
        except OSError:
            return self._identity is not None and _identity(self._socket) == self._identity

    def close(self) -> None:
        """Closes the socket, or only forgets its number if that is not its own any more."""
        if self.is_ours():
            with contextlib.suppress(OSError):
                self._socket.close()
        else:
            self._socket.detach()


SO_COOKIE = 57
"""A number that no other socket has had since the node was switched on (Linux 4.12)."""


def _identity(socket: socket.socket) -> bytes | tuple[int, int] | None:
    try:
        # Takes half of the time that `fstat` does, which makes an object of twenty numbers.
        return socket.getsockopt(SOL_SOCKET, SO_COOKIE, 8)
    except OSError:
        # It is older, a sandbox's (gVisor), or no socket any more.
        pass
    try:
        status = os.fstat(socket.fileno())
    except OSError:
        return None
    return status.st_dev, status.st_ino


def ready_within(wanted: dict[socket.socket, int], seconds: float) -> dict[int, int]:
    """What has happened to which file within so many seconds.

    By poll: select takes no files above 1,024, and training opens many.
    """
    poll = select.poll()
    for stream, events in wanted.items():
        poll.register(stream, events)
    return dict(poll.poll(max(1.0, seconds * 1e3)))
