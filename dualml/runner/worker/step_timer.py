"""Step-time statistics of a trial, and the bytes it sends, from its windows of updates."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.runner.worker.ranks import SingleRank

QUARTILES = (0.25, 0.5, 0.75)


class StepTimer:
    """Seconds and bytes of the updates that this process made; updates before a resumption are not
    included."""

    def __init__(self) -> None:
        self.updates: list[int] = []
        self.seconds: list[float] = []
        self.sent_bytes: int | None = 0

    def add(self, updates: int, seconds: float, before: int | None, after: int | None) -> None:
        """Add a window of updates that took ``seconds``, with the total bytes this rank had sent
        before and after it; after one None, the bytes of all windows count as unknown."""
        self.updates.append(updates)
        self.seconds.append(seconds)
        known = self.sent_bytes is not None and before is not None and after is not None
        self.sent_bytes = self.sent_bytes + after - before if known else None  # type: ignore[operator]

    def summary(self, ranks: SingleRank) -> dict[str, Any]:
        """Return ``step_s``, the quartiles of the seconds per update (each window weighted by its
        updates), and ``sent_bytes``, the bytes per update of the rank that sends most.

        All ranks call it. Empty without updates; ``sent_bytes`` is left out where it is unknown or
        0, or the ranks do not use sockets.
        """
        total = sum(self.updates)
        most = ranks.max_over_ranks(
            -1.0 if self.sent_bytes is None else self.sent_bytes / max(1, total)
        )
        if not total:
            return {}
        each = np.repeat(np.divide(self.seconds, self.updates), self.updates)
        steps = np.quantile(each, QUARTILES, method="nearest").tolist()
        return {"step_s": steps, **({"sent_bytes": most} if ranks.sockets and most > 0 else {})}
