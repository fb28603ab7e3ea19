"""Marks of processes that profile, in files: one that dies meanwhile leaves its mark behind.

A mark is set before each profiled iteration and cleared after it, by the training thread, so it
takes no lock: a file of its own for each process.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_SECONDS = 1800.0
"""No profiled iteration lasts longer. Of processes that can't be seen only that tells."""


class Markers:
    """The marks of one stack."""

    def __init__(self, directory: Path, key: str) -> None:
        pid, began = process(os.getpid())
        self._key = key
        self._directory = directory
        self._mine = directory / f"{key}.{boot()}.{_namespace()}.{pid}.{began}.profiling"
        self._is_set = False

    def set(self) -> None:
        """Profiling begins in this process."""
        self._mine.touch(mode=0o600)
        self._is_set = True

    def clear(self) -> None:
        """The process has survived it."""
        if self._is_set:
            self._is_set = False
            self._mine.unlink(missing_ok=True)

    def bury(self) -> int:
        """Takes away the marks of processes that have died; answers with how many did so here."""
        dead = 0
        for path in self._directory.glob(f"{self._key}.*.profiling"):
            with contextlib.suppress(OSError, ValueError):
                there, namespace, pid, began = path.name.split(".")[1:5]
                if there != boot():
                    path.unlink()
                elif self._is_dead(path, namespace, [int(pid), int(began)]):
                    path.unlink()
                    dead += 1
        return dead

    @staticmethod
    def _is_dead(path: Path, namespace: str, one: Sequence[int]) -> bool:
        if namespace == _namespace():
            return not is_alive(one)
        # A container's processes have numbers of their own.
        return time.time() - path.stat().st_mtime > LONGEST_SECONDS


def boot() -> str:
    """Which boot of the node this is."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _namespace() -> str:
    with contextlib.suppress(OSError):
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    return ""


def process(pid: int) -> list[int]:
    """A process: its number, which may be used again, and when it began."""
    return [pid, _began(pid)]


def is_alive(one: Sequence[int]) -> bool:
    """Whether that process still runs."""
    pid, began = one
    return began != 0 and _began(pid) == began


def _began(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *rest = text.rpartition(")")[2].split()
        # Of a process that has ended only its entry may be left.
        return 0 if state in "ZX" else int(rest[18])
    return 0
