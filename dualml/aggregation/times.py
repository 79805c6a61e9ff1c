"""Where a rank's time goes: computing, waiting for others, transferring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

PARTS = ("begin", "arrive", "end", "done")


@dataclass
class Times:
    """Moments of every update of one rank, in seconds of the machine's monotonic clock.

    ``begin``, ``arrive`` at the aggregation, its ``end``, and ``done`` with the update. The clock
    is the same for all processes of one machine, so the moments of its ranks can be compared.
    """

    begin: list[float] = field(default_factory=list)
    arrive: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)

    def add(self, begin: float, arrive: float, end: float, done: float) -> None:
        for part, moment in zip(PARTS, (begin, arrive, end, done), strict=True):
            getattr(self, part).append(moment)

    def clear(self) -> None:
        for part in PARTS:
            getattr(self, part).clear()

    def columns(self) -> dict[str, list[float]]:
        return {part: getattr(self, part) for part in PARTS}


def split(
    ranks: Sequence[Mapping[str, NDArray[np.float64]]], peers: Sequence[Sequence[int]] | None = None
) -> list[dict[str, float]]:
    """Mean seconds per update that each rank computed, waited and transferred; ``update_s`` is the
    part of its computation that follows the aggregation.

    A rank waits from its arrival until the last of its peers has arrived; what remains of the
    aggregation is transfer (which includes adding up).

    Args:
        ranks: times of each rank, equally many updates.
        peers: rank → ranks it waits for, itself among them; all by default.
    """
    told: list[dict[str, float]] = []
    if not ranks or not len(ranks[0]["begin"]):
        return told
    arrive = np.array([r["arrive"] for r in ranks])
    for number, r in enumerate(ranks):
        mine = list(range(len(ranks))) if peers is None else list(peers[number])
        ready = np.clip(arrive[mine].max(axis=0), r["arrive"], r["end"])
        total = r["done"] - r["begin"]
        told.append(
            {
                "compute_s": float(np.mean(total - (r["end"] - r["arrive"]))),
                "update_s": float(np.mean(r["done"] - r["end"])),
                "wait_s": float(np.mean(ready - r["arrive"])),
                "transfer_s": float(np.mean(r["end"] - ready)),
                "step_s": float(np.mean(total)),
            }
        )
    return told


def share(told: Sequence[dict[str, Any]]) -> float | None:
    """Waiting and transferring as a share of all ranks' time."""
    total = sum(t["step_s"] for t in told)
    busy = sum(t["wait_s"] + t["transfer_s"] for t in told)
    return busy / total if total else None
