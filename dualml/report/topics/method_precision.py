"""Low-precision methods compared with our own training in the same precision, by its envelope."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData, Serial
from dualml.report import verdicts
from dualml.report.blocks import Cell
from dualml.report.columns import Columns
from dualml.report.methods import MethodResult, compares_methods, method_results
from dualml.report.notes import Notes
from dualml.report.topics import table_section
from dualml.report.topics.methods import KEY_COLUMNS, judged_cell, name_cells


def same_precision_results(run: RunData) -> list[MethodResult]:
    """Return the methods that are compared with dualml's own training in their precision."""
    return [w for w in method_results(run) if w.same_precision_comparisons]


def worst_seed(w: MethodResult) -> Serial:
    """Return the comparison that decides the verdict on a method: one with the worst verdict, of
    several the one that uses the largest share of its envelope. The method must have been
    compared."""
    decide = [s for s in w.same_precision_comparisons if s.verdict == w.same_precision_verdict]
    return max(decide, key=lambda s: -1.0 if s.worst is None else s.worst)


def cast_difference(w: MethodResult, words: Messages) -> str:
    """Return how the casts of the method's engine differ from dualml's own, as text; empty if they
    do not, or if the method is unknown."""
    return w.info.casts.get(words.lang, "") if w.info else ""


def columns(run: RunData, words: Messages, every: Sequence[MethodResult]) -> Columns[MethodResult]:
    """Return the columns of verdicts against dualml's own training in the same precision."""
    apart = any(worst_seed(w).first_divergence for w in every)

    def judged(w: MethodResult) -> Cell | None:
        why, seeds = reason(worst_seed(w), words), w.same_precision_comparisons
        return judged_cell(w.same_precision_verdict, seeds, words, why)

    return {
        KEY_COLUMNS: lambda w: name_cells(w, words),
        "`against`": lambda w: worst_seed(w).against,
        "judged_seeds:": lambda w: count_equal_seeds(w, words),
        "verdict": judged,
        "first?": lambda w: (
            apart and verdicts.format_divergence(worst_seed(w).first_divergence, words)
        ),
        "casts": lambda w: cast_difference(w, words),
    }


def count_equal_seeds(w: MethodResult, words: Messages) -> str:
    """Return the number of equal seeds as text, e.g. ``2 of 3``."""
    equal = sum(s.verdict == "equal" for s in w.same_precision_comparisons)
    return words("value.of", n=equal, of=len(w.same_precision_comparisons))


def reason(s: Serial, words: Messages) -> str:
    """Return the reason of a verdict as text; empty if the distance to the envelope decided it."""
    outside = s.reason in ("inside_envelope", "outside_envelope")
    return "" if outside else words.get(f"reason.{s.reason}", s.reason)


def findings(notes: Notes, run: RunData, every: Sequence[MethodResult]) -> None:
    """Add how many methods equal dualml's own training in their precision, and a warning for each
    that does not."""
    words = notes.words
    if every:
        equal = [w for w in every if w.same_precision_verdict == "equal"]
        notes.add("lowered", k=len(equal), n=len(every))
    for w in every:
        s, verdict = worst_seed(w), w.same_precision_verdict
        place = {"arm": w.arm, "backend": w.backend, "against": s.against}
        if s.reason == "float32":
            notes.add_warning("float32", **place, precision=w.precision)
        elif verdict == "different" and s.first_divergence:
            entries = w.info.entries if w.info else ()
            look = [f"`dualml diffs {name}`" for name in entries]
            notes.add_warning(
                "casts",
                **place,
                **verdicts.divergence_fields(s.first_divergence, words),
                losses=(s.phases.get("loss") or {}).get("ratio"),
                casts=cast_difference(w, words),
                look=look,
            )
        elif verdict != "equal":
            notes.add_warning("open", **place, reason=words.get(f"reason.{s.reason}", s.reason))


TOPIC = table_section(
    "method-precision",
    21,
    reads=same_precision_results,
    columns=columns,
    findings=findings,
    table="lowered",
    messages="methods",
    when=compares_methods,
)
