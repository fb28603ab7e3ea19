"""The hook: counts a training job's iterations and measures those that litd asks for.

It must never hurt the job. Whatever goes wrong here ends here; only interrupts go through.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import platform
import time
from typing import TYPE_CHECKING, Any, Protocol

import litd
from litd import gpu, place, stages, wire
from litd.kernels import NameTable
from litd.link import DEFAULT_SOCKET, Link
from litd.measures import Measures
from litd.scope import OVER, Scope
from litd.steps import StepCounter

if TYPE_CHECKING:
    from collections.abc import Callable

    from litd.measures import Measure
    from litd.patience import Patience
    from litd.place import Place

log = logging.getLogger("litd")

GPU_STEPS = 10
"""Steps within which a job begins to use its GPU."""

MOST_FAULTS = 3
"""After so many faults of its own the hook does nothing more."""


class Ways(Protocol):
    """How iterations are measured: `litd.measures.Measures`, or a test's stand-in."""

    tell: Callable[[wire.Notice], None]

    def prepare(self, job: str, at: Place) -> dict[str, str]:
        """Called by the link's thread before all else; answers with versions for litd."""

    def welcomed(self, welcome: wire.Welcome) -> None:
        """Called by the link's thread whenever litd has let this rank in."""

    def watch(self) -> None:
        """Called by the link's thread about once a second."""

    def choose(self) -> Measure | None:
        """How the next iteration is measured."""

    def step(self, seconds: float, *, measured: bool) -> None:
        """An iteration has ended."""

    def failed(self, error: Exception) -> None:
        """Measuring has failed."""

    def close(self) -> None:
        """Ends for good."""


class Hook(Scope):
    """Tells litd what this rank does. Made by `litd.attach`.

    Use it as a context manager, or call `close` in the end; a process that ends does so itself.
    """

    def __init__(
        self,
        optimizer: Any = None,
        *,
        job: str | None = None,
        gpu_address: str | None = None,
        socket: str | None = None,
        steps_by_hand: bool = False,
        ways: Ways | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._job = job
        self._gpu = gpu_address
        self._socket = socket or os.environ.get("LITD_SOCKET") or DEFAULT_SOCKET
        self._ways = ways
        self._patience = patience
        self._pid = os.getpid()
        self._faults = 0
        self._iteration = 0
        self._began_ns = 0
        self._measuring: Measure | None = None
        self._is_open = True
        self._alone = False
        self._link: Link | None = None
        self._counter: StepCounter | None = None
        self._index: int | None = None
        self._torch = _torch()
        if self._torch is not None and not steps_by_hand:
            self._follow(optimizer)
        elif not steps_by_hand and optimizer is not None:
            log.warning("torch is not there: call hook.step() after each iteration")
        atexit.register(self.close)

    @property
    def iteration(self) -> int:
        """The number of the iteration that runs: steps since the hook was attached."""
        return self._iteration

    @property
    def is_connected(self) -> bool:
        """Whether litd listens."""
        return self._link is not None and self._link.welcomed

    def step(self) -> None:
        """Tells that an iteration is over, where no optimizer tells it. Never raises."""
        self._guarded(lambda: self._step(None))

    def set_clock(self, megahertz: int) -> None:
        """Asks litd to lock this rank's GPU to a clock, in MHz; 0 unlocks it. Never raises.

        litd sends no answer. It locks the clock in the mode `on` only, and unlocks it when this
        process ends.
        """
        if not self._is_open or self._pid != os.getpid():
            return
        if self._link is None:
            # Elsewhere that happens at the first step; a plan begins before that.
            self._guarded(lambda: self._begin(None))
            self._began_ns = time.perf_counter_ns()
        if self._link is not None:
            # As `_guarded` does it, without a function made for it: the driver has to wait.
            try:
                self._link.set_clock(megahertz)
            except Exception:
                self._fault()

    def close(self, reason: str = OVER) -> None:
        """Says goodbye and undoes everything. Never raises; once is enough."""
        if self._is_open and self._pid == os.getpid():
            self._is_open = False
            self._guarded(lambda: self._close(reason))
            atexit.unregister(self.close)

    # All of the training thread.

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception:
            self._fault()

    def _fault(self) -> None:
        """Of what is being handled now: a few, and the hook switches itself off."""
        self._faults += 1
        log.debug("a fault in litd's hook", exc_info=True)
        if self._faults == MOST_FAULTS:
            log.warning("litd's hook has failed and is off; training goes on", exc_info=True)
            self.close("the hook has failed")

    def _follow(self, optimizer: Any) -> None:
        counter = StepCounter(lambda stepped: self._guarded(lambda: self._step(stepped)))
        try:
            follows = counter.follow(self._torch, optimizer)
        except Exception:
            log.debug("no way to follow %r", type(optimizer), exc_info=True)
            follows = False
        if follows:
            self._counter = counter
            return
        what = type(optimizer).__name__ if optimizer is not None else "optimizers"
        log.warning("litd can't see the steps of %s: call hook.step() after each iteration", what)

    def _step(self, optimizer: Any) -> None:
        if not self._is_open or self._pid != os.getpid() or self._captures():
            return
        try:
            if self._link is not None:
                self._finish_iteration(self._link)
            elif self._knows_gpu(optimizer):
                self._begin(optimizer)
        finally:
            # Whatever goes wrong here, all ranks count alike.
            self._iteration += 1
            self._began_ns = time.perf_counter_ns()
        self._begin_iteration(self._link)
        self._began_ns = time.perf_counter_ns()

    def _captures(self) -> bool:
        """Whether this step only becomes part of a CUDA graph: it is no iteration yet."""
        return gpu.in_use(self._torch) and bool(self._torch.cuda.is_current_stream_capturing())

    def _knows_gpu(self, optimizer: Any) -> bool:
        """Whether this is the time to find out who this rank is: once its GPU is in use."""
        if self._gpu is not None or self._iteration >= GPU_STEPS:
            return True
        return _device_index(self._torch, optimizer) is not None

    def _begin(self, optimizer: Any) -> None:
        """At the first step: by then the job has its groups, and its GPU."""
        self._index = _device_index(self._torch, optimizer)
        if self._ways is None and self._torch is not None and self._index is not None:
            self._ways = Measures(self._torch, self._index)
        watch = welcomed = None
        if self._ways is not None:
            watch, welcomed = self._ways.watch, self._ways.welcomed
        self._link = Link(
            self._socket,
            self._introduce,
            NameTable(),
            watch,
            patience=self._patience,
            told=welcomed,
        )
        if self._ways is not None:
            self._ways.tell = self._link.send
        self._link.start()

    def _finish_iteration(self, link: Link) -> None:
        measure, self._measuring = self._measuring, None
        pending = None
        if measure is not None:
            try:
                pending = measure.end(self._iteration)
            except Exception as error:
                self._failed(error)
        ended = pending.ended_ns if pending is not None else 0
        overhead = pending.overhead_ns if pending is not None else 0
        duration = max(0, (ended or time.perf_counter_ns()) - self._began_ns)
        if self._ways is not None:
            self._ways.step(duration / 1e9, measured=measure is not None)
        link.send(wire.Tick(self._iteration, duration, measure is not None, overhead))
        if pending is not None:
            pending.duration_ns = duration
            link.send(pending)

    def _begin_iteration(self, link: Link | None) -> None:
        if link is None or self._ways is None or self._alone:
            return
        if not link.directive.profiles(self._iteration):
            return
        measure = self._ways.choose()
        if measure is None:
            return
        try:
            if measure.begin():
                self._measuring = measure
        except Exception as error:
            self._failed(error)
        except BaseException:
            # Training may go on after an interrupt, and nothing of this must go on with it.
            with contextlib.suppress(Exception):
                measure.abort()
            raise

    def _failed(self, error: Exception) -> None:
        if self._ways is not None:
            self._ways.failed(error)

    def _close(self, reason: str) -> None:
        if self._counter is not None:
            self._counter.stop()
        measure, self._measuring = self._measuring, None
        if measure is not None:
            try:
                measure.abort()
            except Exception as error:
                self._failed(error)
        if self._link is not None:
            self._link.close(reason)
        if self._ways is not None:
            self._ways.close()

    # Of the link's thread.

    def _introduce(self) -> wire.Hello | None:
        """Who this rank is; `None`, with a warning, if that can't be told."""
        if self._torch is not None and self._index is not None:
            gpu.permit_captures(hip=gpu.is_rocm(self._torch))
        found = place.find(self._torch)
        if found is None:
            log.warning(
                "this process does not connect to litd: RANK, LOCAL_RANK, WORLD_SIZE and"
                " LOCAL_WORLD_SIZE (or your launcher's own variables) are not all set, or don't fit"
                " each other; start it with torchrun, mpirun or srun"
            )
            return None
        address = self._gpu or self._address()
        if address is None:
            log.warning(
                "this process does not connect to litd: its GPU could not be determined; name it"
                ' with litd.attach(gpu="PCI address or UUID")'
            )
            return None
        # Leads compare GPUs.
        self._alone = found.local_world_size < 2
        job = place.tidy(self._job) if self._job else found.job
        versions = _versions(self._torch)
        if self._ways is not None and not self._alone:
            versions |= self._ways.prepare(job, found)
        elif self._ways is None and self._link is not None:
            why = "no samples: torch uses no GPU in this process"
            log.info(why)
            self._link.send(wire.Notice(wire.Kind.UNSPECIFIED, why))
        return wire.Hello(
            job=job,
            rank=found.rank,
            local_rank=found.local_rank,
            world_size=found.world_size,
            local_world_size=found.local_world_size,
            gpu=address,
            versions=versions,
            group=stages.group(self._torch) if self._torch is not None else "",
        )

    def _address(self) -> str | None:
        if self._torch is None or self._index is None:
            return None
        return gpu.address(self._torch, self._index)


def _torch() -> Any:
    """The training script's torch; `None` where there is none."""
    try:
        return importlib.import_module("torch")
    except Exception:
        log.debug("no torch", exc_info=True)
        return None


def _device_index(torch: Any, optimizer: Any) -> int | None:
    """The GPU that the job's parameters are on, or else the present one."""
    if not gpu.in_use(torch):
        return None
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group["params"]:
            device: Any = getattr(parameter, "device", None)
            if getattr(device, "type", "") == "cuda" and device.index is not None:
                return int(device.index)
    return int(torch.cuda.current_device())


def _versions(torch: Any) -> dict[str, str]:
    versions = {"litd": litd.__version__, "python": platform.python_version()}
    if torch is not None:
        versions["torch"] = str(torch.__version__)
        for name in ("cuda", "hip"):
            if version := getattr(getattr(torch, "version", None), name, None):
                versions[name] = str(version)
    return versions
