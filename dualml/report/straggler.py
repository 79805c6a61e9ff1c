"""Stragglers: arms with one slow rank, the arms they are compared with, and the slowdown."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, median

from dualml.common.words import numbers
from dualml.experiment.store.run import RunData
from dualml.report import ranks


@dataclass(frozen=True)
class StragglerEffect:
    """The effect of the slow rank of an arm on a backend, compared with the same arm without it.

    Attributes:
        step_seconds: mean seconds of an update without and with the handicap.
        factor, predicted: slowdown of an update, measured and by the fitted constants.
        others: mean slowdown of an update of the ranks that have no handicap.
        waiting: share of their time that these ranks wait.
        since: the update at which the handicap begins; 1 from the start.
    """

    arm: str
    backend: str
    step_seconds: tuple[float | None, float | None]
    factor: float | None
    predicted: float | None
    others: float | None
    waiting: float | None
    since: int


def straggler_arms(run: RunData) -> dict[str, str]:
    """Return straggler arm → the same arm without the handicap, if both have a successful trial;
    split arms are left out. Ordered by kind of handicap."""
    bases = {
        arm: base
        for arm in ranks.multi_rank_arms(run)
        if ranks.straggler(run, arm)
        and run.select(arm)
        and (base := run.contrast.arm_without_straggler(arm)) is not None
        and run.select(base)
    }
    kinds = [*ranks.HANDICAPS, ""]
    return {a: bases[a] for a in sorted(bases, key=lambda a: kinds.index(ranks.handicap(run, a)))}


def straggler_effects(run: RunData) -> list[StragglerEffect]:
    """Return the effect of every straggler arm (`straggler_arms`) on every backend where it has a
    successful trial."""
    arms = straggler_arms(run)
    return [
        _straggler_effect(run, arm, arms[arm], backend)
        for arm, backend in ranks.successful_places(run, arms)
    ]


def _straggler_effect(run: RunData, arm: str, base: str, backend: str) -> StragglerEffect:
    """Return the effect of a straggler arm on a backend compared with ``base``, the arm without the
    handicap; unknown numbers are None."""
    slow = ranks.straggler(run, arm)
    assert slow is not None
    without, with_it = (ranks.update_seconds(run, name, backend) for name in (base, arm))
    ratio = with_it / without if with_it and without else None
    recorded = _median_recorded(run, arm, backend, "measured")
    rows = ranks.rank_parts(run, arm, backend)
    others = [row for rank, row in enumerate(rows) if rank != slow.rank]
    total = sum(row["step_s"] for row in others)
    beside = zip(rows, ranks.rank_parts(run, base, backend), strict=False)
    pairs = [
        (row["step_s"], healthy["step_s"])
        for rank, (row, healthy) in enumerate(beside)
        if rank != slow.rank and healthy["step_s"]
    ]
    return StragglerEffect(
        arm,
        backend,
        (without, with_it),
        ratio if recorded is None else recorded,
        _median_recorded(run, arm, backend, "predicted"),
        mean(a for a, _ in pairs) / mean(b for _, b in pairs) if pairs and others else None,
        sum(row["wait_s"] for row in others) / total if total else None,
        slow.since,
    )


def _median_recorded(run: RunData, arm: str, backend: str, key: str) -> float | None:
    """Return the number ``key`` of an arm's slowdowns in ``cost.json``, the median over the seeds;
    None if unknown."""
    known = [
        float(s[key])
        for s in run.cost.get("slowdowns") or ()
        if s.get("arm") == arm
        and s.get("backend") == backend
        and numbers.is_finite_number(s.get(key))
    ]
    return median(known) if known else None


def seconds_before_and_after(run: RunData, s: StragglerEffect) -> tuple[float, float] | None:
    """Return the mean seconds of an update before and after a handicap that begins midway (the
    first update is left out); None if it begins with the first or second update or after the last,
    or without recorded times."""
    first = s.since - 1
    every = [[r["done"] - r["begin"] for r in t.times] for t in run.select(s.arm, s.backend)]
    # The first update includes compilation and connection setup.
    pairs = [
        [mean(float(each[a:b].mean()) for each in spent) for a, b in ((1, first), (first, None))]
        for spent in every
        if spent and all(1 < first < len(each) for each in spent)
    ]
    if not pairs:
        return None
    return mean(before for before, _ in pairs), mean(after for _, after in pairs)
