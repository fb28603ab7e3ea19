"""Where torch's profiler may be used: a canary, and what the node has learned.

Profilers have crashed jobs, lost kernels and stayed attached on some stacks: versions of torch, of
CUDA or ROCm, and of the library that the profiler uses. Stacks of which that is known are on a list
(`denied.py`). On any other stack one job on the node goes first: what it finds holds for the stack
on this node until it boots anew, and litd remembers it for longer.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import hashlib
import importlib.metadata
import json
import logging
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any

from litd import others
from litd.markers import Markers, boot, is_alive, process
from litd.slowdown import SETTLE

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("litd")

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Stack:
    """What a profiler's safety depends on."""

    torch: str
    runtime: str
    profiler: str

    @property
    def key(self) -> str:
        """A name for files."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]

    @property
    def is_known(self) -> bool:
        """Whether torch tells what it runs on."""
        return self.runtime != UNKNOWN


def of(torch: Any) -> Stack:
    """The stack of this process."""
    version = getattr(torch, "version", None)
    hip, cuda = getattr(version, "hip", None), getattr(version, "cuda", None)
    if hip:
        return Stack(str(torch.__version__), f"rocm {hip}", _rocm_library())
    if not cuda:
        return Stack(str(torch.__version__), UNKNOWN, UNKNOWN)
    return Stack(str(torch.__version__), f"cuda {cuda}", _cupti(str(cuda)))


def _cupti(cuda: str) -> str:
    for name in (f"nvidia-cuda-cupti-cu{cuda.partition('.')[0]}", "nvidia-cuda-cupti"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"cupti {importlib.metadata.version(name)}"
    return _loaded("libcupti") or f"cupti {UNKNOWN}"


def _rocm_library() -> str:
    for name in ("librocprofiler-sdk", "libroctracer64"):
        if found := _loaded(name):
            return found
    with contextlib.suppress(OSError):
        root = os.environ.get("ROCM_PATH", "/opt/rocm")
        return f"rocm {Path(root, '.info', 'version').read_text(encoding='utf-8').strip()}"
    return f"rocm {UNKNOWN}"


def _loaded(name: str) -> str:
    """A library of this process, with the version that its file's name ends in."""
    for path in others.loaded():
        stem, _, version = Path(path).name.partition(".so")
        if stem == name:
            return f"{name.removeprefix('lib')} {version.lstrip('.') or UNKNOWN}"
    return ""


def runtime_directory() -> Path | None:
    """Where this user's jobs on this node keep what they learned; `None` if nowhere is safe."""
    if given := os.environ.get("LITD_RUNTIME_DIR"):
        return _made(Path(given))
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return _made(Path(runtime) / "litd")
    path = Path(tempfile.gettempdir()) / f"litd-{os.getuid()}"
    return _made(path) or _beside(path)


def _made(path: Path) -> Path | None:
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        log.debug("%s: %s", path, error)
        return None
    return path if _is_ours(path) else None


def _is_ours(path: Path) -> bool:
    """Whether nobody else writes there: a folder that others have laid there could say anything."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _beside(path: Path) -> Path | None:
    """Another one, where somebody else has laid something at `path`, which anybody may in /tmp.

    Nobody can guess its name; all jobs of this user take the one that was made first.
    """

    def first() -> Path | None:
        return min(filter(_is_ours, path.parent.glob(f"{path.name}-*")), default=None)

    try:
        if found := first():
            return found
        tempfile.mkdtemp(prefix=f"{path.name}-{time.time_ns():020}-", dir=path.parent)
        return first()
    except OSError as error:
        log.debug("%s: %s", path, error)
        return None


class State(str, enum.Enum):
    """What is known of a stack on this node. Its file has these words."""

    CANARY = "canary"
    """This job is the first to use it."""
    TAKEN = "taken"
    """Another job is the first. No file says this."""
    PASSED = "passed"
    """The first job went on as before."""
    GOOD = "good"
    """Since then a process has had enough samples in a row without a loss."""
    MODULES = "modules"
    """This job is to time modules: its own kernels can't be had. Other jobs' can."""
    OFF = "off"
    """It has done harm."""


@dataclass(frozen=True)
class Verdict:
    """What is known of a stack on this node."""

    state: State
    reason: str = ""


CRASHED = "a process died while it profiled, perhaps because of the profiler"

_KEPT_JOBS = 8


class NodeRecord:
    """What this node knows of one stack: a file, changed under a lock, and marks beside it.

    All may raise `OSError`: then nothing is known, and nobody may profile.
    """

    def __init__(self, directory: Path, stack: Stack, job: str) -> None:
        self._file = directory / f"{stack.key}.json"
        self._lock = directory / f"{stack.key}.lock"
        self._markers = Markers(directory, stack.key)
        self._stack = stack
        self._job = job
        self._me = process(os.getpid())

    def enter(self) -> Verdict:
        """Takes part in the first use of the stack, if there was none."""
        with self._locked() as record:
            self._bury(record)
            state = record.get("state")
            if state == State.CANARY and record["job"] != self._job:
                self._succeed(record)
                state = record.get("state")
            if state is None:
                record.update(state=State.CANARY, job=self._job, members=[], profiling=[])
            if (known := self._known(record)) is not None:
                return known
            if record["job"] != self._job:
                return Verdict(State.TAKEN, "another job tries the profiler on this node")
            record["members"].append(self._me)
            return Verdict(State.CANARY)

    def begin(self) -> None:
        """Profiling begins here: if the process dies meanwhile the next one finds the mark."""
        self._markers.set()

    def end(self) -> None:
        """The process has survived it."""
        self._markers.clear()

    def settle(self, state: State, reason: str = "") -> None:
        """The stack has `passed`, is `good`, or is `off`, which nothing undoes."""
        with self._locked() as record:
            now = record.get("state")
            if now == State.OFF or (now == State.GOOD and state == State.PASSED):
                return
            record.update(state=state, reason=reason)
            record.setdefault("job", self._job)
            if state == State.GOOD:
                record.pop("deaths", None)

    def time_modules(self, reason: str) -> None:
        """All ranks of this job are to time modules from now on."""
        with self._locked() as record:
            jobs = {**record.get("modules", {}), self._job: reason}
            record["modules"] = dict(list(jobs.items())[-_KEPT_JOBS:])

    def leave(self) -> None:
        """Takes this process out before the canary has told anything."""
        self.end()
        with self._locked() as record:
            if record.get("state") != State.CANARY or record["job"] != self._job:
                return
            record["members"] = [one for one in record["members"] if one != self._me]
            if not record["members"]:
                _start_over(record)

    def look(self) -> Verdict | None:
        """What is known now."""
        with self._locked() as record:
            return self._known(record)

    def _known(self, record: dict[str, Any]) -> Verdict | None:
        state = record.get("state")
        if state != State.OFF and self._job in record.get("modules", {}):
            return Verdict(State.MODULES, record["modules"][self._job])
        if state in (State.PASSED, State.GOOD, State.OFF):
            return Verdict(State(state), record.get("reason", ""))
        return None

    def _bury(self, record: dict[str, Any]) -> None:
        """Processes that died while they profiled speak against the stack.

        Jobs are also killed for other reasons. Of a stack that was good one death is no proof: it
        has to pass anew, and then be good again before the next one.
        """
        if not self._markers.bury():
            return
        if record.get("state") == State.GOOD and not record.get("deaths"):
            _start_over(record)
            record["deaths"] = 1
        elif record.get("state") != State.OFF:
            record.update(state=State.OFF, reason=CRASHED)
            record.setdefault("job", self._job)

    def _succeed(self, record: dict[str, Any]) -> None:
        """The canary's job may have ended without a word."""
        if not any(is_alive(one) for one in record["members"]):
            _start_over(record)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        """The record, which is written back if it has changed."""
        with self._lock.open("a", encoding="utf-8") as lock:
            _flock(lock.fileno())
            before = self._read()
            record = json.loads(json.dumps(before))
            yield record
            if record != before:
                new = self._file.with_suffix(".new")
                whole = {**record, "boot": boot(), "stack": asdict(self._stack)}
                new.write_text(json.dumps(whole if record else {}), encoding="utf-8")
                new.replace(self._file)

    def _read(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            record: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))
            if record.pop("boot", None) == boot():
                record.pop("stack", None)
                return record
        return {}


def _start_over(record: dict[str, Any]) -> None:
    """The next job is the first one again."""
    kept: dict[str, Any] = {name: record[name] for name in ("deaths", "modules") if name in record}
    record.clear()
    record.update(kept)


def _flock(descriptor: int) -> None:
    """Takes the lock, which nobody holds for longer than a moment."""
    for _ in range(50):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.01)
    raise TimeoutError("another process does not release the lock of the stack's record")


class Canary:
    """Watches whether a job goes on after the first profiled iteration of a stack.

    It wants `BEFORE` iterations before and `AFTER` after that one; times are seconds. Whether they
    are slower is `slowdown`'s to tell.
    """

    BEFORE = 200
    AFTER = 50
    SETTLE = SETTLE
    MEDIANS = 10
    LEAST_SECONDS = 5.0
    """No step within so many median iterations, and so long, means that the job hangs."""

    def __init__(self) -> None:
        self._before: list[float] = []
        self._after = 0
        self._profiled_at: float | None = None
        self._settle = self.SETTLE
        self._step_at = 0.0

    def is_ready(self) -> bool:
        """Whether the next iteration may be profiled."""
        return self._profiled_at is None and len(self._before) >= self.BEFORE

    def has_profiled(self) -> bool:
        """Whether its profiled iteration was."""
        return self._profiled_at is not None

    def profiled(self, now: float) -> None:
        """The profiled iteration begins."""
        self._profiled_at = self._step_at = now

    def step(self, seconds: float, now: float, *, measured: bool) -> None:
        """An iteration has ended."""
        self._step_at = now
        if measured:
            return
        if self._profiled_at is None:
            if len(self._before) < self.BEFORE:
                self._before.append(seconds)
        elif self._settle > 0:
            self._settle -= 1
        else:
            self._after += 1

    def verdict(self, now: float) -> Verdict | None:
        """What is known by now."""
        if self._profiled_at is None:
            return None
        patience = max(self.MEDIANS * statistics.median(self._before), self.LEAST_SECONDS)
        if now - self._step_at > patience and self._after < self.MEDIANS:
            return Verdict(
                State.OFF, f"no step within {self.MEDIANS} iterations after a profiled one"
            )
        return Verdict(State.PASSED) if self._after >= self.AFTER else None
