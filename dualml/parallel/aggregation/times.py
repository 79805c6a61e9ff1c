"""Step times of a rank: computing, waiting for others, transferring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

PARTS = ("begin", "arrive", "end", "done")


class Times:
    """Timestamps of every update of one rank, in seconds of the machine's monotonic clock.

    ``begin`` of the update, ``arrive`` at the aggregation, its ``end``, and ``done`` with the
    update. The clock is shared by all processes of one machine, so that the timestamps of its ranks
    can be compared.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, float, float]] = []

    def add(self, begin: float, arrive: float, end: float, done: float) -> None:
        """Record the four timestamps of one update, in seconds of the monotonic clock."""
        self.rows.append((begin, arrive, end, done))

    def clear(self) -> None:
        """Forget all updates recorded so far."""
        self.rows.clear()

    def columns(self) -> dict[str, list[float]]:
        """Return name of the timestamp → its values, one per update."""
        return {part: [row[i] for row in self.rows] for i, part in enumerate(PARTS)}


def split_times(
    ranks: Sequence[Mapping[str, NDArray[np.float64]]], peers: Sequence[Sequence[int]] | None = None
) -> list[dict[str, float]]:
    """Return for each rank its mean seconds per update: ``compute_s``, ``wait_s``, ``transfer_s``,
    their sum ``step_s``, and ``update_s``, the part of computing after the aggregation; an empty
    list without updates.

    A rank waits from its arrival until the last of its peers has arrived; what remains of the
    aggregation is transfer (which includes adding up).

    Args:
        ranks: timestamps of each rank, for equally many updates.
        peers: rank → ranks that it waits for, itself included; all by default.
    """
    means: list[dict[str, float]] = []
    if not ranks or not len(ranks[0]["begin"]):
        return means
    arrive = np.array([r["arrive"] for r in ranks])
    for number, r in enumerate(ranks):
        awaited = slice(None) if peers is None else list(peers[number])
        ready = np.clip(arrive[awaited].max(axis=0), r["arrive"], r["end"])
        total = r["done"] - r["begin"]
        spans = {
            "compute_s": total - (r["end"] - r["arrive"]),
            "update_s": r["done"] - r["end"],
            "wait_s": ready - r["arrive"],
            "transfer_s": r["end"] - ready,
            "step_s": total,
        }
        means.append({part: float(np.mean(span)) for part, span in spans.items()})
    return means


def communication_share(ranks: Sequence[Mapping[str, float]]) -> float | None:
    """Return the share (0 … 1) of all ranks' time that they waited or transferred, from the result
    of `split_times`; None without any time."""
    total = sum(r["step_s"] for r in ranks)
    busy = sum(r["wait_s"] + r["transfer_s"] for r in ranks)
    return busy / total if total else None
