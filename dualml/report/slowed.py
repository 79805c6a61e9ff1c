"""One slow node: which arms have one, what they are held against, and what it costs."""

from __future__ import annotations

from statistics import mean, median

from dualml.report import ranks
from dualml.store.run import Run
from dualml.words import numbers


def slow_arms(run: Run) -> dict[str, str]:
    """Slow arm → the same arm without the handicap, where both ran; by kind of handicap."""
    bases = {
        arm: base
        for arm in ranks.several(run)
        if ranks.slow(run, arm)
        and run.select(arm)
        and (base := run.contrast.without_slow_node(arm)) is not None
        and run.select(base)
    }
    kinds = [*ranks.HANDICAPS, ""]
    return {a: bases[a] for a in sorted(bases, key=lambda a: kinds.index(ranks.handicap(run, a)))}


def sets_in_later(run: Run, arm: str) -> bool:
    """Whether the first updates are without the handicap."""
    slow = ranks.slow(run, arm)
    return slow is not None and slow.since > 1


def predicted(run: Run, arm: str, backend: str) -> float | None:
    """The factor on the time of an update, by the fitted constants."""
    return _recorded(run, arm, backend, "predicted")


def measured(run: Run, arm: str, backend: str) -> float | None:
    """The file's, or else the ratio of the ranks' mean times of an update."""
    recorded = _recorded(run, arm, backend, "measured")
    if recorded is not None:
        return recorded
    base = run.contrast.without_slow_node(arm)
    with_it = ranks.update_seconds(run, arm, backend)
    without = ranks.update_seconds(run, base, backend) if base else None
    return with_it / without if with_it and without else None


def _recorded(run: Run, arm: str, backend: str, key: str) -> float | None:
    """Of ``cost.json`` the median over the seeds."""
    known = [
        float(s[key])
        for s in run.cost.get("slowdowns") or ()
        if s.get("arm") == arm and s.get("backend") == backend and numbers.known(s.get(key))
    ]
    return median(known) if known else None


def of_others(run: Run, arm: str, backend: str) -> float | None:
    """How much longer an update of the ranks without the handicap takes, on the mean."""
    base, slow = run.contrast.without_slow_node(arm), ranks.slow(run, arm)
    with_it = ranks.parts(run, arm, backend)
    without = ranks.parts(run, base, backend) if base else []
    if not with_it or not without or slow is None or len(with_it) < 2:
        return None
    pairs = [
        (a["step_s"], b["step_s"])
        for r, (a, b) in enumerate(zip(with_it, without, strict=False))
        if r != slow.rank and b["step_s"]
    ]
    return mean(a for a, _ in pairs) / mean(b for _, b in pairs) if pairs else None


def waiting(run: Run, arm: str, backend: str) -> float | None:
    """Share of their time the ranks without the handicap wait."""
    slow, rows = ranks.slow(run, arm), ranks.parts(run, arm, backend)
    others = [row for r, row in enumerate(rows) if slow and r != slow.rank]
    total = sum(row["step_s"] for row in others)
    return sum(row["wait_s"] for row in others) / total if total else None


def before_and_after(run: Run, arm: str, backend: str) -> tuple[float, float] | None:
    """Mean seconds of an update before and after the handicap sets in, where it does so midway."""
    slow = ranks.slow(run, arm)
    if slow is None or slow.since <= 1:
        return None
    first = slow.since - 1
    pairs = []
    for t in run.select(arm, backend):
        spent = [r["done"] - r["begin"] for r in t.times]
        if spent and all(1 < first < len(s) for s in spent):
            # The first update compiles and connects.
            pairs.append(
                [mean(float(s[a:b].mean()) for s in spent) for a, b in ((1, first), (first, None))]
            )
    if not pairs:
        return None
    return mean(before for before, _ in pairs), mean(after for _, after in pairs)
