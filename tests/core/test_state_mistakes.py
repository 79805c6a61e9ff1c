"""Known mistakes with what a step leaves behind are recognised from two traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from rank_traces import WEIGHTS, X

from dualml.common.words import LANGUAGES
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.judge import JudgingSettings, judge_traces
from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import Trace, array_key, hash_array
from dualml.parity.ranks.explaining import explain_comparison

DRAW = np.random.default_rng(11)
STEPS = 5
GRADIENTS = [
    {name: DRAW.normal(size=w.shape).astype(np.float32) for name, w in WEIGHTS.items()}
    for _ in range(STEPS)
]
RATES = (0.1, 0.1, 0.1, 0.02, 0.02)
Arrays = dict[str, Any]


class Script:
    """A script that trains a layer by hand, with a batch norm's statistics and an average.

    Each mistake overrides one method.
    """

    momentum, share, keeps_momentum = 0.9, 0.05, True

    def __init__(self) -> None:
        self.weights = {name: w.astype(np.float64) for name, w in WEIGHTS.items()}
        self.average = {name: w.copy() for name, w in self.weights.items()}
        self.buffers = {"norm.running_mean": np.zeros(3), "norm.running_var": np.ones(3)}
        self.velocity = {name: np.zeros_like(w) for name, w in self.weights.items()}

    def gradient(self, step: int, name: str) -> Any:
        return GRADIENTS[step - 1][name]

    def update(self, step: int, name: str, g: Any) -> None:
        if g is None:
            return
        self.velocity[name] = self.momentum * self.velocity[name] + g
        self.weights[name] = self.weights[name] - RATES[step - 1] * self.velocity[name]

    def follow(self) -> None:
        for name, w in self.weights.items():
            self.average[name] += self.share * (w - self.average[name])

    def watch(self, step: int) -> None:
        seen = {"norm.running_mean": X.mean(0) + step, "norm.running_var": X.var(0) + step}
        for name, value in seen.items():
            self.buffers[name] = self.buffers[name] + 0.1 * (value - self.buffers[name])

    def step(self, step: int) -> Arrays:
        self.watch(step)
        found = {name: self.gradient(step, name) for name in self.weights}
        for name, g in found.items():
            self.update(step, name, g)
        self.follow()
        return found

    def record(self) -> Trace:
        """Return the trace of all steps."""
        copies = {f"average.{name}": w for name, w in self.average.items()}
        start = {**self.weights, **copies, **self.buffers}
        tensors = [Tensor(n, w.shape, trained=n in self.weights) for n, w in start.items()]
        made = Trace("torch", {"device": "cpu"}, tensors, {"fc": "Linear"}, steps=STEPS)
        made.inputs = [[hash_array(X)]] * STEPS
        arrays: Arrays = {}
        made.arrays = arrays

        def put(phase: str, step: int, name: str, value: Any) -> None:
            arrays[array_key(phase, step, name)] = np.asarray(value, np.float32)

        for name, w in start.items():
            put("parameters", 0, name, w)
        for step in range(1, STEPS + 1):
            made.order.append([])
            for name, g in self.step(step).items():
                if g is not None:
                    put("gradient", step, name, g)
                put("update", step, name, self.weights[name])
                if self.keeps_momentum:
                    put("state", step, f"momentum/{name}", self.velocity[name])
            for name, value in self.buffers.items():
                put("state", step, f"buffer/{name}", value)
            for name, value in self.average.items():
                put("state", step, f"buffer/average.{name}", value)
        return made


class NeverWatched(Script):
    def watch(self, step: int) -> None:
        return


class WatchedTwice(Script):
    def watch(self, step: int) -> None:
        super().watch(step)
        super().watch(step)


class FollowedPerMicroBatch(Script):
    def update(self, step: int, name: str, g: Any) -> None:
        if name == next(iter(self.weights)):
            for _ in range(3):
                self.follow()
        super().update(step, name, g)


class FollowedFourTimes(Script):
    def follow(self) -> None:
        for _ in range(4):
            super().follow()


class Trained(Script):
    """A script whose optimizer has made steps before."""

    def __init__(self) -> None:
        super().__init__()
        draw = np.random.default_rng(3)
        self.velocity = {name: draw.normal(size=w.shape) for name, w in self.weights.items()}


class ByHand(Script):
    """A script whose momentum is in no optimizer, so that nobody records it."""

    keeps_momentum = False


class RateInside(ByHand):
    def update(self, step: int, name: str, g: Any) -> None:
        self.velocity[name] = self.momentum * self.velocity[name] + RATES[step - 1] * g
        self.weights[name] = self.weights[name] - self.velocity[name]


class OtherDecay(Script):
    share = 0.6


class Unused(Script):
    """A script in which the bias has no gradient in the second step."""

    def gradient(self, step: int, name: str) -> Any:
        return None if (step, name) == (2, "fc.bias") else super().gradient(step, name)


class UnusedZero(Unused):
    def gradient(self, step: int, name: str) -> Any:
        found = super().gradient(step, name)
        return np.zeros_like(self.weights[name]) if found is None else found


CASES: Mapping[str, tuple[type[Script], type[Script], str, Any]] = {
    "a buffer that is never updated": (Script, NeverWatched, "buffers_never_change", 2),
    "statistics updated twice": (Script, WatchedTwice, "statistics_updated_twice", 2),
    "an average per micro-batch": (Script, FollowedPerMicroBatch, "average_followed_often", 4),
    "an average four times": (Script, FollowedFourTimes, "average_followed_often", 4),
    "a fresh optimizer": (Trained, Script, "optimizer_begins_anew", None),
    "zeros for no gradient": (Unused, UnusedZero, "updated_without_gradient", 1),
    "the rate inside of momentum": (ByHand, RateInside, "rate_in_momentum", None),
}


def compare(one: type[Script], other: type[Script]) -> ModelComparison:
    a, b = one().record(), other().record()
    judged = judge_traces(a, b, JudgingSettings(sides=("one", "other")))
    return explain_comparison(judged, (a, b), ([], []))


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_named_first_on_the_side_that_has_it(name: str) -> None:
    right, wrong, key, count = CASES[name]
    for sides in ((right, wrong), (wrong, right)):
        found = compare(*sides)
        assert found.verdict == "different"
        assert found.notes, found.paragraph()
        first = found.notes[0]
        assert first.key == f"ranks_{key}", found.paragraph()
        assert first.values["suspect"] == ("other" if sides[1] is wrong else "one")
        assert count is None or first.values["n"] == count
        for lang in LANGUAGES:
            assert "{" not in found.paragraph(lang)


def test_averages_of_two_decays_are_named_with_both() -> None:
    for sides in ((Script, OtherDecay), (OtherDecay, Script)):
        first = compare(*sides).notes[0]
        assert first.key == "ranks_average_of_other_decay"
        decays = {first.values["decay"], first.values["other"]}
        assert decays == {"0.95", "0.4"}


@pytest.mark.parametrize("kind", [Script, Trained, Unused])
def test_equal_scripts_have_no_cause(kind: type[Script]) -> None:
    found = compare(kind, kind)
    assert found.equal
    assert not [note for note in found.notes if note.key.startswith("ranks_")]


def test_other_differences_are_not_taken_for_these() -> None:
    class Otherwise(Script):
        def watch(self, step: int) -> None:
            self.buffers = {name: DRAW.normal(size=3) for name in self.buffers}

        def follow(self) -> None:
            self.average = {name: w + DRAW.normal(size=w.shape) for name, w in self.weights.items()}

        def update(self, step: int, name: str, g: Any) -> None:
            self.weights[name] = self.weights[name] - DRAW.normal(size=g.shape)

    found = compare(Script, Otherwise)
    assert found.verdict == "different"
    assert not [note for note in found.notes if note.key.startswith("ranks_")]
