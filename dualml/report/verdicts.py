"""Format comparisons of trials: distances by phase, the first divergence, and all verdicts of a
run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dualml.common.json_types import JsonMapping
from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData, Serial, TrialComparison
from dualml.experiment.store.trial_comparison import RunVerdicts
from dualml.experiment.verdict import worst_comparison
from dualml.report.blocks import Cell, Column, Table
from dualml.report.columns import VERDICT_TONES, Columns, make_table, verdict
from dualml.report.notes import Notes

PHASES = ("data", "forward", "loss", "gradient", "update", "state")


def phases_of(compared: Sequence[TrialComparison]) -> list[str]:
    """Return the phases that any comparison has, in the order of an update, then unknown ones by
    name."""
    present = {name for c in compared for name in c.phases}
    return [p for p in PHASES if p in present] + sorted(present - set(PHASES))


def phase_columns(phases: Sequence[str], words: Messages) -> list[Column]:
    """Return a column of numbers for each phase of an update."""
    unit = words("unit.phase")
    return [Column(p, words.get(f"phase.{p}", p), unit, "number") for p in phases]


def phase_cells(c: TrialComparison, phases: Sequence[str], run: RunData) -> list[Cell]:
    """Return for each of the ``phases`` the cell of its largest distance, and below it the largest
    ratio of a distance to its envelope, which may be at another tensor or step; a dash where
    unknown."""
    margin = float(run.parity_settings.get("margin") or 1)
    return [_phase(c.phases.get(p), margin) for p in phases]


def _phase(distances: Mapping[str, Any] | None, margin: float) -> Cell:
    """Return the cell of a phase's largest distance with its largest ratio to an envelope, red if
    that exceeds ``margin``; a dash if unknown."""
    if not distances or not numbers.is_finite_number(distances.get("max")):
        return Cell(numbers.NO_VALUE)
    ratio = distances.get("ratio")
    far = numbers.is_finite_number(ratio) and ratio > margin
    note = f"× {numbers.scientific(ratio)}" if numbers.is_finite_number(ratio) else ""
    return Cell(numbers.scientific(distances["max"]), "bad" if far else "", note)


def short_verdict(c: TrialComparison, words: Messages) -> Cell:
    """Return the verdict's cell without the reason if the comparison stayed inside the envelope."""
    cell = verdict(c, words)
    return replace(cell, note="") if c.reason == "inside_envelope" else cell


def serial_cell(compared: Iterable[Serial], words: Messages) -> Cell | None:
    """Return the cell of the worst comparison with one rank: its verdict, or for another update
    rule its name; None without a comparison."""
    worst = worst_comparison(compared)
    if worst is None:
        return None
    if worst.verdict:
        return verdict(worst, words, why=False)
    reason = words.get(f"rule.{worst.reason}", worst.reason)
    return Cell(words("value.another_rule"), note=reason)


def format_divergence(first: JsonMapping | None, words: Messages) -> str:
    """Return where two trials left the envelope, e.g. ``update 12, gradient conv1.weight: …``, or
    for None the text that they did not."""
    if not first:
        return words("divergence.none")
    text, after = words("divergence.at", **divergence_fields(first, words)), first.get("after")
    return text + (
        words("divergence.after", after=after) if numbers.is_finite_number(after) and after else ""
    )


def divergence_fields(first: JsonMapping, words: Messages) -> dict[str, str]:
    """Return the texts ``step``, ``phase`` (with the tensor), ``distance`` and ``envelope`` of a
    divergence, as values of a sentence."""
    phase, tensor = str(first.get("phase")), first.get("tensor")
    # The phase already names the loss.
    name = f" {tensor}" if tensor and tensor != phase else ""
    return {
        "step": numbers.quantity(first.get("step")),
        "phase": words.get(f"phase.{phase}", phase) + name,
        "distance": numbers.scientific(first.get("distance")),
        "envelope": numbers.scientific(first.get("envelope")),
    }


def add_divergences(notes: Notes, compared: Iterable[TrialComparison]) -> None:
    """Add a sentence for every comparison that is not equal: where it diverged (``diverged``), or
    why that is open (the warning ``open``)."""
    for s in compared:
        if s.verdict == "different" and s.first_divergence:
            notes.add("diverged", s=s, **divergence_fields(s.first_divergence, notes.words))
        elif s.verdict != "equal":
            why = notes.words.get(f"reason.{s.reason}", s.reason)
            notes.add_warning("open", s=s, reason=why)


def add_verdicts(notes: Notes, compared: Sequence[TrialComparison]) -> None:
    """Add how many of the comparisons are equal (``equal``), and `add_divergences` of the
    others."""
    if compared:
        equal = sum(s.verdict == "equal" for s in compared)
        notes.add("equal", len(compared), k=equal, n=len(compared))
    add_divergences(notes, compared)


def verdict_table(verdicts: RunVerdicts, words: Messages) -> Table:
    """Return a table with one row per arm, seed and pair of backends."""
    read: Columns[TrialComparison] = {
        ("arm", "seed:"): lambda c: (c.arm, str(c.seed)),
        "pair": lambda c: f"{c.a} – {c.b}",
        "verdict": lambda c: Cell(c.paragraph(words.lang), VERDICT_TONES[c.verdict]),
        "steps:": lambda c: str(c.steps or ""),
        "ratio:": lambda c: "" if c.ratio is None else f"{c.ratio:.2f}",
        "reason": lambda c: explain_verdict(c, words),
    }
    return make_table(words, "verdicts", verdicts.comparisons, read)


def serial_lines(verdicts: RunVerdicts, words: Messages) -> Iterator[str]:
    """Yield a sentence with how many comparisons with one rank are equal or statistically equal,
    then a line for each that is not exactly ``equal``, and for each such comparison of a
    low-precision method with dualml's own training in the same precision."""
    judged = [c for c in verdicts.serial or () if c.verdict]
    if judged:
        yield words("headline.serial", equal=sum(c.is_equal for c in judged), n=len(judged))
    for c in (*judged, *verdicts.lowered):
        if c.verdict not in ("", "equal"):
            place = f"{c.arm} – {c.against}, {c.backend}, {c.seed}"
            yield f"{place}: {c.paragraph(words.lang)} {explain_verdict(c, words)}"


def explain_verdict(c: TrialComparison, words: Messages) -> str:
    """Return one phrase that explains a verdict: where the trials diverged, or else the reason,
    with its evidence if there is any; empty if they stayed inside the envelope."""
    why = words.get(f"reason.{c.reason}", c.reason)
    if c.reason == "inside_envelope":
        return ""  # the verdict says it already
    if c.first_divergence:
        return format_divergence(c.first_divergence, words)
    if c.reason == "trial_missing":
        statuses = [f"{n} {words.get(f'status.{s}', s)}" for n, s in c.evidence.items()]
        return words.join(statuses) or why
    if "equivalence" in c.evidence:
        test = c.evidence["equivalence"]
        low, mean, high = (f"{100 * test[key]:.2f}" for key in ("low", "mean", "high"))
        values = words("evidence.equivalence", mean=mean, low=low, high=high, n=test["seeds"])
        return f"{why}: {values}"
    if step := c.evidence.get("chaotic_from"):
        return f"{why} ({words('evidence.chaotic', step=step)})"
    return why
