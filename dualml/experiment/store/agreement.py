"""Records that show whether the ranks of a trial trained one model."""

from __future__ import annotations

from dualml.experiment.store.jsonfile import Count, Number, Record
from dualml.parallel.copies import Promise

#: Beginning of the reason of a trial that failed because its ranks diverged.
DIVERGED_REASON = "ranks trained apart"


class WeightsCheck(Record):
    """A comparison of all ranks' weights after one update.

    Attributes:
        update: number of updates after which the weights were compared.
        sha256: digest of all ranks' weights in the order of ranks and names.
        apart: largest distance between two copies of a tensor, relative to its size; ``limit`` is
            how much of it rounding can explain by then.
    """

    update: Count
    sha256: str
    apart: Number
    limit: Number


class AgreementRecord(Record):
    """Evidence that the ranks of a trial trained one model.

    Attributes:
        promise: the guarantee: which weights must be equal.
        checks: comparisons after the first and the last update, or at the first and the last one at
            which the guarantee holds.
        sent_bytes: measured bytes that all ranks together send in an update, each byte counted
            once; null where traffic cannot be measured.
        times_sent: how often the engine sends each byte; the measured bytes were divided by it.
        closed_bytes: bytes of an update by the closed form; null where none is known.
        averagings: for ``neighbours``, the share of averagings that changed a rank's weights.
    """

    promise: Promise
    checks: list[WeightsCheck] = []
    sent_bytes: Number | None = None
    times_sent: Number | None = None
    closed_bytes: Number | None = None
    averagings: Number | None = None


def is_divergence_reason(reason: str | None) -> bool:
    """Return whether the reason of a failed trial says that its ranks trained different models."""
    return DIVERGED_REASON in (reason or "")
