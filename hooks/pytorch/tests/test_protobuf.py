"""Beside a protobuf runtime, whichever it is. `.ci/run --full` has the oldest and the newest."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from litd import wire

ROOT = Path(__file__).resolve().parents[1]

MODULES = "litd, litd.hook, litd.link, litd.wire, litd.measures, litd.recording"


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_package_imports_no_protobuf() -> None:
    found = run(f"import sys, {MODULES}; print([m for m in sys.modules if 'protobuf' in m])")
    assert found == "[]"


@pytest.mark.parametrize("first", ["google.protobuf.message", MODULES])
def test_both_can_be_imported_in_any_order(first: str) -> None:
    pytest.importorskip("google.protobuf", reason="SKIPPED: no protobuf runtime")
    second = MODULES if first != MODULES else "google.protobuf.message"
    print(
        run(f"import {first}; import {second}; import google.protobuf as p; print(p.__version__)")
    )


def parsed(message: bytes) -> Any:
    """A frame of a hook as a protobuf runtime reads it: ticks, and two columns of a sample."""
    file = importlib.import_module("google.protobuf.descriptor_pb2").FileDescriptorProto()
    file.name, file.package, file.syntax = "part.proto", "part", "proto3"
    numbers = {"uint32": 13, "uint64": 4, "bool": 8, "sint64": 18}

    def add(name: str, *fields: tuple[int, str, str, bool]) -> None:
        made = file.message_type.add()
        made.name = name
        for number, field, kind, repeated in fields:
            one = made.field.add()
            one.number, one.name, one.label = number, field, 3 if repeated else 1
            if kind in numbers:
                one.type = numbers[kind]
            else:
                one.type, one.type_name = 11, f".part.{kind}"

    add("Tick", (1, "iteration", "uint64", False), (3, "profiled", "bool", False))
    add(
        "Kernels",
        (4, "name", "uint32", True),
        (7, "start_delta_ns", "sint64", True),
        (9, "shows_collectives", "bool", False),
    )
    add("FromHook", (2, "kernels", "Kernels", False), (3, "tick", "Tick", False))
    pool = importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()
    pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    factory = importlib.import_module("google.protobuf.message_factory")
    descriptor = pool.FindMessageTypeByName("part.FromHook")
    if hasattr(factory, "GetMessageClass"):
        kind = factory.GetMessageClass(descriptor)
    else:
        kind = factory.MessageFactory(pool).GetPrototype(descriptor)
    return kind.FromString(message)


def test_a_protobuf_runtime_reads_what_is_encoded_by_hand() -> None:
    pytest.importorskip("google.protobuf", reason="SKIPPED: no protobuf runtime")
    tick = parsed(wire.Tick(1 << 40, 7, profiled=True).encode()).tick
    assert (tick.iteration, tick.profiled) == (1 << 40, True)
    starts = [1_762_646_400_000_000_000, 1_762_646_399_999_999_995, 5]
    sample = wire.Kernels(
        1, 2, [], [0, 300, 70_000], [7] * 3, [0] * 3, starts, [1] * 3, shows_collectives=True
    )
    kernels = parsed(sample.encode()).kernels
    assert list(kernels.name) == [0, 300, 70_000]
    deltas = list(kernels.start_delta_ns)
    assert [sum(deltas[: end + 1]) for end in range(3)] == starts
    assert kernels.shows_collectives
