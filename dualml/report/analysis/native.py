"""What a framework executes itself, what is composed here, and what composing costs."""

from __future__ import annotations

from dualml.report import numbers
from dualml.report.analysis.base import Finding, Notes
from dualml.report.collectives import Measured, measured, size_of
from dualml.report.model import Run
from dualml.report.rank_tables import primitives
from dualml.report.words import Words


def native(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "native")
    known = primitives(run)
    for backend in run.backends:
        kinds: dict[str, list[str]] = {}
        for name, ways in known.items():
            for way in ways.get(backend, []):
                mine = kinds.setdefault(way.partition(":")[0], [])
                if name not in mine:
                    mine.append(name)
        listed = [
            words(f"say.native.{kind}", names=words.join(names))
            for kind in ("native", "composed", "unsupported")
            if (names := kinds.get(kind))
        ]
        if listed:
            notes.say("list", backend=backend, values=words.semicolons(listed))
    for m in measured(run):
        _own(notes, m)
    _composed(notes, run, known)
    return notes


def _own(notes: Notes, m: Measured) -> None:
    """The framework's all-reduce against the ring made of its messages."""
    at = [s for s in m.sizes if m.seconds("all_reduce", s) and m.seconds("ring", s)]
    if not at:
        return
    small, large = (
        (m.seconds("ring", s) or 0.0) / (m.seconds("all_reduce", s) or 1.0) for s in (at[0], at[-1])
    )
    notes.say(
        "ring",
        backend=m.backend,
        n=m.n,
        small=numbers.factor(small),
        small_size=size_of(at[0]),
        large=numbers.factor(large),
        large_size=size_of(at[-1]),
    )


def _composed(notes: Notes, run: Run, known: dict[str, dict[str, list[str]]]) -> None:
    """A strategy whose primitives are composed on one backend and native on another."""
    from dualml.aggregation import STRATEGIES

    def kind(name: str, backend: str) -> str:
        told = {w.partition(":")[0] for w in known.get(name, {}).get(backend, [])}
        return told.pop() if len(told) == 1 else ""

    found = measured(run)
    for m in found:
        for other in found:
            if m.n != other.n or m.threads or other.threads:
                continue
            for name in m.strategies:
                uses = STRATEGIES[name].uses if name in STRATEGIES else ()
                mine, theirs = ([kind(u, x.backend) for u in uses] for x in (m, other))
                size = m.sizes[-1]
                a, b = m.seconds(name, size), other.seconds(name, size)
                if "composed" in mine and set(theirs) == {"native"} and a and b:
                    notes.say("composed_cost", strategy=name, n=m.n, size=size_of(size),
                              backend=m.backend, other=other.backend,
                              times=numbers.factor(a / b))  # fmt: skip
