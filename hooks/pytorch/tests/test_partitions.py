"""The profiler of partitions: on made-up boards, on a made-up network, and with litctl on CPUs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from litd import partitions
from tests import processes
from tests.test_daemon import program

JOB = {
    "model": {
        "hidden_size": 16,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "intermediate_size": 24,
        "vocab_size": 32,
    },
    "training": {
        "tensor_parallel": 2,
        "context_parallel": 1,
        "pipeline_parallel": 2,
        "microbatch": 4,
        "microbatches": 2,
        "sequence": 16,
        "recompute": True,
    },
}

# Two clocks and two numbers of SMs to try.
GPU = {
    "sms": 8,
    "clocks": [900e6, 1410e6],
    "stride": 255e6,
    "least_clock": 900e6,
    "most_sms": 3,
    "matrix_rate": 1e12,
    "link_rate": 1e11,
}


class Board:
    """Draws 300 W at any clock and 70 W without one, from 2 s after it changed; becomes cooler."""

    def __init__(self, *, state: int = 0, cools_for: float = 3.0) -> None:
        self.now, self.energy, self.watts = 0.0, 0.0, 300.0
        self.falls_at = float("inf")
        self.state, self.cools_for = state, cools_for

    def set_clock(self, megahertz: int) -> None:
        self.falls_at = self.now + 2.0 if megahertz == 0 else float("inf")

    def sleep(self, seconds: float) -> None:
        end = self.now + seconds
        busy = min(max(self.falls_at - self.now, 0.0), seconds)
        self.energy += 300.0 * busy + 70.0 * (seconds - busy)
        self.now = end

    def clock(self) -> float:
        return self.now

    def joules(self) -> float:
        return self.energy

    def limit_w(self) -> float:
        return 700.0

    def clock_mhz(self) -> float:
        return 1410.0

    def temperature_c(self) -> float:
        return 60.0 - 5.0 * min(self.now, self.cools_for)

    def is_ready(self) -> bool:
        return self.state == 0


def test_a_gpu_cools_until_it_becomes_no_cooler() -> None:
    board = Board(cools_for=7.5)
    partitions.cool(board, sleep=board.sleep, least_s=5.0, longest_s=60.0)
    # At 8 s it is cooler than at 7, at 9 s no more.
    assert board.now == 9.0
    soon = Board(cools_for=1.0)
    partitions.cool(soon, sleep=soon.sleep, least_s=5.0, longest_s=60.0)
    assert soon.now == 6.0
    never = Board(cools_for=1e9)
    partitions.cool(never, sleep=never.sleep, least_s=5.0, longest_s=20.0)
    assert never.now == 20.0


def test_static_power_is_that_of_a_ready_gpu_with_nothing_to_do() -> None:
    board = Board()
    board.set_clock(1410)
    found = partitions.static_power(board, board, 10.0, sleep=board.sleep, clock=board.clock)
    assert found == pytest.approx(70.0)
    asleep = Board(state=8)
    with pytest.raises(OSError, match="not in its state P0"):
        partitions.static_power(asleep, asleep, 10.0, sleep=asleep.sleep, clock=asleep.clock)


def test_the_stand_in_draws_by_its_clock() -> None:
    time = SimpleNamespace(now=0.0)
    board = partitions.StandInBoard(lambda: time.now)
    time.now = 2.0
    assert board.joules() == pytest.approx(80.0)
    board.set_clock(1410)
    time.now = 3.0
    assert board.joules() == pytest.approx(180.0)
    board.set_clock(705)
    time.now = 5.0
    assert board.joules() == pytest.approx(180.0 + 2.0 * (40.0 + 60.0 / 8.0))


def test_rows_are_what_litctl_asks_for() -> None:
    text = (
        "name,frequency,sms,launch,pass\nforward/mlp,1410,6,norm_0,initial\nforward/block,900,,,\n"
    )
    assert partitions.candidates(text) == [
        ("forward/mlp", 1410.0, 6, "norm_0"),
        ("forward/block", 900.0, None, ""),
    ]


def test_measured_and_made_up_results_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    partitions.Results(path, stand_in=True)
    assert path.read_text().startswith("# SIMULATED\nname,frequency,sms,launch,time,energy")
    assert partitions.Results(path, stand_in=True).is_empty()
    with pytest.raises(ValueError, match="can't be in one file"):
        partitions.Results(path, stand_in=False)
    measured = tmp_path / "measured.csv"
    partitions.Results(measured, stand_in=False)
    with pytest.raises(ValueError, match="can't be in one file"):
        partitions.Results(measured, stand_in=True)


def bench(
    board: partitions.StandInBoard, runs_at: int | None = None, others_run_at: float = 0.0
) -> Any:
    """One rank, whose GPU may have a clock of its own, as another rank's may."""

    def set_clock(megahertz: int) -> None:
        board.set_clock(runs_at or megahertz)

    return SimpleNamespace(
        board=board,
        hook=SimpleNamespace(set_clock=set_clock),
        call=lambda _candidate: lambda: None,
        wait=lambda: None,
        agree=lambda repeats: min(repeats, 1000),
        mean=list,
        highest=lambda number: max(number, others_run_at),
    )


SOON = partitions.Seconds(measured=0.01, warm_up=0.001, cooldown=0.0, longest_cooldown=0.0)


def test_a_row_has_the_clock_that_was_seen() -> None:
    candidate = partitions.Candidate("forward/mlp", 1410.0, 6, "norm_0")
    found = partitions.row(bench(partitions.StandInBoard()), candidate, SOON)
    assert list(found) == list(partitions.COLUMNS)
    assert (found["sms"], found["launch"], found["clock"]) == (6, "norm_0", 1410.0)
    watts = float(str(found["energy"])) / float(str(found["time"]))
    assert watts == pytest.approx(100.0, rel=0.01)
    # One that is throttled is measured, with its clock; one that nobody set is not.
    slow = partitions.row(bench(partitions.StandInBoard(), 1200), candidate, SOON)
    assert slow["clock"] == 1200.0
    with pytest.raises(OSError, match="1410 MHz were asked for, and a GPU runs at 1500"):
        partitions.row(bench(partitions.StandInBoard(), 1500), candidate, SOON)
    with pytest.raises(OSError, match="and a GPU runs at 1450"):
        partitions.row(bench(partitions.StandInBoard(), None, 1450.0), candidate, SOON)


class Alone:
    """A network of ranks that all have the same, without any of them."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def launch(self, exchange: Any, nanobatch: Any, _sms: int) -> Any:
        own = exchange.collective
        there = nanobatch.gradients if own.of == "gradients" else nanobatch.values
        if own.kind == "ag" and own.of == "values":
            there[own.value] = there[own.value].repeat(self.ranks, 1, 1, 1)
        elif own.kind == "rs":
            there[own.value] = there[own.value].chunk(self.ranks)[0]
        return lambda: None


NAMES = {
    (2, 1): "forward/attention forward/mlp backward/attention backward/mlp",
    (1, 2): "forward/block backward/a_ag backward/a_rs backward/qkvomlp_ag backward/qkvomlp_rs",
    (2, 2): "forward/qkv_ar forward/qkv_ag forward/ao_ag forward/ao_ar forward/mlp backward/o_ar "
    "backward/o_ag backward/a_ag backward/a_rs backward/qkv_rs backward/qkv_ar backward/mlp",
}


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(("tensor", "context"), NAMES)
def test_partitions_are_executed_again_and_again(
    tensor: int, context: int, recompute: bool
) -> None:
    torch: Any = pytest.importorskip("torch", reason="SKIPPED: no torch")
    from litd.overlap import Block, Model, Training, prepared
    from litd.overlap.plan import Launch
    from litd.overlap.runner import Event, Runner

    events: list[Event] = []
    network: Any = Alone(context)
    runner = Runner(network, events.append)
    training = Training(4, 2, tensor, context, recompute=recompute)
    model = Model.of(JOB)
    blocks = [Block(model, training.parallel, sequence=16) for _ in range(prepared.LAYERS)]
    hidden = torch.randn(16 // context, 4, model.hidden_size)
    found = prepared.partitions(training, blocks, hidden, runner)
    assert sorted(found) == sorted(NAMES[tensor, context].split())
    for name, partition in found.items():
        segment = partition.turn.stretch.segment  # type: ignore[union-attr]
        for place, launch in enumerate(segment.computations):
            results = []
            for _ in range(2):
                events.clear()
                partition.run(runner, Launch(launch, 3))
                own = partition.nanobatches[partition.turn.nanobatch]
                results.append({**own.values, **own.gradients})
            # The communication begins right before its computation, and each ran once.
            assert [event.sms for event in events].index(3) == place, name
            assert len(events) == len(segment.computations) + 1
            assert all(torch.equal(it, results[1][key]) for key, it in results[0].items())
    calls = prepared.blocks_alone(training, blocks, hidden, runner)
    calls |= prepared.ends(training, 32, hidden, network)
    assert len(calls) == 6
    for call in calls.values():
        events.clear()
        call()
        first = len(events)
        call()
        assert len(events) == 2 * first


def test_what_litctl_asks_for_is_measured_until_it_can_plan(tmp_path: Path) -> None:
    """On CPUs and made-up power: candidates, results, and a plan that litd.overlap can follow."""
    pytest.importorskip("torch", reason="SKIPPED: no torch")
    from litd.overlap import Training, read

    litctl = program("litctl")
    for name, said in (("job.json", JOB), ("gpu.json", GPU)):
        (tmp_path / name).write_text(json.dumps(said))
    command = ["-m", "litd.partitions", "--stand-in", "--litctl", str(litctl)]
    command += ["--job", "job.json", "--gpu", "gpu.json", "--results", "results.csv"]
    command += ["--measured", "0.02", "--warm-up", "0.005", "--idle", "0.1"]
    command += ["--cooldown", "0", "--longest-cooldown", "0"]
    first, second = processes.run(*command, ranks=2, cwd=tmp_path, timeout=600)
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert second[1] == ""
    found = json.loads(first[1])
    assert found["simulated"] is True
    assert found["static_power_w"] == pytest.approx(40.0, rel=0.01)
    rows = (tmp_path / "results.csv").read_text().splitlines()
    assert rows[0] == "# SIMULATED"
    assert len(rows) == 2 + found["measured"]

    given = ["--job", "job.json", "--gpu", "gpu.json", "--results", "results.csv"]
    given += ["--static-power", str(found["static_power_w"]), "--unit", "0.1"]
    ended = subprocess.run(
        [litctl, "--json", "plan", "kareus", *given, "--plan", "plan.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(ended.stdout)
    assert report["simulated"] is True
    assert report["methods"][3]["points_s_J"]
    for stage in range(2):
        plan = read(tmp_path / "plan.json", stage, Training.of(JOB))
        assert len(plan.launches) == 2 * JOB["training"]["microbatches"]
        assert {clock for _, clock in plan.clocks} <= {900, 1410}
