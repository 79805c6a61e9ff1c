"""What the ranks of a student have handed to the communicator, counted where they cannot reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.collectives import EXCHANGE, Ask

#: Kind of call → the collectives that its exercise has, where the call does not say so itself.
ALLOWED: dict[str, tuple[str, ...]] = {
    "ring": (EXCHANGE,),
    "stages": (EXCHANGE,),
    "layer": ("all_reduce", "all_gather", "broadcast"),
    "zero": ("reduce_scatter", "all_gather", "all_reduce", "broadcast"),
    "measured": ("all_reduce", "barrier"),
}
#: Marks that a rank may set in a call.
MOST_MARKS = 64


class Tally:
    """Counts of one call.

    Args:
        allowed: collectives that the exercise has; all where none is named.
    """

    def __init__(self, allowed: Sequence[str]) -> None:
        self.allowed = tuple(allowed)
        #: Rank → name of each part of the call → collective → elements of each of its calls.
        self.parts: dict[int, list[tuple[str, dict[str, list[int]]]]] = {}
        self.messages: dict[int, list[int]] = {}

    def allow(self, name: str) -> None:
        """Refuse a collective that the exercise does not have (`ValueError`)."""
        if self.allowed and name not in self.allowed:
            raise ValueError(f"comm has no {name!r} in this exercise")

    def note(self, rank: int, ask: Ask) -> None:
        """Count what a rank has handed over."""
        if ask.name == EXCHANGE:
            self.messages.setdefault(rank, []).extend(int(x.size) for x in ask.sends.values())
        counts = self.parts.setdefault(rank, [("", {})])[-1][1]
        counts.setdefault(ask.name, []).append(ask.elements)

    def mark(self, rank: int, name: str) -> None:
        """Let a new part of the call begin; what was counted before is called ``name``."""
        parts = self.parts.setdefault(rank, [("", {})])
        if len(parts) > MOST_MARKS:
            raise ValueError("more marks than a call has parts")
        parts[-1] = name, parts[-1][1]
        parts.append(("", {}))

    def arrays(self, kind: str, rank: int) -> dict[str, Any]:
        """What the answer to a call of this kind says of traffic; nothing of it comes from the
        student's process.

        ``aggregate``, ``zero``: ``sent/NAME``, elements of each call of a collective, of the last
        part. ``ring``: ``messages``, ``elements``. ``layer``: ``forward``, ``backward``, elements
        of the all-reduces of either part.
        """
        parts = self.parts.get(rank, [("", {})])
        if kind == "ring":
            sent = self.messages.get(rank, [])
            return {"messages": np.array(len(sent)), "elements": np.array(sum(sent))}
        if kind == "layer":
            named = {"forward": parts[0][1], "backward": parts[1][1] if len(parts) > 1 else {}}
            return {n: np.array(c.get("all_reduce", []), np.int64) for n, c in named.items()}
        if kind in ("aggregate", "zero"):
            last = parts[-1][1]
            return {f"sent/{n}": np.array(last.get(n, []), np.int64) for n in self.allowed}
        return {}


def allowed_in(kind: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the collectives that a call has; none: all of them."""
    return tuple(options.get("collectives", ())) or ALLOWED.get(kind, ())
