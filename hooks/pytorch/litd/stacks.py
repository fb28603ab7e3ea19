"""Where torch's profiler may be used: an allow-list, a canary, and what the node has learned.

Profilers have crashed jobs, lost kernels and stayed attached on some stacks: versions of torch, of
CUDA or ROCm, and of the library that the profiler uses. So modules are timed instead, unless the
stack is on the list (`stacks.json`). Even then one job on the node goes first, once: what it finds
holds for the stack on this node until it boots anew.
"""

from __future__ import annotations

import contextlib
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

from litd.slowdown import SETTLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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

    def is_allowed(self) -> bool:
        """Whether it is on the list. What isn't known is not."""
        if UNKNOWN in (self.torch, self.runtime, self.profiler):
            return False
        text = Path(__file__).with_name("stacks.json").read_text(encoding="utf-8")
        return asdict(self) in json.loads(text)["allowed"]


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
    return UNKNOWN


def _rocm_library() -> str:
    with contextlib.suppress(OSError):
        root = os.environ.get("ROCM_PATH", "/opt/rocm")
        return f"rocm {Path(root, '.info', 'version').read_text(encoding='utf-8').strip()}"
    return UNKNOWN


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


@dataclass(frozen=True)
class Verdict:
    """What is known of a stack on this node."""

    state: str
    """`canary` (this job is the first), `taken` (another one is), `passed` or `off`."""
    reason: str = ""


class NodeRecord:
    """What this node knows of one stack: a file, changed under a lock."""

    def __init__(self, directory: Path, stack: Stack, job: str) -> None:
        self._file = directory / f"{stack.key}.json"
        self._lock = directory / f"{stack.key}.lock"
        self._stack = stack
        self._job = job
        self._me = _process(os.getpid())

    def enter(self) -> Verdict:
        """Takes part in the first use of the stack, if there was none."""
        with self._locked() as record:
            state = record.get("state")
            if state == "canary" and record["job"] != self._job:
                self._succeed(record)
                state = record.get("state")
            if state is None:
                record.update(state="canary", job=self._job, members=[], profiling=[])
            if record["state"] in ("passed", "off"):
                return Verdict(record["state"], record.get("reason", ""))
            if record["job"] != self._job:
                return Verdict("taken", "another job tries the profiler on this node")
            record["members"].append(self._me)
            return Verdict("canary")

    def profiling(self, *, is_on: bool) -> None:
        """Notes that this process begins to profile, or has survived it."""
        with self._locked() as record:
            others = [one for one in record.get("profiling", []) if one != self._me]
            record["profiling"] = [*others, self._me] if is_on else others

    def settle(self, state: str, reason: str = "") -> None:
        """The stack has `passed`, or is `off`, which nothing undoes."""
        with self._locked() as record:
            if record.get("state") != "off":
                record.update(state=state, reason=reason)

    def leave(self) -> None:
        """Takes this process out before the canary has told anything."""
        with self._locked() as record:
            if record.get("state") != "canary" or record["job"] != self._job:
                return
            for who in ("members", "profiling"):
                record[who] = [one for one in record[who] if one != self._me]
            if not record["members"]:
                record.clear()

    def look(self) -> Verdict | None:
        """What is known now."""
        with self._locked() as record:
            if record.get("state") in ("passed", "off"):
                return Verdict(record["state"], record.get("reason", ""))
        return None

    def _succeed(self, record: dict[str, Any]) -> None:
        """The canary's job may have ended without a word: then it depends on how."""
        if any(not _is_alive(one) for one in record["profiling"]):
            reason = "a process of the first job that profiled has died of it, or meanwhile"
            record.update(state="off", reason=reason)
        elif not any(_is_alive(one) for one in record["members"]):
            record.clear()

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
                whole = {**record, "boot": _boot(), "stack": asdict(self._stack)}
                new.write_text(json.dumps(whole if record else {}), encoding="utf-8")
                new.replace(self._file)

    def _read(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            record: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))
            if record.pop("boot", None) == _boot():
                record.pop("stack", None)
                return record
        return {}


def _flock(descriptor: int) -> None:
    """Takes the lock, which nobody holds for longer than a moment."""
    for _ in range(50):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.01)
    raise TimeoutError("the lock of the stack's record is not given back")


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _process(pid: int) -> list[int]:
    """A process: its number, which may be used again, and when it began."""
    return [pid, _began(pid)]


def _began(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *rest = text.rpartition(")")[2].split()
        # Of a process that has ended only its entry may be left.
        return 0 if state in "ZX" else int(rest[18])
    return 0


def _is_alive(process: Sequence[int]) -> bool:
    pid, began = process
    return began != 0 and _began(pid) == began


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
            return Verdict("off", f"no step within {self.MEDIANS} iterations after a profiled one")
        return Verdict("passed") if self._after >= self.AFTER else None
