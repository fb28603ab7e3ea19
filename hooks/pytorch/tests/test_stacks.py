"""Where the profiler may be used."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from litd import stacks
from litd.stacks import Canary, NodeRecord, Stack, Verdict

STACK = Stack("2.9.1", "cuda 12.8", "cupti 12.8.90")


def test_nothing_is_allowed_that_is_not_on_the_list(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not STACK.is_allowed()
    fake = tmp_path / "stacks.py"
    entry = {"torch": "2.9.1", "runtime": "cuda 12.8", "profiler": "cupti 12.8.90"}
    (tmp_path / "stacks.json").write_text(json.dumps({"allowed": [entry]}))
    monkeypatch.setattr(stacks, "__file__", str(fake))
    assert STACK.is_allowed()
    assert not Stack("2.9.1", "cuda 12.8", "cupti 12.8.91").is_allowed()
    assert not Stack("2.9.1", "cuda 12.8", stacks.UNKNOWN).is_allowed()


def test_the_list_in_the_package_is_empty_today() -> None:
    text = Path(stacks.__file__).with_name("stacks.json").read_text("utf-8")
    assert json.loads(text)["allowed"] == []


def test_stacks_are_told_by_torch() -> None:
    cuda = SimpleNamespace(__version__="2.9.1", version=SimpleNamespace(cuda="12.8", hip=None))
    assert stacks.of(cuda).runtime == "cuda 12.8"
    hip = SimpleNamespace(__version__="2.9.1", version=SimpleNamespace(cuda=None, hip="6.4"))
    assert stacks.of(hip).runtime == "rocm 6.4"
    cpu = SimpleNamespace(__version__="1.13.0", version=SimpleNamespace(cuda=None, hip=None))
    assert stacks.of(cpu) == Stack("1.13.0", stacks.UNKNOWN, stacks.UNKNOWN)


def test_one_job_goes_first_and_the_others_learn_from_it(tmp_path: Path) -> None:
    ours, theirs = (NodeRecord(tmp_path, STACK, job) for job in ("a", "b"))
    assert ours.enter() == Verdict("canary")
    assert NodeRecord(tmp_path, STACK, "a").enter() == Verdict("canary")
    assert theirs.enter().state == "taken"
    assert theirs.look() is None
    # Another stack is another matter.
    other = Stack("2.10.0", STACK.runtime, STACK.profiler)
    assert NodeRecord(tmp_path, other, "b").enter() == Verdict("canary")
    ours.profiling(is_on=True)
    ours.profiling(is_on=False)
    ours.settle("passed")
    assert theirs.enter() == Verdict("passed")


def test_off_is_for_good(tmp_path: Path) -> None:
    record = NodeRecord(tmp_path, STACK, "a")
    record.enter()
    record.settle("off", "it hangs")
    record.settle("passed")
    assert NodeRecord(tmp_path, STACK, "b").enter() == Verdict("off", "it hangs")
    assert record.look() == Verdict("off", "it hangs")


def test_a_job_that_goes_before_it_knows_leaves_no_trace(tmp_path: Path) -> None:
    record = NodeRecord(tmp_path, STACK, "a")
    record.enter()
    record.leave()
    assert NodeRecord(tmp_path, STACK, "b").enter() == Verdict("canary")


CHILD = """
import os, sys
from pathlib import Path
from litd.stacks import NodeRecord, Stack
record = NodeRecord(Path(sys.argv[1]), Stack("2.9.1", "cuda 12.8", "cupti 12.8.90"), "a")
assert record.enter().state == "canary"
if sys.argv[2] == "profiling":
    record.profiling(is_on=True)
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


def test_what_was_learned_before_a_boot_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = NodeRecord(tmp_path, STACK, "a")
    record.enter()
    record.settle("off", "it hangs")
    monkeypatch.setattr(stacks, "_boot", lambda: "another")
    assert record.enter() == Verdict("canary")


def test_a_damaged_file_is_as_none(tmp_path: Path) -> None:
    (tmp_path / f"{STACK.key}.json").write_text("{")
    assert NodeRecord(tmp_path, STACK, "a").enter() == Verdict("canary")


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
    assert NodeRecord(folder, STACK, "a").enter() == Verdict("canary")
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
    assert canary(lambda _: 1.0).verdict(now) == Verdict("passed")
    # The first iterations after it are slower, and that is over.
    assert canary(lambda step: 1.5 if step < Canary.SETTLE else 1.0).verdict(now) == (
        Verdict("passed")
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
