"""One slow node: who suffers, who waits, and whether it was foreseen."""

from __future__ import annotations

from statistics import median

from dualml.report import fits, numbers, ranks
from dualml.report.analysis.base import Finding, Notes
from dualml.report.bottleneck import before_and_after, others_slowdown, slow_arms, waiting
from dualml.report.model import Run
from dualml.report.words import Words


def bottleneck(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "bottleneck")
    arms = slow_arms(run)
    for backend in run.backends:
        for kind in ranks.HANDICAPS:
            _ranking(notes, run, words, backend, [a for a in arms if _whole(run, a, kind)])
        _waits(notes, run, backend, arms)
    for arm in arms:
        for backend in run.backends:
            _since(notes, run, arm, backend)
            _stale(notes, run, arm, backend)
    _foreseen(notes, run, arms)
    alone = [a for a in ranks.several(run) if ranks.slow(run, a) and a not in arms]
    if alone:
        notes.warn("no_base", len(alone), arms=words.join(alone))
    return notes


def _whole(run: Run, arm: str, kind: str) -> bool:
    """An arm with this handicap from the first update on."""
    told = ranks.slow(run, arm) or {}
    return ranks.handicap(run, arm) == kind and told.get("since") == 1


def _ranking(notes: Notes, run: Run, words: Words, backend: str, arms: list[str]) -> None:
    """Slow arms of one kind of handicap, from the one whose other ranks suffer most."""
    known = {a: f for a in arms if (f := others_slowdown(run, a, backend)) is not None}
    if not known:
        return
    ordered = sorted(known, key=lambda a: -known[a])
    listed = [f"{arm} × {numbers.factor(known[arm])}" for arm in ordered]
    kind = words(f"handicap_name.{ranks.handicap(run, ordered[0])}")
    if len(ordered) == 1:
        notes.say("one", backend=backend, kind=kind, values=listed[0])
    else:
        notes.say("ranking", backend=backend, kind=kind, values=words.join(listed))


def _waits(notes: Notes, run: Run, backend: str, arms: list[str]) -> None:
    """Where the ranks without the handicap wait most of their time."""
    known = {a: w for a in arms if (w := waiting(run, a, backend)) is not None}
    if known:
        most = max(known, key=lambda a: known[a])
        notes.say("waits", backend=backend, arm=most, share=numbers.percent(known[most]))


def _since(notes: Notes, run: Run, arm: str, backend: str) -> None:
    found = before_and_after(run, arm, backend)
    if found is not None:
        before, after = found
        notes.say(
            "since",
            arm=arm,
            backend=backend,
            step=(ranks.slow(run, arm) or {})["since"],
            before=numbers.quantity(1e3 * before),
            after=numbers.quantity(1e3 * after),
            times=numbers.factor(after / before) if before else numbers.NONE,
        )


def _stale(notes: Notes, run: Run, arm: str, backend: str) -> None:
    """Served asynchronously, the slow rank's gradients are the oldest."""
    told = [t.staleness for t in run.select(arm, backend) if t.staleness]
    set_up = ranks.slow(run, arm)
    if not told or set_up is None:
        return
    each = [list(t.get("ranks") or ()) for t in told]
    slow = numbers.mean([e[set_up["rank"]] for e in each if len(e) > set_up["rank"]])
    others = numbers.mean([v for e in each for r, v in enumerate(e) if r != set_up["rank"]])
    if slow is not None and others is not None:
        notes.say("stale", arm=arm, backend=backend, slow=numbers.quantity(slow),
                  others=numbers.quantity(others))  # fmt: skip


def _foreseen(notes: Notes, run: Run, arms: list[str]) -> None:
    """Predicted over measured slowdown."""
    ratios = {
        (arm, backend): guess / value
        for arm in arms
        for backend in run.backends
        if (value := fits.measured_slowdown(run, arm, backend))
        and (guess := fits.predicted_slowdown(run, arm, backend))
    }
    if ratios:
        worst = max(ratios, key=lambda key: max(ratios[key], 1 / ratios[key]))
        notes.say(
            "foreseen",
            len(ratios),
            k=len(ratios),
            typical=numbers.factor(median(ratios.values())),
            worst=numbers.factor(ratios[worst]),
            arm=worst[0],
            backend=worst[1],
        )
