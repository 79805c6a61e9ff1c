"""Hypotheses about the layer whose output deviates first.

The layer is recomputed differently from the reference's input, because everything before it agrees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dualml.algorithms.model.layers import Dropout

# Imported to register their layers.
from dualml.parity.finder.causes import decoders as decoders
from dualml.parity.finder.causes import sequences as sequences
from dualml.parity.finder.causes.base import (
    Arrays,
    Hypothesis,
    Observation,
    Predict,
    fit_factor,
    half_precision_tensors,
)
from dualml.parity.finder.causes.layers import Change, alternatives, recompute_layer
from dualml.parity.finder.context import LayerIO


def hypotheses(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses about the layer whose output deviates first; none if the tensor is not a
    layer's."""
    layer = dict(suspect.scene.recipe.spec.layers).get(suspect.tensor)
    if layer is None:
        return
    for cause, change, detail in alternatives(layer):
        yield Hypothesis(cause, predict_layer(suspect, change), detail)
    yield from stale_weights(suspect)
    yield from scaled_output(suspect)
    for guess in half_precision_tensors(suspect):
        yield replace(guess, predict=keep_first_layer(suspect, guess.predict))
    if isinstance(layer, Dropout):
        yield Hypothesis(
            "train-mode", predict_dropout(suspect), {"layer": suspect.tensor}, fitted_count=1
        )


def layer_io_at(suspect: Observation, step: int) -> LayerIO:
    """Return the deviating layer's input and output in the reference, for the whole batch of an
    update."""
    places = suspect.scene.layer_io(step, suspect.scene.batch_indices(step))
    return next(place for place in places if place.name == suspect.tensor)


def keep_first_layer(suspect: Observation, predict: Predict) -> Predict:
    """Return the prediction, a function of (update, rank), restricted to the output of the first
    deviating layer."""
    return lambda step, rank: {suspect.tensor: predict(step, rank)[suspect.tensor]}


def predict_layer(suspect: Observation, change: Change) -> Predict:
    """Return a function of (update, rank) that predicts the deviating layer's output alone, as the
    layers after it follow from it; it gives no tensor where the change does not fit the shapes."""

    def predict(step: int, rank: int) -> Arrays:
        try:
            with np.errstate(all="ignore"):
                return {suspect.tensor: change(layer_io_at(suspect, step))}
        except ValueError:  # the change does not fit these shapes
            return {}

    return predict


def stale_weights(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypothesis that the layer uses the weights from before the last update, or the
    initial ones."""
    scene = suspect.scene

    def predict(step: int, old: int) -> Arrays:
        place = layer_io_at(suspect, step)
        if old not in scene.states or old == step or not place.parameters:
            return {}
        before = scene.weights(old)
        own = {leaf: before[f"{place.name}.{leaf}"] for leaf in place.parameters}
        return {place.name: recompute_layer(place, **own)}

    earlier: dict[str, Any] = {
        "the update before": lambda step, rank: predict(step, step - 1),
        "the start": lambda step, rank: predict(step, min(scene.states)),
    }
    for name, guess in earlier.items():
        yield Hypothesis("stale-parameters", guess, {"of": name})


def scaled_output(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypothesis that the output is multiplied by a fitted number; nothing if it has
    another shape."""
    pairs = [
        (seen, right)
        for _, name, seen, right in suspect.comparable_tensors()
        if name == suspect.tensor
    ]
    if len(pairs) == len(suspect.violations):
        factor = fit_factor(pairs)
        change = predict_layer(suspect, lambda place: factor * place.output)
        yield Hypothesis("scaled-output", change, {"factor": factor}, fitted_count=1)


def predict_dropout(suspect: Observation) -> Predict:
    """Return a function of (update, rank) that predicts a dropout layer's output with dropout where
    there should be none: zeros as recorded, the rest of the input divided by the share kept."""

    def predict(step: int, rank: int) -> Arrays:
        place, seen = layer_io_at(suspect, step), suspect.recorded(step, rank)[suspect.tensor]
        if seen.shape != place.output.shape:
            return {}
        kept = seen != 0
        share = float(kept.mean()) or 1.0
        return {place.name: np.where(kept, place.value / share, 0.0)}

    return predict
