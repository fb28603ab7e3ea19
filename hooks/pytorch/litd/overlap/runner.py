"""Runs stretches of computations and communications: one by one, or as two nanobatches in turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litd.overlap.network import LIBRARY
from litd.overlap.turns import turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litd.overlap.nanobatch import Nanobatch, Weights
    from litd.overlap.network import Beside
    from litd.overlap.plan import Launch, Launches
    from litd.overlap.turns import Exchange, Stretch, Task, Turn


@dataclass(frozen=True)
class Event:
    """Something that began."""

    nanobatch: int
    """Whose it is. Nanobatches that run one after another are all number 0."""
    began: Task | Exchange
    partition: str | None = None
    """Where it is a communication beside computations."""
    sms: int = LIBRARY
    """How many multiprocessors the communication has."""


class Runner:
    """Runs stretches, and records what it begins, in that order."""

    def __init__(self, network: Beside, record: Callable[[Event], object] | None = None) -> None:
        self._network = network
        self._record = record or (lambda _event: None)

    def sequential(
        self, stretches: Sequence[Stretch], nanobatch: Nanobatch, weights: Weights
    ) -> None:
        """Each computation and each communication by itself."""
        for stretch in stretches:
            self._compute(stretch.tasks, 0, nanobatch, weights)
            if stretch.exchange is not None:
                self._record(Event(0, stretch.exchange))
                self._network.launch(stretch.exchange, nanobatch, LIBRARY)()

    def overlapped(
        self,
        stretches: Sequence[Stretch],
        nanobatches: Sequence[Nanobatch],
        weights: Weights,
        launches: Launches,
    ) -> None:
        """Two nanobatches in turns, each over once its computations and its communication are."""
        for turn in turns(stretches):
            launch = launches[turn.partition] if turn.partition else None
            self.turn(turn, nanobatches, weights, launch)

    def turn(
        self,
        turn: Turn,
        nanobatches: Sequence[Nanobatch],
        weights: Weights,
        launch: Launch | None,
    ) -> None:
        """One turn; a communication without a launch begins at once, as the library has it."""
        computes, communicates = turn.nanobatch, 1 - turn.nanobatch
        own = nanobatches[computes]
        place = turn.stretch.place(launch.at) if turn.stretch and launch else 0
        self._compute(turn.tasks[:place], computes, own, weights)
        finish = None
        if turn.beside is not None:
            sms = launch.sms if launch else LIBRARY
            self._record(Event(communicates, turn.beside, turn.partition, sms))
            finish = self._network.launch(turn.beside, nanobatches[communicates], sms)
        self._compute(turn.tasks[place:], computes, own, weights)
        if finish is not None:
            finish()

    def _compute(
        self, tasks: Sequence[Task], number: int, nanobatch: Nanobatch, weights: Weights
    ) -> None:
        for task in tasks:
            self._record(Event(number, task))
            nanobatch.run(task, weights)
