"""Tables of framework against framework: distances phase by phase, and the end of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dualml.report import numbers, ranks
from dualml.report.analysis.base import named
from dualml.report.cells import Cell, Head, Table, heads, number, percent, verdict
from dualml.report.model import Comparison, Run
from dualml.report.style import loss_unit
from dualml.report.words import Words

PHASES = ("data", "forward", "loss", "gradient", "update", "state")


def phases_of(compared: Sequence[Comparison]) -> list[str]:
    present = {name for c in compared for name in c.phases}
    return [p for p in PHASES if p in present] + sorted(present - set(PHASES))


def parity(run: Run, words: Words) -> Table | None:
    if not run.comparisons:
        return None
    phases = phases_of(run.comparisons)
    # In a run with ranks the table is long enough without a column of nothing.
    several = ranks.distributed(run)
    apart = any(c.first_divergence for c in run.comparisons) or not several
    rows, margin = [], float(run.parity_settings.get("margin") or 1)
    for c in run.comparisons:
        rows.append(
            [
                Cell(c.arm, "code"),
                number(str(c.seed)),
                Cell(f"{c.a} – {c.b}"),
                short_verdict(c, words) if several else verdict(c, words),
                number(numbers.quantity(c.steps)),
                *(phase(c.phases.get(p), margin) for p in phases),
                *([Cell(divergence(c.first_divergence, words))] if apart else []),
            ]
        )
    unit = words("unit.phase")
    head = [
        *heads(words, "arm", "seed", "pair", "verdict", "steps:count"),
        *(Head(words.either(f"phase.{p}", p), unit, True) for p in phases),
        *(heads(words, "first") if apart else []),
    ]
    return Table("parity", words("table.parity"), head, rows)


def short_verdict(c: Comparison, words: Words) -> Cell:
    """In long tables the plain reason goes without saying."""
    told = verdict(c, words)
    return replace(told, note="") if c.reason == "inside_envelope" else told


def phase(found: Mapping[str, Any] | None, margin: float) -> Cell:
    """The largest distance of a phase, beneath it its ratio to the envelope."""
    if not found or not numbers.known(found.get("max")):
        return number(numbers.NONE)
    ratio = found.get("ratio")
    tone = "bad" if numbers.known(ratio) and ratio > margin else ""
    share = f"× {numbers.scientific(ratio)}" if numbers.known(ratio) else ""
    return Cell(numbers.scientific(found["max"]), "number", tone, share)


def divergence(first: Mapping[str, Any] | None, words: Words) -> str:
    if not first:
        return words("divergence.none")
    phase = str(first.get("phase"))
    text = words(
        "divergence.at",
        step=numbers.quantity(first.get("step")),
        phase=words.either(f"phase.{phase}", phase),
        tensor=named(first),
        distance=numbers.scientific(first.get("distance")),
        envelope=numbers.scientific(first.get("envelope")),
    )
    after = first.get("after")
    return text + (words("divergence.after", after=after) if numbers.known(after) and after else "")


def outcome(run: Run, words: Words) -> Table | None:
    compared = [c for c in run.comparisons or () if c.outcome]
    if not compared:
        return None
    rows = []
    for c in compared:
        losses = list(c.outcome.get("final_loss") or [None, None])
        accuracies = list(c.outcome.get("test_accuracy") or [None, None])
        rows.append(
            [
                Cell(c.arm, "code"),
                number(str(c.seed)),
                Cell(f"{c.a} – {c.b}"),
                *(number(numbers.loss(v)) for v in losses),
                *(number(percent(v)) for v in accuracies),
                number(numbers.scientific(c.outcome.get("weights"))),
            ]
        )
    unit = loss_unit(run)
    head = heads(
        words,
        *("arm", "seed", "pair", f"loss_a:{unit}", f"loss_b:{unit}"),
        *("accuracy_a:percent", "accuracy_b:percent", "weights:relative"),
    )
    return Table("outcome", words("table.outcome"), head, rows)
