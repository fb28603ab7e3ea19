"""For Hugging Face's Trainer: `Trainer(..., callbacks=[LitdCallback()])`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

import litd

if TYPE_CHECKING:
    from litd.hook import Hook
    from litd.scope import Detached


class LitdCallback(TrainerCallback):
    """Attaches while a Trainer trains; takes what `litd.attach` takes.

    The Trainer's steps are the optimizer's: gradient accumulation is understood.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._hook: Hook | Detached | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Attaches."""
        del args, state, control, kwargs
        self._hook = litd.attach(steps_by_hand=True, **self._options)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Counts a step of the optimizer."""
        del args, state, control, kwargs
        if self._hook is not None:
            self._hook.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Says goodbye."""
        del args, state, control, kwargs
        if self._hook is not None:
            self._hook.close()
            self._hook = None
