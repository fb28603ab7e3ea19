"""litd: tells the node's power-cap balancer what this training process's GPU does.

    with litd.attach():
        train()

or `litd.attach(optimizer)` anywhere before training. If no daemon listens, the hook prints one
warning and tries again, at most once a minute. Whatever goes wrong, training goes on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from litd.carbon import checkpoint_due
from litd.scope import Detached

if TYPE_CHECKING:
    from pathlib import Path

    from litd.hook import Hook
    from litd.recording import Recorder

__version__ = "0.1.0"
__all__ = ["attach", "checkpoint_due", "record"]

log = logging.getLogger("litd")

_current: Hook | Detached | None = None


def attach(
    optimizer: Any = None,
    *,
    job: str | None = None,
    gpu: str | None = None,
    socket: str | None = None,
    steps_by_hand: bool = False,
) -> Hook | Detached:
    """Attaches this process to litd, as one rank of a training job.

    Iterations are the steps of `optimizer`, or of the first optimizer that steps; `Hook.step`
    counts them by hand. The hook finds rank, job and GPU at the first step; give `job` or `gpu`
    (a PCI address or a UUID) if it can't find them. `socket` is the path of the socket that litd
    listens at; without it the hook takes `LITD_SOCKET`, else `/run/litd/ingest.sock`. With
    `steps_by_hand` no optimizer is watched.

    A hook that is attached already is closed. Never raises: where there can be no hook (Windows
    has none of what it needs) what is returned does nothing.
    """
    global _current  # noqa: PLW0603
    if _current is not None:
        _current.close("attached anew")
    try:
        from litd.hook import Hook

        _current = Hook(
            optimizer, job=job, gpu_address=gpu, socket=socket, steps_by_hand=steps_by_hand
        )
    except Exception:
        log.warning("litd has no hook here; training goes on without", exc_info=True)
        _current = Detached()
    return _current


def record(
    directory: str | Path, optimizer: Any = None, *, skip: int = 10, iterations: int = 3
) -> Recorder:
    """Records some iterations as Kineto files, `rank0.json.gz` and so on, for `litctl analyze`.

    Iterations are counted as by `attach`. The first `skip` are not recorded; after `iterations`
    more the file is written, which takes a while. It needs no daemon.
    """
    from litd.recording import Recorder

    return Recorder(directory, optimizer, skip=skip, iterations=iterations)
