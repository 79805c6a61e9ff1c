"""Known mistakes with ranks are recognised from the recorded arrays, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rank_traces import (
    LOCAL,
    RATE,
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
from dualml.common.words import section_messages
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.judge import JudgingSettings, judge_traces
from dualml.parity.models.run import compare_traces
from dualml.parity.models.trace import Trace, array_key
from dualml.parity.ranks.explaining import explain_comparison
from dualml.parity.ranks.factors import divided_by_full_window
from dualml.parity.ranks.gathering import gather_ranks
from dualml.parity.ranks.hypotheses import HYPOTHESES
from dualml.parity.ranks.rank_files import FACTS, RankRecording, rank_folder
from dualml.parity.ranks.schedules import find_speed

MEAN = mean_of(LOCAL)
RIGHT = mean_of(LOCAL, TOKENS)


def compare(
    one: Trace, other: Trace | Sequence[RankRecording], first: Sequence[RankRecording] = ()
) -> ModelComparison:
    """Compare one process with another, or with what ranks recorded."""
    ranks = [] if isinstance(other, Trace) else list(other)
    second = other if isinstance(other, Trace) else gather_ranks(ranks)
    judged = judge_traces(one, second, JudgingSettings(sides=("one", "many")))
    return explain_comparison(judged, (one, second), (first, ranks))


def causes(found: ModelComparison) -> list[str]:
    known = {f"ranks_{one.key}" for one in HYPOTHESES}
    return [note.key.removeprefix("ranks_") for note in found.notes if note.key in known]


def times(factor: float, gradients: Any = MEAN) -> dict[str, Any]:
    return {name: np.float32(factor) * g for name, g in gradients.items()}


def clip(gradients: Any, norm: float) -> dict[str, Any]:
    total = np.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in gradients.values()))
    return times(min(1.0, norm / (total + 1e-6)), gradients)


def test_equal_runs_have_no_cause() -> None:
    found = compare(make_trace(MEAN), data_parallel(MEAN))
    assert found.equal
    assert causes(found) == []


def test_an_error_of_a_rank_is_placed_in_its_step() -> None:
    ranks = data_parallel(MEAN)
    for one in ranks:
        one.trace.steps, one.trace.order = 0, [["fc"]]
    ranks[1].trace.raised = "ValueError: x"
    found = compare(make_trace(MEAN), ranks)
    assert (found.verdict, found.reason) == ("different", "raised")
    assert found.first is not None
    assert (found.first.step, found.first.tensor) == (1, "(output)")
    assert "rank 1: ValueError: x" in found.paragraph("en")


def test_a_loss_across_the_batch_is_named_where_outputs_agree() -> None:
    found = compare(make_trace(MEAN), data_parallel(MEAN, loss=2.0))
    assert causes(found) == ["loss_across_batch"]
    assert found.notes[0].values["n"] == 2
    assert found.notes[1].key == "ranks_untested"


def test_a_term_of_the_loss_that_reaches_few_is_named() -> None:
    more = {**MEAN, "fc.bias": MEAN["fc.bias"] + np.float32(0.3) * WEIGHTS["fc.bias"]}
    found = compare(make_trace(MEAN), data_parallel(more))
    assert causes(found) == ["term_of_few"]
    assert found.notes[0].values["names"] == "fc"
    assert found.notes[1].key == "ranks_untested"
    alone = compare(make_trace(MEAN), make_trace(more))
    assert causes(alone) == []
    assert alone.notes[0].key == "only_gradients"
    assert "only 1 of the 2 gradients differ (fc.bias)" in alone.paragraph("en")


def test_a_difference_that_no_mistake_explains_has_no_cause() -> None:
    strange = {name: np.flip(g).copy() for name, g in MEAN.items()}
    found = compare(make_trace(strange), data_parallel(MEAN))
    assert found.verdict == "different"
    assert causes(found) == []


@pytest.mark.parametrize(
    ("factor", "cause"),
    [
        (2.0, "summed_over_ranks"),
        (0.5, "divided_by_ranks"),
        (1024.0, "loss_scale_left"),
        (8.0, "summed_over_batch"),
        (40.0, "other_token_count"),
        (1.37, "unknown_factor"),
    ],
)
def test_one_factor_of_all_gradients(factor: float, cause: str) -> None:
    found = compare(make_trace(MEAN), data_parallel(times(factor)))
    assert causes(found)[0] == cause
    text = found.paragraph("en")
    assert "2 of the 2 gradients" in text
    assert found.paragraph("zh") != text


def test_one_gradient_is_no_factor_of_all() -> None:
    strange = {"fc.weight": np.flip(MEAN["fc.weight"]).copy(), "fc.bias": 2 * MEAN["fc.bias"]}
    found = compare(make_trace(MEAN), data_parallel(strange))
    assert causes(found) == []


def test_a_factor_of_micro_batches(tmp_path: Path) -> None:
    halves = np.split(X, 2)
    outputs = {"fc": halves[0], "(output)": halves[0], "fc#2": halves[1], "(output)#2": halves[1]}
    make_trace(MEAN, outputs={"fc": X, "(output)": X}).write(tmp_path / "whole")
    make_trace(times(2.0), outputs=outputs).write(tmp_path / "accumulated")
    found = compare_traces(tmp_path / "whole", tmp_path / "accumulated")
    assert causes(found)[0] == "summed_micro_batches"


@pytest.mark.parametrize(
    ("step", "factor", "expected"),
    [(3, 0.5, {"n": 2, "full": 4}), (3, 0.25, None), (3, 2.0, None), (1, 1.0, None)],
)
def test_a_shorter_window_that_is_divided_like_the_others(
    step: int, factor: float, expected: Any
) -> None:
    counts = {1: 4, 2: 4, 3: 2}
    side = SimpleNamespace(count_micro_batches=counts.__getitem__, trace=SimpleNamespace(steps=3))
    evidence: Any = SimpleNamespace(suspect=side, step=step)
    assert divided_by_full_window(evidence, factor) == expected


def test_the_group_of_parameters_is_named() -> None:
    mixed = {**MEAN, "fc.bias": 2 * MEAN["fc.bias"]}
    found = compare(make_trace(MEAN), data_parallel(mixed))
    assert causes(found)[0] == "summed_over_ranks"
    assert "It concerns 1 of 2 parameters (fc.bias)" in found.paragraph("en")


def test_mean_of_means_with_stated_and_with_fitted_weights() -> None:
    ranks = data_parallel(MEAN)
    found = compare(make_trace(RIGHT), ranks)
    assert causes(found)[0] == "mean_of_means"
    assert "Weighted with 30, 10" in found.paragraph("en")
    for one in ranks:
        arrays: Any = one.trace.arrays
        del arrays[array_key("weight", 1, "losses")]
    found = compare(make_trace(RIGHT), ranks)
    assert causes(found)[0] == "mean_of_means"
    assert "Weighted with 0.75, 0.25" in found.paragraph("en")


def test_gradients_that_are_not_exchanged() -> None:
    halves = np.split(X, 2)
    traces = [make_trace(g, x=half, local=[g]) for g, half in zip(LOCAL, halves, strict=True)]
    found = compare(make_trace(MEAN), record(traces))
    assert causes(found)[0] == "not_reduced"
    assert "do not have the same weights after step 1" in found.paragraph("en")


def test_ranks_with_other_weights_are_never_equal() -> None:
    halves = np.split(X, 2)
    gradients = [MEAN, times(3.0)]
    traces = [make_trace(g, x=half) for g, half in zip(gradients, halves, strict=True)]
    found = compare(make_trace(MEAN), record(traces))
    assert (found.verdict, found.reason) == ("different", "ranks_apart")
    assert "rank 1 is" in found.paragraph("en")


def test_the_last_micro_batch_alone() -> None:
    halves = np.split(X, 2)
    passes = [(LOCAL[0], LOCAL[1]), (times(-1.0, LOCAL[1]), times(2.0, LOCAL[0]))]
    last = mean_of([own[1] for own in passes])
    right = mean_of([mean_of(own) for own in passes])
    traces = [make_trace(last, x=x, local=own) for x, own in zip(halves, passes, strict=True)]
    assert causes(compare(make_trace(right), record(traces)))[0] == "last_micro_batch"


def test_clipping_before_the_exchange_and_by_a_rank_s_own_norm() -> None:
    norm = 0.5
    early = mean_of([clip(g, norm) for g in LOCAL])
    found = compare(make_trace(clip(MEAN, norm)), data_parallel(early))
    assert causes(found)[0] == "clipped_before_reduction"
    shards = [
        clip({name: np.split(g, 2)[rank] for name, g in MEAN.items()}, norm) for rank in range(2)
    ]
    own = [{name: np.concatenate([g, g]) for name, g in one.items()} for one in shards]
    found = compare(make_trace(clip(MEAN, norm)), fully_sharded(own))
    assert causes(found)[0] == "clipped_by_own_norm"
    found = compare(make_trace(MEAN), data_parallel(clip(MEAN, norm)))
    assert causes(found)[0] == "clipped_norm"


def test_a_bias_that_every_rank_adds() -> None:
    y = X @ WEIGHTS["fc.weight"].T
    once, twice = y + WEIGHTS["fc.bias"], y + 2 * WEIGHTS["fc.bias"]
    one = make_trace(MEAN, outputs={"fc": once, "(output)": once})
    traces = [make_trace(MEAN, outputs={"fc": twice, "(output)": twice}) for _ in range(2)]
    assert causes(compare(one, record(traces)))[0] == "bias_per_rank"


def test_statistics_of_each_rank_s_part() -> None:
    halves = np.split(X, 2)
    means = [0.1 * half.mean(0) for half in halves]

    def normalise(x: Any, mean: Any) -> Trace:
        y = ((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)).astype(np.float32)
        variance = (0.9 + 0.1 * x.var(0, ddof=1)).astype(np.float32)
        buffers = {"bn.running_mean": mean, "bn.running_var": variance}
        start = {"bn.weight": np.ones(3, np.float32), "bn.bias": np.zeros(3, np.float32)}
        made = make_trace(
            dict.fromkeys(start, np.ones(3, np.float32)),
            x=x,
            start=start,
            outputs={"bn": y, "(output)": y},
            buffers={k: v.astype(np.float32) for k, v in buffers.items()},
        )
        arrays: Any = made.arrays
        arrays[array_key("parameters", 0, "bn.running_var")] = np.ones(3, np.float32)
        return made

    ranks = record([normalise(x, mean) for x, mean in zip(halves, means, strict=True)])
    found = compare(normalise(X, 0.1 * X.mean(0)), ranks)
    assert causes(found)[0] == "statistics_per_rank"
    assert "the outputs of 1 are predicted" in found.paragraph("en")


@pytest.mark.parametrize(
    ("rates", "others", "cause"),
    [
        ((0.1, 0.2, 0.3, 0.4), (0.1, 0.3, 0.5, 0.7), "stepped_per_process"),
        ((0.1, 0.2, 0.3, 0.4), (0.1, 0.4, 0.7, 1.0), "stepped_too_often"),
        ((0.1, 0.2, 0.3, 0.4), (0.2, 0.3, 0.4, 0.5), "rate_times_ranks"),
        ((0.1, 0.2, 0.4, 0.5), (0.1, 0.1, 0.1, 0.1), "never_stepped"),
        ((0.1, 0.2, 0.3), (0.1, 0.17, 0.31), "other_rates"),
    ],
)
def test_schedules(rates: Sequence[float], others: Sequence[float], cause: str) -> None:
    found = compare(make_trace(MEAN, rates=rates), data_parallel(MEAN, rates=others))
    if cause == "rate_times_ranks":  # one step ahead; times two is true of the first step alone
        cause = "stepped_first"
    assert causes(found)[0] == cause
    assert "updates that differ" in found.paragraph("en")


def test_a_rate_that_grows_with_the_ranks() -> None:
    found = compare(make_trace(MEAN), data_parallel(MEAN, rates=(2 * RATE,)))
    assert causes(found)[0] == "rate_times_ranks"


def test_a_schedule_beyond_what_was_recorded() -> None:
    assert find_speed([0.125, 0.25, 0.375, 0.5], [0.125, 0.625, 1.0, 1.0]) == 4
    assert find_speed([0.5, 0.25, 0.2], [0.5, 0.1, 0.1]) is None


def write(folder: Path, ranks: Sequence[RankRecording]) -> str:
    for one in ranks:
        one.trace.write(rank_folder(folder, one.facts.rank))
        FACTS.write(rank_folder(folder, one.facts.rank), one.facts)
    return str(folder)


def with_inputs(ranks: Sequence[RankRecording], inputs: list[list[str]]) -> list[RankRecording]:
    return [replace(one, trace=replace(one.trace, inputs=inputs)) for one in ranks]


def test_refusals_name_the_mistake(tmp_path: Path) -> None:
    one = make_trace(MEAN, rates=(0.1, 0.1))
    one.inputs = [["p"], ["q"]]
    one.write(tmp_path / "one")
    ranks = data_parallel(MEAN, rates=(0.1, 0.1))
    again = write(tmp_path / "again", with_inputs(ranks, [["p"], ["p"]]))
    with pytest.raises(UserError, match=r"batch of step 1 again.*set_epoch"):
        compare_traces(tmp_path / "one", again)
    same = write(tmp_path / "same", with_inputs(ranks, [["r"], ["s"]]))
    with pytest.raises(UserError, match="All 2 ranks of torch B train on the same batch"):
        compare_traces(tmp_path / "one", same)
    other = write(tmp_path / "other", ranks)
    with pytest.raises(UserError, match="torch A has 1 ranks and torch B has 2"):
        compare_traces(tmp_path / "one", other)
    plain = make_trace(MEAN)
    plain.write(tmp_path / "plain")
    seeded = {**WEIGHTS, "fc.bias": WEIGHTS["fc.bias"] + 1}
    starts = [{n: np.split(w, 2)[r] for n, w in s.items()} for r, s in enumerate((WEIGHTS, seeded))]
    wrong = fully_sharded([MEAN, MEAN])
    for ranked, start in zip(wrong, starts, strict=True):
        arrays: Any = ranked.trace.arrays
        arrays |= {array_key("parameters", 0, n): w for n, w in start.items()}
    seeds = write(tmp_path / "seeds", wrong)
    with pytest.raises(UserError, match=r"Rank 0 of torch B .* than rank 1"):
        compare_traces(tmp_path / "plain", seeds)


def test_every_hypothesis_has_sentences() -> None:
    for lang in ("en", "zh"):
        known = section_messages(lang, "models")
        assert {f"note.ranks_{one.key}" for one in HYPOTHESES} <= known.keys()
