"""Which collectives leave the node: by the counts of process groups."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from litd.groups import Groups, Reach
from litd.kernels import Columns, NameTable
from litd.place import Place
from litd.wire import Class

HERE = Place("job", 9, 1, 16, 8)
"""Ranks 8 to 15 are on this node."""

UNKNOWN, INSIDE, OUTSIDE, WORK = (
    Class.UNSPECIFIED,
    Class.COMMUNICATION_INSIDE,
    Class.COMMUNICATION_OUTSIDE,
    Class.COMPUTATION,
)


class Group:
    """A process group that counts."""

    def __init__(self, *, fails: bool = False, on_gpus: bool = True) -> None:
        self.count = 0
        self.fails = fails
        self.on_gpus = on_gpus

    def _get_backend(self, _device: Any) -> Any:
        if not self.on_gpus:
            raise RuntimeError("No backend type associated with device type cuda")
        return self

    def _get_sequence_number_for_group(self) -> int:
        if self.fails:
            raise RuntimeError("sequence numbers are not set")
        return self.count


def groups(members: dict[Group, list[int]]) -> Groups:
    world = SimpleNamespace(
        pg_group_ranks={group: dict.fromkeys(of) for group, of in members.items()}
    )
    c10d = SimpleNamespace(_world=world)
    torch = SimpleNamespace(
        distributed=SimpleNamespace(distributed_c10d=c10d), device=lambda kind: kind
    )
    return Groups(torch, HERE)


ALL = list(range(16))
NODE = list(range(8, 16))
RAIL = [1, 9]


def used(members: dict[Group, list[int]], counts: list[int]) -> Reach | None:
    known = groups(members)
    known.begin()
    for group, count in zip(members, counts, strict=True):
        group.count += count
    return known.end()


def test_groups_that_were_used_are_inside_or_leave() -> None:
    whole, node, rail = Group(), Group(), Group()
    members = {whole: ALL, node: NODE, rail: RAIL}
    assert used(members, [0, 64, 3]) == Reach((64,), (3,))
    assert used(members, [5, 0, 0]) == Reach((), (5,))
    assert used(members, [0, 0, 0]) == Reach((), ())


def test_groups_of_cpus_are_no_business_of_the_gpu() -> None:
    gloo, node = Group(on_gpus=False), Group()
    assert used({gloo: ALL, node: NODE}, [9, 4]) == Reach((4,), ())


def test_groups_that_do_not_count_leave_it_unknown() -> None:
    assert used({Group(fails=True): ALL, Group(): NODE}, [1, 1]) is None
    assert Groups(SimpleNamespace(), HERE).end() is None


def test_a_group_that_is_made_anew_meanwhile_leaves_it_unknown() -> None:
    assert used({Group(): ALL}, [-1]) is None


def marked(reach: Reach, *kernels: tuple[str, int]) -> list[int]:
    names, columns = NameTable(), Columns()
    for at, (name, stream) in enumerate(kernels):
        kind = WORK if name == "gemm" else UNKNOWN
        columns.add(names.id_of(name), stream, kind, at, at + 1)
    reach.mark(columns, names)
    return columns.kernel_class


GATHER, REDUCE = "ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_ReduceScatter_Sum_bf16"


@pytest.mark.parametrize(("reach", "kind"), [(Reach((), (2,)), OUTSIDE), (Reach((2,), ()), INSIDE)])
def test_where_all_groups_are_alike_so_are_all_collectives(reach: Reach, kind: Class) -> None:
    assert marked(reach, ("gemm", 7), (GATHER, 20), (REDUCE, 21)) == [WORK, kind, kind]


def test_mixed_groups_are_told_apart_by_their_streams() -> None:
    kernels = [("gemm", 7), (GATHER, 20), (GATHER, 20), (REDUCE, 30)]
    assert marked(Reach((2,), (1,)), *kernels) == [WORK, INSIDE, INSIDE, OUTSIDE]


@pytest.mark.parametrize(
    "reach",
    [
        Reach((1,), (1,)),  # as many of each
        Reach((3,), (1,)),  # the profiler has lost one
        Reach((2,), (1, 1)),  # two groups on one stream
        Reach((), ()),  # nobody has counted any
    ],
)
def test_what_does_not_fit_is_unknown(reach: Reach) -> None:
    assert marked(reach, (GATHER, 20), (GATHER, 20), (REDUCE, 30)) == 3 * [UNKNOWN]


def test_sends_and_receives_are_unknown() -> None:
    kernels = [("ncclDevKernel_SendRecv", 20), (GATHER, 20)]
    assert marked(Reach((), (1,)), *kernels) == [UNKNOWN, OUTSIDE]


def test_without_collectives_nothing_is_said() -> None:
    assert marked(Reach((), (1,)), ("gemm", 7)) == [WORK]
