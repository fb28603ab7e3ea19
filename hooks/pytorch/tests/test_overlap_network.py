"""What a collective beside computations asks of CUDA and NCCL, told to stand-ins of both."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="SKIPPED: no torch")

from litd.overlap import network
from litd.overlap.nanobatch import Nanobatch
from litd.overlap.program import Collective
from litd.overlap.turns import Exchange

GPU = SimpleNamespace(type="cuda")
RANKS: network.Ranks = {"tensor": [[0, 1], [2, 3]], "context": [[0, 2], [1, 3]]}


class Cuda:
    """Streams that note what they are told, and a GPU's memory."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.present = "computing"
        self.used = 0
        self.dist = Dist(self)

    def stream_of(self, name: str) -> Any:
        def record_event() -> str:
            self.said.append(f"event in {name}")
            return f"event of {name}"

        return SimpleNamespace(
            name=name,
            wait_stream=lambda other: self.said.append(f"{name} waits for {other.name}"),
            record_event=record_event,
            wait_event=lambda event: self.said.append(f"{name} waits for {event}"),
        )

    def Stream(self, _device: Any) -> Any:  # noqa: N802
        return self.stream_of("side")

    def current_stream(self) -> Any:
        return self.stream_of(self.present)

    @contextlib.contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        self.present = stream.name
        yield
        self.present = "computing"

    def synchronize(self, _device: Any) -> None:
        self.said.append("synchronize")

    def mem_get_info(self, _device: Any) -> tuple[int, int]:
        return 1000 - self.used, 1000


class Dist:
    """Rank 2 of four; communicators take 10 bytes for each CTA, and 500 without a limit."""

    ReduceOp = SimpleNamespace(SUM="sum")

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.made: list[tuple[list[int], str, Any]] = []

    class ProcessGroupNCCL:
        class Options:
            def __init__(self) -> None:
                self.config = SimpleNamespace(min_ctas=None, max_ctas=None)

    def get_rank(self) -> int:
        return 2

    def new_group(self, ranks: list[int], *, backend: str, pg_options: Any) -> Any:
        self.made.append((ranks, backend, pg_options and vars(pg_options.config)))
        size = 10 * pg_options.config.max_ctas if pg_options else 500
        return SimpleNamespace(ranks=ranks, size=size)

    def all_reduce(
        self, _tensor: Any, op: str = "sum", *, group: Any, async_op: bool = False
    ) -> Any:
        if not async_op:
            self.cuda.used += group.size
        self.cuda.said.append(f"{op} of {group.ranks} in {self.cuda.present}")
        wait = f"{self.cuda.present} waits for NCCL"
        return SimpleNamespace(wait=lambda: self.cuda.said.append(wait))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    cuda = Cuda()
    monkeypatch.setattr(network, "dist", cuda.dist)
    torch = SimpleNamespace(cuda=cuda, zeros=lambda *_size, device: None)
    monkeypatch.setattr(network, "torch", torch)
    return cuda


def test_each_number_of_sms_has_a_communicator_of_so_many_ctas(cuda: Cuda) -> None:
    own = network.Communicators(RANKS, {("tensor", 4), ("context", 6), ("tensor", 20)}, GPU)
    dist = cuda.dist
    limits = [options for _, _, options in dist.made]
    by_axis = [None, {"min_ctas": 6, "max_ctas": 6}]
    by_axis += [None, {"min_ctas": 4, "max_ctas": 4}, {"min_ctas": 20, "max_ctas": 20}]
    assert limits == [it for it in by_axis for _ in range(2)]
    assert {backend for _, backend, _ in dist.made} == {"nccl"}
    assert own.group("tensor", 4).ranks == [2, 3]
    assert own.group("context", 6).ranks == [0, 2]
    # Another stage's 20 are not set up here, so they take nothing.
    own.connect({("tensor", 4), ("context", 6), ("tensor", network.LIBRARY)})
    assert own.memory == {("context", 6): 60, ("tensor", 0): 500, ("tensor", 4): 40}
    own.add({("tensor", 4), ("tensor", 8)})
    assert len(dist.made) == 12


def test_a_collective_waits_for_what_was_computed_and_computing_for_its_end(cuda: Cuda) -> None:
    beside = network.Beside(network.Communicators(RANKS, {("tensor", 4)}, GPU), GPU)
    used: list[str] = []
    tensor = SimpleNamespace(record_stream=lambda stream: used.append(stream.name))
    tensor.contiguous = lambda: tensor
    nanobatch = Nanobatch([], "nothing", values={"update": tensor})
    cuda.said.clear()
    finish = beside.launch(Exchange(0, Collective("ar", "tensor", "update")), nanobatch, 4)
    assert cuda.said == [
        "side waits for computing",
        "sum of [2, 3] in side",
        "side waits for NCCL",
        "event in side",
    ]
    # Its memory is not given to others while the side still uses it.
    assert used == ["side"]
    cuda.said.clear()
    finish()
    assert cuda.said == ["computing waits for event of side"]
