"""Hypotheses about the cause of a difference, with one module per phase.

A hypothesis is a modified reference: it predicts what the tensors would be if this were the cause.
Its score is the share of the difference that it explains, so names are never used as evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from dualml.parity.finder.causes import aggregation, data, forward, gradient, loss, update
from dualml.parity.finder.causes.base import Hypothesis, Observation
from dualml.parity.finder.causes.lines import line_changes


def updates(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses about an update: known mistakes, then changes of the rule's lines."""
    yield from update.hypotheses(suspect)
    yield from line_changes(suspect)


GUESSES: dict[str, Callable[[Observation], Iterator[Hypothesis]]] = {
    "data": data.hypotheses,
    "forward": forward.hypotheses,
    "loss": loss.hypotheses,
    "gradient": gradient.hypotheses,
    "aggregation": aggregation.hypotheses,
    "update": updates,
    "state": updates,
}

#: Phase → hypotheses that take longer, for what none of the others explains.
LAST_GUESSES: dict[str, Callable[[Observation], Iterator[Hypothesis]]] = {
    "update": partial(line_changes, twice=True),
    "state": partial(line_changes, twice=True),
}

__all__ = ["GUESSES", "LAST_GUESSES", "Hypothesis", "Observation"]
