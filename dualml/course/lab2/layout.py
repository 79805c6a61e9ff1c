"""Choices of a ring all-reduce that the task leaves open: borders of chunks, direction, order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dualml.course.exercise import Array


@dataclass(frozen=True)
class RingLayout:
    """Choices that the task leaves open.

    Attributes:
        chunks: elements of each chunk, as indices into the flat tensor; an index beyond it is
            padding, a zero.
        direction: 1 if every rank sends to rank r + 1, −1 if to rank r − 1.
        start: number of the chunk that rank 0 sends first; rank r begins with ``start`` + r.
    """

    chunks: Sequence[Array]
    direction: int = 1
    start: int = 0

    @classmethod
    def split_evenly(cls, size: int, ranks: int) -> RingLayout:
        """Return the layout of ``ranks`` chunks of ``size`` elements, the longer ones first."""
        return cls(np.array_split(np.arange(size), ranks))

    @property
    def element_count(self) -> int:
        """Number of elements of all chunks together, padding included."""
        return sum(map(len, self.chunks))


def find_layout(inputs: Sequence[Any], traffic: Sequence[Mapping[str, Any]]) -> RingLayout | None:
    """Find the chunks, the direction and the order of a student's ring in its first messages, which
    have the elements that each rank begins with; None if they are no ring's.

    Args:
        inputs: flat tensor of each rank, float32.
        traffic: of each rank, ``peers``, to whom its messages go, and ``first``, the elements of
            its first message.
    """
    n, size = len(inputs), len(inputs[0])
    if n == 1 or any("first" not in own or not len(own["peers"]) for own in traffic):
        return None
    steps = {(int(own["peers"][0]) - r) % n for r, own in enumerate(traffic)}
    if steps not in ({1}, {n - 1}):
        return None
    direction = 1 if steps == {1} else -1
    messages = [np.asarray(own["first"], np.float64) for own in traffic]
    for start in range(n):
        lengths = [len(messages[(c - start) % n]) for c in range(n)]
        ends = np.cumsum([0, *lengths])
        blocks = [np.arange(a, b) for a, b in pairwise(ends)]
        strided = [np.arange(c, size, n) for c in range(n)]
        for chunks in (blocks, strided):
            if all(
                matches(messages[r], inputs[r], chunks[(r + start) % n], size) for r in range(n)
            ):
                return RingLayout(chunks, direction, start)
    return None


def matches(message: Any, own: Any, span: Any, size: int) -> bool:
    """Return whether a message has the elements ``span`` of a rank's flat tensor, and zeros for
    padding beyond its ``size``."""
    beyond = max(0, int(np.max(span, initial=0)) + 1 - size)
    whole = np.append(np.asarray(own, np.float64), np.zeros(beyond))
    return len(message) == len(span) and bool(np.all(message == whole[span]))
