"""Intervals, thresholds and detection limits: pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from scipy.stats import beta

from power.settings import MARGIN, OUTPUT, PHASES, Record

Counts = dict[float, tuple[int, int]]


def interval(found: int, of: int) -> tuple[float, float]:
    """Return the Clopper–Pearson 95 % interval of a share, from ``found`` of ``of`` trials."""
    low = 0.0 if found == 0 else float(beta.ppf(0.025, found, of - found + 1))
    high = 1.0 if found == of else float(beta.ppf(0.975, found + 1, of - found))
    return low, high


def upper_bound(trials: int) -> float:
    """Return the one-sided upper 95 % bound of a share that none of ``trials`` showed, about
    3/n."""
    return 1.0 - float(0.05 ** (1.0 / trials))


def sizes(low: int, high: int) -> list[float]:
    """Return half-decades from 10^low to 10^high."""
    found = [float(f"{first}e{power}") for power in range(low, high) for first in (1, 3)]
    return [*found, float(f"1e{high}")]


def smallest_always_found(counts: Counts) -> float | None:
    """Return the smallest size from which on every trial found the difference; None if there is
    none."""
    found = None
    for delta in sorted(counts, reverse=True):
        if counts[delta][0] < counts[delta][1]:
            break
        found = delta
    return found


def largest_never_found(counts: Counts) -> float | None:
    """Return the largest size up to which no trial found the difference; None if there is none."""
    found = None
    for delta in sorted(counts):
        if counts[delta][0]:
            break
        found = delta
    return found


def shorten_envelope(told: Any, horizon: int) -> Any:
    """Return the envelope file of the same trial with a shorter ``parity.horizon``."""
    if not isinstance(told, Mapping):
        return told
    short: Record = {}
    for key, value in told.items():
        if key == "loss":
            short[key] = value[:horizon]
        elif key == "tensors":
            short[key] = {k: w for k, w in value.items() if int(k.split("/")[1]) <= horizon}
        else:
            short[key] = shorten_envelope(value, horizon)
    return short


def thresholds(files: Sequence[Record], margin: float = MARGIN) -> dict[str, dict[int, float]]:
    """Return phase → traced update → margin × envelope there, the median over the tensors.

    Args:
        files: contents of the ``envelope.json`` of every backend of one arm and seed.
    """
    from dualml.experiment.store.envelope import Envelope
    from dualml.parity.envelope import robust_envelopes
    from dualml.parity.places import FLOOR, envelope_horizon, max_envelope, max_loss_envelope

    drawn = robust_envelopes([Envelope.from_content(file) for file in files], OUTPUT)
    horizon = min(len(envelope.loss) for envelope in drawn)
    width_at, loss = max_envelope(drawn, horizon), max_loss_envelope(drawn, horizon)
    named: dict[tuple[str, int], list[str]] = {}
    for key in drawn[0].tensors:
        phase, at, tensor = key.split("/", 2)
        named.setdefault((phase, int(at)), []).append(tensor)
    found: dict[str, dict[int, float]] = {phase: {} for phase in PHASES}
    for step in sorted({at for _, at in named}):
        found["loss"][step] = margin * max(
            float(loss[min(envelope_horizon(step), horizon) - 1]), FLOOR
        )
        for phase in PHASES:
            if mine := named.get((phase, step)):
                widths = [max(width_at(phase, tensor, step), FLOOR) for tensor in mine]
                found[phase][step] = margin * statistics.median(widths)
    return {phase: row for phase, row in found.items() if row}


def counts(
    plants: Sequence[Record], kind: str, arm: str, horizon: int, skip: Collection[int] = ()
) -> Counts:
    """Return size → found trials and all trials, without the seeds in ``skip``."""
    found: Counts = {}
    for row in plants:
        if (row["kind"], row["arm"]) == (kind, arm) and row.get("seed") not in skip:
            k, n = found.get(row["delta"], (0, 0))
            found[row["delta"]] = (k + bool(row["found"][str(horizon)]), n + 1)
    return found
