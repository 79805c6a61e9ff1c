"""Sequence positions that ranks share: their owners, messages, saved bytes, and refused
settings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from conformance import split

from dualml.algorithms.model import model
from dualml.algorithms.model.spec import ModelSpec
from dualml.backend import Segment
from dualml.backend.reference.backend import NumpyBackend
from dualml.backend.reference.communicator import run_threads
from dualml.backend.stage import visible_slices as seen_of
from dualml.common.errors import UserError
from dualml.experiment.split import Split
from dualml.parallel.split import ring, traffic
from dualml.parallel.split.plan import SplitPlan, split_plan
from dualml.parallel.split.shards import TensorShard, concat_slices
from dualml.parallel.split.tensor_parallel import ParallelOp

GPT = split.SPECS["longer gpt"]  # 12 positions of 8, 2 blocks, dropout
WHOLE = {"tensor": 2}
SEQUENCE = {"tensor": 2, "sequence": True}
AGAIN = {**SEQUENCE, "regather": True}
CONTEXT = {"context": 2}


def kinds(plan: SplitPlan, rank: int = 0) -> list[str]:
    items = [item for view in plan.rank_stages(rank)[0] for item in view.items]
    return [
        i.kind if isinstance(i, ParallelOp) else "ring" for i in items if not isinstance(i, Segment)
    ]


def test_what_stands_between_the_segments() -> None:
    """The two all-reduces of a block's forward pass become an all-gather and a reduce-scatter
    each."""
    block = ["collect", "scatter"] * 2
    assert kinds(split_plan(GPT, 2, **SEQUENCE)) == ["take", *block, *block]
    assert kinds(split_plan(GPT, 2, **CONTEXT)) == ["take", "ring", "ring"]
    assert kinds(split_plan(GPT, 2, **WHOLE)) == ["copy", "sum"] * 4


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_chunks_of_a_ring_balance_causal_attention(ranks: int) -> None:
    """Every rank has an early chunk and the mirrored late one, so that all see equally many keys;
    contiguous chunks would leave the first rank with 1 / (2n − 1) of the last one's."""
    length = 4 * ranks
    deals = [TensorShard((length,), 0, r, ranks, 2, mirrored=True) for r in range(ranks)]
    places = [deal.extract(np.arange(length)) for deal in deals]
    assert sorted(np.concatenate(places).tolist()) == list(range(length))
    assert len({int((own + 1).sum()) for own in places}) == 1
    for rank, own in enumerate(places):
        for source, others in enumerate(places):
            queries, keys = seen_of(ring.kv_block(rank, source), len(own))
            visible = own[:, None] >= others
            assert visible.sum() == visible[queries, keys].sum()
            assert source == rank or visible[queries, keys].all()


def test_pieces_that_are_mirrored_make_the_whole() -> None:
    x = np.arange(24).reshape(2, 12)
    parts = [TensorShard(x.shape, 1, r, 3, 2, mirrored=True) for r in range(3)]
    np.testing.assert_array_equal(concat_slices([p.extract(x) for p in parts], 1, 2, True), x)
    whole = np.zeros_like(x)
    for piece in parts:
        piece.insert(whole, piece.extract(x))
    np.testing.assert_array_equal(whole, x)
    assert str(parts[0]) == "columns 1/6 and 6/6"


def collectives(plan: SplitPlan, batch: int) -> dict[str, tuple[int, int]]:
    return {c.kind: (c.calls, c.nbytes) for c in traffic.collectives(plan, batch)}


def test_bytes_by_hand() -> None:
    """For b samples of s positions and width h, tensor parallelism sums 4·bsh in each of two
    all-reduces per block and pass; here the halves of an all-reduce replace it."""
    b, s, h, blocks = 6, 12, 8, 2
    each = 4 * b * s * h
    assert collectives(split_plan(GPT, 2, **WHOLE), b) == {
        "all_reduce forward": (2 * blocks, 2 * blocks * each),
        "all_reduce backward": (2 * blocks, 2 * blocks * each),
    }
    n = 2 * blocks
    same = (1, 4 * (24 * h + blocks * (4 * h + 2 * h) + 2 * h))  # table, norms, biases after sums
    halves = {
        "all_gather forward": (n, n * each // 2),
        "reduce_scatter forward": (n, n * each),
        "reduce_scatter backward": (n, n * each),
        "all_gather backward": (n, n * each // 2),
    }
    gradients = {"all_reduce gradients": same}
    assert collectives(split_plan(GPT, 2, **SEQUENCE), b) == halves | gradients
    twice = {"all_gather backward": (2 * n, n * each)}
    assert collectives(split_plan(GPT, 2, **AGAIN), b) == halves | twice | gradients


@pytest.mark.parametrize(("n", "groups"), [(2, 4), (2, 2), (4, 4)])
def test_bytes_of_a_ring_by_hand(n: int, groups: int) -> None:
    """Ring attention sends keys and values of s / n positions n − 1 times forward, and as often
    backward together with their gradients."""
    sizes = {"width": 16, "heads": 4, "kv_heads": groups, "blocks": 3}
    spec = model("gpt_llama", words=24, length=16, sizes=sizes)
    found = collectives(split_plan(spec, n, context=n, micro_batches=2), 6)
    each = 4 * 6 * (16 // n) * 2 * groups * 4
    assert found["ring forward"] == (2 * 3 * (n - 1), 3 * (n - 1) * each)
    assert found["ring backward"] == (2 * 2 * 3 * (n - 1), 2 * 3 * (n - 1) * each)
    total = sum(map(math.prod, spec.parameters().values()))
    assert found["all_reduce gradients"] == (1, 4 * total)


# --- what is kept, and what really travels ------------------------------------------------------


def count_bytes(name: str, settings: dict[str, Any], batch: int = 6) -> tuple[list[int], list[int]]:
    """Return the bytes that each rank of the reference saves for backward passes, and sends in an
    update."""
    case = {"model": name, "optimizer": "sgd", "loss": "cross_entropy", "sizes": [batch]}
    ranks = max(settings.get("tensor", 1), settings.get("context", 1))
    plan = Split(**settings).plan(split.SPECS[name], ranks)

    def work(comm: Any) -> tuple[int, int]:
        training = split.make_training(comm, NumpyBackend(), case, plan)
        before = comm.traffic.bytes_sent
        training.step(split.batches(case)[0], 1)
        sent = comm.traffic.bytes_sent - before
        return split.saved_bytes(training, case), sent

    kept, sent = zip(*run_threads(ranks, work, 20), strict=True)
    return list(kept), list(sent)


def test_bytes_that_travel_are_those_by_hand() -> None:
    """The reference's all-reduce sends all tensors to all ranks, (n − 1)·S; its ring halves send (n
    − 1)/n·S each. Its numbers are twice as wide."""
    for settings in (WHOLE, SEQUENCE, AGAIN, CONTEXT):
        parts = 2
        plan = split_plan(GPT, parts, **settings)
        found, total = collectives(plan, 6), 0
        for kind, (_, nbytes) in found.items():
            share = {"all_reduce": parts - 1, "all_gather": parts - 1, "ring": 1}
            how = kind.split()[0]
            total += 2 * nbytes * (share[how] if how in share else (parts - 1) / parts)
        assert count_bytes("longer gpt", settings)[1] == [total] * parts


def test_what_is_collected_again_is_not_kept() -> None:
    """Inputs that are gathered again are not saved: of the two layers per block that start with all
    positions, a rank keeps its own half."""
    (kept, other), _ = count_bytes("longer gpt", SEQUENCE)
    (again, _), _ = count_bytes("longer gpt", AGAIN)
    b, s, h, blocks = 6, 12, 8, 2
    assert kept == other
    assert kept - again == 2 * blocks * 8 * b * s * h // 2


def plan_of(spec: ModelSpec, **settings: Any) -> SplitPlan:
    ranks = settings.pop("ranks", 2)
    return Split(**settings).plan(spec, ranks)


LONG = model("gpt", length=30)


@pytest.mark.parametrize(("spec", "settings", "words"), [
    (model("gpt", length=31), SEQUENCE, "31 positions do not make 2 ranks, equally long; use "
                                        "data.length = 32"),
    (LONG, CONTEXT, "30 positions do not make 4 chunks, two for each of 2 ranks, equally long; use "
                    "data.length = 32"),
    (model("gpt", length=2), CONTEXT, "use data.length = 4"),
    (model("mlp"), CONTEXT, "mlp has no tokens: use gpt or gpt_llama"),
    (model("rnn_lm"), CONTEXT, "rnn_lm has no attention: use gpt or gpt_llama"),
    (model("rnn_lm"), SEQUENCE, "rnn_lm has no attention"),
    (model("text_classifier"), CONTEXT, "attention1 of text_classifier is not causal"),
    (model("text_classifier"), SEQUENCE, "is not causal, every position sees all"),
    (LONG, {"sequence": True}, "needs tensor >= 2"),
    (LONG, {"tensor": 2, "regather": True}, "add sequence = true"),
    (LONG, {"context": 2, "tensor": 2, "ranks": 4}, "either the positions or the layers"),
    (LONG, {"context": 2, "sequence": True}, "needs tensor >= 2"),
    (LONG, {"context": 2, "layers": {"up1": "column"}}, "that needs tensor >= 2"),
    (LONG, {"context": 2, "ranks": 3}, "a mesh of data 1 × context 2 does not divide 3 ranks"),
    (LONG, {"context": 2, "trainers": 2, "micro_batches": 2, "ranks": 6},
     "split.context = 2 does not go with trainers = 2"),
    (LONG, {"context": 2, "engine": "rpc", "ranks": 4}, "does not go with engine = rpc"),
    (LONG, {**SEQUENCE, "layers": {"up1": "column", "down1": "row"}},
     "attention1 is whole and takes all positions"),
    (LONG, {**SEQUENCE, "layers": {"qkv1": "column", "out1": "row", "up1": "column"}},
     "a layer split by column gives its slices to one split by row"),
    (model("gpt_llama"), {**SEQUENCE, "layers": {"embedding": "column"}},
     "embedding cannot be split by column"),
])  # fmt: skip
def test_what_cannot_be_is_refused_by_name(
    spec: ModelSpec, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises((UserError, ValueError)) as refused:
        plan_of(spec, **settings)
    assert words in str(refused.value)
