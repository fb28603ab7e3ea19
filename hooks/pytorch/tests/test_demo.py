"""`litlab demo --stay --accept-any`: a job on CPUs attaches beside the simulated one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.processes import ROOT
from tests.standin import SOON, wait_for
from tests.test_daemon import program, running

RANKS = 2


def test_a_job_on_cpus_is_seen_beside_the_simulated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    command = (program("litlab"), "demo", "--stay", "--accept-any")
    with running(*command, stdout=subprocess.PIPE) as demo, ThreadPoolExecutor(1) as pool:
        assert demo.stdout is not None
        said = ""
        while "Ctrl-C" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        for name, value in re.findall(r"export (LITD_\w+)=(\S+)", said):
            monkeypatch.setenv(name, value)
        addresses = re.findall(r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", said)
        assert len(addresses) == RANKS, said

        # As the command that it prints says.
        assert "python3 hooks/pytorch/examples/on_cpus.py" in said, said
        trains = pool.submit(
            subprocess.run,
            (sys.executable, "examples/on_cpus.py", *addresses, "--seconds", "15"),
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=2 * SOON,
        )
        # A busy machine takes its time to import torch.
        wait_for("both ranks", lambda: len(job().get("ranks", [])) == RANKS, 3 * SOON)
        wait_for("iterations", lambda: bool(job().get("iteration_time")))
        assert trains.result().returncode == 0, trains.result()
        wait_for("the job's end", lambda: not job())
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
        assert "all caps are as they were found" in rest, rest


def job() -> dict[str, Any]:
    """What litd tells of the job on CPUs."""
    asked = subprocess.run(
        [str(program("litctl")), "--json", "status"],
        capture_output=True,
        timeout=SOON,
        check=True,
    )
    jobs: list[dict[str, Any]] = json.loads(asked.stdout)["jobs"]
    return next((job for job in jobs if job["name"] == "on-cpus"), {})
