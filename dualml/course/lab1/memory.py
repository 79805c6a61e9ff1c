"""State of the parameters of several optimizers, also where mistakes share it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from dualml.course.exercise import Flags
from dualml.course.lab1.rules import State


@dataclass
class Memory:
    """State of all parameters of all optimizers, and counts of their updates.

    Attributes:
        states: key of a state (`Walk.state_key`) and row, -1 for all rows → state.
        counts: key of a count → number of updates.
    """

    states: defaultdict[Any, State] = field(default_factory=lambda: defaultdict(dict))
    counts: Counter[Any] = field(default_factory=Counter)


def share_moments(state: State, common: State, f: Flags) -> None:
    """Put into a state one of the moments of the same parameter of another optimizer, ``common``,
    as the typical mistakes named in ``f`` share it in an attribute of the class."""
    shared = {"state_of_class#9": "m", "state_of_class#10": "v"}
    for flag, moment in shared.items():
        if flag in f and moment in common:
            state[moment] = common[moment]
