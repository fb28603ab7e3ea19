"""What a waiting GPU draws: on a made-up board, and with two processes on CPUs."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from litd import blocking
from tests import processes


class Board:
    """Draws 400 W until 3 s after it began to wait, then 90 W; its counter moves every 100 ms."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now

    def joules(self) -> float:
        self.now += 0.003
        seen = self.now // 0.1 * 0.1
        return 400.0 * min(seen, 3.0) + 90.0 * max(seen - 3.0, 0.0)

    def limit_w(self) -> float:
        return 700.0


class Dist:
    """Two ranks, of which this is one; a message comes when it is time."""

    def __init__(self, board: Board, rank: int, *, ranks: int = 2, comes_at: float = 1e9) -> None:
        self.said: list[tuple[str, float]] = []
        self._board, self._rank, self._ranks, self._comes_at = board, rank, ranks, comes_at

    def get_world_size(self) -> int:
        return self._ranks

    def get_rank(self) -> int:
        return self._rank

    def send(self, _message: Any, dst: int) -> None:
        self.said.append((f"send to {dst}", self._board.now))

    def recv(self, _message: Any, src: int) -> None:
        self.said.append((f"receive from {src}", self._board.now))

    def irecv(self, _message: Any, src: int) -> Any:
        self.said.append((f"wait for {src}", self._board.now))
        board, comes_at = self._board, self._comes_at
        return SimpleNamespace(is_completed=lambda: board.now >= comes_at, wait=lambda: None)


def bench(board: Board) -> Any:
    torch = SimpleNamespace(zeros=lambda *_sizes, device: [0.0])
    return SimpleNamespace(torch=torch, device="cpu", meter=board, wait=lambda: None)


def run(board: Board, dist: Dist, seconds: tuple[float, float] = (5.0, 10.0)) -> float | None:
    return blocking.measured(dist, bench(board), seconds, sleep=board.sleep, clock=board.clock)


def test_the_waiting_rank_is_measured_once_its_power_has_fallen() -> None:
    board = Board()
    dist = Dist(board, 0)
    assert run(board, dist) == pytest.approx(90.0, rel=0.001)
    assert [what for what, _ in dist.said] == ["receive from 1", "wait for 1"]
    # Measured too early it is another number: the test's board does fall.
    early = Board()
    assert run(early, Dist(early, 0), (0.0, 2.0)) == pytest.approx(400.0, rel=0.001)


def test_the_other_rank_sleeps_until_the_measurement_is_over() -> None:
    board = Board()
    dist = Dist(board, 1)
    assert run(board, dist) is None
    (_, first), (_, second) = dist.said
    assert second - first == pytest.approx(18.0)


def test_a_message_that_comes_too_early_is_no_measurement() -> None:
    board = Board()
    with pytest.raises(TimeoutError, match="run again"):
        run(board, Dist(board, 0, comes_at=8.0))


def test_two_ranks_it_takes() -> None:
    board = Board()
    with pytest.raises(ValueError, match="start two"):
        run(board, Dist(board, 0, ranks=3))


def test_two_processes_on_cpus_say_that_it_is_simulated() -> None:
    pytest.importorskip("torch")
    command = ("-m", "litd.blocking", "--stand-in", "--settle", "0.1", "--measured", "0.5")
    first, second = processes.run(*command, ranks=2, timeout=120)
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert second[1] == ""
    found = json.loads(first[1])
    assert found["blocking_w"] == pytest.approx(100.0, rel=0.01)
    assert found["simulated"] is True
