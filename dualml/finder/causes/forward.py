"""Hypotheses about the layer whose output deviates first.

The layer is recomputed differently from the reference's input, because everything before it agrees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dualml.finder.causes import decoders as decoders  # imported to register its layers
from dualml.finder.causes.base import Arrays, Guess, Predict, Suspect, fit, narrow
from dualml.finder.causes.layers import Change, again, alternatives
from dualml.finder.scene import Place
from dualml.model.layers import Dropout


def guesses(suspect: Suspect) -> Iterator[Guess]:
    """Yield the hypotheses about the layer whose output deviates first."""
    layer = dict(suspect.scene.recipe.spec.layers).get(suspect.tensor)
    if layer is None:
        return
    for cause, change, detail in alternatives(layer):
        yield Guess(cause, only(suspect, change), detail)
    yield from stale(suspect)
    yield from resized(suspect)
    for guess in narrow(suspect):
        yield replace(guess, predict=first_of(suspect, guess.predict))
    if isinstance(layer, Dropout):
        yield Guess("train-mode", dropped(suspect), {"layer": suspect.tensor}, free=1)


def place_of(suspect: Suspect, step: int) -> Place:
    """Return input and output of the deviating layer in an update."""
    places = suspect.scene.places(step, suspect.scene.batch(step))
    return next(place for place in places if place.name == suspect.tensor)


def first_of(suspect: Suspect, predict: Predict) -> Predict:
    """Restrict a prediction to the first deviating layer."""
    return lambda step, rank: {suspect.tensor: predict(step, rank)[suspect.tensor]}


def only(suspect: Suspect, change: Change) -> Predict:
    """Return the prediction of the deviating layer's output; the layers after it follow from it."""

    def predict(step: int, rank: int) -> Arrays:
        try:
            with np.errstate(all="ignore"):
                return {suspect.tensor: change(place_of(suspect, step))}
        except ValueError:  # the change does not fit these shapes
            return {}

    return predict


def stale(suspect: Suspect) -> Iterator[Guess]:
    """Hypothesis: the layer uses the weights from before the last update, or the initial ones."""
    scene = suspect.scene

    def predict(step: int, old: int) -> Arrays:
        place = place_of(suspect, step)
        if old not in scene.states or old == step or not place.own:
            return {}
        before = scene.weights(old)
        own = {leaf: before[f"{place.name}.{leaf}"] for leaf in place.own}
        return {place.name: again(place, **own)}

    earlier: dict[str, Any] = {
        "the update before": lambda step, rank: predict(step, step - 1),
        "the start": lambda step, rank: predict(step, min(scene.states)),
    }
    for name, guess in earlier.items():
        yield Guess("stale-parameters", guess, {"of": name})


def resized(suspect: Suspect) -> Iterator[Guess]:
    """Hypothesis: the output is multiplied by a fitted number."""
    pairs = [(seen, right) for _, name, seen, right in suspect.pairs() if name == suspect.tensor]
    if len(pairs) == len(suspect.looks):
        factor = fit(pairs)
        change = only(suspect, lambda place: factor * place.output)
        yield Guess("scaled-output", change, {"factor": factor}, free=1)


def dropped(suspect: Suspect) -> Predict:
    """Return the prediction with dropout applied wrongly: zeros as recorded, and the rest scaled
    up."""

    def predict(step: int, rank: int) -> Arrays:
        place, seen = place_of(suspect, step), suspect.seen(step, rank)[suspect.tensor]
        if seen.shape != place.output.shape:
            return {}
        kept = seen != 0
        share = float(kept.mean()) or 1.0
        return {place.name: np.where(kept, place.value / share, 0.0)}

    return predict
