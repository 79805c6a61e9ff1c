"""What the ranks of a student have handed to the communicator, counted where they cannot reach."""

from __future__ import annotations

from collections.abc import Mapping
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
#: Bytes of an element of the tensors that exercises are given.
WIDTH = 4

Counts = dict[str, list[int]]


class Tally:
    """Counts of one call.

    Args:
        kind: of the call.
        options: ``collectives``, those that the exercise has, where the call says so itself; of
            ``zero`` the number of ``steps``.
    """

    def __init__(self, kind: str, options: Mapping[str, Any]) -> None:
        self.allowed = tuple(options.get("collectives", ())) or ALLOWED.get(kind, ())
        self.kind, self.marks = kind, {"layer": 1, "zero": options.get("steps", 0)}.get(kind, 0)
        #: Rank → parts of the call → collective → elements of each of its calls.
        self.parts: dict[int, list[Counts]] = {}
        #: Rank → bytes of each message.
        self.messages: dict[int, list[int]] = {}

    def allow(self, name: str) -> None:
        """Refuse a collective that the exercise does not have (`ValueError`)."""
        if self.allowed and name not in self.allowed:
            raise ValueError(f"comm has no {name!r} in this exercise")

    def note(self, rank: int, ask: Ask) -> None:
        """Count what a rank has handed over."""
        if ask.name == EXCHANGE:
            sizes = [int(x.nbytes) for x in ask.sends.values() if x.size]
            self.messages.setdefault(rank, []).extend(sizes)
        self.parts.setdefault(rank, [{}])[-1].setdefault(ask.name, []).append(ask.elements)

    def mark(self, rank: int) -> None:
        """Let a new part of the call begin, as often as the call has parts (`ValueError`)."""
        parts = self.parts.setdefault(rank, [{}])
        if len(parts) > self.marks:
            raise ValueError(f"mark {len(parts)} of a call that has {self.marks}")
        parts.append({})

    def arrays(self, rank: int) -> dict[str, Any]:
        """Return what the answer says of traffic; nothing of it comes from the student's process.

        ``aggregate``: ``sent/NAME``, elements of each call of a collective; ``zero``: those of the
        update that hands over most. ``ring``: ``messages``, ``elements``. ``layer``: ``forward``,
        ``backward``, elements of the all-reduces of either part.
        """
        parts = self.parts.get(rank, [{}])
        if self.kind == "ring":
            sent = self.messages.get(rank, [])
            return {"messages": np.array(len(sent)), "elements": np.array(sum(sent) // WIDTH)}
        if self.kind == "layer":
            backward = parts[1] if len(parts) > 1 else {}
            named = {"forward": parts[0], "backward": backward}
            return {n: np.array(c.get("all_reduce", []), np.int64) for n, c in named.items()}
        if self.kind not in ("aggregate", "zero"):
            return {}
        most = max(parts[1:] or parts, key=lambda counts: sum(map(sum, counts.values())))
        return {f"sent/{n}": np.array(most.get(n, []), np.int64) for n in self.allowed}
