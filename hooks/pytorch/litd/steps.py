"""Counts iterations by an optimizer's steps.

A step of the optimizer is one iteration however many micro-batches it has taken, so gradient
accumulation needs no attention. Where nobody names an optimizer, the first one that steps counts:
jobs with several step each of them once per iteration. One that is gone, or has not stepped while
another did many times, has been replaced.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


REPLACED = 100
"""After so many steps of another optimizer, and none of its own, one is not used any more."""


STEPS_GROUPS = "deepspeed.runtime.zero."
"""Optimizers of these modules have the one within step for each group of parameters in turn."""


class StepCounter:
    """Calls `stepped` after every step of one optimizer, until it is stopped."""

    def __init__(self, stepped: Callable[[Any], None]) -> None:
        self._stepped = stepped
        self._handle: Any = None
        self._optimizer: weakref.ref[Any] | None = None
        self._other: weakref.ref[Any] | None = None
        self._others_steps = 0
        self._file = ""

    def follow(self, torch: Any, optimizer: Any = None) -> bool:
        """Counts this optimizer's steps, or those of the first that steps.

        False if that can't be done: then somebody must say where iterations end.
        """
        if optimizer is not None:
            if type(optimizer).__module__.startswith(STEPS_GROUPS):
                return False
            optimizer = innermost(optimizer)
            if not isinstance(optimizer, torch.optim.Optimizer):
                return False
            self._optimizer = weakref.ref(optimizer)
        # `torch.optim` does not show its module of this name in every release.
        module = sys.modules[torch.optim.Optimizer.__module__]
        self._file = str(module.__file__)
        self._handle = _hook_all(torch, module, self._after)
        return self._handle is not None

    def stop(self) -> None:
        """Counts no more."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _after(self, optimizer: Any, _args: Any = (), _kwargs: Any = None) -> None:
        if self._counts(optimizer) and not self._is_within(optimizer):
            self._stepped(optimizer)

    # torch.compile leaves functions with this mark alone.
    _after._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001

    def _counts(self, optimizer: Any) -> bool:
        """Whether this is the optimizer whose steps are counted."""
        known = self._optimizer() if self._optimizer is not None else None
        if known is not None and known is not optimizer:
            same = self._other is not None and self._other() is optimizer
            self._others_steps = self._others_steps + 1 if same else 1
            self._other = weakref.ref(optimizer)
            if self._others_steps < REPLACED:
                return False
        if known is not optimizer:
            self._optimizer = weakref.ref(optimizer)
        self._other, self._others_steps = None, 0
        return True

    def _is_within(self, optimizer: Any) -> bool:
        """Whether this step is part of another one of the same optimizer, as by `super().step()`.

        Torch calls hooks after either. Only who has called whom tells them apart: a step that
        raises calls none.
        """
        steps = 0
        frame = sys._getframe(1)  # noqa: SLF001
        while frame is not None:
            code = frame.f_code
            if code.co_name == "wrapper" and code.co_filename == self._file:
                arguments = frame.f_locals.get("args") or (None,)
                steps += arguments[0] is optimizer
            frame = frame.f_back  # type: ignore[assignment]
        return steps > 1


def innermost(optimizer: Any) -> Any:
    """The optimizer that steps in the end: Accelerate, DeepSpeed and others wrap it."""
    for _ in range(10):
        inner = getattr(optimizer, "optimizer", None)
        if inner is None or not hasattr(inner, "step"):
            break
        optimizer = inner
    return optimizer


def _hook_all(torch: Any, module: Any, after: Callable[..., None]) -> Any:
    """Has `after` called after every optimizer's step; `None` if this torch has no way."""
    if hasattr(module, "register_optimizer_step_post_hook"):
        return module.register_optimizer_step_post_hook(after)
    if hasattr(torch.optim.Optimizer, "_optimizer_step_code"):
        return _OldHook(torch.optim.Optimizer, after)
    return None


class _OldHook:
    """For torch 1.13, which has no hooks, but a method that it calls after every step."""

    def __init__(self, cls: Any, after: Callable[..., None]) -> None:
        self._cls = cls
        self._before = before = cls._optimizer_step_code
        self._is_on = True

        def after_step(optimizer: Any) -> None:
            before(optimizer)
            if self._is_on:
                after(optimizer)

        self._mine = after_step
        cls._optimizer_step_code = after_step

    def remove(self) -> None:
        """Calls no more, and puts the method back unless somebody else has replaced it since."""
        self._is_on = False
        if self._cls._optimizer_step_code is self._mine:  # noqa: SLF001
            self._cls._optimizer_step_code = self._before  # noqa: SLF001
