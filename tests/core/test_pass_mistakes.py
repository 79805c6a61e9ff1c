"""Mistakes with several backward passes of one process are recognised from two traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rank_traces import WEIGHTS, X, make_trace, mean_of

from dualml.common.words import LANGUAGES
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.judge import JudgingSettings, judge_traces
from dualml.parity.models.trace import Trace
from dualml.parity.ranks.backward_passes import BackwardPasses
from dualml.parity.ranks.explaining import explain_comparison
from dualml.parity.ranks.hypotheses import HYPOTHESES

DRAW = np.random.default_rng(23)
PARTS = 3
#: Gradients of the mean loss of each micro-batch.
PASSES: list[dict[str, Any]] = [
    {name: DRAW.normal(size=w.shape).astype(np.float32) for name, w in WEIGHTS.items()}
    for _ in range(PARTS)
]
ROWS = (4, 3, 1)
EVEN = mean_of(PASSES, [1.0] * PARTS)


def add(gradients: Sequence[Any], weights: Sequence[float] | None = None) -> dict[str, Any]:
    """Return the weighted sum of gradients by name."""
    weights = weights or [1.0] * len(gradients)
    return {
        name: sum(
            np.float32(w) * one[name] for w, one in zip(weights, gradients, strict=True)
        ).astype(np.float32)
        for name in WEIGHTS
    }


def accumulate(
    gradients: Any, local: Sequence[Any] = PASSES, parts: int = PARTS, rows: Any = None
) -> Trace:
    """Return a trace in which the model is called for each micro-batch."""
    cuts = np.cumsum(rows)[:-1] if rows else parts
    outputs = {}
    for number, x in enumerate(np.array_split(X, cuts), 1):
        outputs["(output)" + (f"#{number}" if number > 1 else "")] = x
    return make_trace(gradients, local=local, outputs=outputs)


def compare(one: Trace, other: Trace) -> ModelComparison:
    judged = judge_traces(one, other, JudgingSettings(sides=("one", "other")))
    return explain_comparison(judged, (one, other), ([], []))


def first_cause(found: ModelComparison) -> tuple[str, Any]:
    assert found.verdict == "different"
    assert found.notes, found.paragraph()
    for lang in LANGUAGES:
        assert "{" not in found.paragraph(lang)
    return found.notes[0].key.removeprefix("ranks_"), found.notes[0].values


@pytest.mark.parametrize("swapped", [False, True])
def test_the_last_micro_batch_of_one_process(swapped: bool) -> None:
    traces = [accumulate(EVEN), accumulate(PASSES[-1])]
    key, values = first_cause(compare(*(traces[::-1] if swapped else traces)))
    assert (key, values["n"]) == ("last_micro_batch", PARTS)
    assert values["suspect"] == ("one" if swapped else "other")


def test_two_of_three_micro_batches() -> None:
    found = compare(accumulate(EVEN), accumulate(add(PASSES[:2])))
    key, values = first_cause(found)
    assert (key, values["count"], values["numbers"]) == ("some_micro_batches", 2, "1, 2")


@pytest.mark.parametrize("swapped", [False, True])
def test_a_mean_of_means_of_unequal_micro_batches(swapped: bool) -> None:
    """Both sides add up what they have; the numbers of samples tell which side is wrong."""
    right = [add([one], [n / 8]) for one, n in zip(PASSES, ROWS, strict=True)]
    wrong = [add([one], [1 / PARTS]) for one in PASSES]
    traces = [accumulate(add(one), one, rows=ROWS) for one in (right, wrong)]
    key, values = first_cause(compare(*(traces[::-1] if swapped else traces)))
    assert (key, values["weights"]) == ("mean_of_means", "4, 3, 1")
    assert values["suspect"] == ("one" if swapped else "other")


def test_a_loss_that_one_side_does_not_divide() -> None:
    parts = [add([one], [1 / PARTS]) for one in PASSES]
    found = compare(accumulate(add(parts), parts), accumulate(add(PASSES)))
    assert first_cause(found)[0] == "summed_micro_batches"


def test_an_auxiliary_loss_with_its_own_backward_pass_is_not_divided() -> None:
    aux = [
        {name: DRAW.normal(size=w.shape).astype(np.float32) for name, w in WEIGHTS.items()}
        for _ in range(2)
    ]
    halves = [add([one], [0.5]) for one in PASSES[:2]]
    local = [halves[0], aux[0], halves[1], aux[1]]
    right = add(local, [1.0, 0.5, 1.0, 0.5])
    found = compare(accumulate(right, [], 2), accumulate(add(local), local, 2))
    key, values = first_cause(found)
    assert (key, values["part"], values["each"]) == ("part_undivided", 2, 2)


def test_gradients_that_are_never_cleared() -> None:
    one, other = (make_trace(EVEN, rates=(0.1, 0.1)) for _ in range(2))
    arrays: Any = other.arrays
    for name, value in EVEN.items():
        arrays[f"gradient/00000002/{name}"] = value + value
    found = compare(one, other)
    # Twice the gradient could also be a factor, but this explains as much and says more.
    assert first_cause(found)[0] == "never_cleared"


def test_the_backward_pass_of_another_loss_is_kept() -> None:
    right = make_trace(PASSES[1], local=PASSES[:2])
    wrong = make_trace(add(PASSES[:2]), local=PASSES[:2])
    for traces in ((right, wrong), (wrong, right)):
        key, values = first_cause(compare(*traces))
        assert key == "other_pass_kept"
        assert values["suspect"] == ("other" if traces[1] is wrong else "one")


def test_a_right_accumulation_has_no_cause() -> None:
    known = {f"ranks_{one.key}" for one in HYPOTHESES}
    found = compare(make_trace(EVEN, outputs={"(output)": X}), accumulate(EVEN, parts=1))
    assert found.equal
    strange = {name: np.flip(g).copy() for name, g in EVEN.items()}
    for other in (accumulate(strange), make_trace(strange)):
        assert not known & {note.key for note in compare(accumulate(EVEN), other).notes}


def collect(passes: Sequence[Any], update: Any, **options: Any) -> dict[str, Any]:
    """Return what is recorded of backward passes and of the gradient of an update."""
    noted: dict[str, Any] = {}
    sizes = {name: w.size for name, w in WEIGHTS.items()}
    taken = BackwardPasses(noted.__setitem__, sizes, **{"keeps_all": False, **options})
    for one in passes:
        for name, g in one.items():
            taken.add(name, g, g.copy)
    for name, g in update.items():
        taken.finish(name, lambda g=g: g)
    return noted


def test_a_lone_pass_is_recorded_only_if_the_update_has_another_gradient() -> None:
    assert collect(PASSES[:1], PASSES[0]) == {}
    assert set(collect(PASSES[:1], EVEN)) == {"local/fc.weight", "local/fc.bias"}
    assert set(collect(PASSES[:1], PASSES[0], keeps_all=True)) == {f"local/{n}" for n in WEIGHTS}
    several = collect(PASSES, EVEN)
    tails = ("", "#2", "#3")
    assert set(several) == {f"local/{name}{tail}" for name in WEIGHTS for tail in tails}


def test_passes_of_large_models_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dualml.parity.ranks.backward_passes.MAX_ELEMENTS_OF_EACH", 4)
    assert set(collect(PASSES[:2], EVEN)) == {"local/fc.bias", "local/fc.bias#2"}
    monkeypatch.setattr("dualml.parity.ranks.backward_passes.MAX_ELEMENTS", 8)
    assert collect(PASSES[:2], EVEN) == {}
