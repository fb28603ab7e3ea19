"""For Lightning: `Trainer(..., callbacks=[LitdCallback()])`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import litd

if TYPE_CHECKING:
    from litd.hook import Hook
    from litd.scope import Detached


def _callback() -> Any:
    try:
        return importlib.import_module("lightning.pytorch").Callback
    except ImportError:
        return importlib.import_module("pytorch_lightning").Callback


_Callback: Any = _callback()


class LitdCallback(_Callback):
    """Attaches while a Trainer fits; takes what `litd.attach` takes.

    An iteration is over when the global step has moved: gradient accumulation is understood, and
    several optimizers that step for one batch are one iteration.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._hook: Hook | Detached | None = None
        self._step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Attaches."""
        del pl_module
        self._step = trainer.global_step
        self._hook = litd.attach(steps_by_hand=True, **self._options)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *more: Any, **kwargs: Any) -> None:
        """Counts a step of the optimizer, if there was one."""
        del pl_module, more, kwargs
        if self._hook is not None and trainer.global_step != self._step:
            self._step = trainer.global_step
            self._hook.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Says goodbye."""
        del trainer, pl_module
        self._close("training is over")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Says goodbye."""
        del trainer, pl_module
        self._close(f"training ended with {type(exception).__name__}")

    def _close(self, reason: str) -> None:
        if self._hook is not None:
            self._hook.close(reason)
            self._hook = None
