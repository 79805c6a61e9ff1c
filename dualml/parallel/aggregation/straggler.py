"""Straggler injection: one slow rank, delayed in the same way on every backend."""

from __future__ import annotations

import time
from dataclasses import dataclass

from dualml.common.former_members import keep_former_members
from dualml.common.seeds import make_generator
from dualml.parallel.aggregation.schedule import CollectiveSchedule


@keep_former_members
@dataclass(frozen=True)
class Straggler:
    """Delays of one slow rank.

    Args:
        rank: the slow rank.
        compute: factor by which its computation takes longer.
        latency_s: seconds added to every message from or to it.
        bandwidth_bytes_per_s: bandwidth of its link in each direction; None: unlimited.
        jitter_s: mean of a random delay (exponential) added to each of its computations.
        since: first update with the delays.

    Its methods return the seconds to add for ``rank`` in update ``step`` of a trial with this
    ``seed``.
    """

    rank: int = 0
    compute: float = 1.0
    latency_s: float = 0.0
    bandwidth_bytes_per_s: float | None = None
    jitter_s: float = 0.0
    since: int = 1

    def compute_delay(self, rank: int, seconds: float, step: int, seed: int) -> float:
        """Return the seconds to add to a computation that took ``seconds``, the random jitter of
        this ``step`` included; 0 for other ranks and before the update ``since``."""
        if rank != self.rank or step < self.since:
            return 0.0
        jitter = 0.0
        if self.jitter_s:
            jitter = float(make_generator(seed, "jitter", step).exponential(self.jitter_s))
        return (self.compute - 1) * seconds + jitter

    def transfer_delay(self, rank: int, sent: int, received: int, step: int) -> float:
        """Return the seconds to add to an exchange of this many bytes ``sent`` and ``received``,
        both directions at once: one latency and the larger number over the bandwidth; 0 for other
        ranks and before the update ``since``."""
        if rank != self.rank or step < self.since:
            return 0.0
        rate = self.bandwidth_bytes_per_s
        return self.latency_s + (max(sent, received) / rate if rate else 0.0)

    def schedule_delay(
        self, schedule: CollectiveSchedule, rank: int, nbytes: int, step: int
    ) -> float:
        """Return the seconds to add to a native collective of ``nbytes`` bytes: the sum over the
        steps of ``schedule``, its reference algorithm's, in which ``rank`` takes part; 0 for other
        ranks than the slow one and before the update ``since``."""
        total = 0.0
        for transfers in schedule.steps:
            out = [schedule.span(t, nbytes) for t in transfers if t.source == rank]
            into = [schedule.span(t, nbytes) for t in transfers if t.target == rank]
            if out or into:
                sent, received = (sum(b - a for a, b in spans) for spans in (out, into))
                total += self.transfer_delay(rank, sent, received, step)
        return total


def pause(seconds: float) -> None:
    """Sleep for ``seconds``; return at once if they are 0 or negative."""
    if seconds > 0:
        time.sleep(seconds)
