"""Waiting for sockets, also for those that somebody else may close, as `os.closerange` does.

Their numbers may then be other files', which must neither be written to nor closed.
"""

from __future__ import annotations

import contextlib
import os
import select
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
        return self._identity is not None and _identity(self._socket) == self._identity

    def close(self) -> None:
        """Closes the socket, or only forgets its number if that is not its own any more."""
        if self.is_ours():
            with contextlib.suppress(OSError):
                self._socket.close()
        else:
            self._socket.detach()


def _identity(socket: socket.socket) -> tuple[int, int] | None:
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
