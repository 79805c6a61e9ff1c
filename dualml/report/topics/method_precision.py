"""Low-precision methods compared with our own training in the same precision, by its envelope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report import verdicts
from dualml.report.blocks import Block, Item
from dualml.report.columns import table
from dualml.report.methods import Way, about, ways, worst_of
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.report.topics.methods import WHICH, judged, which
from dualml.store.run import Run, Serial
from dualml.words import Words


def lowered(run: Run) -> list[Way]:
    """Return the methods that are compared with our own training in their precision."""
    return [w for w in ways(run) if w.lowered]


def worst_seed(w: Way) -> Serial:
    """Return the comparison of the deciding seed: the worst verdict, of equal ones the one that
    uses the largest share of its envelope."""
    decide = [s for s in w.lowered if s.verdict == worst_of(w.lowered)]
    return max(decide, key=lambda s: -1.0 if s.worst is None else s.worst)


def casts(w: Way, words: Words) -> str:
    """Return how the casts of the method's engine differ from our rule; empty if they do not."""
    return w.info.casts.get(words.lang, "") if w.info else ""


def evidence(run: Run, words: Words) -> Iterator[Block]:
    apart = any(worst_seed(w).first_divergence for w in lowered(run))
    head = (*WHICH, "`against`", "judged_seeds:", "verdict", *(["first"] if apart else []), "casts")
    rows = [
        [*which(w, words), worst_seed(w).against, inside(w, words),
         judged(worst_of(w.lowered), w.lowered, words, reason(worst_seed(w), words)),
         *([verdicts.divergence(worst_seed(w).first_divergence, words)] if apart else []),
         casts(w, words)]
        for w in lowered(run)
    ]  # fmt: skip
    yield from table(words, "lowered", head, rows)


def inside(w: Way, words: Words) -> str:
    """Return the number of equal seeds as text, e.g. ``2 of 3``."""
    equal = sum(s.verdict == "equal" for s in w.lowered)
    return words("value.of", n=equal, of=len(w.lowered))


def reason(s: Serial, words: Words) -> str:
    """Return the reason of the verdict; empty if the envelope decided."""
    outside = s.reason in ("inside_envelope", "outside_envelope")
    return "" if outside else words.either(f"reason.{s.reason}", s.reason)


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes, every = Notes(words, "methods", "table-lowered"), lowered(run)
    if every:
        equal = [w for w in every if worst_of(w.lowered) == "equal"]
        notes.say("lowered", k=len(equal), n=len(every))
    for w in every:
        s, verdict = worst_seed(w), worst_of(w.lowered)
        place = {"arm": w.arm, "backend": w.backend, "against": s.against}
        if s.reason == "float32":
            notes.warn("float32", **place, precision=w.precision)
        elif verdict == "different" and s.first_divergence:
            entries = w.info.entries if w.info else ()
            look = [f"`dualml diffs {name}`" for name in entries]
            notes.warn("casts", **place, **verdicts.place(s.first_divergence, words),
                       losses=(s.phases.get("loss") or {}).get("ratio"), casts=casts(w, words),
                       look=look)  # fmt: skip
        elif verdict != "equal":
            notes.warn("open", **place, reason=words.either(f"reason.{s.reason}", s.reason))
    return notes


TOPIC = Topic("method-precision", 21, evidence, findings, when=about)
