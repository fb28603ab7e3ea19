"""`litlab demo --stay --accept-any`: a job on CPUs attaches beside the simulated one."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.processes import run
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

        script = ("examples/on_cpus.py", *addresses, "--seconds", "15")
        trains = pool.submit(run, *script, ranks=RANKS, timeout=2 * SOON)
        # A busy machine takes its time to import torch.
        wait_for("both ranks", lambda: len(job().get("ranks", [])) == RANKS, 3 * SOON)
        wait_for("iterations", lambda: bool(job().get("iteration_time")))
        for code, _, errors in trains.result():
            assert code == 0, errors
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
