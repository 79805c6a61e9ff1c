"""Skewed parts: divergence and accuracy by skew, by how often the ranks average, and by what."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualml.report import numbers, ranks
from dualml.report.analysis.base import Finding, Notes
from dualml.report.analysis.merged import Merged
from dualml.report.deals import rule
from dualml.report.gaps import gap, short, told
from dualml.report.model import Run
from dualml.report.skew import apart, emd, skewed, worst
from dualml.report.uneven import listed, uneven
from dualml.report.words import Words

LEAST = 3  # arms for a rank correlation


def skew(run: Run, words: Words) -> list[Finding]:
    notes, arms = Notes(words, "skew"), skewed(run)
    merged = Merged(notes, words)
    families: dict[str, list[str]] = {}
    for arm in arms:
        families.setdefault(ranks.key(run, arm, "partition"), []).append(arm)
    for backend in run.backends:
        for mine in families.values():
            _order(merged, run, words, backend, mine)
        _worst(merged, run, backend, arms)
    for arm in arms:
        for backend in run.backends:
            _every(merged, run, words, backend, arm)
            _gradients(merged, run, words, backend, arm)
    merged.close()
    _uneven(notes, run, words)
    return notes


def plainest(run: Run, arms: Sequence[str]) -> str | None:
    """The arm whose parts are random, to which the others are held."""
    return next((a for a in arms if rule(run, a) == "random_partition"), None)


def _order(merged: Merged, run: Run, words: Words, backend: str, arms: Sequence[str]) -> None:
    """Arms that differ in their partition alone: the more skewed, the further apart, the worse?"""
    here = [a for a in arms if run.select(a, backend) and emd(run, a) is not None]
    if len(here) < 2:
        return
    items = [_item(run, words, backend, a) for a in here]
    merged.say(backend, "order", values=words.semicolons(items))
    _correlation(merged, run, backend, [a for a in here if rule(run, a) != "feature_noise"])
    base = plainest(run, here)
    if base is None:
        return
    gaps = {a: g for a in here if a != base and (g := gap(run, a, base, backend))}
    if gaps:
        few = all(g.kind == "few" for g in gaps.values())
        listed = [f"{a} {short(g, words) if few else told(g, words)}" for a, g in gaps.items()]
        merged.say(
            backend,
            "gaps_few" if few else "gaps",
            base=base,
            seeds=words.count("seed", min(g.seeds for g in gaps.values())),
            values=words.semicolons(listed),
        )
    for arm in here:
        if rule(run, arm) == "feature_noise" and arm != base:
            merged.say(
                backend,
                "features",
                arm=arm,
                emd=f"{emd(run, arm):.3f}",
                divergence=_divergence(run, backend, arm),
                base=base,
                base_divergence=_divergence(run, backend, base),
            )


def _correlation(merged: Merged, run: Run, backend: str, arms: Sequence[str]) -> None:
    skews = [emd(run, a) for a in arms]
    far = [apart(run.select(a, backend))[0] for a in arms]
    right = [numbers.mean([t.test_accuracy for t in run.select(a, backend)]) for a in arms]
    divergence, accuracy = (correlation(skews, values) for values in (far, right))
    if accuracy is not None and divergence is not None:
        merged.say(
            backend,
            "correlation",
            n=len(arms),
            divergence=_rho(divergence),
            accuracy=_rho(accuracy),
        )
    elif accuracy is not None:
        merged.say(backend, "correlation_accuracy", n=len(arms), accuracy=_rho(accuracy))


def correlation(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    """Spearman's; None where there is little to rank."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    if len(pairs) < LEAST or any(len(set(column)) < 2 for column in zip(*pairs, strict=True)):
        return None
    from scipy import stats

    found = float(stats.spearmanr(*np.array(pairs).T)[0])
    return found if np.isfinite(found) else None


def _rho(x: float) -> str:
    return f"{x:.2f}".replace("-", "−")


def _divergence(run: Run, backend: str, arm: str) -> str:
    return numbers.quantity(apart(run.select(arm, backend))[0])


def _item(run: Run, words: Words, backend: str, arm: str) -> str:
    trials = run.select(arm, backend)
    far = apart(trials)[0]
    return words(
        "say.skew.item" if far is not None else "say.skew.item_alike",
        arm=arm,
        emd=f"{emd(run, arm):.3f}",
        divergence=numbers.quantity(far),
        accuracy=numbers.percent(numbers.mean([t.test_accuracy for t in trials])),
    )


def _worst(merged: Merged, run: Run, backend: str, arms: Sequence[str]) -> None:
    known = {a: low for a in arms if (low := worst(run.select(a, backend))) is not None}
    base = plainest(run, list(known))
    if len(known) < 2 or base is None:
        return
    arm = min(known, key=lambda a: known[a][1])
    if arm != base:
        merged.say(
            backend,
            "worst",
            arm=arm,
            label=known[arm][0],
            accuracy=numbers.percent(known[arm][1]),
            base=base,
            base_label=known[base][0],
            base_accuracy=numbers.percent(known[base][1]),
        )


def _every(merged: Merged, run: Run, words: Words, backend: str, arm: str) -> None:
    """Against the same arm that averages more often, the next one where there are several."""
    mine, key = ranks.aggregation(run, arm)["every"], ranks.key(run, arm, "aggregation.every")
    others = {
        a: every
        for a in skewed(run)
        if (every := ranks.aggregation(run, a)["every"]) < mine
        and ranks.key(run, a, "aggregation.every") == key
    }
    if not others:
        return
    other = max(others, key=lambda a: others[a])
    found = gap(run, arm, other, backend)
    if found is not None:
        near, far = (apart(run.select(a, backend))[0] for a in (other, arm))
        merged.say(
            backend,
            "every" if far is not None else "every_end",
            arm=arm,
            other=other,
            every=mine,
            other_every=others[other],
            divergence=numbers.quantity(far),
            other_divergence=numbers.quantity(near),
            gap=told(found, words),
        )


def _gradients(merged: Merged, run: Run, words: Words, backend: str, arm: str) -> None:
    """Gradients combined at every update against parameters averaged now and then."""
    if ranks.aggregation(run, arm)["of"] != "gradients":
        return
    free = ("aggregation.of", "aggregation.every")
    key = ranks.key(run, arm, *free)
    for other in skewed(run):
        every = ranks.aggregation(run, other)["every"]
        found = gap(run, arm, other, backend)
        if other == arm or every == 1 or found is None or ranks.key(run, other, *free) != key:
            continue
        low, theirs = (worst(run.select(a, backend)) for a in (arm, other))
        merged.say(
            backend,
            "gradients",
            arm=arm,
            other=other,
            every=every,
            gap=told(found, words),
            worst=numbers.percent(low[1] if low else None),
            other_worst=numbers.percent(theirs[1] if theirs else None),
        )


def _uneven(notes: Notes, run: Run, words: Words) -> None:
    for u in uneven(run):
        s = u.deal.first
        notes.say(
            "uneven" if u.whole else "uneven_partial",
            arms=words.join(u.arms),
            seed=u.deal.seed,
            ends=listed(u.ends),
            updates=numbers.quantity(u.updates),
            rank=u.first,
            end=numbers.quantity(u.ends[u.first]),
            last=numbers.quantity(u.last),
            batch=numbers.quantity(sum(u.each)),
            n=numbers.quantity(s["samples"]),
            seen=numbers.quantity(s["samples"] - s["missed"]),
        )
