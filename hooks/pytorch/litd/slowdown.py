"""Whether iterations stay slower after a profiled one: CUPTI may have been left attached.

Only times of unprofiled iterations are compared, from before and after a profiled one that others
are not near. Training also slows down for reasons of its own, and then the profiler must not be
blamed: an alarm wants a step that

- is larger than 0.1 %, with confidence, after outliers (by medians) and a trend (by the median of
  slopes, Theil 1950 and Sen 1968) are taken off, and before the trend is;
- is larger than what is found in the same way where nothing was profiled;
- lies at the profiled iteration: no other place explains the times much better.

What can't be told from chance by these is no alarm. Pure but for `pause`: logarithms of seconds in,
a step of them out, so that 0.01 is 1 %.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SLOWER = math.log(1.001)
"""Iterations may be slower by so much."""

LEAST = 16
"""Iterations on each side below which nothing is judged."""

MOST = 1024
"""Iterations on each side that are kept."""

SETTLE = 2
"""So many iterations after a profiled one do not count yet."""

QUIET = 100
"""A profiled iteration after fewer unprofiled ones belongs to the series of the one before."""

_BLOCKS = 16
"""Blocks of one side, of whose medians steps and trends are made."""

_LEAST_NOISE = 1e-5
"""Relative deviation of times below which nothing is believed."""

_PLACEBOS = 4
"""Places on each side at which a step is looked for where none should be."""

_PLACEBO = 1.5
"""So many times the largest step where nothing was profiled is no chance."""

_CAP = 3.0
"""What one outlier may say about the place of a step, in logarithms of likelihood."""

_NEAR = 256
"""So many times on each side tell of the place: those of a step further away show there, too."""

_ELSEWHERE = 4.0
"""Another place that explains the times by so much better is where the step is."""


@dataclass(frozen=True)
class Finding:
    """What a comparison found."""

    step: float
    """By how much iterations are slower: the smaller of with and without trend."""

    doubt: float
    """A step smaller than this may be chance."""

    is_here: bool
    """The step, if there is one, lies at the profiled iteration."""

    @property
    def is_slower(self) -> bool:
        """Whether iterations are more than 0.1 % slower, and since then."""
        return self.is_here and self.step - self.doubt > SLOWER

    @property
    def percent(self) -> float:
        """The step in percent."""
        return 100 * math.expm1(self.step)

    @property
    def resolution(self) -> float:
        """Percent by which iterations must be slower to be told from chance."""
        return 100 * math.expm1(self.doubt + SLOWER)


class Slowdown:
    """Follows a job's iterations. `step` is of the training thread, `judge` of another."""

    def __init__(self) -> None:
        self._inbox: deque[tuple[float, bool, bool]] = deque(maxlen=10 * MOST)
        self._times: deque[float] = deque(maxlen=MOST)
        self._before: list[float] = []
        self._after: list[float] = []
        self._quiet = QUIET
        self._settle = 0
        self._next = 0
        self.last: Finding | None = None
        """What the last comparison found."""

    def step(self, seconds: float, *, profiled: bool, measured: bool) -> None:
        """An iteration has ended; `measured` if modules were timed in it."""
        self._inbox.append((seconds, profiled, measured))

    def judge(self, pause: Callable[[], None] = lambda: None) -> Finding | None:
        """The slow-down, if there is one. `pause` lets other threads run."""
        while self._inbox:
            seconds, profiled, measured = self._inbox.popleft()
            if profiled:
                self._profiled()
            elif self._settle > 0:
                self._settle -= 1
            elif not measured and seconds > 0:
                found = self._unprofiled(math.log(seconds), pause)
                if found is not None:
                    return found
        return None

    def _profiled(self) -> None:
        if self._quiet >= QUIET:
            self._before, self._after, self._next = list(self._times), [], LEAST
        self._quiet, self._settle = 0, SETTLE

    def _unprofiled(self, time: float, pause: Callable[[], None]) -> Finding | None:
        self._times.append(time)
        self._quiet += 1
        if not LEAST <= self._next <= min(2 * len(self._before), MOST):
            return None
        self._after.append(time)
        if len(self._after) < self._next or len(self._before) < LEAST:
            return None
        self._next += self._next // 2
        self.last = compare(self._before[-2 * len(self._after) :], self._after, pause)
        return self.last if self.last.is_slower else None


def compare(
    before: Sequence[float], after: Sequence[float], pause: Callable[[], None] = lambda: None
) -> Finding:
    """What changed between two neighbouring stretches of at least `LEAST` times each."""
    cut = _cut(before, after, pause)
    pause()
    doubt = max(cut.doubt, _PLACEBO * _largest_elsewhere(before, after, pause))
    is_here = _is_here(before, after, cut, pause) if cut.step > doubt else True
    return Finding(cut.step, doubt, is_here)


@dataclass(frozen=True)
class _Cut:
    """A step between two stretches, and how sure it is."""

    step: float
    doubt: float
    slope: float
    low: float
    high: float
    noise: float
    """Deviation of single times."""


def _cut(before: Sequence[float], after: Sequence[float], pause: Callable[[], None]) -> _Cut:
    least = min(len(before), len(after))
    size = max(4, least // _BLOCKS)
    early = [(-t, value) for t, value in _medians(before[::-1], size)]
    late = _medians(after, size)
    pause()
    slope = statistics.median(_slopes(early) + _slopes(late))
    pause()
    # Both sides without their trend, as times at the cut.
    flat_early = [value - slope * t for t, value in early]
    flat_late = [value - slope * t for t, value in late]
    low, high = statistics.median(flat_early), statistics.median(flat_late)
    plain = statistics.median(v for _, v in late) - statistics.median(v for _, v in early)
    sides = _rest(before, after, slope, low, high)
    rest = [value - low for value in flat_early], [value - high for value in flat_late]
    noise, spread = (_deviation([*pair[0], *pair[1]]) for pair in (sides, rest))
    pause()
    # A median's variance is pi / 2 times a mean's, where times are normal; where they have several
    # centres their order tells it.
    mean = max(spread**2, math.pi / 2 * noise**2 / size) * (1 / len(early) + 1 / len(late))
    plainly = max(math.pi / 2 * mean, sum(map(_variance_of_median, sides))) * _correlated(*rest)
    pause()
    distance = (len(before) + len(after)) / 2
    moment = sum(len(side) ** 3 / 12 for side in (before, after))
    tilted = plainly * (1 + distance**2 / moment / (1 / len(before) + 1 / len(after)))
    # Deviations of few times are themselves uncertain.
    sure = 4.5 + 56 / least
    certain = min(
        (plain - sure * math.sqrt(plainly), plain),
        (high - low - sure * math.sqrt(tilted), high - low),
    )
    return _Cut(certain[1], certain[1] - certain[0], slope, low, high, noise)


def _medians(values: Sequence[float], size: int) -> list[tuple[float, float]]:
    """Medians of blocks, each with where its middle is."""
    return [
        (at + size / 2, statistics.median(values[at : at + size]))
        for at in range(0, len(values) - size + 1, size)
    ]


def _slopes(points: Sequence[tuple[float, float]]) -> list[float]:
    return [
        (value - other) / (t - s)
        for at, (t, value) in enumerate(points)
        for s, other in points[:at]
    ]


def _rest(
    before: Sequence[float], after: Sequence[float], slope: float, low: float, high: float
) -> tuple[list[float], list[float]]:
    """What level and trend leave of the times on each side."""
    count = len(before)
    return (
        [value - slope * (at - count + 0.5) - low for at, value in enumerate(before)],
        [value - slope * (at + 0.5) - high for at, value in enumerate(after)],
    )


def _variance_of_median(values: Sequence[float]) -> float:
    """From the values that are two deviations of a rank to either side: of any distribution."""
    ranked, root = sorted(values), math.sqrt(len(values))
    low, high = (int((len(ranked) - 1) / 2 + side * root) for side in (-1, 1))
    return ((ranked[high] - ranked[low]) / 4) ** 2


def _deviation(rest: Sequence[float]) -> float:
    """The standard deviation of what has a median of 0, outliers aside."""
    return max(1.4826 * statistics.median(map(abs, rest)), _LEAST_NOISE)


def _correlated(*sides: Sequence[float]) -> float:
    """By how much neighbours that are alike make a mean's variance larger."""
    products = sum(a * b for side in sides for a, b in itertools.pairwise(side))
    squares = sum(a * a for side in sides for a in side)
    alike = min(max(products / squares, 0.0), 0.8) if squares > 0 else 0.0
    return (1 + alike) / (1 - alike)


def _largest_elsewhere(
    before: Sequence[float], after: Sequence[float], pause: Callable[[], None]
) -> float:
    """The largest step at places within either side, where nothing has happened."""
    largest = 0.0
    for side in (before, after):
        half = min(len(side) // 2, len(before), len(after))
        if half < LEAST:
            continue
        free = len(side) - 2 * half
        for at in sorted({half + free * k // (_PLACEBOS - 1) for k in range(_PLACEBOS)}):
            cut = _cut(side[at - half : at], side[at : at + half], pause)
            largest = max(largest, min(abs(cut.step), abs(cut.high - cut.low)))
            pause()
    return largest


def _is_here(
    before: Sequence[float], after: Sequence[float], cut: _Cut, pause: Callable[[], None]
) -> bool:
    """Whether no other place of the step explains the times much better."""

    def gain(value: float) -> float:
        """How much likelier a time is after the step than before it."""
        early, late = (((value - level) / cut.noise) ** 2 / 2 for level in (cut.low, cut.high))
        return min(early, _CAP) - min(late, _CAP)

    earlier = later = best = 0.0
    for at, value in enumerate(before[: -_NEAR - 1 : -1]):
        earlier += gain(value + cut.slope * (at + 0.5))
        best = max(best, earlier)
    pause()
    for at, value in enumerate(after[:_NEAR]):
        later -= gain(value - cut.slope * (at + 0.5))
        best = max(best, later)
    return best <= _ELSEWHERE
