"""Hypotheses about the cause of a difference, with one module per phase.

A hypothesis is a modified reference: it predicts what the tensors would be if this were the cause.
Its score is the share of the difference that it explains, so names are never used as evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dualml.finder.causes import aggregation, data, forward, gradient, loss, update
from dualml.finder.causes.base import Guess, Suspect

GUESSES: dict[str, Callable[[Suspect], Iterator[Guess]]] = {
    "data": data.guesses,
    "forward": forward.guesses,
    "loss": loss.guesses,
    "gradient": gradient.guesses,
    "aggregation": aggregation.guesses,
    "update": update.guesses,
    "state": update.guesses,
}

__all__ = ["GUESSES", "Guess", "Suspect"]
