"""How much faster several ranks are than one, and why not more."""

from __future__ import annotations

from dualml.parity.statistics import ENOUGH
from dualml.report import families, numbers
from dualml.report.analysis.base import Finding, Notes
from dualml.report.families import STRONG, WEAK
from dualml.report.model import Run
from dualml.report.scaling import OVERSUBSCRIBED, UNKNOWN, Point, all_points, name, places
from dualml.report.spread import interval
from dualml.report.words import Words


def scaling(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "scaling")
    told = all_points(run)
    every = [p.family for p in told]
    for p in told:
        one = next((q for q in told if q.n == 1 and _beside(p, q)), None)
        if p.n == 1 or one is None or p.why_not:
            continue
        _speedup(notes, words, p, one, name(p.family, every, words))
        if p.family.kind == STRONG:
            _why(notes, p, one)
            _law(notes, p)
    _crowded(notes, words, told)
    _unknown(notes, words, told)
    if told:
        _shared(notes, run, words)
    return notes


def _beside(p: Point, q: Point) -> bool:
    return p.family == q.family and p.backend == q.backend


def _ms(seconds: float) -> str:
    return numbers.quantity(1e3 * seconds)


def _speedup(notes: Notes, words: Words, p: Point, one: Point, kind: str) -> None:
    """Faster, slower, or neither: an interval that holds 1 shows no difference."""
    if p.speedup is None or p.efficiency is None:
        return
    least = interval(p.speedup, text=numbers.factor)
    if least and p.speedup.seeds >= ENOUGH:
        least = words("scaling.interval", values=least)
    elif least:
        least = words("scaling.range", values=least)
    base = 1.0 if p.family.kind == STRONG else float(p.n)
    low, high = p.speedup.low, p.speedup.high
    alike = low is not None and high is not None and low < base < high
    key = "faster" if p.speedup.mean >= base else "slower"
    if p.family.kind == WEAK:
        key = "weak"
    if alike and p.speedup.seeds >= ENOUGH:
        key = "weak_alike" if p.family.kind == WEAK else "alike"
    notes.say(
        key,
        kind=kind,
        backend=p.backend,
        n=p.n,
        one=_ms(one.step.mean),
        many=_ms(p.step.mean),
        batch=numbers.quantity(p.batch),
        speedup=numbers.factor(p.speedup.mean),
        interval=least,
        efficiency=numbers.percent(p.efficiency.mean),
    )


def _why(notes: Notes, p: Point, one: Point) -> None:
    """What makes an update longer than the n-th part of one rank's."""
    if "update" not in p.parts:
        return
    gap = p.step.mean - one.step.mean / p.n
    told = {
        "repeated": p.parts["update"] * (1 - 1 / p.n),
        "wait": p.parts["wait"],
        "transfer": p.parts["transfer"],
        "between": p.parts["rest"],
    }
    left = gap - sum(told.values())
    key = "superlinear" if gap <= 0 else "why" if left >= 0 else "why_less"
    notes.say(
        key,
        backend=p.backend,
        n=p.n,
        one=_ms(one.step.mean / p.n),
        gap=_ms(gap),
        left=_ms(abs(left)),
        **{key: _ms(value) for key, value in told.items()},
    )


def _law(notes: Notes, p: Point) -> None:
    if p.predicted is not None and p.communicating is not None and p.speedup is not None:
        notes.say(
            "law",
            backend=p.backend,
            n=p.n,
            update=_ms(p.parts["update"]),
            sent=_ms(p.parts["wait"] + p.parts["transfer"]),
            ideal=p.n,
            law=numbers.factor(p.predicted),
            communicating=numbers.factor(p.communicating),
            speedup=numbers.factor(p.speedup.mean),
        )


def _crowded(notes: Notes, words: Words, told: list[Point]) -> None:
    """Ranks that take turns: what a core gets done is all that can be told."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for p in told:
        if p.n > 1 and p.why_not == OVERSUBSCRIBED and p.per_core is not None:
            key = (p.backend, places(p.room, words), p.family.base)
            found.setdefault(key, {})[p.arm] = p.per_core.mean
    alone = {(p.backend, p.arm): p.per_core.mean for p in told if p.n == 1 and p.per_core}
    for (backend, where, base), rates in found.items():
        one = alone.get((backend, base))
        notes.warn(
            "crowded",
            backend=backend,
            places=where,
            arms=words.join(list(rates)),
            values=words("list.comma").join(
                words("say.scaling.rate", arm=arm, rate=numbers.quantity(round(rate)))
                for arm, rate in rates.items()
            ),
            other=base,
            other_rate=numbers.quantity(None if one is None else round(one)),
        )


def _unknown(notes: Notes, words: Words, told: list[Point]) -> None:
    bad = [p.backend for p in told if p.why_not == UNKNOWN and p.n > 1]
    if bad:
        notes.warn("unknown", backends=words.join(list(dict.fromkeys(bad))))


def _shared(notes: Notes, run: Run, words: Words) -> None:
    """Beside ranks with cores of their own: those that have between them what one rank had."""
    found = [f for f in families.families(run, pinned=False) if f.kind in (STRONG, WEAK)]
    arms = list(dict.fromkeys(a for f in found for a in f.arms if run.select(a)))
    if arms:
        notes.warn("shared", len(arms), arms=words.join(arms))
