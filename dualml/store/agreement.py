"""Whether the ranks of a trial were seen to train one model, as a run folder tells it."""

from __future__ import annotations

from typing import Literal

from dualml.store.jsonfile import Count, Number, Record

#: Begins the reason of a trial that failed because they were not.
APART = "ranks trained apart"

#: Which weights of the ranks must be equal: all of them (``replicas``), all after an averaging
#: (``averaged``), those of the server and of the rank it served last (``served``), those of ranks
#: that hold the same part (``parts``), or none: ``neighbours`` average with one another alone, and
#: of ``shards`` and ``stages`` each rank has its own.
Promise = Literal["replicas", "averaged", "served", "parts", "neighbours", "shards", "stages"]


class WeightsCheck(Record):
    """The weights of all ranks after one update.

    Attributes:
        update: after which they were compared.
        sha256: of all ranks' weights in the order of ranks and names.
        apart: the largest distance of two copies of a tensor, relative to its size; ``limit`` is
            how much rounding may come to by then.
    """

    update: Count
    sha256: str
    apart: Number
    limit: Number


class Agreement(Record):
    """What showed that the ranks of a trial train one model.

    Attributes:
        promise: which weights must be equal.
        checks: after the first update and after the last, or at the first and the last where the
            promise holds.
        sent_bytes: of all ranks together in an update, as measured, each byte once; null where what
            they send is not seen.
        times_sent: how often the engine sends each byte, by which the measured bytes were divided.
        closed_bytes: of an update by the closed form; null where none is known.
        averagings: of ``neighbours``, the share of averagings that changed a rank's weights.
    """

    promise: Promise
    checks: list[WeightsCheck] = []
    sent_bytes: Number | None = None
    times_sent: Number | None = None
    closed_bytes: Number | None = None
    averagings: Number | None = None


def trained_apart(reason: str | None) -> bool:
    """Tell by the reason of a failed trial whether its ranks trained apart."""
    return APART in (reason or "")
