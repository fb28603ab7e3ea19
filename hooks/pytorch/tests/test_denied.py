"""Stacks on which the profiler is not used, and other profilers beside it."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest

from litd import denied, others
from litd.stacks import Stack

CUPTI = "cupti 12.8.90"


def test_each_entry_has_a_reason_and_a_source() -> None:
    entries = denied.entries()
    assert len(entries) >= 5
    for entry in entries:
        assert set(entry) & {"torch", "runtime", "profiler"}
        assert len(entry["reason"]) > 20
        assert entry["sources"]
        for source in entry["sources"]:
            assert re.match(r"https://(github\.com|docs\.nvidia\.com)/", source)
        for key in set(entry) - {"reason", "sources"}:
            assert set(entry[key]) <= {"name", "from", "below"}
            for bound in ("from", "below"):
                assert denied.numbers(entry[key].get(bound, "1"))


@pytest.mark.parametrize(
    ("stack", "is_denied"),
    [
        (Stack("2.5.1+cu124", "cuda 12.4", "cupti 12.4.127"), True),
        (Stack("1.13.1", "cuda 11.7", "cupti unknown"), True),
        (Stack("2.6.0", "cuda 12.6", "cupti 12.6.80"), False),
        (Stack("2.11.0+cu130", "cuda 13.0", "cupti unknown"), False),
        (Stack("2.3.1", "rocm 6.0.32830", "rocm 6.0"), True),
        (Stack("2.4.0", "rocm 6.1", "roctracer 4.1"), False),
        (Stack("2.9.0a0+git12", "rocm 7.1", "rocprofiler-sdk 1.1.0"), True),
        (Stack("2.12.0", "rocm 7.2.3", "rocprofiler-sdk 1.1.0"), False),
        (Stack("2.12.0", "rocm 7.2.3", "rocprofiler-sdk 1.3.2"), True),
        # Of what can't be told the guards tell.
        (Stack("2.12.0", "rocm 7.2.3", "rocprofiler-sdk unknown"), False),
        (Stack("2.15.0", "rocm 7.16.26370", "rocprofiler-sdk unknown"), True),
        (Stack("unknown", "rocm 7.2", "roctracer unknown"), False),
    ],
)
def test_stacks_are_denied_by_their_versions(stack: Stack, is_denied: bool) -> None:
    assert bool(denied.why(stack)) == is_denied
    assert "https://" in denied.why(stack) or not is_denied


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in others._VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_here_no_other_profiler_is_in_the_process() -> None:
    assert others.why() == ""
    assert any("libc" in path for path in others.loaded())


@pytest.mark.parametrize("name", others._VARIABLES)
def test_a_tool_that_a_variable_loads_is_another_profiler(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "/opt/tool.so")
    assert name in others.why()
    # Kineto takes the variable alone for a yes.
    monkeypatch.setenv(name, "")
    assert bool(others.why()) == (name == "KINETO_USE_DAEMON")


def test_a_package_that_subscribes_to_cupti_is_another_profiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "nvidia_resiliency_ext.straggler", ModuleType("straggler"))
    assert "NVRx" in others.soon()


@pytest.mark.parametrize(
    "path",
    [
        "/opt/nsight/libToolsInjection64.so",
        "/opt/rocm/lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
    ],
)
def test_a_tool_that_is_preloaded_is_another_profiler(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(others, "loaded", lambda: ["/lib/libc.so.6", path])
    assert path.rpartition("/")[2].partition(".so")[0] in others.why()
    monkeypatch.setattr(others, "loaded", lambda: ["/lib/librocprofiler-sdk.so.1.1.0"])
    assert others.why() == ""
