"""Counts of the data that a student's ranks pass to the communicator, kept out of their reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dualml.course.collectives import EXCHANGE, Ask

#: Kind of call → the collectives that its exercise allows, unless the call names them itself.
ALLOWED: dict[str, tuple[str, ...]] = {
    "ring": (EXCHANGE,),
    "stages": (EXCHANGE,),
    "rows": (EXCHANGE,),
    "layer": ("all_reduce", "all_gather", "broadcast"),
    "zero": ("reduce_scatter", "all_gather", "all_reduce", "broadcast"),
    "measured": ("all_reduce", "barrier"),
    "checkpoint": ("barrier", "broadcast", "gather", "all_gather", "all_reduce"),
    "accumulate": ("all_reduce", "all_gather", "broadcast"),
    "measure": ("all_gather", "all_reduce"),
    "balanced": ("all_reduce", "all_gather", "broadcast"),
}
#: Bytes per element of the exercises' tensors.
WIDTH = 4

Counts = dict[str, list[int]]


class Tally:
    """Counts of one call.

    Args:
        kind: kind of the call.
        options: options of the call: ``collectives``, the allowed ones, if the call names them;
            ``steps`` for the kind ``zero``.
    """

    def __init__(self, kind: str, options: Mapping[str, Any]) -> None:
        self.allowed = tuple(options.get("collectives", ())) or ALLOWED.get(kind, ())
        self.kind, self.marks = kind, {"layer": 1, "zero": options.get("steps", 0)}.get(kind, 0)
        #: Rank → parts of the call → collective → elements of each of its calls.
        self.parts: dict[int, list[Counts]] = {}
        #: Rank → bytes of each message.
        self.messages: dict[int, list[int]] = {}
        #: Rank → (receiver, elements) of each message, empty ones among them.
        self.routes: dict[int, list[tuple[int, int]]] = {}
        #: Rank → elements of its collectives, in their order.
        self.calls: dict[int, list[int]] = {}
        #: Rank → flat first message.
        self.first: dict[int, Any] = {}

    def allow(self, name: str) -> None:
        """Raise `ValueError` for a collective that the exercise does not have; a kind of call
        without a list has all."""
        if self.allowed and name not in self.allowed:
            raise ValueError(f"comm has no {name!r} in this exercise")

    def note(self, rank: int, ask: Ask) -> None:
        """Count the elements that a rank passes to the communicator, and the bytes of its messages
        in an exchange."""
        if ask.name == EXCHANGE:
            sizes = [int(x.nbytes) for x in ask.sends.values() if x.size]
            self.messages.setdefault(rank, []).extend(sizes)
            routes = [(peer, int(x.size)) for peer, x in ask.sends.items()]
            self.routes.setdefault(rank, []).extend(routes)
            for x in list(ask.sends.values())[:1]:
                self.first.setdefault(rank, np.array(x).reshape(-1))
        if self.kind == "measured":
            self.calls.setdefault(rank, []).append(ask.elements if ask.name != "barrier" else 0)
        self.parts.setdefault(rank, [{}])[-1].setdefault(ask.name, []).append(ask.elements)

    def mark(self, rank: int) -> None:
        """Begin a new part of the call; raise `ValueError` if the call has no more parts."""
        parts = self.parts.setdefault(rank, [{}])
        if len(parts) > self.marks:
            raise ValueError(f"mark {len(parts)} of a call that has {self.marks}")
        parts.append({})

    def arrays(self, rank: int) -> dict[str, Any]:
        """Return the traffic of a rank for its answer; nothing of it comes from the student's
        process.

        For ``aggregate`` and ``accumulate`` these are ``sent/NAME``, the elements of each call of a
        collective; for ``zero`` those of the update with the most elements; for ``ring``
        ``messages`` and ``elements``, ``peers`` and ``sizes``, to whom each message goes and its
        elements, and ``first``, the elements of the first; for ``rows`` ``bytes``; for ``measured``
        ``calls``, in their order, 0 for a barrier; for ``layer`` ``forward`` and ``backward``, the
        elements of the all-reduces of either part; for other kinds nothing.
        """
        parts = self.parts.get(rank, [{}])
        if self.kind == "ring":
            sent = self.messages.get(rank, [])
            routes = np.array(self.routes.get(rank, []), np.int64).reshape(-1, 2)
            counts = {"messages": np.array(len(sent)), "elements": np.array(sum(sent) // WIDTH)}
            first = {"first": self.first[rank]} if rank in self.first else {}
            return {**counts, "peers": routes[:, 0], "sizes": routes[:, 1], **first}
        if self.kind == "measured":
            return {"calls": np.array(self.calls.get(rank, []), np.int64)}
        if self.kind == "rows":
            return {"bytes": np.array(sum(self.messages.get(rank, [])))}
        if self.kind == "layer":
            backward = parts[1] if len(parts) > 1 else {}
            named = {"forward": parts[0], "backward": backward}
            return {n: np.array(c.get("all_reduce", []), np.int64) for n, c in named.items()}
        if self.kind not in ("aggregate", "zero", "accumulate"):
            return {}
        most = max(parts[1:] or parts, key=lambda counts: sum(map(sum, counts.values())))
        return {f"sent/{n}": np.array(most.get(n, []), np.int64) for n in self.allowed}
