"""Stacks on which torch's profiler is known to do harm: a list in the package, with its sources.

`denied.json` has entries that name a runtime, a torch or a profiler's library, with bounds on the
version (`from` is included, `below` is not). An entry applies to a stack if all that it names does.
A version that can't be told is within no bounds: then the guards have to tell.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from litd.stacks import Stack


def why(stack: Stack) -> str:
    """Why the profiler is not used on this stack; empty where nothing speaks against it."""
    for entry in entries():
        if _applies(entry, stack):
            return f"{entry['reason']} ({entry['sources'][0]})"
    return ""


def entries() -> list[dict[str, Any]]:
    """The list."""
    text = Path(__file__).with_name("denied.json").read_text(encoding="utf-8")
    denied: list[dict[str, Any]] = json.loads(text)["denied"]
    return denied


def _applies(entry: dict[str, Any], stack: Stack) -> bool:
    named = {"torch": f"torch {stack.torch}", "runtime": stack.runtime, "profiler": stack.profiler}
    return all(_is_within(entry[key], text) for key, text in named.items() if key in entry)


def _is_within(bounds: dict[str, str], text: str) -> bool:
    """Whether a text such as `cuda 12.8` is of that name and within the bounds."""
    name, _, version = text.partition(" ")
    if bounds.get("name", name) != name:
        return False
    known = numbers(version)
    if "from" not in bounds and "below" not in bounds:
        return True
    if not known:
        return False
    return numbers(bounds.get("from", "0")) <= known and (
        "below" not in bounds or known < numbers(bounds["below"])
    )


def numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: `2.9.0a0+cu128` is 2.9.0."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()
