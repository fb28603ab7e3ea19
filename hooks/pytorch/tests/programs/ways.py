"""One way to measure, which is given up when it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litd import wire
from litd.place import Place


class Ways:
    """Measures every iteration that is asked for in one way."""

    def __init__(self, measure: Any) -> None:
        self.measure = measure
        self.tell: Callable[[wire.Notice], None] = lambda _notice: None
        self.off = False

    def prepare(self, job: str, at: Place) -> dict[str, str]:
        return {}

    def welcomed(self, welcome: wire.Welcome) -> None:
        pass

    def watch(self) -> None:
        pass

    def choose(self) -> Any:
        return None if self.off else self.measure

    def step(self, seconds: float, *, measured: bool) -> None:
        pass

    def failed(self, error: Exception) -> None:
        self.off = True

    def close(self) -> None:
        self.measure.close()
