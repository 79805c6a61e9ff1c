"""Hypotheses about the cause of a difference, with one module per phase.

A hypothesis is a modified reference: it predicts what the tensors would be if this were the cause.
Its score is the share of the difference that it explains, so names are never used as evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dualml.parity.finder.causes import aggregation, data, forward, gradient, loss, update
from dualml.parity.finder.causes.base import Hypothesis, Observation

GUESSES: dict[str, Callable[[Observation], Iterator[Hypothesis]]] = {
    "data": data.hypotheses,
    "forward": forward.hypotheses,
    "loss": loss.hypotheses,
    "gradient": gradient.hypotheses,
    "aggregation": aggregation.hypotheses,
    "update": update.hypotheses,
    "state": update.hypotheses,
}

__all__ = ["GUESSES", "Hypothesis", "Observation"]
