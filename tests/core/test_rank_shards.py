"""The arrays of ranks are put together: shards, terms, copies, batches, micro-batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rank_traces import (
    LOCAL,
    TOKENS,
    WEIGHTS,
    X,
    data_parallel,
    fully_sharded,
    make_trace,
    mean_of,
    record,
)

from dualml.common.errors import UserError
from dualml.parity.models.trace import Trace, array_key, count_calls, hash_array, read_trace
from dualml.parity.ranks.explaining import align_batches
from dualml.parity.ranks.gathering import gather_folder, gather_ranks
from dualml.parity.ranks.micro_batches import join_calls
from dualml.parity.ranks.rank_files import (
    FACTS,
    RankRecording,
    rank_folder,
    read_ranks,
    wait_for_ranks,
)
from dualml.parity.ranks.shards import RankArray, ShardPlace, assemble_shards

WHOLE = np.arange(12.0).reshape(4, 3)


def part(rank: int, array: Any, *offset: int, terms: int = 0) -> RankArray:
    return RankArray(rank, np.asarray(array), ShardPlace(shape=(4, 3), offset=offset, terms=terms))


def test_shards_of_two_axes_and_unequal_length() -> None:
    four = [
        part(0, WHOLE[:3, :2], 0, 0),
        part(1, WHOLE[:3, 2:], 0, 2),
        part(2, WHOLE[3:, :2], 3, 0),
        part(3, WHOLE[3:, 2:], 3, 2),
    ]
    np.testing.assert_array_equal(assemble_shards(four), WHOLE)
    empty = part(2, WHOLE[4:], 4, 0)
    np.testing.assert_array_equal(
        assemble_shards([part(0, WHOLE[:2], 0, 0), part(1, WHOLE[2:], 2, 0), empty]), WHOLE
    )


def test_terms_are_added_once_each() -> None:
    terms = [part(0, WHOLE / 4, 0, 0, terms=2), part(1, 3 * WHOLE / 4, 0, 0, terms=2)]
    np.testing.assert_allclose(assemble_shards(terms), WHOLE)
    copies = [one for one in terms for _ in range(2)]  # a mesh with two copies of each term
    np.testing.assert_allclose(assemble_shards(copies), WHOLE)
    mean = [part(0, 0.5 * WHOLE, 0, 0, terms=1), part(1, 1.5 * WHOLE, 0, 0, terms=1)]
    np.testing.assert_allclose(assemble_shards(mean), WHOLE)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([part(0, WHOLE[:2], 0, 0)], "6 of 12 elements are in no rank's shard"),
        ([part(0, WHOLE, 1, 0)], "ends at"),
        ([part(0, WHOLE, 0, 0), RankArray(1, WHOLE[:2])], "rank 1 has it with shape"),
    ],
)
def test_what_does_not_fit_is_refused(parts: list[RankArray], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        assemble_shards(parts)


def test_a_split_batch_is_the_whole_one() -> None:
    ranks = data_parallel(mean_of(LOCAL))
    whole = gather_ranks(ranks)
    assert whole.inputs == [[hash_array(X)]]
    np.testing.assert_array_equal(whole.arrays[array_key("forward", 1, "(output)")], X)
    assert whole.order == [["fc", "(output)"]]
    assert whole.environment["ranks"] == "2"


def test_samples_that_are_dealt_in_turn_are_put_in_order() -> None:
    halves = [X[::2], X[1::2]]
    ranks = record([make_trace(mean_of(LOCAL), x=half) for half in halves])
    plain = make_trace(mean_of(LOCAL))
    assert gather_ranks(ranks).inputs != plain.inputs
    _, dealt = align_batches(plain, gather_ranks(ranks), ([], ranks))
    assert dealt.inputs == plain.inputs
    np.testing.assert_array_equal(dealt.arrays[array_key("forward", 1, "(output)")], X)


def test_losses_are_averaged_with_their_weights() -> None:
    ranks = data_parallel(mean_of(LOCAL))
    for one, loss in zip(ranks, (1.0, 5.0), strict=True):
        arrays: Any = one.trace.arrays
        arrays[array_key("loss", 1, "loss")] = np.float64(loss)
    expected = (TOKENS[0] * 1 + TOKENS[1] * 5) / sum(TOKENS)
    assert gather_ranks(ranks).arrays[array_key("loss", 1, "loss")] == pytest.approx(expected)
    for one in ranks:
        arrays = one.trace.arrays
        del arrays[array_key("weight", 1, "losses")]
    assert gather_ranks(ranks).arrays[array_key("loss", 1, "loss")] == pytest.approx(3.0)


def test_sharded_parameters_become_whole() -> None:
    gradients = mean_of(LOCAL)
    whole = gather_ranks(fully_sharded([gradients, gradients]))
    assert {t.name: t.shape for t in whole.tensors} == {n: w.shape for n, w in WEIGHTS.items()}
    for name, w in WEIGHTS.items():
        np.testing.assert_array_equal(whole.arrays[array_key("parameters", 0, name)], w)
        found = whole.arrays[array_key("gradient", 1, name)]
        np.testing.assert_array_equal(found, gradients[name])


def test_stages_of_a_pipeline_have_their_own_parameters() -> None:
    def stage(name: str, output: Any, loss: float | None) -> Trace:
        w = WEIGHTS["fc.weight"]
        outputs = {name[:2]: output, "(output)": output}
        made = make_trace({name: w}, start={name: w}, outputs=outputs, loss=loss or 0.0)
        arrays: Any = made.arrays
        if loss is None:
            del arrays[array_key("loss", 1, "loss")]
        return made

    ranks = record([stage("s0.weight", X, None), stage("s1.weight", 2 * X, 3.0)])
    whole = gather_ranks(ranks)
    assert [t.name for t in whole.tensors] == ["s0.weight", "s1.weight"]
    assert whole.order == [["s0", "s1", "(output)"]]
    np.testing.assert_array_equal(whole.arrays[array_key("forward", 1, "(output)")], 2 * X)
    assert whole.arrays[array_key("loss", 1, "loss")] == 3.0


def test_features_that_ranks_computed_are_joined() -> None:
    gradients = mean_of(LOCAL)
    ranks = fully_sharded([gradients, gradients])
    y = X @ WEIGHTS["fc.weight"].T
    for rank, one in enumerate(ranks):
        one.trace.inputs[:] = [["same"]]
        arrays: Any = one.trace.arrays
        arrays[array_key("forward", 1, "fc")] = np.split(y, 2, axis=1)[rank]
        arrays[array_key("forward", 1, "(output)")] = np.split(X, 2)[rank]  # nobody knows how
    whole = gather_ranks(ranks)
    assert whole.order == [["fc"]]
    np.testing.assert_array_equal(whole.arrays[array_key("forward", 1, "fc")], y)


def test_micro_batches_are_joined() -> None:
    halves = np.split(X, 2)
    outputs = {"fc": halves[0], "fc#2": -halves[0], "(output)": halves[0]}
    outputs |= {"fc#3": halves[1], "fc#4": -halves[1], "(output)#2": halves[1]}
    made = make_trace(mean_of(LOCAL), outputs=outputs)
    assert count_calls(made) == 2
    joined = join_calls(made)
    assert joined.order == [["fc", "fc#2", "(output)"]]
    np.testing.assert_array_equal(joined.arrays[array_key("forward", 1, "(output)")], X)
    np.testing.assert_array_equal(joined.arrays[array_key("forward", 1, "fc#2")], -X)
    del outputs["fc#4"]
    uneven = make_trace(mean_of(LOCAL), outputs=outputs)
    assert join_calls(uneven).order == uneven.order


def test_one_name_with_two_shapes_is_refused() -> None:
    ranks = record(
        [make_trace({}, start={"fc.weight": np.ones((2, n), np.float32)}) for n in (3, 4)]
    )
    with pytest.raises(UserError, match=r"fc\.weight has shape \(2, 3\) on rank 0 and \(2, 4\)"):
        gather_ranks(ranks)


def write_ranks(folder: Path, ranks: list[RankRecording]) -> None:
    for one in ranks:
        place = rank_folder(folder, one.facts.rank)
        one.trace.write(place)
        FACTS.write(place, one.facts)


def test_folders_of_ranks_are_gathered_and_bad_ones_refused(tmp_path: Path) -> None:
    gradients = mean_of(LOCAL)
    ranks = fully_sharded([gradients, gradients])
    write_ranks(tmp_path, ranks)
    gather_folder(tmp_path)
    whole = read_trace(tmp_path)
    np.testing.assert_array_equal(
        whole.arrays[array_key("update", 1, "fc.weight")],
        gather_ranks(ranks).arrays[array_key("update", 1, "fc.weight")],
    )
    other = rank_folder(tmp_path, 1)
    FACTS.write(other, ranks[1].facts.model_copy(update={"recording": 2, "ranks": 4}))
    with pytest.raises(UserError, match=r"in another recording \(4 ranks\) than rank 0"):
        read_ranks(tmp_path)
    FACTS.remove(other)
    with pytest.raises(UserError, match="there is no trace of rank 1 of 2"):
        read_ranks(tmp_path)


def test_ranks_with_different_numbers_of_steps_are_refused() -> None:
    one, other = data_parallel(mean_of(LOCAL), rates=(0.1, 0.1))
    short = replace(other, trace=make_trace(mean_of(LOCAL), x=X[4:]))
    with pytest.raises(UserError, match="rank 1 recorded 1, rank 0 recorded 2"):
        gather_ranks([one, short])
    short.trace.raised = "ValueError: x"
    assert gather_ranks([one, short]).raised == "rank 1: ValueError: x"


def test_waiting_for_a_rank_ends(tmp_path: Path) -> None:
    one, other = data_parallel(mean_of(LOCAL))
    write_ranks(tmp_path, [one])
    rank_folder(tmp_path, 1).mkdir()
    FACTS.write(
        rank_folder(tmp_path, 1),
        other.facts.model_copy(update={"complete": False, "steps": 0}),
    )
    message = r"rank 1 of 2 has recorded 0 of 1 steps, and nothing more came within 0\.1 s"
    with pytest.raises(UserError, match=message):
        wait_for_ranks(tmp_path, one.facts, 0.1)
    FACTS.write(rank_folder(tmp_path, 1), other.facts)
    wait_for_ranks(tmp_path, one.facts, 0.1)
