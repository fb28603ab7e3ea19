"""With a real torch: which steps are iterations."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from litd.steps import REPLACED, StepCounter
from tests.nets import model, torch, train


@pytest.fixture
def counter() -> Iterator[Any]:
    counted: list[Any] = []
    one = StepCounter(counted.append)
    one.counted = counted  # type: ignore[attr-defined]
    yield one
    one.stop()


@pytest.mark.parametrize("named", [True, False])
def test_steps_are_counted_until_nobody_counts(counter: Any, named: bool) -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    assert counter.follow(torch, optimizer if named else None)
    train(net, optimizer, 3)
    assert counter.counted == [optimizer] * 3
    counter.stop()
    train(net, optimizer, 2)
    assert len(counter.counted) == 3


def test_only_the_named_or_the_first_optimizer_counts(counter: Any) -> None:
    net = model()
    first, second = (torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(2))
    assert counter.follow(torch)
    for _ in range(3):
        train(net, first, 1)
        train(net, second, 1)
    assert counter.counted == [first] * 3


@pytest.mark.parametrize("named", [True, False])
def test_a_step_within_a_step_is_one_iteration(counter: Any, named: bool) -> None:
    class Mine(torch.optim.Adam):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    net = model()
    # From here on torch calls hooks after Adam's own step as well.
    torch.optim.Adam(net.parameters())
    optimizer = Mine(net.parameters())
    assert counter.follow(torch, optimizer if named else None)
    train(net, optimizer, 5)
    assert counter.counted == [optimizer] * 5


@pytest.mark.parametrize("named", [True, False])
def test_an_optimizer_that_was_replaced_counts_no_more(counter: Any, named: bool) -> None:
    net = model()
    first, second, third = (torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(3))
    assert counter.follow(torch, first if named else None)
    train(net, first, 2)
    train(net, second, 250)
    assert counter.counted == [first] * 2 + [second] * (250 - REPLACED + 1)
    counter.counted.clear()
    # Its end needs no such proof.
    del second
    gc.collect()
    train(net, third, 2)
    assert counter.counted == [third] * 2


def test_one_optimizer_may_step_more_often_than_the_one_that_counts(counter: Any) -> None:
    net = model()
    generator, critic = (torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(2))
    assert counter.follow(torch, generator)
    for _ in range(30):
        train(net, critic, 5)
        train(net, generator, 1)
    assert counter.counted == [generator] * 30


def test_a_step_that_raises_is_no_iteration(counter: Any) -> None:
    class Fails(torch.optim.SGD):
        steps = 0

        def step(self, closure: Any = None) -> Any:
            self.steps += 1
            if self.steps % 2:
                raise RuntimeError("out of memory")
            return super().step(closure)

    optimizer = Fails(model().parameters(), lr=0.1)
    assert counter.follow(torch)
    for _ in range(6):
        with contextlib.suppress(RuntimeError):
            optimizer.step()
    assert counter.counted == [optimizer] * 3


def test_a_closure_that_is_called_many_times_is_one_step(counter: Any) -> None:
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=5)
    calls = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = net(torch.ones(4, 8)).square().mean()
        loss.backward()
        calls.append(1)
        return loss

    assert counter.follow(torch)
    for _ in range(3):
        optimizer.step(closure)
    assert len(calls) > 3
    assert len(counter.counted) == 3


def test_accumulated_gradients_are_one_step(counter: Any) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    assert counter.follow(torch)
    for micro in range(12):
        (net(torch.randn(4, 8)).mean() / 4).backward()
        if micro % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    assert len(counter.counted) == 3


def test_schedulers_and_wrappers_of_optimizers_change_nothing(counter: Any) -> None:
    net = model()
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1)

    class Wrapper:
        optimizer = inner

        def step(self) -> None:
            self.optimizer.step()

    assert counter.follow(torch, Wrapper())
    later = torch.optim.lr_scheduler.StepLR(inner, 1)
    for _ in range(2):
        train(net, inner, 1)
        scheduler.step()
        later.step()
    assert len(counter.counted) == 2
    pickle.dumps(inner)
    copy.deepcopy(inner)


def test_what_is_no_optimizer_can_not_be_followed(counter: Any) -> None:
    assert not counter.follow(torch, object())


def test_an_optimizer_that_steps_once_per_group_can_not_be_followed(counter: Any) -> None:
    class Zero:
        optimizer = torch.optim.SGD(model().parameters(), lr=0.1)

        def step(self) -> None:
            groups = self.optimizer.param_groups
            for group in groups:
                self.optimizer.param_groups = [group]
                self.optimizer.step()
            self.optimizer.param_groups = groups

    Zero.__module__ = "deepspeed.runtime.zero.stage_1_and_2"
    assert not counter.follow(torch, Zero())
    Zero().step()
    assert counter.counted == []


def test_optimizers_are_not_kept_alive(counter: Any) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    assert counter.follow(torch)
    train(net, optimizer, 1)
    counter.counted.clear()
    seen = weakref.ref(optimizer), weakref.ref(net)
    del optimizer, net
    gc.collect()
    assert [one() for one in seen] == [None, None]
    # And the next one takes its place.
    net = model()
    train(net, torch.optim.SGD(net.parameters(), lr=0.1), 2)
    assert len(counter.counted) == 2
