"""Columns of numbers as protobuf packs them: varints, one after the other.

A sample has tens of thousands of kernels, and they are packed while the job trains. Numbers of up
to 28 bits, which nearly all are, come from tables; and after each part the lock that Python's
threads share is given away, so that the training thread never waits for a whole sample.
"""

from __future__ import annotations

import time
from itertools import chain
from operator import sub
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST = (1 << 64) - 1
"""The largest number."""

PART = 2048
"""So many numbers are packed at once: about half a millisecond."""

PAUSE = 50e-6
"""So long the training thread may have the lock in between, in seconds."""


def varint(value: int) -> bytes:
    """One number, 0 to 2^64 - 1."""
    if not 0 <= value <= MOST:
        raise ValueError(f"{value} is no unsigned number of 64 bits")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _ended(value: int) -> bytes:
    return varint(value)


def _open(value: int) -> bytes:
    """The lower 14 bits of a number that goes on."""
    return bytes((value & 0x7F | 0x80, value >> 7 | 0x80))


_SHORT = tuple(_ended(value) for value in range(1 << 14))
_LOW = tuple(_open(value) for value in range(1 << 14))


def varints(values: Sequence[int]) -> bytes:
    """A column of numbers, each 0 to 2^64 - 1."""
    return b"".join(_part(part) for part in parts(values))


def deltas(values: Sequence[int]) -> bytes:
    """A column of differences: the first number itself, then each one's to the one before it.

    Numbers are below 2^63, and their differences may be negative.
    """
    out = []
    before = 0
    for part in parts(values):
        steps = map(sub, part, chain((before,), part))
        # The lowest bit is the sign: 0, -1, 1, -2 become 0, 1, 2, 3.
        out.append(_part([step << 1 ^ step >> 63 for step in steps]))
        before = part[-1]
    return b"".join(out)


def parts(values: Sequence[int]) -> Iterator[Sequence[int]]:
    """Parts of a column, with the lock given away before each."""
    for at in range(0, len(values), PART):
        time.sleep(PAUSE)
        yield values[at : at + PART]


def distinct(values: Sequence[int]) -> frozenset[int]:
    """The different numbers of a column."""
    found: set[int] = set()
    for part in parts(values):
        found.update(part)
    return frozenset(found)


def _part(values: Sequence[int]) -> bytes:
    largest, smallest = max(values), min(values)
    if smallest < 0:
        raise ValueError(f"{smallest} is below 0")
    if largest < 0x80:
        return bytes(values)
    if largest < 1 << 14:
        return b"".join([_SHORT[value] for value in values])
    if largest < 1 << 28:
        return b"".join(
            [
                _SHORT[value] if value < 16384 else _LOW[value & 16383] + _SHORT[value >> 14]
                for value in values
            ]
        )
    return b"".join([_SHORT[value] if value < 16384 else varint(value) for value in values])
