"""Threads beside a training script's own, which it must not notice."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_FAULTS = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP")
"""These are of the thread that makes them."""

_TIMERS = ("SIGPROF",)
"""Sampling profilers want to see every thread."""


def background(run: Callable[[], None], name: str) -> threading.Thread:
    """A thread that ends with the process and takes none of its signals.

    A script that waits for a signal has blocked it in its own threads. Taken by this one it would
    end the process.
    """

    def shielded() -> None:
        here = {number for each in (*_FAULTS, *_TIMERS) if (number := getattr(signal, each, None))}
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - here)
        run()

    return threading.Thread(target=shielded, name=name, daemon=True)
