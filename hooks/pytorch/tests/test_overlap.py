"""Transformer blocks that run as a plan says, in processes on CPUs; and plans that don't fit."""

from __future__ import annotations

import copy
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="SKIPPED: no torch")

from litd.overlap import MisfitError, Training, engine, fitted, megatron_ranks, read
from litd.overlap.program import Parallel, backward, forward, segments
from tests import processes

Launches = dict[str, tuple[str, int]]

# Every partition's launch and SMs, of jobs that share tensors alone, and sequences as well.
TENSOR: dict[str, Launches] = {
    "forward": {"attention": ("rope_0", 4), "mlp": ("linear_1", 6)},
    "recompute": {"recompute_attention": ("linear_0", 5), "recompute_mlp": ("norm_0", 7)},
    "backward": {"attention": ("attn_0", 2), "mlp": ("activation_0", 3)},
}
BOTH: dict[str, Launches] = {
    "forward": {
        "qkv_ar": ("norm_0", 1),
        "qkv_ag": ("linear_0", 2),
        "ao_ag": ("attn_0", 3),
        "ao_ar": ("linear_0", 4),
        "mlp": ("linear_0", 5),
    },
    "recompute": {
        "recompute_qkv_ar": ("linear_0", 1),
        "recompute_qkv_ag": ("rope_0", 2),
        "recompute_ao_ag": ("linear_0", 3),
        "recompute_ao_ar": ("attn_0", 4),
        "recompute_mlp": ("activation_0", 5),
    },
    "backward": {
        "mlp": ("linear_1", 6),
        "o_ar": ("linear_0", 7),
        "o_ag": ("norm_0", 8),
        "a_ag": ("attn_0", 9),
        "a_rs": ("attn_0", 10),
        "qkv_rs": ("linear_0", 11),
        "qkv_ar": ("rope_0", 12),
    },
}
CONTEXT: dict[str, Launches] = {
    "forward": {"block": ("linear_1", 4)},
    "backward": {
        "a_ag": ("attn_0", 1),
        "a_rs": ("attn_0", 2),
        "qkvomlp_rs": ("linear_1", 3),
        "qkvomlp_ag": ("activation_0", 4),
    },
}
LAUNCHES = {(2, 1): TENSOR, (1, 2): CONTEXT, (2, 2): BOTH}

Order = list[tuple[str, int, bool]]
"""Passes, microbatches, and whether something overlaps."""


def plan(tensor: int, context: int, order: Order, *, recompute: bool = False) -> Any:
    """A plan contract of one stage."""
    launches, rows = LAUNCHES[tensor, context], []
    for at, (kind, microbatch, overlaps) in enumerate(order):
        own = {**(launches["recompute"] if recompute and kind == "backward" else {})}
        own |= launches[kind]
        partitions = [
            {"name": name, "launch": launch, "sms": sms, "threads": 1024}
            for name, (launch, sms) in own.items()
        ]
        row = {"instruction": kind, "microbatch": microbatch, "clock_mhz": 1410 - 30 * (at // 2)}
        rows.append({**row, "partitions": partitions} if overlaps else row)
    return {"version": 1, "planner": "test", "stages": [{"stage": 0, "instructions": rows}]}


def one_by_one(*overlaps: bool) -> Order:
    """Each microbatch forwards and at once backwards."""
    return [
        (kind, microbatch, own)
        for microbatch, own in enumerate(overlaps)
        for kind in ("forward", "backward")
    ]


def run(
    folder: Path, training: Training, plans: list[Any], **more: Any
) -> list[tuple[int, str, str]]:
    """A job's exit statuses and outputs, a process for each plan."""
    names = []
    for rank, own in enumerate(plans):
        names.append(str(folder / f"plan{rank}.json"))
        Path(names[-1]).write_text(json.dumps(own))
    job = {"training": vars(training), "plans": names, "layers": 2, "steps": 2, **more}
    (folder / "job.json").write_text(json.dumps(job))
    program = ("-m", "tests.programs.overlap", str(folder / "job.json"))
    return processes.run(*program, ranks=len(plans), timeout=240)


def trained(folder: Path, training: Training, order: Order, **more: Any) -> list[dict[str, Any]]:
    """What the ranks of a job say that ends well."""
    parallel = training.parallel
    own = plan(parallel.tensor, parallel.context, order, recompute=training.recompute)
    ranks = parallel.tensor * parallel.context
    ended = run(folder, training, [own] * ranks, **more)
    assert [status for status, _, _ in ended] == [0] * ranks, ended[0][2] + ended[-1][2]
    return [json.loads(output) for _, output, _ in ended]


@pytest.mark.parametrize(
    ("tensor", "context", "recompute"),
    [(2, 1, False), (2, 1, True), (1, 2, False), (2, 2, False), (2, 2, True)],
)
def test_overlap_changes_no_bit(tmp_path: Path, tensor: int, context: int, recompute: bool) -> None:
    training = Training(4, 3, tensor, context, recompute=recompute)
    # Two microbatches are on their way at once, and one of the three is sequential.
    order = [
        ("forward", 0, True),
        ("forward", 1, False),
        ("backward", 0, True),
        ("forward", 2, True),
        ("backward", 1, False),
        ("backward", 2, True),
    ]
    for said in trained(tmp_path, training, order, parts=[2, 1, 2]):
        assert said["losses"] == said["one_after_another"]
        assert len(set(said["losses"])) == 6
        assert said["is_identical"]
        assert said["from_whole"] < 1e-12
        assert said["evaluated_from_whole"] < 1e-12
        # The plan's clocks, told when they change.
        assert said["clocks"][:4] == [1410, 1380, 1350, 1410]


@pytest.mark.parametrize("recompute", [False, True])
def test_a_microbatch_may_overlap_in_one_pass_only(tmp_path: Path, recompute: bool) -> None:
    training = Training(4, 2, 2, recompute=recompute)
    order = [
        ("forward", 0, True),
        ("backward", 0, False),
        ("forward", 1, False),
        ("backward", 1, True),
    ]
    for said in trained(tmp_path, training, order, parts=[2, 2]):
        assert said["from_whole"] < 1e-12
        alone = [it for it in said["events"] if "alone" in it]
        beside = [it for it in said["events"] if it.split()[1] == "ar" and it not in alone]
        assert alone
        assert beside


def lines(text: str) -> list[str]:
    return [it.strip() for it in text.replace("\n", ",").split(",") if it.strip()]


TENSOR_ORDER = """
A0 attention_norm, A0 qkv, A0 rope, A0 attention, A0 out
B0 attention_norm, B0 qkv, A0 ar attention 4, B0 rope, B0 attention, B0 out
A0 mlp_norm, A0 up, A0 activation, B0 ar mlp 6, A0 down
B0 mlp_norm, B0 up, B0 activation, A0 ar mlp 6, B0 down
A1 attention_norm, A1 qkv, B0 ar attention 4, A1 rope, A1 attention, A1 out
B1 attention_norm, B1 qkv, A1 ar attention 4, B1 rope, B1 attention, B1 out
A1 mlp_norm, A1 up, A1 activation, B1 ar mlp 6, A1 down
B1 mlp_norm, B1 up, B1 activation, A1 ar mlp 6, B1 down
B1 ar alone 0
A1 ~down, A1 ~activation, A1 ~up
B1 ~down, A1 ar mlp 3, B1 ~activation, B1 ~up
A1 ~mlp_norm, A1 ~out, B1 ar attention 2, A1 ~attention, A1 ~rope, A1 ~qkv
B1 ~mlp_norm, B1 ~out, A1 ar attention 2, B1 ~attention, B1 ~rope, B1 ~qkv
A1 ~attention_norm, A0 ~down, B1 ar mlp 3, A0 ~activation, A0 ~up
B1 ~attention_norm, B0 ~down, A0 ar mlp 3, B0 ~activation, B0 ~up
A0 ~mlp_norm, A0 ~out, B0 ar attention 2, A0 ~attention, A0 ~rope, A0 ~qkv
B0 ~mlp_norm, B0 ~out, A0 ar attention 2, B0 ~attention, B0 ~rope, B0 ~qkv
B0 ar mlp 3, A0 ~attention_norm
B0 ~attention_norm
"""


BOTH_BACKWARD = """
A0 attention_norm, A0 qkv, A0 rope
B0 attention_norm, B0 qkv, A0 ag recompute_qkv_ag 2, B0 rope
A0 attention, B0 ag recompute_ao_ag 3, A0 out
A0 ar recompute_ao_ar 4, B0 attention, B0 out
A0 mlp_norm, A0 up, B0 ar recompute_mlp 5, A0 activation, A0 down
B0 mlp_norm, B0 up, A0 ar recompute_mlp 5, B0 activation, B0 down
A0 ~down, A0 ~activation, B0 ar mlp 6, A0 ~up
B0 ~down, B0 ~activation, A0 ar mlp 6, B0 ~up
A0 ~mlp_norm, B0 ar o_ar 7, A0 ~out
A0 ag o_ag 8, B0 ~mlp_norm, B0 ~out
B0 ag a_ag 9, A0 ~attention
A0 rs a_rs 10, B0 ~attention
A0 ~rope, B0 rs qkv_rs 11, A0 ~qkv
A0 ar qkv_ar 12, B0 ~rope, B0 ~qkv
B0 ar mlp 6, A0 ~attention_norm
B0 ~attention_norm
"""


def test_launches_come_in_the_plans_order(tmp_path: Path) -> None:
    one = {"steps": 1, "parts": [2]}
    for said in trained(tmp_path, Training(4, 1, 2), one_by_one(True), **one):
        assert said["events"] == lines(TENSOR_ORDER)
        # One for each number of SMs that the plan has, and the library's own.
        assert said["communicators"] == [f"tensor {sms}" for sms in (0, 2, 3, 4, 6)]
    training = Training(4, 1, 2, 2, recompute=True)
    for said in trained(tmp_path, training, one_by_one(True), layers=1, **one):
        count = len(lines(BOTH_BACKWARD))
        assert said["events"][-count:] == lines(BOTH_BACKWARD)


@pytest.mark.parametrize("overlaps", [True, False])
def test_a_killed_rank_ends_the_job_with_overlap_and_without(
    tmp_path: Path, overlaps: bool
) -> None:
    own = plan(2, 1, one_by_one(overlaps))
    killed, left = reversed(run(tmp_path, Training(4, 1, 2), [own] * 2, parts=[1], kill=1))
    assert killed[0] == -signal.SIGKILL
    # The other one's next collective fails, and Python ends.
    assert left[0] == 1
    assert "RuntimeError" in left[2]


def test_ranks_with_different_plans_refuse_both(tmp_path: Path) -> None:
    one = plan(2, 1, one_by_one(True))
    other = copy.deepcopy(one)
    other["stages"][0]["instructions"][0]["partitions"][0]["sms"] = 5
    for status, output, error in run(tmp_path, Training(4, 1, 2), [one, other], parts=[2]):
        assert (status, output) == (1, "")
        assert "rank 1 has another plan, or trains otherwise, than rank 0" in error


def test_partitions_are_those_that_are_planned() -> None:
    """The table of docs/kareus.md."""

    def names(block: Any) -> list[str]:
        return list(dict.fromkeys(name for it in segments(block) for name in it.partitions))

    tensor, both = Parallel(2, 1), Parallel(2, 2)
    assert sorted(names(forward(tensor))) == sorted(names(backward(tensor))) == ["attention", "mlp"]
    assert names(forward(both)) == ["qkv_ar", "qkv_ag", "ao_ag", "ao_ar", "mlp"]
    seven = ["o_ar", "o_ag", "a_ag", "a_rs", "qkv_rs", "qkv_ar", "mlp"]
    assert names(backward(both)) == seven
    four = ("norm_0", "linear_0", "activation_0", "linear_1")
    assert segments(forward(both))[-1].computations == four
    with pytest.raises(ValueError, match="without a collective"):
        segments(forward(Parallel()))


def changed(change: Any) -> Any:
    own = plan(2, 1, one_by_one(True, True))
    change(own["stages"][0]["instructions"])
    return own


def partition(rows: Any) -> Any:
    return rows[0]["partitions"][1]


MISFITS = {
    "a computation that is not there": (
        lambda rows: partition(rows).update(launch="rope_0"),
        "stage 0: forward of microbatch 0: mlp has no computation rope_0",
    ),
    "a partition that is not there": (
        lambda rows: partition(rows).update(name="qkv_ag"),
        "forward of microbatch 0: there is no partition qkv_ag",
    ),
    "a partition missing": (
        lambda rows: rows[0]["partitions"].pop(),
        "forward of microbatch 0: partition mlp is missing",
    ),
    "a partition twice": (
        lambda rows: rows[0]["partitions"].append(partition(rows)),
        "stage 0, instruction 0: mlp is there twice",
    ),
    "recomputation where there is none": (
        lambda rows: partition(rows).update(name="recompute_mlp"),
        "there is no partition recompute_mlp",
    ),
    "no SM": (lambda rows: partition(rows).update(sms=0), "mlp: a communication can have 1 to 32"),
    "more SMs than NCCL takes": (
        lambda rows: partition(rows).update(sms=33),
        "mlp: a communication can have 1 to 32 SMs, not 33",
    ),
    "half an SM": (lambda rows: partition(rows).update(sms=1.5), "instruction 0: sms can't be 1.5"),
    "an end": (
        lambda rows: partition(rows).update(end="linear_1"),
        "an end of mlp's communication, linear_1 is not supported",
    ),
    "a microbatch missing": (lambda rows: rows.pop(), "backward of microbatch 1 is missing"),
    "a microbatch too many": (
        lambda rows: rows.append({"instruction": "forward", "microbatch": 2}),
        "forward of microbatch 2 is not what runs here",
    ),
    "a microbatch twice": (
        lambda rows: rows.append(rows[0]),
        "forward of microbatch 0 is there 2 times",
    ),
    "another instruction": (
        lambda rows: rows.append({"instruction": "weight", "microbatch": 0}),
        "weight of microbatch 0 is not what runs here",
    ),
    "interleaved layers": (
        lambda rows: rows[0].update(chunk=1),
        "chunk 1 of interleaved layers is not supported",
    ),
    "no microbatch": (lambda rows: rows[0].pop("microbatch"), "microbatch -1 is not what runs"),
    "a row that is no instruction": (lambda rows: rows.append(7), "instruction 4: it has no name"),
    "partitions that are none": (
        lambda rows: rows[0].update(partitions="all"),
        "instruction 0: partitions can't be 'all'",
    ),
    "no clock in MHz": (lambda rows: rows[0].update(clock_mhz=-1), "-1 is no clock in MHz"),
}


@pytest.mark.parametrize("what", MISFITS)
def test_a_plan_that_does_not_fit_is_refused(tmp_path: Path, what: str) -> None:
    change, message = MISFITS[what]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(changed(change)))
    with pytest.raises(MisfitError) as refused:
        read(path, 0, Training(4, 2, 2))
    assert message in str(refused.value)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        (Training(4, 2, 2, pipeline_parallel=2), "1 stages are planned, and 2 are here"),
        (Training(3, 2, 2), "a microbatch of 3 has no equal halves"),
        (Training(4, 2), "communicates nothing"),
        (Training(4, 2, 1, 2, recompute=True), "only where GPUs share tensors"),
        (Training(4, 2, 2, 2), "there is no partition attention"),
        (Training(4, 2, 2, recompute=True), "partition recompute_attention is missing"),
        (Training(4, 3, 2), "forward of microbatch 2 is missing"),
    ],
)
def test_training_that_a_plan_is_not_for_is_refused(training: Training, message: str) -> None:
    own = plan(2, 1, one_by_one(True, True))
    fitted(own, 0, Training(4, 2, 2))
    with pytest.raises(MisfitError) as refused:
        fitted(own, 0, training)
    assert message in str(refused.value)


def test_a_small_gpu_has_no_more_sms_than_it_has() -> None:
    own = plan(2, 1, one_by_one(True))
    fitted(own, 0, Training(4, 1, 2), gpu_sms=6)
    with pytest.raises(MisfitError, match="1 to 5 SMs, not 6"):
        fitted(own, 0, Training(4, 1, 2), gpu_sms=5)


def test_stages_that_are_named_twice_or_not_by_numbers_are_refused() -> None:
    own = plan(2, 1, one_by_one(True))
    training = Training(4, 1, 2, pipeline_parallel=2)
    for odd in (7, {"stage": "x"}, own["stages"][0]):
        stages = own | {"stages": [own["stages"][0], odd]}
        with pytest.raises(MisfitError, match="stages have a number each"):
            fitted(stages, 0, training)


def test_what_does_not_fit_on_one_rank_is_refused_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    own = fitted(plan(2, 1, one_by_one(True)), 0, Training(4, 1, 2))
    training, ranks = Training(4, 1, 2), megatron_ranks(2, Parallel(2, 1))
    block = SimpleNamespace(parallel=training.parallel, qkv_weight=SimpleNamespace(dtype="float64"))

    def check(other: dict[str, Any]) -> None:
        """As rank 0, where rank 1 differs."""

        def gather(said: list[Any], mine: Any) -> None:
            said[:] = [mine, mine._replace(**other)]

        network = SimpleNamespace(get_world_size=lambda: 2, all_gather_object=gather)
        monkeypatch.setattr(engine, "dist", network)
        engine._check([block], training, own, ranks)

    check({})
    with pytest.raises(MisfitError, match="rank 1: no blocks"):
        check({"error": "no blocks"})
    with pytest.raises(MisfitError, match="rank 1 has another plan"):
        check({"digest": "another"})
    with pytest.raises(
        MisfitError, match=r"ranks \[0, 1\] share tensors, and have different stages"
    ):
        check({"stage": (0, 2, "float64")})


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "stages": [7]}']
)
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(MisfitError, match=r"plan\.json: "):
        read(path, 0, Training(4, 1, 2))


def test_budgets_are_those_of_all_stages() -> None:
    own = plan(2, 2, one_by_one(True))
    second = copy.deepcopy(own["stages"][0]) | {"stage": 1}
    second["instructions"][0]["partitions"][0]["sms"] = 20
    own["stages"].append(second)
    first = fitted(own, 0, Training(4, 1, 2, 2, pipeline_parallel=2))
    assert ("tensor", 20) in first.all_budgets - first.budgets
    # qkv_ag is planned with 2 SMs, and gathers between those that share sequences.
    assert ("context", 2) in first.budgets
    assert ("tensor", 2) not in first.budgets


def test_neighbours_share_tensors() -> None:
    assert megatron_ranks(8, Parallel(2, 2)) == {
        "tensor": [[0, 1], [2, 3], [4, 5], [6, 7]],
        "context": [[0, 2], [1, 3], [4, 6], [5, 7]],
    }
    with pytest.raises(ValueError, match="no whole number"):
        megatron_ranks(6, Parallel(2, 2))
