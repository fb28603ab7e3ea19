"""Whether a socket's number is still its own."""

from __future__ import annotations

import os
import socket

import pytest

from litd import files


@pytest.mark.parametrize("option", [files.SO_COOKIE, -1])
def test_a_number_that_stands_for_another_file_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, option: int
) -> None:
    # -1: a kernel that gives no cookies.
    monkeypatch.setattr(files, "SO_COOKIE", option)
    ours, theirs = socket.socketpair()
    owned = files.Owned(ours)
    assert owned.is_ours()
    os.dup2(theirs.fileno(), ours.fileno())
    assert not owned.is_ours()
    with open(os.devnull) as file:
        os.dup2(file.fileno(), ours.fileno())
    assert not owned.is_ours()
    number = ours.fileno()
    os.close(number)
    assert not owned.is_ours()
    owned.close()
    assert ours.fileno() == -1
    theirs.close()
