"""What `litctl carbon run` asks of a training job."""

from __future__ import annotations

import os
from pathlib import Path


def checkpoint_due() -> bool:
    """Whether `litctl carbon run` asks for a checkpoint.

    Call this after each step, or every few steps. If it returns True, write a checkpoint, write the
    number of tokens that the checkpoint has to the file that `--progress` names, and end: litctl
    then starts the job again with the next configuration. Without `litctl carbon run` it returns
    False. Never raises.
    """
    asked = os.environ.get("LITD_CARBON_CHECKPOINT")
    if not asked:
        return False
    try:
        return Path(asked).exists()
    except OSError:
        return False
