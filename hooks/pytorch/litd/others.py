"""Profilers beside torch's own, of which a process can have only one at a time.

CUPTI has one subscriber in a process before CUDA 13.2, and a tool that traces on demand may begin
at any moment. Where such a tool is in this process, torch's profiler is left alone: it would see
nothing, or take the events of the tool's user.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

_KINETO = "KINETO_USE_DAEMON"

_VARIABLES = {
    "CUDA_INJECTION64_PATH": "a CUPTI tool is injected",
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems profiles",
    _KINETO: "dynolog may trace on demand",
    "ROCP_TOOL_LIBRARIES": "a rocprofiler tool is injected",
    "ROCP_TOOL_LIB": "a rocprofiler tool is injected",
    "HSA_TOOLS_LIB": "a ROCm tool is injected",
}
"""Variables that load a tool into a process."""

_MODULES = {
    "cupti": "the package cupti is imported",
    "torch.profiler._cupti": "torch's CUPTI monitor is imported",
    "nvidia_resiliency_ext.straggler": "NVRx traces kernels",
    "nvidia_resiliency_ext.attribution.straggler": "NVRx traces kernels",
}
"""Packages that subscribe to CUPTI by themselves."""

_LIBRARIES = re.compile(
    r"/(libToolsInjection64|libcuda-injection|libInterceptorInjection|libsanitizer-collection"
    r"|librocprofiler-sdk-tool|librocprof-sys|librocprofiler_tool|libnsys)[^/]*\.so"
)
"""Libraries of tools that may be preloaded."""


def why() -> str:
    """Which other tool is in this process, in words; empty if none is. Reads its memory's map."""
    if told := soon():
        return told
    found = _LIBRARIES.search("\n".join(loaded()))
    return f"{found.group().lstrip('/')} is loaded" if found else ""


def soon() -> str:
    """The same by what takes no time: variables and packages."""
    for name, what in _VARIABLES.items():
        # Kineto looks for its own only, whatever it holds.
        if os.environ.get(name) or (name == _KINETO and name in os.environ):
            return f"{what} ({name} is set)"
    return next((what for name, what in _MODULES.items() if name in sys.modules), "")


def loaded() -> list[str]:
    """The files of libraries that are loaded into this process."""
    with contextlib.suppress(OSError):
        text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        lines = (line.split(maxsplit=5) for line in text.splitlines())
        return sorted({parts[5] for parts in lines if len(parts) == 6 and ".so" in parts[5]})
    return []
