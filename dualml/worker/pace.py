"""Step-time statistics of a trial, and the bytes it sends, from its windows of updates."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.worker.ranks import Alone

QUARTILES = (0.25, 0.5, 0.75)


class Pace:
    """Seconds and bytes of the updates that this process made; updates before a resumption are not
    included."""

    def __init__(self) -> None:
        self.updates: list[int] = []
        self.seconds: list[float] = []
        self.sent: int | None = 0

    def add(self, updates: int, seconds: float, before: int | None, after: int | None) -> None:
        """Add a window of updates that took ``seconds``, with the total bytes sent before and after
        it."""
        self.updates.append(updates)
        self.seconds.append(seconds)
        known = self.sent is not None and before is not None and after is not None
        self.sent = self.sent + after - before if known else None  # type: ignore[operator]

    def summary(self, ranks: Alone) -> dict[str, Any]:
        """Return ``step_s``, the quartiles of the seconds per update (each window weighted by its
        updates), and ``sent_bytes``, the bytes per update of the rank that sends most."""
        total = sum(self.updates)
        most = ranks.most(-1.0 if self.sent is None else self.sent / max(1, total))
        if not total:
            return {}
        each = np.repeat(np.divide(self.seconds, self.updates), self.updates)
        steps = np.quantile(each, QUARTILES, method="nearest").tolist()
        return {"step_s": steps, **({"sent_bytes": most} if ranks.sockets and most > 0 else {})}
