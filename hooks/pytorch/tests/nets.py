"""Small networks for a real torch, and their training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="SKIPPED: no torch")

IS_NEW = hasattr(torch.optim.Optimizer, "register_step_post_hook")

Module: Any = torch.nn.Module


class Block(Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Linear(8, 8)
        self.two = torch.nn.Linear(8, 8)

    def forward(self, values: Any) -> Any:
        return values + self.two(torch.relu(self.one(values)))


def model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(Block(), Block(), torch.nn.Linear(8, 1))


def train(net: Any, optimizer: Any, steps: int, after: Callable[[], None] = lambda: None) -> Any:
    """Losses, exactly."""
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        after()
    return losses
