"""What `litctl carbon run` asks of a training job."""

from __future__ import annotations

import os
from pathlib import Path


def checkpoint_due() -> bool:
    """Whether `litctl carbon run` asks for a checkpoint.

    Training looks after each step, or each few; where it is due it writes a checkpoint, writes how
    many tokens that has to the file that `--progress` names, and ends. It is started again with
    the next configuration. Without `litctl carbon run` none is ever due. Never raises.
    """
    asked = os.environ.get("LITD_CARBON_CHECKPOINT")
    if not asked:
        return False
    try:
        return Path(asked).exists()
    except OSError:
        return False
