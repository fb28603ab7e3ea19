"""How long to wait before trying again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """How long to wait before trying again, in seconds: twice as long each time."""

    first: float = 1.0
    most: float = 60.0

    def after(self, failures: int) -> float:
        """The wait after so many failures in a row, up to half of it left to chance.

        All ranks of a node lose their connections at once, and need not come back at once.
        """
        longest = min(self.first * 2.0 ** min(failures - 1, 30), self.most)
        return longest * random.uniform(0.5, 1.0)
