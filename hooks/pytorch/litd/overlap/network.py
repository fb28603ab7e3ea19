"""Collectives beside computations, each with as many multiprocessors as the plan gives it.

NCCL's communicators are made with limits of their CTAs, each of which occupies a multiprocessor; so
there is a communicator for each number that the plan has. They stand in for the grid sizes of the
paper's MSCCL++ kernels. On CPUs (gloo) nothing limits what a collective takes: there communicators
are a stand-in, one for each number all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from litd.inference import limited
from litd.overlap.nanobatch import Gathered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from litd.overlap.nanobatch import Nanobatch
    from litd.overlap.program import Axis, Parallel
    from litd.overlap.turns import Exchange

LIBRARY = 0
"""Instead of a number of multiprocessors: as many as the library takes."""


Ranks = dict["Axis", list[list[int]]]
"""For each axis the ranks of every group of the job: each rank is in one of them."""


def megatron_ranks(world: int, parallel: Parallel) -> Ranks:
    """Groups as Megatron makes them: neighbours share tensors, and the next ones sequences."""
    tensor, both = parallel.tensor, parallel.tensor * parallel.context
    if world % both:
        raise ValueError(f"{world} processes are no whole number of groups of {both}")
    return {
        "tensor": [list(range(first, first + tensor)) for first in range(0, world, tensor)],
        "context": [
            list(range(first + place, first + both, tensor))
            for first in range(0, world, both)
            for place in range(tensor)
        ],
    }


class Communicators:
    """A communicator for each axis and number of multiprocessors.

    Every process of the job must make them at the same time and with the same numbers.
    """

    def __init__(self, ranks: Ranks, budgets: Iterable[tuple[Axis, int]], device: Any) -> None:
        self._ranks = ranks
        self._device = device
        self._groups: dict[tuple[str, int], Any] = {}
        self.memory: dict[tuple[str, int], int] = {}
        """Bytes of the GPU's memory that each communicator takes; 0 on CPUs."""
        self.add({*budgets, *((axis, LIBRARY) for axis in ranks)})

    def add(self, budgets: Iterable[tuple[Axis, int]]) -> None:
        """Makes those that are not there yet."""
        for axis, sms in sorted(set(budgets) - set(self._groups)):
            options: dict[str, Any] = {}
            if self._device.type == "cuda":
                options = {"backend": "nccl", "pg_options": limited(dist, sms)}
            # Every process takes part in making every group, and keeps the one that it is in.
            made = [(own, dist.new_group(own, **options)) for own in self._ranks[axis]]
            self._groups[axis, sms] = next(it for own, it in made if dist.get_rank() in own)

    def connect(self, used: Iterable[tuple[Axis, int]]) -> None:
        """Sets up those that this process will use, and measures the memory that they take.

        NCCL does so with the first collective, outside of what torch counts.
        """
        number = torch.zeros(1, device=self._device)
        for axis, sms in sorted(set(used) - self.memory.keys()):
            before = self._free()
            dist.all_reduce(number, group=self._groups[axis, sms])
            self.memory[axis, sms] = before - self._free()

    def _free(self) -> int:
        """Bytes of the GPU's memory that nobody has, once it has done what it was told."""
        if self._device.type != "cuda":
            return 0
        torch.cuda.synchronize(self._device)
        return int(torch.cuda.mem_get_info(self._device)[0])

    def group(self, axis: Axis, sms: int) -> Any:
        """The communicator."""
        return self._groups[axis, sms]


@dataclass(frozen=True)
class Sending:
    """A collective that can begin."""

    send: Callable[[], Any]
    """Begins it, and returns torch's handle of it."""
    tensors: Sequence[Any]
    """What it reads and writes."""
    store: Callable[[], None] = lambda: None
    """Puts its result where computations look for it."""


class Beside:
    """Collectives of torch.distributed on a stream beside the one that computes.

    On CPUs the backend's threads take the place of the stream.
    """

    def __init__(self, communicators: Communicators, device: Any, *, op: Any = None) -> None:
        """`op` is how gradients and parts of sums are put together: a sum, if it is not said."""
        self._communicators = communicators
        self._op = op or dist.ReduceOp.SUM
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def launch(self, exchange: Exchange, nanobatch: Nanobatch, sms: int) -> Callable[[], None]:
        """Begins a collective once what was computed until now is there."""
        group = self._communicators.group(exchange.collective.axis, sms)
        sending = _PREPARED[exchange.collective.kind](exchange, nanobatch, group, self._op)
        wait = self._sent(sending)

        def finish() -> None:
            wait()
            sending.store()

        return finish

    def _sent(self, sending: Sending) -> Callable[[], object]:
        if self._stream is None:
            wait: Callable[[], object] = sending.send().wait
            return wait
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            # The stream waits, not the host.
            sending.send().wait()
            done = self._stream.record_event()
        for tensor in sending.tensors:
            tensor.record_stream(self._stream)
        return lambda: torch.cuda.current_stream().wait_event(done)


def _sum(exchange: Exchange, nanobatch: Nanobatch, group: Any, op: Any) -> Sending:
    own = exchange.collective
    there = nanobatch.gradients if own.of == "gradients" else nanobatch.values
    tensor = there[own.value] = there[own.value].contiguous()
    return Sending(lambda: dist.all_reduce(tensor, op, group=group, async_op=True), [tensor])


def _gather(exchange: Exchange, nanobatch: Nanobatch, group: Any, _op: Any) -> Sending:
    name, layer = exchange.collective.value, exchange.layer
    again = exchange.collective.of == "kept"
    if again:
        gathered = nanobatch.kept[layer, name]
        gathered.allocate()
    else:
        own = nanobatch.values[name].contiguous()
        whole = own.new_empty(len(own) * dist.get_world_size(group), *own.shape[1:])
        gathered = Gathered(own, whole)
        if nanobatch.keeps == "graphs":
            nanobatch.kept[layer, name] = gathered
    # Autograd keeps views of this memory, and must not count its second filling as a change.
    own, whole = gathered.own, gathered.whole.data

    def send() -> Any:
        if whole.is_cuda:
            return dist.all_gather_into_tensor(whole, own, group=group, async_op=True)
        parts = list(whole.chunk(dist.get_world_size(group)))
        return dist.all_gather(parts, own, group=group, async_op=True)

    def store() -> None:
        if not again:
            nanobatch.values[name] = gathered.whole

    return Sending(send, [own, whole], store)


def _scatter(exchange: Exchange, nanobatch: Nanobatch, group: Any, op: Any) -> Sending:
    name, there = exchange.collective.value, nanobatch.gradients
    whole = there[name].contiguous()
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    if whole.is_cuda:
        part = whole.new_empty(len(whole) // ranks, *whole.shape[1:])
    else:
        # Not every gloo can scatter: it sums everything, and takes this rank's part.
        part = whole.chunk(ranks)[rank]

    def send() -> Any:
        if whole.is_cuda:
            return dist.reduce_scatter_tensor(part, whole, op, group=group, async_op=True)
        return dist.all_reduce(whole, op, group=group, async_op=True)

    def store() -> None:
        there[name] = part

    return Sending(send, [whole, part], store)


_PREPARED = {"ar": _sum, "ag": _gather, "rs": _scatter}
