"""Cells that say how two trials differ: phase by phase, and where they part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dualml.report.blocks import Cell, Column
from dualml.report.columns import verdict
from dualml.store.run import Comparison, Run
from dualml.words import Words, numbers

PHASES = ("data", "forward", "loss", "gradient", "update", "state")


def phases_of(compared: Sequence[Comparison]) -> list[str]:
    present = {name for c in compared for name in c.phases}
    return [p for p in PHASES if p in present] + sorted(present - set(PHASES))


def phase_columns(phases: Sequence[str], words: Words) -> list[Column]:
    unit = words("unit.phase")
    return [Column(p, words.either(f"phase.{p}", p), unit, "number") for p in phases]


def phase_cells(c: Comparison, phases: Sequence[str], run: Run) -> list[Cell]:
    """The largest distance of each phase, beneath it its ratio to the envelope."""
    margin = float(run.parity_settings.get("margin") or 1)
    return [_phase(c.phases.get(p), margin) for p in phases]


def _phase(distances: Mapping[str, Any] | None, margin: float) -> Cell:
    if not distances or not numbers.known(distances.get("max")):
        return Cell(numbers.NONE)
    ratio = distances.get("ratio")
    far = numbers.known(ratio) and ratio > margin
    note = f"× {numbers.scientific(ratio)}" if numbers.known(ratio) else ""
    return Cell(numbers.scientific(distances["max"]), "bad" if far else "", note)


def short_verdict(c: Comparison, words: Words) -> Cell:
    """In long tables the plain reason goes without saying."""
    cell = verdict(c, words)
    return replace(cell, note="") if c.reason == "inside_envelope" else cell


def divergence(first: Mapping[str, Any] | None, words: Words) -> str:
    """Where two trials left the envelope: ``update 12, gradient conv1.weight: …``."""
    if not first:
        return words("divergence.none")
    text, after = words("divergence.at", **place(first, words)), first.get("after")
    return text + (words("divergence.after", after=after) if numbers.known(after) and after else "")


def place(first: Mapping[str, Any], words: Words) -> dict[str, str]:
    """Step, phase, distance and envelope of a divergence, for a sentence."""
    phase, tensor = str(first.get("phase")), first.get("tensor")
    # The loss is called by its phase already.
    name = f" {tensor}" if tensor and tensor != phase else ""
    return {
        "step": numbers.quantity(first.get("step")),
        "phase": words.either(f"phase.{phase}", phase) + name,
        "distance": numbers.scientific(first.get("distance")),
        "envelope": numbers.scientific(first.get("envelope")),
    }
