"""What a pipeline's training engine calls to follow a plan (Perseus, SOSP 2024, Table 2).

    with litd.attach(steps_by_hand=True) as hook:
        server = Server("http://planner:7787", job_id)
        controller = Controller(hook, server.schedule(rank))
        profiler = Profiler(hook, clocks, energy=joules, synchronize=torch.cuda.synchronize)
        ...
        controller.set_speed("forward")
        profiler.begin("forward")
        output = stage(input)
        profiler.end("forward")

A clock is set by litd, without waiting for it; neither a plan that does not fit nor a server that
is gone stops training.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from litd.threads import background

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

log = logging.getLogger("litd")

_LONGEST = 64 << 20
"""No longer answer of a server is read, in bytes."""

Schedule = list[tuple[str, int]]
"""One iteration of one rank in its order: what is computed, and the clock in MHz (0: any)."""


PLAN_VERSION = 1
"""Of the plan contract that `plan_schedule` reads (docs/planner.md)."""


def read_plan(path: Path, stage: int) -> Schedule:
    """What a stage does in a plan contract, such as `litctl plan lookup --plan FILE` writes."""
    try:
        return plan_schedule(json.loads(path.read_text()), stage)
    except RecursionError:
        raise ValueError(f"{path}: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def plan_schedule(plan: Any, stage: int) -> Schedule:
    """What a stage does in a plan contract. A `ValueError` names the place that is wrong."""
    if not isinstance(plan, dict) or plan.get("version") != PLAN_VERSION:
        raise ValueError(f"no plan contract of version {PLAN_VERSION}")
    stages = plan.get("stages") or []
    own = next((it for it in stages if isinstance(it, dict) and it.get("stage") == stage), None)
    rows = own.get("instructions") if own else None
    if not rows:
        raise ValueError(f"the plan has no stage {stage}")
    return [_planned(row, f"stage {stage}, instruction {at}") for at, row in enumerate(rows)]


def _planned(row: Any, place: str) -> tuple[str, int]:
    kind = row.get("instruction") if isinstance(row, dict) else None
    if not isinstance(kind, str) or not kind:
        raise ValueError(f"{place}: it has no name")
    clock = row.get("clock_mhz") or 0
    if isinstance(clock, bool) or not isinstance(clock, (int, float)) or not 0 <= clock <= 10_000:
        raise ValueError(f"{place}: {clock!r} is no clock in MHz")
    return kind, round(clock)


WORSE = 2
"""After so many clocks in a row that only cost more, `Profiler` stops."""

BEYOND = 0.01
"""By more than this share: less may be noise."""


class SetsClock(Protocol):
    """What sets a clock: `litd.Hook`."""

    def set_clock(self, megahertz: int) -> None:
        """Sets it, without waiting; 0: the driver's choice."""


class Controller:
    """Sets the clock that the plan has for what is computed next."""

    def __init__(self, hook: SetsClock, schedule: Sequence[tuple[str, int]] = ()) -> None:
        self._hook = hook
        self._schedule: Schedule = list(schedule)
        self._next: Schedule | None = None
        self._at = 0
        self._clock = 0
        self._fits = True

    def follow(self, schedule: Sequence[tuple[str, int]]) -> None:
        """Follows another plan from the next iteration's beginning on. Any thread may call it."""
        self._next = list(schedule)

    def set_speed(self, kind: str) -> None:
        """Tells that a computation of this kind, such as "forward", is about to begin."""
        if self._at == 0 and self._next is not None:
            self._schedule, self._next = self._next, None
            self._fits = True
        if not self._schedule or not self._fits:
            return
        planned, clock = self._schedule[self._at]
        if planned != kind:
            log.warning(
                "the plan expects %s as computation %d, but the job runs %s:"
                " clocks are not set until a new plan comes",
                planned,
                self._at,
                kind,
            )
            self._fits, self._at = False, 0
            self._set(0)
            return
        self._at = (self._at + 1) % len(self._schedule)
        if clock:
            self._set(clock)

    def _set(self, clock: int) -> None:
        if clock != self._clock:
            self._clock = clock
            self._hook.set_clock(clock)


class Profiler:
    """Measures time and energy of each kind of computation at each clock.

    `clocks` are tried one by one, from the highest, each for `iterations` calls of `end_iteration`,
    until slower ones only cost more (section 5): once every kind has cost 1 % more than its least
    at two clocks in a row, the rest is left out. The cost is energy less what a GPU that waits
    would have used in the same time, at `blocking_w` watts (`python -m litd.blocking` measures
    them); with 0 it is the energy, as in the paper. `energy` reads the GPU's energy in joules since
    any moment; `synchronize` waits until the GPU has done what it was told.
    """

    def __init__(
        self,
        hook: SetsClock,
        clocks: Sequence[int],
        energy: Callable[[], float],
        synchronize: Callable[[], None],
        iterations: int = 5,
        *,
        blocking_w: float = 0.0,
    ) -> None:
        self._hook = hook
        self._blocking_w = blocking_w
        self._least: dict[str, float] = {}
        self._worse = 0
        self._clocks = sorted(clocks, reverse=True)
        self._energy = energy
        self._synchronize = synchronize
        self._iterations = iterations
        self._left = iterations
        self._began: dict[str, tuple[float, float]] = {}
        self._sums: dict[tuple[str, int], list[float]] = {}
        if self._clocks:
            hook.set_clock(self._clocks[0])

    @property
    def is_done(self) -> bool:
        """Whether all clocks that may be worth it have been tried."""
        return not self._clocks

    def begin(self, kind: str) -> None:
        """A computation begins."""
        if self._clocks:
            self._synchronize()
            self._began[kind] = (time.perf_counter(), self._energy())

    def end(self, kind: str) -> None:
        """It has ended."""
        began = self._began.pop(kind, None)
        if began is None or not self._clocks:
            return
        self._synchronize()
        sums = self._sums.setdefault((kind, self._clocks[0]), [0.0, 0.0, 0.0])
        sums[0] += 1.0
        sums[1] += time.perf_counter() - began[0]
        sums[2] += self._energy() - began[1]

    def end_iteration(self) -> None:
        """An iteration has ended: every so many the next clock's turn comes."""
        if not self._clocks:
            return
        self._left -= 1
        if self._left == 0:
            self._left = self._iterations
            tried = self._clocks.pop(0)
            self._worse = self._worse + 1 if self._only_costs(tried) else 0
            if self._worse == WORSE:
                self._clocks.clear()
            self._hook.set_clock(self._clocks[0] if self._clocks else 0)

    def _only_costs(self, clock: int) -> bool:
        """Whether each kind cost more at this clock than at a higher one."""
        worse = []
        for (kind, at), (count, seconds, joules) in self._sums.items():
            if at == clock:
                cost = (joules - self._blocking_w * seconds) / count
                least = self._least.get(kind, cost)
                worse.append(cost - least > BEYOND * abs(least))
                self._least[kind] = min(least, cost)
        return bool(worse) and all(worse)

    def rows(self, stage: int) -> list[tuple[int, str, int, float, float]]:
        """What was measured: stage, instruction, frequency (MHz), time (s), energy (J)."""
        return [
            (stage, kind, clock, seconds / count, joules / count)
            for (kind, clock), (count, seconds, joules) in sorted(self._sums.items())
        ]

    def write(self, path: Path, stage: int) -> None:
        """Writes it as Zeus's CSV, which `litctl plan` and `litd-planner` read."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("stage", "instruction", "frequency", "time", "energy"))
            writer.writerows(self.rows(stage))


def _token() -> str:
    """The token of the file that LITD_PLANNER_TOKEN_FILE names; none where it names none."""
    file = os.environ.get("LITD_PLANNER_TOKEN_FILE")
    return Path(file).read_text().strip() if file else ""


class Server:
    """A job at `litd-planner`. What the server refuses is a `ValueError` with its words."""

    def __init__(self, url: str, job: str, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        self.job = job
        self._token = token or _token()
        self.version = 0
        """Of the plan that was fetched last."""

    @classmethod
    def register(
        cls,
        url: str,
        *,
        pp: int,
        dp: int = 1,
        tp: int = 1,
        token: str | None = None,
        pipeline: dict[str, Any] | None = None,
    ) -> Server:
        """Registers a job of so many stages, pipelines and tensor-parallel GPUs per stage.

        `pipeline` is its own schedule, such as `{"schedule": "1f1b", "microbatches": 32}`, whose
        profile ranks post (`post_profile`); without it the server's own profile and schedule count.
        """
        body: dict[str, Any] = {
            "job_id": "",
            "pp_degree": pp,
            "dp_degree": dp,
            "tp_degree": tp,
            "world_size": pp * dp * tp,
            "job_metadata": None,
        }
        if pipeline is not None:
            body["pipeline"] = pipeline
        server = cls(url, "", token)
        server.job = str(server._ask("/register_job", body)[0])
        return server

    def register_rank(
        self, rank: int, *, pp: int, dp: int = 0, tp: int = 0, clocks: Sequence[int] = ()
    ) -> None:
        """Registers a rank by its place, with the clocks that its GPU can have, in MHz."""
        place = {"rank": rank, "dp_rank": dp, "pp_rank": pp, "tp_rank": tp}
        body = {**place, "available_frequencies": sorted(clocks, reverse=True)}
        self._ask(f"/register_rank/{self._quoted()}", body)

    def schedule(self, rank: int, after: int | None = None, timeout: float = 300.0) -> Schedule:
        """A rank's plan; with `after`, one that is newer, which is waited for."""
        query = f"?rank={rank}" + ("" if after is None else f"&after={after}")
        answer, headers = self._ask(f"/schedule/{self._quoted()}{query}", timeout=timeout)
        self.version = int(headers.get("plan-version") or 0)
        return [(str(kind), int(clock)) for kind, clock in answer["frequencies"]]

    def post_profile(self, rows: Sequence[tuple[int, str, int, float, float]]) -> None:
        """Posts what was measured (`Profiler.rows`) of a job with a pipeline of its own."""
        stages: dict[int, list[list[Any]]] = {}
        for stage, *row in rows:
            stages.setdefault(stage, []).append(row)
        for stage, own in stages.items():
            self._ask(f"/profile/{self._quoted()}", {"stage": stage, "rows": own})

    def plan(self, pipeline: int = 0, after: int | None = None, timeout: float = 300.0) -> Any:
        """A pipeline's plan contract; with `after`, one that is newer, which is waited for."""
        query = f"?pipeline={pipeline}" + ("" if after is None else f"&after={after}")
        answer, headers = self._ask(f"/plan/{self._quoted()}{query}", timeout=timeout)
        self.version = int(headers.get("plan-version") or 0)
        return answer

    def set_straggler(self, rank: int, degree: float, delay: float = 0.0) -> None:
        """Tells that in `delay` seconds a rank will be slower by this factor; 1: no longer."""
        body = {"id": rank, "delay": delay, "degree": degree}
        self._ask(f"/set_straggler/{self._quoted()}", body)

    def keep(self, rank: int, controller: Controller, pause: float = 5.0) -> threading.Thread:
        """Has a daemon thread fetch each new plan for the controller."""

        def fetch() -> None:
            while True:
                self._fetch(rank, controller, pause)

        thread = background(fetch, "litd-plan")
        thread.start()
        return thread

    def _fetch(self, rank: int, controller: Controller, pause: float) -> None:
        try:
            controller.follow(self.schedule(rank, after=self.version))
        except (OSError, ValueError):
            log.debug("no new plan", exc_info=True)
            time.sleep(pause)

    def _quoted(self) -> str:
        return urllib.parse.quote(self.job, safe="+")

    def _ask(self, path: str, body: Any = None, timeout: float = 10.0) -> tuple[Any, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self._url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                text = answer.read(_LONGEST + 1)
                if len(text) > _LONGEST:
                    raise ValueError(f"{path}: an answer of more than {_LONGEST >> 20} MiB")
                return json.loads(text or "null"), answer.headers
        except RecursionError as error:
            raise ValueError(f"{path}: an answer that is nested too deeply") from error
        except urllib.error.HTTPError as error:
            words = error.read().decode(errors="replace")[:500]
            raise ValueError(f"{path}: {error.code}: {words}") from error
