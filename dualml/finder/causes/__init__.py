"""What could be behind a difference: for each phase a file of guesses.

A guess is an altered referee: it says what the tensors would be if this were the cause. Its score
is the share of the difference that it takes away, so nothing is guessed from names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import dualml.finder.causes.aggregation as aggregation
import dualml.finder.causes.data as data
import dualml.finder.causes.forward as forward
import dualml.finder.causes.gradient as gradient
import dualml.finder.causes.loss as loss
import dualml.finder.causes.update as update
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
