"""Where the profiler may be used."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from litd import markers, others, stacks
from litd.stacks import Canary, NodeRecord, Stack, State, Verdict

STACK = Stack("2.9.1", "cuda 12.8", "cupti 12.8.90")


def test_stacks_are_told_by_torch() -> None:
    cuda = SimpleNamespace(__version__="2.9.1", version=SimpleNamespace(cuda="12.8", hip=None))
    assert stacks.of(cuda).runtime == "cuda 12.8"
    hip = SimpleNamespace(__version__="2.9.1", version=SimpleNamespace(cuda=None, hip="6.4"))
    assert stacks.of(hip).runtime == "rocm 6.4"
    cpu = SimpleNamespace(__version__="1.13.0", version=SimpleNamespace(cuda=None, hip=None))
    assert stacks.of(cpu) == Stack("1.13.0", stacks.UNKNOWN, stacks.UNKNOWN)
    assert not stacks.of(cpu).is_known


def test_a_library_is_told_by_the_file_that_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(__version__="2.9.1", version=SimpleNamespace(cuda="77.1", hip=None))
    hip = SimpleNamespace(__version__="2.12.0", version=SimpleNamespace(cuda=None, hip="7.2"))
    assert stacks.of(cuda).profiler == "cupti unknown"
    files = ["/opt/libcupti.so.2025.3.1", "/opt/rocm/lib/librocprofiler-sdk.so.1.1.0"]
    monkeypatch.setattr(others, "loaded", lambda: files)
    assert stacks.of(cuda).profiler == "cupti 2025.3.1"
    assert stacks.of(hip).profiler == "rocprofiler-sdk 1.1.0"
    files[1] = "/torch/lib/librocprofiler-sdk.so"
    assert stacks.of(hip).profiler == "rocprofiler-sdk unknown"


def test_one_job_goes_first_and_the_others_learn_from_it(tmp_path: Path) -> None:
    ours, theirs = (NodeRecord(tmp_path, STACK, job) for job in ("a", "b"))
    assert ours.enter() == Verdict(State.CANARY)
    assert NodeRecord(tmp_path, STACK, "a").enter() == Verdict(State.CANARY)
    assert theirs.enter().state == "taken"
    assert theirs.look() is None
    # Another stack is another matter.
    other = Stack("2.10.0", STACK.runtime, STACK.profiler)
    assert NodeRecord(tmp_path, other, "b").enter() == Verdict(State.CANARY)
    ours.begin()
    ours.end()
    ours.settle(State.PASSED)
    assert theirs.enter() == Verdict(State.PASSED)


def test_off_is_for_good(tmp_path: Path) -> None:
    record = NodeRecord(tmp_path, STACK, "a")
    record.enter()
    record.settle(State.OFF, "it hangs")
    record.settle(State.PASSED)
    assert NodeRecord(tmp_path, STACK, "b").enter() == Verdict(State.OFF, "it hangs")
    assert record.look() == Verdict(State.OFF, "it hangs")


def test_a_job_that_goes_before_it_knows_leaves_no_trace(tmp_path: Path) -> None:
    record = NodeRecord(tmp_path, STACK, "a")
    record.enter()
    record.leave()
    assert NodeRecord(tmp_path, STACK, "b").enter() == Verdict(State.CANARY)


CHILD = """
import os, sys
from pathlib import Path
from litd.stacks import NodeRecord, Stack
record = NodeRecord(Path(sys.argv[1]), Stack("2.9.1", "cuda 12.8", "cupti 12.8.90"), "a")
assert record.enter().state == "canary"
if sys.argv[2] == "profiling":
    record.begin()
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(("doing", "after"), [("profiling", "off"), ("nothing", "canary")])
def test_a_job_that_dies_while_it_profiles_turns_profiling_off(
    tmp_path: Path, doing: str, after: str
) -> None:
    root = str(Path(stacks.__file__).parents[1])
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), doing],
        env={**os.environ, "PYTHONPATH": root},
        check=False,
    )
    assert child.returncode == -9
    assert NodeRecord(tmp_path, STACK, "b").enter().state == after


CRASH = """
import os, sys
from pathlib import Path
from litd.stacks import NodeRecord, Stack
record = NodeRecord(Path(sys.argv[1]), Stack("2.9.1", "cuda 12.8", "cupti 12.8.90"), "a later job")
print(record.enter().state.value)
sys.stdout.flush()
record.begin()
os.abort()
"""


def crash(folder: Path) -> str:
    """A job that profiles and dies of it; answers with what it was told first."""
    child = subprocess.run(
        [sys.executable, "-c", CRASH, str(folder)],
        env={**os.environ, "PYTHONPATH": str(Path(stacks.__file__).parents[1])},
        check=False,
        capture_output=True,
        text=True,
    )
    assert child.returncode == -6
    return child.stdout.strip()


def test_a_job_that_dies_in_a_later_profiled_iteration_is_the_last_that_does(
    tmp_path: Path,
) -> None:
    NodeRecord(tmp_path, STACK, "the first").settle(State.PASSED)
    assert crash(tmp_path) == "passed"
    # As when CUPTI is set up for the second time (pytorch#112507).
    assert NodeRecord(tmp_path, STACK, "b").enter().state is State.OFF


def test_one_death_is_not_held_against_a_good_stack_and_two_are(tmp_path: Path) -> None:
    NodeRecord(tmp_path, STACK, "a").settle(State.GOOD)
    assert crash(tmp_path) == "good"
    # It may have been killed: the next job tries anew.
    assert crash(tmp_path) == "canary"
    assert NodeRecord(tmp_path, STACK, "b").enter().state is State.OFF


def test_a_good_stack_that_was_good_again_is_forgiven(tmp_path: Path) -> None:
    record = NodeRecord(tmp_path, STACK, "a")
    record.settle(State.GOOD)
    for _ in range(3):
        crash(tmp_path)
        assert record.enter().state is State.CANARY
        record.settle(State.PASSED)
        record.settle(State.GOOD)
        record.settle(State.PASSED)
        assert record.look() == Verdict(State.GOOD)


def test_a_process_of_another_container_that_profiles_is_alive(tmp_path: Path) -> None:
    NodeRecord(tmp_path, STACK, "a").settle(State.PASSED)
    boot = markers.boot()
    mark = tmp_path / f"{STACK.key}.{boot}.1.2.3.profiling"
    mark.touch()
    assert NodeRecord(tmp_path, STACK, "b").enter().state is State.PASSED
    # Nobody profiles for so long.
    os.utime(mark, (0, 0))
    assert NodeRecord(tmp_path, STACK, "b").enter().state is State.OFF
    assert not mark.exists()


def test_marks_of_an_earlier_boot_say_nothing(tmp_path: Path) -> None:
    mark = tmp_path / f"{STACK.key}.another.1.2.3.profiling"
    mark.touch()
    assert NodeRecord(tmp_path, STACK, "b").enter().state is State.CANARY
    assert not mark.exists()


def test_a_job_whose_kernels_cant_be_had_times_modules_in_all_its_ranks(tmp_path: Path) -> None:
    record = NodeRecord(tmp_path, STACK, "a")
    record.settle(State.PASSED)
    record.time_modules("too many kernels")
    other_rank = NodeRecord(tmp_path, STACK, "a")
    assert other_rank.look() == Verdict(State.MODULES, "too many kernels")
    assert other_rank.enter().state is State.MODULES
    assert NodeRecord(tmp_path, STACK, "b").enter() == Verdict(State.PASSED)
    for number in range(50):
        NodeRecord(tmp_path, STACK, f"job {number}").time_modules("")
    assert record.look() == Verdict(State.PASSED)


def test_what_was_learned_before_a_boot_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = NodeRecord(tmp_path, STACK, "a")
    record.enter()
    record.settle(State.OFF, "it hangs")
    monkeypatch.setattr(stacks, "boot", lambda: "another")
    assert record.enter() == Verdict(State.CANARY)


def test_a_damaged_file_is_as_none(tmp_path: Path) -> None:
    (tmp_path / f"{STACK.key}.json").write_text("{")
    assert NodeRecord(tmp_path, STACK, "a").enter() == Verdict(State.CANARY)


def test_a_folder_that_others_can_write_to_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    monkeypatch.setenv("LITD_RUNTIME_DIR", str(folder))
    assert stacks.runtime_directory() == folder
    folder.chmod(0o777)
    assert stacks.runtime_directory() is None
    folder.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(folder)
    monkeypatch.setenv("LITD_RUNTIME_DIR", str(link))
    assert stacks.runtime_directory() is None


def test_what_another_user_lays_into_tmp_keeps_no_job_from_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LITD_RUNTIME_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    usual = tmp_path / f"litd-{os.getuid()}"
    usual.touch()
    # One of theirs that looks like the first of ours.
    (tmp_path / f"{usual.name}-0").mkdir()
    (tmp_path / f"{usual.name}-0").chmod(0o777)
    folder = stacks.runtime_directory()
    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    # Other jobs of this user keep theirs there, too.
    assert stacks.runtime_directory() == folder
    assert NodeRecord(folder, STACK, "a").enter() == Verdict(State.CANARY)
    if os.getuid() == 0:
        usual.unlink()
        usual.mkdir()
        os.chown(usual, 61001, 61001)
        assert stacks.runtime_directory() == folder


def canary(after: Callable[[int], float], steps: int = Canary.AFTER + Canary.SETTLE) -> Canary:
    """A canary whose iterations last a second with some noise, and then as `after` says."""
    chance = random.Random(1)
    bird = Canary()
    now = 0.0
    for _ in range(Canary.BEFORE):
        assert not bird.is_ready()
        now += 1
        bird.step(1 + chance.gauss(0, 0.0005), now, measured=False)
    assert bird.is_ready()
    bird.profiled(now)
    now += 2
    bird.step(2.0, now, measured=True)
    for step in range(steps):
        now += 1
        bird.step(after(step) + chance.gauss(0, 0.0005), now, measured=False)
    return bird


def test_a_job_that_goes_on_as_fast_passes() -> None:
    now = Canary.BEFORE + 2 + Canary.AFTER + Canary.SETTLE
    assert canary(lambda _: 1.0).verdict(now) == Verdict(State.PASSED)
    # The first iterations after it are slower, and that is over.
    assert canary(lambda step: 1.5 if step < Canary.SETTLE else 1.0).verdict(now) == (
        Verdict(State.PASSED)
    )


def test_a_job_that_stands_still_does_not() -> None:
    bird = canary(lambda _: 1.0, steps=0)
    assert bird.verdict(Canary.BEFORE + 2 + 9) is None
    verdict = bird.verdict(Canary.BEFORE + 2 + 11)
    assert verdict is not None
    assert verdict.state == "off"
    assert "no step" in verdict.reason


def test_a_job_that_pauses_later_is_not_to_blame_the_profiler_for() -> None:
    bird = canary(lambda _: 1.0, steps=20)
    assert bird.verdict(1e6) is None
