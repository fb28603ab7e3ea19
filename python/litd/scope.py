"""What is entered by `with` and ends with it, or when somebody closes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

OVER = "training is over"

_Self = TypeVar("_Self", bound="Scope")


class Scope:
    """Something that lasts for as long as a job trains."""

    def close(self, reason: str = OVER) -> None:
        """Ends; `reason` says why, in words. Never raises; once is enough."""
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(f"training ended with {kind.__name__}" if kind else OVER)
