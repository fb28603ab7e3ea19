"""What a training script has of it: `litd.attach`, without torch and with a stand-in daemon."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import litd
from litd import wire
from litd.hook import Hook
from litd.kernels import Columns, NameTable
from litd.patience import Patience
from litd.place import Place
from litd.scope import Detached
from tests import standin
from tests.standin import StandIn, wait_for

ROOT = Path(__file__).resolve().parents[1]
JOB = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "LITD_JOB": "job",
}


class Pieces:
    def __init__(self, iteration: int) -> None:
        self.iteration = iteration
        self.duration_ns = 0
        self.ended_ns = 0
        self.overhead_ns = 0
        self.why = ""

    def collect(self, names: NameTable, wanted: Callable[[], bool]) -> Columns | None:
        columns = Columns()
        columns.add(names.id_of("gemm"), 7, wire.Class.COMPUTATION, 1000, 3000)
        return columns

    def drop(self) -> None:
        pass


class Ways:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.name = "stand-in"
        self.did: list[str] = []
        self.fault: dict[str, BaseException] = {}
        self.tell: Callable[[wire.Notice], None] = lambda _notice: None

    def prepare(self, job: str, at: Place) -> dict[str, str]:
        self.did.append(f"prepare {job}")
        return {"profiler": "cupti 12.8.90"}

    def welcomed(self, welcome: wire.Welcome) -> None:
        self.did.append(f"welcome {welcome.profiling.name}")

    def watch(self) -> None:
        pass

    def choose(self) -> Any:
        self._do("choose")
        return self

    def step(self, seconds: float, *, measured: bool) -> None:
        pass

    def failed(self, error: Exception) -> None:
        self.did.append(f"failed {error}")

    def begin(self) -> bool:
        self._do("begin")
        return True

    def end(self, iteration: int) -> Pieces:
        self._do(f"end {iteration}")
        return Pieces(iteration)

    def abort(self) -> None:
        self._do("abort")

    def close(self) -> None:
        self._do("close")

    def _do(self, what: str) -> None:
        self.did.append(what)
        if (fault := self.fault.get(what.partition(" ")[0])) is not None:
            raise fault


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    with standin.environment(**JOB):
        yield tmp_path / "ingest.sock"


@pytest.fixture
def ways() -> Ways:
    return Ways()


@pytest.fixture
def hook(path: Path, ways: Ways) -> Iterator[Hook]:
    one = Hook(
        gpu_address="0000:05:00.0", socket=str(path), ways=ways, patience=Patience(0.01, 0.05)
    )
    yield one
    one.close()


def connected(hook: Hook | Detached) -> None:
    hook.step()
    wait_for("connection", lambda: hook.is_connected)


def test_iterations_are_counted_ticked_and_measured_as_asked(
    path: Path, hook: Hook, ways: Ways
) -> None:
    with StandIn(path, standin.welcome(4, 3)) as daemon:
        connected(hook)
        for _ in range(10):
            hook.step()
        wait_for("ticks", lambda: len(daemon.heard("tick")) == 10)
        ticks = daemon.heard("tick")
        assert [tick.iteration for tick in ticks] == list(range(1, 11))
        assert [tick.iteration for tick in ticks if tick.profiled] == [4, 7, 10]
        wait_for("samples", lambda: len(daemon.heard("kernels")) == 3)
        for said in daemon.heard("kernels"):
            [tick] = [tick for tick in ticks if tick.iteration == said.iteration]
            assert said.duration_ns == tick.duration_ns
        begun = ["prepare job", "welcome UNSPECIFIED", "choose", "begin", "end 4"]
        assert ways.did[:5] == begun
        [hello] = daemon.heard("hello")
        assert (hello.job, hello.rank, hello.local_rank) == ("job", 1, 1)
        assert hello.versions["litd"] == litd.__version__
        assert hello.versions["profiler"] == "cupti 12.8.90"
        hook.close()
        wait_for("bye", lambda: [said.reason for said in daemon.heard("bye")])


def test_durations_are_those_of_iterations(path: Path, hook: Hook) -> None:
    with StandIn(path, standin.welcome()) as daemon:
        began = time.perf_counter_ns()
        connected(hook)
        time.sleep(0.05)
        hook.step()
        longest = time.perf_counter_ns() - began
        [tick] = wait_for("tick", lambda: daemon.heard("tick"))
        assert 0 < tick.duration_ns <= longest
        assert tick.duration_ns >= 50_000_000


def test_a_pause_ends_measuring(path: Path, hook: Hook, ways: Ways) -> None:
    with StandIn(path, standin.welcome(0, 1)) as daemon:
        connected(hook)
        hook.step()
        daemon.session().say(standin.directive(0, 1, pause=True))
        wait_for("pause", lambda: hook._link is not None and hook._link.directive.pause)
        hook.step()
        before = len(ways.did)
        hook.step()
        hook.step()
        assert len(ways.did) == before


def test_a_job_of_one_rank_is_never_measured(path: Path, hook: Hook, ways: Ways) -> None:
    with (
        standin.environment(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1"),
        StandIn(path, standin.welcome(0, 1)) as daemon,
    ):
        connected(hook)
        for _ in range(5):
            hook.step()
        wait_for("ticks", lambda: len(daemon.heard("tick")) == 5)
        assert ways.did == ["welcome UNSPECIFIED"]


@pytest.mark.parametrize("what", ["choose", "begin", "end", "abort", "close"])
def test_faults_end_here(path: Path, hook: Hook, ways: Ways, what: str) -> None:
    ways.fault[what] = RuntimeError("broken")
    with StandIn(path, standin.welcome(0, 1)):
        connected(hook)
        for _ in range(10):
            hook.step()
        hook.close()
        hook.step()
        hook.close()


@pytest.mark.parametrize("what", ["choose", "begin", "end"])
def test_interrupts_go_through(path: Path, hook: Hook, ways: Ways, what: str) -> None:
    with StandIn(path, standin.welcome(0, 1)):
        connected(hook)
        ways.fault[what] = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            for _ in range(3):
                hook.step()
        if what == "begin":
            # Half of it may have happened.
            assert ways.did[-1] == "abort"
        ways.fault.clear()
        hook.step()


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt])
def test_a_fault_does_not_change_the_count(
    path: Path, hook: Hook, ways: Ways, monkeypatch: pytest.MonkeyPatch, fault: type[BaseException]
) -> None:
    def fails(_seconds: float, *, measured: bool) -> None:
        raise fault

    # Ranks that count differently would have different iterations measured.
    with StandIn(path, standin.welcome()) as daemon:
        connected(hook)
        with monkeypatch.context() as patch:
            patch.setattr(ways, "step", fails)
            with contextlib.suppress(KeyboardInterrupt):
                hook.step()
        hook.step()
        assert hook.iteration == 3
        wait_for("tick", lambda: [tick.iteration for tick in daemon.heard("tick")] == [2])


def test_a_second_welcome_is_litds_new_word_on_the_profiler(
    path: Path, hook: Hook, ways: Ways
) -> None:
    with StandIn(path, standin.welcome(0, 1, profiling=wire.Profiling.SAFE)) as daemon:
        connected(hook)
        # As when the administrator turns profilers off.
        daemon.session().say(standin.welcome(0, 7, profiling=wire.Profiling.WAIT))
        wait_for("the word", lambda: "welcome WAIT" in ways.did)
        assert "welcome SAFE" in ways.did
        assert hook.is_connected
        assert hook._link is not None
        wait_for("directive", lambda: hook._link and hook._link.directive.period == 7)
        hook.step()
        wait_for("tick", lambda: daemon.heard("tick"))


def test_an_end_in_the_middle_of_a_measured_iteration(path: Path, hook: Hook, ways: Ways) -> None:
    with StandIn(path, standin.welcome(0, 1)) as daemon:
        connected(hook)

        def is_measuring() -> bool:
            hook.step()
            return ways.did[-1] == "begin"

        # What the welcome asks for may be heard a moment after the connection.
        wait_for("a measured iteration", is_measuring)
        hook.close()
        assert ways.did[-2:] == ["abort", "close"]
        wait_for("bye", lambda: daemon.heard("bye"))
        assert daemon.heard("kernels") == []


def test_an_error_of_the_training_goes_through_and_is_told(path: Path) -> None:
    with StandIn(path, standin.welcome()) as daemon:
        with (
            pytest.raises(ZeroDivisionError),
            litd.attach(gpu="0000:05:00.0", socket=str(path)) as hook,
        ):
            connected(hook)
            raise ZeroDivisionError
        said = wait_for("bye", lambda: daemon.heard("bye"))
        assert said[0].reason == "training ended with ZeroDivisionError"


def test_attached_anew_the_old_hook_ends(path: Path) -> None:
    with StandIn(path, standin.welcome()) as daemon:
        first = litd.attach(gpu="0000:05:00.0", socket=str(path))
        connected(first)
        second = litd.attach(gpu="0000:05:00.0", socket=str(path))
        wait_for("bye", lambda: daemon.heard("bye"))
        connected(second)
        second.close()


def test_without_a_gpu_litd_is_not_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with StandIn(path, standin.welcome()) as daemon, litd.attach(socket=str(path)) as hook:
        for _ in range(20):
            hook.step()
        wait_for("warning", lambda: "its GPU could not be determined" in caplog.text)
        for _ in range(5):
            hook.step()
        assert daemon.sessions == []


def test_litd_is_told_if_nothing_can_be_measured(path: Path) -> None:
    # The GPU is named, and torch (if there is one) does not use it.
    with StandIn(path, standin.welcome(0, 1)) as daemon:
        with litd.attach(gpu="0000:05:00.0", socket=str(path)) as hook:
            connected(hook)
            [notice] = wait_for("notice", lambda: daemon.heard("notice"))
            assert "torch uses no GPU" in notice.text
            hook.step()
            wait_for("tick", lambda: daemon.heard("tick"))
        assert daemon.heard("kernels") == []


def test_odd_optimizers_are_no_reason_to_fail(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Raises:
        @property
        def optimizer(self) -> Any:
            raise RuntimeError("not now")

    for odd in ("text", 7, object(), [1], Raises()):
        with litd.attach(odd, gpu="0000:05:00.0", socket=str(path)) as hook:
            hook.step()
    assert "hook.step()" in caplog.text


def test_a_forked_worker_has_no_hook(path: Path, hook: Hook) -> None:
    with StandIn(path, standin.welcome(0, 1)) as daemon:
        connected(hook)
        child = os.fork()
        if child == 0:
            hook.step()
            hook.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        hook.step()
        wait_for("tick", lambda: len(daemon.heard("tick")) == 1)
        assert daemon.heard("bye") == []


SCRIPT = """
import litd, sys
assert "torch" not in sys.modules
sys.modules["torch"] = None
hook = litd.attach(gpu="0000:05:00.0", socket=sys.argv[1])
import time
while not hook.is_connected:
    hook.step()
    time.sleep(0.01)
hook.step()
assert "google" not in sys.modules and "numpy" not in sys.modules
"""


def script(text: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_script_that_just_ends_says_goodbye(path: Path) -> None:
    with StandIn(path, standin.welcome()) as daemon:
        child = script(SCRIPT, path)
        assert child.returncode == 0, child.stderr
        wait_for("bye", lambda: daemon.heard("bye"))
        assert child.stderr == ""


WAITS = """
import litd, os, signal, sys, time
hook = litd.attach(gpu="0000:05:00.0", socket=sys.argv[1])
while not hook.is_connected:
    hook.step()
    time.sleep(0.01)
# As with Slurm's --signal: a thread that would take it would end the process.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
for _ in range(20):
    os.kill(os.getpid(), signal.SIGUSR1)
    assert signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1
"""


def test_a_script_that_waits_for_a_signal_gets_it(path: Path) -> None:
    with StandIn(path, standin.welcome()) as daemon:
        child = script("import sys; sys.modules['torch'] = None\n" + WAITS, path)
        assert child.returncode == 0, child.stderr
        wait_for("bye", lambda: daemon.heard("bye"))


def test_what_goes_wrong_is_said_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with litd.attach(gpu="0000:05:00.0", socket=str(path)) as hook:
        for _ in range(100):
            hook.step()
        wait_for("warning", lambda: caplog.records)
        for _ in range(100):
            hook.step()
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(warnings) == 1


def test_what_the_profiler_does_at_the_end_is_no_time_of_the_iteration(
    path: Path, hook: Hook, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(iteration: int) -> Pieces:
        pieces = Pieces(iteration)
        pieces.ended_ns = time.perf_counter_ns()
        time.sleep(2.0)
        pieces.overhead_ns = 2_000_000_123
        return pieces

    monkeypatch.setattr(ways, "end", end)
    with StandIn(path, standin.welcome(2, 100)) as daemon:
        connected(hook)
        hook.step()
        hook.step()
        [said] = wait_for("sample", lambda: daemon.heard("kernels"))
        assert said.duration_ns < 1_900_000_000
        ticks = daemon.heard("tick")
        assert [tick.duration_ns for tick in ticks if tick.profiled] == [said.duration_ns]
        # litd is told of it all the same: it spaces measured iterations so that this is little.
        assert [tick.overhead_ns for tick in ticks] == [0, 0, 2_000_000_123][-len(ticks) :]


def torch_on_a_gpu() -> Any:
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        current_device=lambda: 0,
        is_current_stream_capturing=lambda: False,
    )
    return SimpleNamespace(
        cuda=cuda, __version__="2.9.1", version=SimpleNamespace(cuda="12.8", hip=None)
    )


def test_a_gpu_that_is_not_in_use_is_left_alone(
    path: Path, hook: Hook, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To ask torch for more than this would set up the driver, and a context on the first GPU.
    idle = SimpleNamespace(is_initialized=lambda: False)
    hook._torch = SimpleNamespace(cuda=idle, __version__="2.9.1")
    hook._gpu = None
    monkeypatch.setattr("litd.gpu.address", lambda _torch, index: f"0000:{index:02x}:00.0")
    with StandIn(path, standin.welcome(0, 1)) as daemon:
        # A first step or two, before the model is moved to the GPU.
        hook.step()
        hook.step()
        hook._torch = torch_on_a_gpu()
        connected(hook)
        assert hook.iteration == 3
        hook.step()
        wait_for("tick", lambda: [tick.iteration for tick in daemon.heard("tick")] == [3])
        assert [hello.gpu for hello in daemon.heard("hello")] == ["0000:00:00.0"]
    assert hook._faults == 0


def test_what_has_a_hook_can_be_copied_and_saved(path: Path, hook: Hook) -> None:
    with StandIn(path, standin.welcome()):
        connected(hook)
        model = {"weights": [1, 2], "hook": hook}
        copied = copy.deepcopy(model)
        assert copied["weights"] is not model["weights"]
        assert copied["hook"] is copy.copy(hook) is hook
        elsewhere = pickle.loads(pickle.dumps(model))["hook"]
        with elsewhere:
            elsewhere.step()
            elsewhere.set_clock(1200)
        assert (elsewhere.iteration, elsewhere.is_connected) == (0, False)
        assert hook.is_connected


def test_where_there_can_be_no_hook_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # As on Windows, which has neither such sockets nor forks.
    monkeypatch.setitem(sys.modules, "litd.hook", None)
    with litd.attach() as hook:
        hook.step()
    hook.close()
    assert len(caplog.records) == 1


def test_a_step_that_becomes_part_of_a_cuda_graph_is_left_alone(
    path: Path, hook: Hook, ways: Ways
) -> None:
    captures = [False]
    hook._torch = torch_on_a_gpu()
    hook._torch.cuda.is_current_stream_capturing = lambda: captures[0]
    with StandIn(path, standin.welcome(0, 1)) as daemon:
        connected(hook)
        did = list(ways.did)
        captures[0] = True
        for _ in range(3):
            hook.step()
        assert hook.iteration == 1
        assert ways.did == did
        captures[0] = False
        for _ in range(3):
            hook.step()
        wait_for("ticks", lambda: [tick.iteration for tick in daemon.heard("tick")] == [1, 2, 3])
