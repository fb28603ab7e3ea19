"""What is entered by `with` and ends with it, or when somebody closes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

OVER = "training is over"

_Self = TypeVar("_Self", bound="Scope")


class Scope:
    """Something that lasts for as long as a job trains.

    It belongs to one process: a copy is itself, and what is unpickled elsewhere does nothing. A
    model or a trainer that has one as a member can be copied and saved as ever.
    """

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

    def __copy__(self: _Self) -> _Self:
        return self

    def __deepcopy__(self: _Self, _memo: object) -> _Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Detached, ()


class Detached(Scope):
    """Has what a hook or a recorder has, and does nothing."""

    iteration = 0
    is_connected = False
    path = None

    def step(self) -> None:
        """Counts nothing."""

    def set_clock(self, megahertz: int) -> None:
        """Sets nothing."""

    def close(self, reason: str = OVER) -> None:
        """Ends nothing."""
