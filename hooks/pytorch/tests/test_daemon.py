"""The real daemon on a node of stand-ins for NVIDIA GPUs, with real hooks in a process per rank.

`LITD_BIN` names the daemon, such as `target/debug/litd`; `litctl` and `litd-rig-train` lie beside,
and the stand-in for `libnvidia-ml.so.1` there or in `deps`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.standin import SHARED, SOON, wait_for

ROOT = Path(__file__).resolve().parents[1]
RANKS = 8
DLRM = SHARED / "traces" / "param_dlrm_v100x8"

CONFIG = """
mode = "on"
policy = "gpu-red"
law.calibration.sampling_period = 1
law.calibration.warm_up = 3
law.detection.window = 1
settle.seconds = 0.0
settle.iterations = 0
sampling.steady_temperature = 100.0
hardware.amd = "off"
hardware.cpus = false
hardware.nvml_library = "{folder}/libnvidia-ml.so.1"
ingest.socket = "{folder}/ingest.sock"
control.socket = "{folder}/control.sock"
metrics.listen = "127.0.0.1:0"
state.directory = "{folder}/state"
state.locks = "{folder}/devices"
"""


def program(name: str, *elsewhere: str) -> Path:
    given = os.environ.get("LITD_BIN", "")
    folder = Path(given).resolve().parent
    paths = [path for path in (folder / one for one in (name, *elsewhere)) if path.is_file()]
    if not given or not paths:
        why = f"SKIPPED: LITD_BIN names no folder with {name}"
        print(why, file=sys.stderr)
        pytest.skip(why)
    return paths[0]


def install_nvml(folder: Path) -> None:
    """Puts NVIDIA's library there, as a stand-in that talks to the simulated node."""
    built = program("liblitd_rig_nvml.so", "deps/liblitd_rig_nvml.so")
    library = folder / "libnvidia-ml.so.1"
    shutil.copyfile(built, library)
    Path(f"{library}.socket").write_text(str(folder / "hardware.sock"))


@contextlib.contextmanager
def running(*command: object, **more: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([str(part) for part in command], text=True, **more)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # What it was to be told last may not have gone out.
                with contextlib.suppress(OSError):
                    pipe.close()


class Node:
    """A simulated node, its daemon, and ranks that train on it."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.ranks: list[subprocess.Popen[str]] = []
        install_nvml(folder)
        stack.enter_context(running(program("litd-rig-train"), folder, RANKS))
        wait_for("node", (folder / "train.sock").exists)
        (folder / "state").mkdir()
        (folder / "litd.toml").write_text(CONFIG.format(folder=folder))
        self.daemon = self.start()

    def start(self) -> subprocess.Popen[str]:
        log = self.stack.enter_context((self.folder / "log").open("a"))
        daemon = self.stack.enter_context(
            running(program("litd"), "--config", self.folder / "litd.toml", stderr=log)
        )
        wait_for("daemon", self.answers)
        return daemon

    def answers(self) -> bool:
        return self.litctl("status").returncode == 0

    def litctl(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(program("litctl")), "--json", *map(str, arguments)],
            env={**os.environ, "LITD_CONTROL": str(self.folder / "control.sock")},
            capture_output=True,
            text=True,
            timeout=SOON,
            check=False,
        )

    def status(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.litctl("status").stdout)
        return told

    def job(self) -> dict[str, Any]:
        jobs = self.status()["jobs"]
        return jobs[0] if jobs else {"samples": 0, "state": "none"}

    def leads(self) -> list[float]:
        return [float(device["lead"] or 0) for device in self.status()["devices"][:RANKS]]

    def train(self) -> None:
        sockets = (self.folder / "train.sock", self.folder / "ingest.sock")
        for rank in range(RANKS):
            numbers = {"RANK": rank, "LOCAL_RANK": rank}
            sizes = {"WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
            self.ranks.append(
                self.stack.enter_context(
                    running(
                        *(sys.executable, "-m", "tests.programs.rank", rank, *sockets),
                        env={
                            **os.environ,
                            **{name: str(value) for name, value in (numbers | sizes).items()},
                            "LITD_JOB": "train",
                            "PYTHONPATH": str(ROOT),
                        },
                        cwd=ROOT,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                    )
                )
            )
        assert self.hear() == ["ready"] * RANKS

    def tell(self, *lines: str) -> None:
        """Tells each rank its line, and waits until all have done it."""
        for rank, line in zip(self.ranks, lines, strict=True):
            assert rank.stdin is not None
            rank.stdin.write(line + "\n")
            rank.stdin.flush()
        assert self.hear() == ["done"] * RANKS

    def hear(self) -> list[str]:
        return [rank.stdout.readline().strip() for rank in self.ranks if rank.stdout]

    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with contextlib.ExitStack() as stack:
        yield Node(tmp_path, stack)


def test_hooks_drive_the_daemon_and_the_loop_converges(node: Node) -> None:
    node.train()
    # Nothing is adjusted before three samples are in.
    node.tell(*["run 3"] * RANKS)
    wait_for("a first sample", lambda: max(node.leads()) > 0)
    before = node.leads()
    rounds = 0
    while node.job()["state"] != "converged":
        assert rounds < 60, node.log()
        node.tell(*["run 20"] * RANKS)
        rounds += 1
    after = node.leads()
    assert max(after) < 0.35 * max(before), (before, after)
    status = node.status()
    assert {device["backend"] for device in status["devices"]} == {"nvml"}
    # The model law comes there in two, others in more.
    assert status["jobs"][0]["adjustments"] >= 1
    caps = [device["cap"] for device in status["devices"][:RANKS]]
    assert max(caps) - min(caps) > 5
    # The straggler keeps its power: nobody else has as much.
    assert caps.index(max(caps)) == before.index(min(before))
    for rank in node.ranks:
        assert rank.stdin is not None
        rank.stdin.close()
    wait_for("the job's end", lambda: not node.status()["jobs"])
    assert [rank.wait(SOON) for rank in node.ranks] == [0] * RANKS


def test_hooks_find_a_daemon_that_was_killed_and_started_again(node: Node) -> None:
    node.train()
    node.tell(*["run 6"] * RANKS)
    wait_for("samples", lambda: node.job()["samples"] > 0)
    node.daemon.kill()
    node.daemon.wait()
    node.tell(*["run 10"] * RANKS)
    node.daemon = node.start()
    wait_for("all ranks", lambda: len(connected(node)) == RANKS)
    assert node.job()["samples"] == 0

    def sampled() -> bool:
        node.tell(*["run 5"] * RANKS)
        return bool(node.job()["samples"] > 0)

    wait_for("samples of the new daemon", sampled)


def connected(node: Node) -> list[int]:
    ranks = node.job().get("ranks", [])
    return [rank["rank"] for rank in ranks if rank["connected"]]


def test_the_daemon_receives_exactly_what_the_traces_hold(node: Node) -> None:
    files = sorted(DLRM.glob("*.json.gz")) if DLRM.is_dir() else []
    if len(files) != RANKS:
        why = f"SKIPPED: no recorded traces in {DLRM}"
        print(why, file=sys.stderr)
        pytest.skip(why)
    analysis = json.loads(node.litctl("analyze", *files).stdout)
    node.train()
    node.tell(*[f"play {file}" for file in files])
    wait_for("the sample", lambda: node.job()["samples"] == 1)
    devices = node.status()["devices"][:RANKS]
    leads = [device["lead"] for device in devices]
    assert leads == pytest.approx([rank["lead"]["sum_ns"] / 1e6 for rank in analysis["ranks"]])
    busy = [device["busy"] for device in devices]
    assert busy == pytest.approx([rank["busy_fraction"] for rank in analysis["ranks"]])
