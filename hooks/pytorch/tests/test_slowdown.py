"""Whether iterations stay slower after a profiled one, on simulated training."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable

import pytest

from litd.slowdown import LEAST, QUIET, Slowdown

RUNS = int(os.environ.get("LITD_SLOWDOWN_RUNS", "40"))
"""Of each kind: 500 in the long run."""

BEFORE = 100
SERIES = 300
SPARSE = 1000

Course = Callable[[int], float]
"""How much longer than the first an iteration takes, as a logarithm."""


def jobs(kind: str, chance: random.Random, noise: float, length: int) -> Course:
    """What happens in training by itself."""
    walk = neighbours = 0.0
    period = chance.uniform(60, 600)
    change = chance.randrange(length)

    def course(at: int) -> float:
        nonlocal walk, neighbours
        walk += chance.gauss(0, noise / 20)
        neighbours = 0.9 * neighbours + chance.gauss(0, 0.44 * noise)
        parts = {
            "noise": 0.0,
            "outliers": chance.uniform(0.05, 3) if chance.random() < 0.05 else 0.0,
            "trend": 0.02 * at / length,
            "walk": walk,
            "neighbours": neighbours,
            "warm-up": 0.5 * math.exp(-at / 8),
            "cycle": 0.02 * math.sin(2 * math.pi * at / period),
            "two lengths": 0.2 * (chance.random() < 0.5),
            # Not where it can only be the profiler, for all that times tell.
            "phase": 0.05 * (at >= change and not BEFORE - 2 <= change <= BEFORE + 4),
        }
        return chance.gauss(0, noise) + sum(parts[each] for each in kind.split("+"))

    return course


def found(
    kind: str, seed: int, noise: float, *, slower: float = 0.0, before: int = BEFORE, length: int
) -> int | None:
    """After how many iterations a slow-down is found.

    Profiling is dense for a while and then sparse, as litd asks for it.
    """
    chance = random.Random(f"{kind}{seed}")
    course = jobs(kind, chance, noise, length)
    watched = Slowdown()
    for at in range(length):
        since = at - before
        is_dense = 60 <= since < SERIES and since % 10 == 0
        profiled = is_dense or (since >= 0 and since % SPARSE == 0)
        lasts = math.exp(course(at) + (slower if since > 0 else 0.0) + (1.0 if profiled else 0.0))
        watched.step(lasts, profiled=profiled, measured=False)
        if watched.judge() is not None:
            return since
    return None


@pytest.mark.parametrize(
    "kind",
    [
        "noise",
        "outliers",
        "trend",
        "walk",
        "neighbours",
        "cycle",
        "two lengths",
        "phase",
        "warm-up+outliers",
        "walk+outliers+trend+neighbours",
    ],
)
def test_what_training_does_by_itself_is_no_alarm(kind: str) -> None:
    alarms = [seed for seed in range(RUNS) if found(kind, seed, 0.005, length=1300) is not None]
    # One in a hundred at most.
    assert len(alarms) <= RUNS // 100, alarms


@pytest.mark.parametrize(
    ("slower", "noise", "kind", "before", "within"),
    [
        (0.1, 0.01, "noise", 50, 30),
        (0.1, 0.01, "outliers", 50, 50),
        (0.1, 0.01, "trend+neighbours", 50, 60),
        (0.2, 0.02, "outliers", 50, 50),
        (0.01, 0.002, "outliers", 100, 220),
        (0.003, 0.0003, "outliers", 50, 120),
        (0.003, 0.001, "noise", 400, 900),
    ],
)
def test_a_profiler_that_stays_attached_is_found(
    slower: float, noise: float, kind: str, before: int, within: int
) -> None:
    runs = max(10, RUNS // 5)
    when = [
        found(kind, seed, noise, slower=slower, before=before, length=before + within)
        for seed in range(runs)
    ]
    assert sum(one is not None for one in when) >= 0.9 * runs, when


def test_a_tenth_of_a_percent_is_no_alarm_however_sure() -> None:
    for slower, expected in ((0.0005, False), (0.0009, False), (0.002, True)):
        alarm = found("noise", 1, 0.0001, slower=slower, before=400, length=900)
        assert (alarm is not None) == expected


def test_what_is_slower_only_in_noise_is_not_decided() -> None:
    watched = Slowdown()
    chance = random.Random(1)
    for at in range(150):
        slower = 1.003 if at > 50 else 1.0
        lasts = slower * math.exp(chance.gauss(0, 0.02))
        watched.step(lasts, profiled=at == 50, measured=False)
        assert watched.judge() is None
    assert watched.last is not None
    assert watched.last.resolution > 0.3


def test_a_step_that_begins_elsewhere_is_not_the_profilers() -> None:
    def alarm(after: int) -> bool:
        watched = Slowdown()
        chance = random.Random(1)
        for at in range(400):
            lasts = (1.1 if at > 100 + after else 1.0) * math.exp(chance.gauss(0, 0.01))
            watched.step(lasts, profiled=at == 100, measured=False)
            if watched.judge():
                return True
        return False

    assert [alarm(after) for after in (-30, -5, 0, 5, 30)] == [False, False, True, False, False]


def test_slow_measured_and_settling_iterations_do_not_count() -> None:
    watched = Slowdown()
    for at in range(200):
        measured = at > 50 and at % 2 == 0
        slow = measured or at in (50, 51, 52)
        watched.step(2.0 if slow else 1.0, profiled=at == 50, measured=measured)
        assert watched.judge() is None


def test_the_last_profiled_one_before_a_pause_is_judged_by_what_was_before() -> None:
    # Of a series the last one leaves too few to compare until it is over.
    watched = Slowdown()
    chance = random.Random(1)
    first, last = QUIET + LEAST, QUIET + LEAST + 40
    for at in range(last + 50):
        profiled = at in range(first, last + 1, 4)
        slower = 1.1 if at > first else 1.0
        watched.step(slower * math.exp(chance.gauss(0, 0.01)), profiled=profiled, measured=False)
        if watched.judge() is not None:
            assert at > last
            return
    pytest.fail("it was not found")
