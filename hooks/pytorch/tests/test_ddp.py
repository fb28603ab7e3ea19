"""A DDP job of several processes: whatever happens to the hook, losses are the same."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import processes, standin
from tests.standin import StandIn

torch: Any = pytest.importorskip("torch", reason="SKIPPED: no torch")

RANKS = 2


def run_ranks(*arguments: str) -> list[dict[str, Any]]:
    results = []
    for status, out, err in processes.run(
        "-m", "tests.programs.ddp", *arguments, ranks=RANKS, timeout=600
    ):
        assert status == 0, err
        results.append(json.loads(out.splitlines()[-1]))
    return results


@contextlib.contextmanager
def mortal(path: Path) -> Iterator[list[int]]:
    """A daemon that is killed whenever it has heard a few ticks, and started again."""
    lives: list[int] = []
    over = threading.Event()

    def live() -> None:
        while not over.is_set():
            with StandIn(path, standin.welcome(0, 1)) as litd:
                while len(litd.heard("tick")) < 8 and not over.wait(0.005):
                    pass
                lives.append(len(litd.heard("tick")))

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    try:
        yield lives
    finally:
        over.set()
        thread.join()


def test_losses_are_the_same_whatever_happens(tmp_path: Path) -> None:
    paths = {
        variant: tmp_path / f"{variant}.sock"
        for variant in (
            "bare",
            "alone",
            "profiles",
            "modules",
            "killed",
            "garbage",
            "directory",
            "deaf",
            "raises",
            "hangs",
            "breaks",
        )
    }
    paths["directory"].mkdir()
    every = standin.welcome(0, 1)
    with contextlib.ExitStack() as stack:
        daemons = {
            variant: stack.enter_context(StandIn(paths[variant], every))
            for variant in ("profiles", "modules", "raises", "hangs", "breaks")
        }
        stack.enter_context(StandIn(paths["garbage"], b"\x07" * 999))
        stack.enter_context(StandIn(paths["deaf"], reads=False))
        lives = stack.enter_context(mortal(paths["killed"]))
        results = run_ranks("ddp", *[f"{variant}={path}" for variant, path in paths.items()])
        for variant, daemon in daemons.items():
            ticks = daemon.heard("tick")
            hellos = {said.rank: said for said in daemon.heard("hello")}
            assert set(hellos) == set(range(RANKS)), variant
            assert hellos[1].gpu == "0000:01:00.0"
            assert len(ticks) > RANKS, variant
            assert len(daemon.heard("bye")) == RANKS, variant
        for variant in ("profiles", "modules"):
            told = daemons[variant].heard("kernels")
            profiled = [tick for tick in daemons[variant].heard("tick") if tick.profiled]
            assert len(told) > RANKS, variant
            # Each rank's samples are of iterations that it has ticked as profiled.
            assert {said.iteration for said in told} <= {tick.iteration for tick in profiled}
        assert {len(said.name) for said in daemons["profiles"].heard("kernels")} == {100}
        assert daemons["raises"].heard("kernels") == []
    assert len(lives) > 1
    for rank, losses in enumerate(results):
        assert set(losses) == set(paths)
        for variant, series in losses.items():
            assert series == losses["bare"], (rank, variant)
    assert results[0]["bare"] != results[1]["bare"]


@pytest.mark.skipif(
    tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6),
    reason="SKIPPED: this torch has no FSDP for CPUs and no pipelines; .ci/run --full has one",
)
@pytest.mark.parametrize("wrapper", ["fsdp1", "fsdp2", "pipeline"])
def test_sharded_jobs_train_the_same(tmp_path: Path, wrapper: str) -> None:
    measured = ("profiles", "modules")
    paths = {variant: tmp_path / variant for variant in ("bare", "alone", *measured, "hangs")}
    with contextlib.ExitStack() as stack:
        daemons = {
            variant: stack.enter_context(StandIn(paths[variant], standin.welcome(0, 1)))
            for variant in (*measured, "hangs")
        }
        results = run_ranks(wrapper, *[f"{variant}={path}" for variant, path in paths.items()])
        for variant in measured:
            assert len(daemons[variant].heard("kernels")) > RANKS
            assert {tick.iteration for tick in daemons[variant].heard("tick")} >= {20, 30, 39}
        [*_, last] = daemons["modules"].heard("kernels")
        assert len(last.name) > 10
    for losses in results:
        assert [losses[variant] == losses["bare"] for variant in paths] == [True] * len(paths)
