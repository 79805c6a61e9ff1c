"""What a layer can do instead: the one whose output is first out of the rule, computed otherwise.

What goes into it is what the referee has: everything before it agrees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dualml.finder.causes import decoders as decoders  # its layers are registered
from dualml.finder.causes.base import Arrays, Guess, Predict, Suspect, fit, narrow
from dualml.finder.causes.layers import Change, again, alternatives
from dualml.finder.scene import Place
from dualml.model.layers import Dropout


def guesses(suspect: Suspect) -> Iterator[Guess]:
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
    places = suspect.scene.places(step, suspect.scene.batch(step))
    return next(place for place in places if place.name == suspect.tensor)


def first_of(suspect: Suspect, predict: Predict) -> Predict:
    """Without the layers after it."""
    return lambda step, rank: {suspect.tensor: predict(step, rank)[suspect.tensor]}


def only(suspect: Suspect, change: Change) -> Predict:
    """The output of the first layer that is off: those after it follow from it."""

    def predict(step: int, rank: int) -> Arrays:
        try:
            with np.errstate(all="ignore"):
                return {suspect.tensor: change(place_of(suspect, step))}
        except ValueError:  # shapes for which this change makes no sense
            return {}

    return predict


def stale(suspect: Suspect) -> Iterator[Guess]:
    """The layer with the weights it had before the last update, or at the start."""
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
    """The output times a number."""
    pairs = [(seen, right) for _, name, seen, right in suspect.pairs() if name == suspect.tensor]
    if len(pairs) == len(suspect.looks):
        factor = fit(pairs)
        change = only(suspect, lambda place: factor * place.output)
        yield Guess("scaled-output", change, {"factor": factor}, free=1)


def dropped(suspect: Suspect) -> Predict:
    """Dropout where there should be none: zeros, and the rest larger."""

    def predict(step: int, rank: int) -> Arrays:
        place, seen = place_of(suspect, step), suspect.seen(step, rank)[suspect.tensor]
        if seen.shape != place.output.shape:
            return {}
        kept = seen != 0
        share = float(kept.mean()) or 1.0
        return {place.name: np.where(kept, place.value / share, 0.0)}

    return predict
