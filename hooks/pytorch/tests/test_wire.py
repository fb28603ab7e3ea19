"""The messages' bytes, and what is no message."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from litd import columns, wire
from tests import standin

TABLE: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[3] / "tests" / "data" / "ingest.json").read_text("utf-8")
)
KINDS = {
    "hello": wire.Hello,
    "kernels": wire.Kernels,
    "tick": wire.Tick,
    "bye": wire.Bye,
}


def of_row(kind: str, message: dict[str, Any]) -> Any:
    if kind == "set_clock":
        return wire.SetClock(message["megahertz"])
    if kind == "notice":
        return wire.Notice(wire.Kind[message["kind"].upper()], message["text"], message["samples"])
    if kind == "welcome":
        given = wire.Directive(**message["directive"])
        profiling = wire.Profiling[message["profiling"].upper()]
        reason = message["profiling_reason"]
        return wire.Welcome(message["protocol"], message["daemon"], given, profiling, reason)
    if kind == "directive":
        return wire.Directive(**message)
    if kind == "refusal":
        code = wire.Code[message["code"].upper()]
        return wire.Refusal(code, message["reason"], message["retry_after_ms"])
    return KINDS[kind](**message)


@pytest.mark.parametrize("row", TABLE["messages"], ids=lambda row: row["kind"])
def test_messages_are_as_the_table_says(row: dict[str, Any]) -> None:
    message = of_row(row["kind"], row["message"])
    frame = bytes.fromhex(row["hex"])
    if row["kind"] in ("welcome", "directive", "refusal"):
        assert wire.decode(frame) == message
    else:
        assert message.encode().hex() == row["hex"]
        said = standin.decode(frame)
        expected = dict(row["message"])
        if row["kind"] == "notice":
            expected["kind"] = int(message.kind)
        assert (said.kind, said.fields) == (row["kind"], expected)


def test_what_the_table_says_is_no_message_is_none() -> None:
    for row in TABLE["to_hook_ignored"]:
        assert wire.decode(bytes.fromhex(row["hex"])) is None, row["why"]
    for row in TABLE["to_hook_refused"]:
        with pytest.raises(wire.WireError):
            wire.decode(bytes.fromhex(row["hex"]))
            pytest.fail(row["why"])


def test_codes_of_a_later_litd_are_unspecified() -> None:
    assert wire.decode(bytes.fromhex("1a020863")) == wire.Refusal()


def test_columns_come_back_whatever_is_in_them() -> None:
    chance = random.Random(5)
    for bits in (1, 7, 8, 14, 15, 28, 29, 63):
        for count in (1, 2, columns.PART, columns.PART + 1, 3 * columns.PART):
            starts = [chance.getrandbits(bits) for _ in range(count)]
            wide = [chance.getrandbits(min(64, bits + 1)) for _ in range(count)]
            small = [value & 0xFFFF_FFFF for value in wide]
            message = wire.Kernels(1, 2, ["name"], small, small, [0] * count, starts, wide)
            said = standin.decode(message.encode())
            assert said.name == said.stream == small
            assert said.start_ns == starts
            assert said.kernel_duration_ns == wide


def test_numbers_that_no_column_can_have_are_refused() -> None:
    for value in (-1, 1 << 64):
        with pytest.raises(ValueError, match=r"below 0|64 bits"):
            columns.varints([5, value])


def test_directives_select_iterations() -> None:
    directive = wire.Directive(first=10, period=5)
    assert [n for n in range(26) if directive.profiles(n)] == [10, 15, 20, 25]
    assert not wire.Directive(10, 5, pause=True).profiles(10)
    assert not wire.Directive().profiles(0)


def test_a_stream_may_be_cut_anywhere() -> None:
    messages = [b"one", b"\x07" * 300, b"x", b"last"]
    stream = b"".join(wire.frame(message) for message in messages)
    for cut in range(len(stream) + 1):
        reader = wire.FrameReader(300)
        assert [*reader.take(stream[:cut]), *reader.take(stream[cut:])] == messages


@pytest.mark.parametrize("length", [0, 301, 0xFFFF_FFFF])
def test_lengths_that_no_frame_has_are_refused(length: int) -> None:
    reader = wire.FrameReader(300)
    with pytest.raises(wire.WireError):
        list(reader.take(length.to_bytes(4, "little")))


def test_garbage_is_refused_and_never_more_than_that() -> None:
    chance = random.Random(3)
    rows = [bytes.fromhex(row["hex"]) for row in TABLE["messages"]]
    for _ in range(20_000):
        frame = bytearray(chance.choice(rows) if chance.random() < 0.7 else b"")
        for _ in range(chance.randrange(1, 8)):
            frame.insert(chance.randrange(len(frame) + 1), chance.getrandbits(8))
        try:
            wire.decode(bytes(frame))
        except wire.WireError:
            continue


def test_texts_can_forge_no_lines() -> None:
    frame = standin.refusal(wire.Code.BUSY, reason="full\nlitd: all is well\x1b[2J")
    decoded = wire.decode(frame[4:])
    assert isinstance(decoded, wire.Refusal)
    assert decoded.reason == "full\ufffdlitd: all is well\ufffd[2J"
