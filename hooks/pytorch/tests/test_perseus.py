"""What a training engine calls to follow a plan."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from litd import wire
from litd.kernels import NameTable
from litd.link import Link
from litd.patience import Patience
from litd.perseus import Controller, Profiler, Server, plan_schedule, read_plan
from tests import standin
from tests.standin import StandIn, wait_for

PLAN = [("forward", 1200), ("forward", 0), ("backward", 1410)]


class Clocks:
    """Remembers what was set."""

    def __init__(self) -> None:
        self.set: list[int] = []

    def set_clock(self, megahertz: int) -> None:
        self.set.append(megahertz)


def test_the_controller_sets_what_the_plan_has_next_and_only_changes() -> None:
    clocks = Clocks()
    controller = Controller(clocks, PLAN)
    for _ in range(2):
        for kind in ("forward", "forward", "backward"):
            controller.set_speed(kind)
    assert clocks.set == [1200, 1410, 1200, 1410]


def test_another_plan_begins_with_an_iteration() -> None:
    clocks = Clocks()
    controller = Controller(clocks, PLAN)
    controller.set_speed("forward")
    controller.follow([("forward", 900), ("forward", 900), ("backward", 900)])
    for kind in ("forward", "backward", "forward"):
        controller.set_speed(kind)
    assert clocks.set == [1200, 1410, 900]


def test_a_plan_that_does_not_fit_is_left_alone_until_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clocks = Clocks()
    controller = Controller(clocks, PLAN)
    for kind in ("forward", "backward", "backward"):
        controller.set_speed(kind)
    assert clocks.set == [1200, 0]
    assert len(caplog.records) == 1
    controller.follow([("backward", 1005)])
    controller.set_speed("backward")
    assert clocks.set == [1200, 0, 1005]


def test_a_plan_contract_is_followed(tmp_path: Path) -> None:
    def row(kind: str, clock: object, microbatch: int = 0) -> dict[str, object]:
        return {"instruction": kind, "microbatch": microbatch, "clock_mhz": clock}

    rows = [row("forward", 1200), {"instruction": "load", "microbatch": 0}, row("backward", 1410.0)]
    stages = [
        {"stage": 0, "instructions": [row("forward", 9)]},
        {"stage": 1, "instructions": rows},
    ]
    plan = {"version": 1, "stages": stages}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    clocks = Clocks()
    controller = Controller(clocks, read_plan(file, 1))
    for kind in ("forward", "load", "backward"):
        controller.set_speed(kind)
    assert clocks.set == [1200, 1410]
    for wrong, said in (
        ({**plan, "version": 2}, "no plan contract of version 1"),
        ({"version": 1}, "has no stage 1"),
        ({"version": 1, "stages": stages[:1]}, "has no stage 1"),
        ({"version": 1, "stages": [{"stage": 1, "instructions": [{}]}]}, "stage 1, instruction 0"),
        (
            {"version": 1, "stages": [{"stage": 1, "instructions": [row("forward", "9")]}]},
            "no clock",
        ),
        (
            {"version": 1, "stages": [{"stage": 1, "instructions": [row("forward", -9)]}]},
            "no clock",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            plan_schedule(wrong, 1)
    file.write_text("{")
    with pytest.raises(ValueError, match=r"plan\.json"):
        read_plan(file, 1)


def test_the_profiler_tries_each_clock_and_writes_zeus_columns(tmp_path: Path) -> None:
    clocks, joules = Clocks(), iter(range(0, 1000, 5))
    profiler = Profiler(clocks, [900, 1410], lambda: float(next(joules)), lambda: None, 2)
    while not profiler.is_done:
        for kind in ("forward", "backward"):
            profiler.begin(kind)
            profiler.end(kind)
        profiler.end_iteration()
    assert clocks.set == [1410, 900, 0]
    profiler.write(tmp_path / "profile.csv", 3)
    with (tmp_path / "profile.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["stage"], row["instruction"], row["frequency"]) for row in rows] == [
        ("3", kind, clock) for kind in ("backward", "forward") for clock in ("900", "1410")
    ]
    assert {float(row["energy"]) for row in rows} == {5.0}


class Board:
    """An energy counter, and a clock that decides what a kind costs: W and s by MHz."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, costs: dict[str, dict[int, float]]) -> None:
        self.set: list[int] = []
        self._now, self._joules, self._costs = 0.0, 0.0, costs
        monkeypatch.setattr("litd.perseus.time.perf_counter", lambda: self._now)

    def set_clock(self, megahertz: int) -> None:
        self.set.append(megahertz)

    def energy(self) -> float:
        return self._joules

    def run(self, kind: str) -> None:
        clock = self.set[-1]
        self._now += 1000.0 / clock
        self._joules += self._costs[kind][clock]


CLOCKS = [1400, 1200, 1000, 800, 600, 400]


def tried(board: Board, blocking_w: float = 0.0) -> list[int]:
    profiler = Profiler(board, CLOCKS, board.energy, lambda: None, 3, blocking_w=blocking_w)
    while not profiler.is_done:
        for kind in ("forward", "backward"):
            profiler.begin(kind)
            board.run(kind)
            profiler.end(kind)
        profiler.end_iteration()
    assert board.set[-1] == 0
    return board.set[:-1]


def energies(*joules: float) -> dict[int, float]:
    return dict(zip(CLOCKS, joules, strict=True))


def test_the_profiler_stops_once_slower_clocks_only_cost_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    falls = energies(300, 260, 240, 250, 270, 300)
    costs = {"forward": falls, "backward": falls}
    assert tried(Board(monkeypatch, costs)) == [1400, 1200, 1000, 800, 600]
    # Less waiting at 60 W the slower clocks still save: none is left out.
    assert tried(Board(monkeypatch, costs), 60.0) == CLOCKS
    # One kind that still saves, a bump, and a rise within noise go on.
    still = energies(300, 260, 240, 230, 220, 210)
    assert tried(Board(monkeypatch, {"forward": falls, "backward": still})) == CLOCKS
    bump = energies(300, 310, 290, 300, 280, 270)
    assert tried(Board(monkeypatch, {"forward": bump, "backward": bump})) == CLOCKS
    noise = energies(300, 301, 302, 301, 302, 301)
    assert tried(Board(monkeypatch, {"forward": noise, "backward": noise})) == CLOCKS


def test_clocks_reach_litd_and_begin_every_connection(tmp_path: Path) -> None:
    path = tmp_path / "ingest.sock"
    hello = wire.Hello("job", 0, 0, 2, 2, "0000:05:00.0")
    link = Link(str(path), lambda: hello, NameTable(), patience=Patience(0.01, 0.05))
    link.set_clock(700)
    link.start()

    def heard(litd: StandIn) -> list[int]:
        return [said.megahertz for said in litd.heard("set_clock")]

    try:
        with StandIn(path, standin.welcome()) as litd:
            wait_for("first clock", lambda: heard(litd) == [700])
            for clock in (1200, 0, 900):
                link.set_clock(clock)
            wait_for("clocks", lambda: heard(litd)[-1] == 900)
        wait_for("loss", lambda: not link.welcomed)
        link.set_clock(1005)
        with StandIn(path, standin.welcome()) as litd:
            wait_for("clock again", lambda: heard(litd) == [1005])
    finally:
        link.close("done")


@contextmanager
def planner(
    answers: dict[str, Any], *, raw: bool = False
) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    asked: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            asked.append((self.path, json.loads(self.rfile.read(length) or "null")))
            answer = answers.get(self.path.split("?")[0])
            body = (answer if raw and answer else json.dumps(answer)).encode()
            self.send_response(200 if answer is not None else 404)
            self.send_header("plan-version", "7")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def test_a_job_registers_fetches_and_tells_of_stragglers() -> None:
    job = "2026-11-22-08-00-00+dp1+pp2+tp1+Perseus"
    answers = {
        "/register_job": job,
        f"/register_rank/{job}": {},
        f"/schedule/{job}": {"rank": 1, "frequencies": PLAN},
        f"/set_straggler/{job}": {},
    }
    with planner(answers) as (url, asked):
        server = Server.register(url, pp=2)
        server.register_rank(1, pp=1, clocks=[900, 1410])
        assert server.schedule(1) == PLAN
        assert server.version == 7
        server.set_straggler(1, 1.2, delay=3.0)
        assert asked[1][1]["available_frequencies"] == [1410, 900]
        assert asked[-1][1] == {"id": 1, "delay": 3.0, "degree": 1.2}
        with pytest.raises(ValueError, match="404"):
            Server(url, "nobody").schedule(0)


def test_a_job_brings_its_own_pipeline_and_profile() -> None:
    plan = {"version": 1, "stages": [{"stage": 0, "instructions": [{"instruction": "forward"}]}]}
    answers = {"/register_job": "job", "/profile/job": [], "/plan/job": plan}
    with planner(answers) as (url, asked):
        server = Server.register(url, pp=1, pipeline={"schedule": "1f1b", "microbatches": 4})
        server.post_profile([(0, "forward", 1410, 0.03, 9.0), (1, "forward", 1410, 0.03, 9.0)])
        assert plan_schedule(server.plan(after=3), 0) == [("forward", 0)]
        assert server.version == 7
    assert asked[0][1]["pipeline"] == {"schedule": "1f1b", "microbatches": 4}
    assert asked[1:3] == [
        ("/profile/job", {"stage": stage, "rows": [["forward", 1410, 0.03, 9.0]]})
        for stage in (0, 1)
    ]
    assert asked[3][0] == "/plan/job?pipeline=0&after=3"


def test_an_answer_without_bottom_ends_no_thread_of_the_trainings(tmp_path: Path) -> None:
    nested = "[" * 100_000 + "]" * 100_000
    with (
        planner({"/schedule/job": nested}, raw=True) as (url, _),
        pytest.raises(ValueError, match="nested too deeply"),
    ):
        Server(url, "job").schedule(0)
    file = tmp_path / "plan.json"
    file.write_text(nested)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_plan(file, 0)
