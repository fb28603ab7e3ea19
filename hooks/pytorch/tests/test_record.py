"""`litd.record`, and the callbacks of trainers."""

from __future__ import annotations

import copy
import gzip
import importlib
import json
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import litd
from tests import standin
from tests.standin import StandIn, wait_for


def train(torch: Any, steps: int) -> None:
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        net(torch.randn(2, 4)).sum().backward()
        optimizer.step()


def marks(path: Path) -> list[str]:
    document = json.loads(gzip.decompress(path.read_bytes()))
    # Without Kineto, torch writes the bare list.
    events = document["traceEvents"] if isinstance(document, dict) else document
    names = [str(event.get("name")) for event in events]
    return sorted({name for name in names if name.startswith("ProfilerStep#")})


def test_iterations_are_recorded_and_marked(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="SKIPPED: no torch")
    place = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    with (
        standin.environment(**place),
        litd.record(tmp_path / "traces", skip=2, iterations=3) as recorder,
    ):
        train(torch, 8)
    assert recorder.path == tmp_path / "traces" / "rank3.json.gz"
    assert len(marks(recorder.path)) == 3


@pytest.mark.parametrize(("steps", "written"), [(1, False), (4, True)])
def test_a_recording_that_ends_early_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, steps: int, written: bool
) -> None:
    torch = pytest.importorskip("torch", reason="SKIPPED: no torch")
    with litd.record(tmp_path, skip=2, iterations=30) as recorder:
        train(torch, steps)
    assert "ended early" in caplog.text
    assert (recorder.path is not None) == written


def test_a_recording_that_fails_does_not_stop_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch = pytest.importorskip("torch", reason="SKIPPED: no torch")
    (tmp_path / "file").write_text("")
    with litd.record(tmp_path / "file", skip=2, iterations=1):
        train(torch, 5)
    assert "recording has failed" in caplog.text
    train(torch, 1)


def test_a_recording_is_one_processs_and_can_be_copied(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="SKIPPED: no torch")
    with litd.record(tmp_path / "traces", skip=2, iterations=3) as recorder:
        train(torch, 3)
        child = os.fork()
        if child == 0:
            recorder.step()
            recorder.close()
            os._exit(recorder.path is not None)
        assert os.waitpid(child, 0)[1] == 0
        assert not (tmp_path / "traces").exists()
        assert copy.deepcopy({"recorder": recorder})["recorder"] is recorder
        assert pickle.loads(pickle.dumps(recorder)).path is None
        train(torch, 2)
    assert recorder.path is not None


def test_a_recording_without_a_gpu_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch = pytest.importorskip("torch", reason="SKIPPED: no torch")
    with litd.record(tmp_path, skip=2, iterations=1):
        train(torch, 5)
    assert "no kernels to analyze" in caplog.text


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both trainers' packages, as far as callbacks need them."""
    for name, base in [
        ("transformers", "TrainerCallback"),
        ("lightning.pytorch", "Callback"),
        ("lightning", ""),
    ]:
        module = ModuleType(name)
        if base:
            setattr(module, base, type(base, (), {}))
        monkeypatch.setitem(sys.modules, name, module)
    yield
    for name in ("litd.huggingface", "litd.lightning"):
        sys.modules.pop(name, None)


def test_hugging_faces_trainer(trainers: None, tmp_path: Path) -> None:
    path = tmp_path / "ingest.sock"
    with StandIn(path, standin.welcome()) as daemon:
        callback: Any = importlib.import_module("litd.huggingface").LitdCallback(
            gpu="0000:05:00.0", socket=str(path)
        )
        arguments = (SimpleNamespace(), SimpleNamespace(global_step=1), SimpleNamespace())
        callback.on_train_begin(*arguments, model=None)
        callback.on_step_end(*arguments, model=None)
        daemon.session()
        wait_for("welcome", lambda: litd._current is not None and litd._current.is_connected)
        for _ in range(3):
            callback.on_step_end(*arguments, model=None)
        callback.on_train_end(*arguments, model=None)
        wait_for("bye", lambda: daemon.heard("bye"))
        assert [tick.iteration for tick in daemon.heard("tick")] == [1, 2, 3]


def test_lightning_counts_steps_and_not_batches(trainers: None, tmp_path: Path) -> None:
    path = tmp_path / "ingest.sock"
    with StandIn(path, standin.welcome()) as daemon:
        callback: Any = importlib.import_module("litd.lightning").LitdCallback(
            gpu="0000:05:00.0", socket=str(path)
        )
        trainer = SimpleNamespace(global_step=0)
        callback.on_train_start(trainer, None)
        for batch in range(12):
            trainer.global_step = (batch + 1) // 4
            callback.on_train_batch_end(trainer, None, None, None, batch)
            if batch == 3:
                wait_for("hook", lambda: litd._current is not None and litd._current.is_connected)
        callback.on_exception(trainer, None, ValueError())
        [bye] = wait_for("bye", lambda: daemon.heard("bye"))
        assert bye.reason == "training ended with ValueError"
        assert [tick.iteration for tick in daemon.heard("tick")] == [1, 2]
