"""What could be behind a difference: for each phase a file of guesses.

A guess is an altered referee: it says what the tensors would be if this were the cause. Its score
is the share of the difference that it takes away, so nothing is guessed from names.
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
