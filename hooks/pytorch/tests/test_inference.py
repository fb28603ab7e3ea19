"""The profilers for `litctl predict`: the harness on a made-up clock, and files on CPUs."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import pytest

from litd import inference


class Board:
    """A clock that calls move on, and a meter that draws more while they run."""

    def __init__(self, call_s: float, watts: float) -> None:
        self.now = 0.0
        self.energy = 0.0
        self.calls = 0
        self._call_s, self._watts = call_s, watts

    def call(self) -> None:
        self.calls += 1
        self.now += self._call_s
        self.energy += self._watts * self._call_s

    def wait(self) -> None:
        # Waiting costs the host 10 us, at idle power.
        self.now += 1e-5
        self.energy += 50.0 * 1e-5

    def clock(self) -> float:
        return self.now

    def joules(self) -> float:
        return self.energy

    def limit_w(self) -> float:
        return 700.0


def test_latency_and_power_are_those_of_the_measured_part() -> None:
    board = Board(call_s=0.001, watts=300.0)
    found = inference.measure(board.call, board.wait, board, clock=board.clock)
    assert found.latency_ms == pytest.approx(1.0, rel=0.01)
    assert found.power_w == pytest.approx(300.0, rel=0.01)
    # 40 s measured after 20 s of warming up.
    assert found.repeats == pytest.approx(40_000, rel=0.02)
    assert board.calls == pytest.approx(60_000, rel=0.02)


class SteppedBoard(Board):
    """Its counter moves every 100 ms, as an H100's, and takes 3 ms to be read."""

    def joules(self) -> float:
        self.now += 0.003
        return self._watts * (self.now // 0.1 * 0.1)


@pytest.mark.parametrize("measured_s", [0.55, 1.0, 1.37])
def test_power_of_a_short_part_is_not_that_of_the_counters_steps(measured_s: float) -> None:
    board = SteppedBoard(call_s=0.0007, watts=300.0)
    found = inference.measure(
        board.call, board.wait, board, clock=board.clock, warm_up_s=0.3, measured_s=measured_s
    )
    assert found.power_w == pytest.approx(300.0, rel=0.02)


def test_ranks_repeat_as_often_as_they_agree() -> None:
    board = Board(call_s=0.01, watts=300.0)
    found = inference.measure(
        board.call, board.wait, board, clock=board.clock, agree=lambda repeats: max(repeats, 5_000)
    )
    assert found.repeats == 5_000


def test_a_call_without_any_duration_ends() -> None:
    board = Board(call_s=0.0, watts=0.0)
    found = inference.measure(
        board.call, board.wait, board, clock=board.clock, warm_up_s=0.001, measured_s=0.001
    )
    assert found.repeats >= 1


@pytest.mark.parametrize("text", ["1x2", "axbxc", "0x1x1", "1x2x3,"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        inference.shapes(text)


def test_files_of_a_stand_in_say_so(tmp_path: Path) -> None:
    assert inference.named(tmp_path / "a.csv", stand_in=True).name == "SIMULATED_a.csv"
    assert inference.named(tmp_path / "a.csv", stand_in=False).name == "a.csv"


def test_products_are_measured_on_cpus(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    output = tmp_path / "gemm.csv"
    command = ["gemm", "--shapes", "8x16x32,16x16x16", "--output", str(output)]
    command += ["--warm-up", "0.01", "--measured", "0.02", "--stand-in"]
    assert inference.main(command) == 0
    with (tmp_path / "SIMULATED_gemm.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["m"], row["n"], row["k"]) for row in rows] == [("8", "16", "32"), ("16",) * 3]
    assert all(float(row["latency_ms"]) > 0 for row in rows)
    assert all(float(row["power_w"]) == pytest.approx(100.0, rel=0.01) for row in rows)
