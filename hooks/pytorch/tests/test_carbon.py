"""litctl carbon run asks for a checkpoint by a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import litd

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_checkpoint_is_due_once_the_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LITD_CARBON_CHECKPOINT", raising=False)
    assert not litd.checkpoint_due()
    asked = tmp_path / "checkpoint-due"
    monkeypatch.setenv("LITD_CARBON_CHECKPOINT", str(asked))
    assert not litd.checkpoint_due()
    asked.touch()
    assert litd.checkpoint_due()
    monkeypatch.setenv("LITD_CARBON_CHECKPOINT", "x" * 10_000)
    assert not litd.checkpoint_due()
