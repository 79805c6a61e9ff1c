"""The tables of the report: rows of cells, a unit for every column that has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualml.report import numbers
from dualml.report.analysis.base import named
from dualml.report.analysis.convergence import TARGET
from dualml.report.analysis.convergence import reached as reached_by
from dualml.report.analysis.smoothness import arm_roughness
from dualml.report.model import Comparison, Run, Trial
from dualml.report.style import loss_unit
from dualml.report.words import Words


@dataclass(frozen=True)
class Cell:
    """``kind`` is ``text``, ``number`` or ``code``; ``note`` stands beneath, small."""

    text: str
    kind: str = "text"
    tone: str = ""
    note: str = ""


@dataclass(frozen=True)
class Head:
    label: str
    unit: str = ""
    number: bool = False


@dataclass(frozen=True)
class Table:
    """The first cell of every row is its heading."""

    name: str
    caption: str
    head: Sequence[Head]
    rows: Sequence[Sequence[Cell]]


STATUS_TONES = {"ok": "good", "failed": "bad", "unsupported": "muted", "interrupted": "near"}
VERDICT_TONES = {
    "equal": "good",
    "statistically equal": "near",
    "different": "bad",
    "not comparable": "muted",
}
#: A sign beside the colour, for those who do not see it and for print.
SIGNS = {"good": "✓", "near": "≈", "bad": "≠", "muted": "–"}


def number(text: str) -> Cell:
    return Cell(text, "number")


def status(trial: Trial, words: Words) -> Cell:
    text = words.either(f"status.{trial.status}", trial.status)
    return Cell(text, tone=STATUS_TONES.get(trial.status, "muted"))


def verdict(c: Comparison, words: Words) -> Cell:
    tone = VERDICT_TONES.get(c.verdict, "muted")
    text = words.either(f"verdict.{c.verdict.replace(' ', '_')}", c.verdict)
    why = words.either(f"reason.{c.reason}", c.reason)
    return Cell(f"{SIGNS[tone]} {text}", tone=tone, note=why)


def heads(words: Words, *columns: str) -> list[Head]:
    """``"train_s:seconds"`` → the column's label with its unit; a column with a unit is numeric."""
    made = []
    for column in columns:
        key, _, unit = column.partition(":")
        known = words.either(f"unit.{unit}", unit)
        made.append(Head(words(f"column.{key}"), known, bool(unit)))
    return made


def failures(run: Run, words: Words) -> Table | None:
    """Trials that did not succeed, with the reason."""
    rows = [
        [
            Cell(t.arm, "code"),
            Cell(t.backend),
            number(str(t.seed)),
            status(t, words),
            Cell(t.reason),
        ]
        for t in run.trials
        if not t.ok
    ]
    if not rows:
        return None
    head = heads(words, "arm", "backend", "seed", "status", "reason")
    return Table("failures", words("status.caption"), head, rows)


def trials(run: Run, words: Words) -> Table:
    rows = []
    for arm in run.arms:
        for backend in run.backends:
            for t in run.select(arm, backend, ok=False):
                rows.append(
                    [
                        Cell(t.arm, "code"),
                        Cell(t.backend),
                        number(str(t.seed)),
                        status(t, words),
                        number(numbers.loss(t.final_loss)),
                        *(number(_percent(v)) for v in (t.train_accuracy, t.test_accuracy)),
                        *(number(numbers.quantity(v)) for v in (t.train_s, t.wall_s)),
                        *(number(numbers.quantity(v)) for v in (t.updates, t.sample_gradients)),
                        number(numbers.quantity(t.throughput)),
                        number(numbers.quantity(t.peak_memory_mb)),
                    ]
                )
    unit = loss_unit(run)
    head = heads(
        words,
        *("arm", "backend", "seed", "status", f"final_loss:{unit}", "train_accuracy:percent"),
        *("test_accuracy:percent", "train_s:seconds", "wall_s:seconds", "updates:count"),
        *("sample_gradients:count", "throughput:per_second", "memory:memory"),
    )
    return Table("trials", words("table.trials"), head, rows)


def _percent(x: Any) -> str:
    return numbers.percent(x).removesuffix(" %")


def reached(run: Run, words: Words) -> Table | None:
    rows = []
    for arm in run.main_arms():
        for backend in run.backends:
            if not run.select(arm, backend):
                continue
            hit = reached_by(run, arm, backend)
            if hit is None:
                values = [words("value.never"), numbers.NONE, numbers.NONE, numbers.NONE]
            else:
                values = [
                    *(numbers.quantity(v) for v in (hit.updates, hit.epochs, hit.seconds)),
                    words("value.of", n=hit.seeds, of=hit.of),
                ]
            rows.append([Cell(arm, "code"), Cell(backend), *map(number, values)])
    if not rows:
        return None
    head = heads(
        words, "arm", "backend", "updates:count", "epochs:epochs", "seconds:seconds", "seeds:count"
    )
    caption = words("table.reached", target=f"{100 * TARGET:g} %")
    return Table("reached", caption, head, rows)


def rough(run: Run, words: Words) -> Table | None:
    """Arms down, backends across."""
    rows = []
    for arm in run.main_arms():
        values = [arm_roughness(run, arm, b) for b in run.backends]
        rows.append([Cell(arm, "code"), *(number(numbers.scientific(v)) for v in values)])
    head = [*heads(words, "arm"), *(Head(b, words("unit.relative"), True) for b in run.backends)]
    return Table("smoothness", words("table.smoothness"), head, rows) if rows else None


PHASES = ("data", "forward", "loss", "gradient", "update", "state")


def parity(run: Run, words: Words) -> Table | None:
    if not run.comparisons:
        return None
    present = {name for c in run.comparisons for name in c.phases}
    phases = [p for p in PHASES if p in present] + sorted(present - set(PHASES))
    rows, margin = [], float(run.parity_settings.get("margin") or 1)
    for c in run.comparisons:
        rows.append(
            [
                Cell(c.arm, "code"),
                number(str(c.seed)),
                Cell(f"{c.a} – {c.b}"),
                verdict(c, words),
                number(numbers.quantity(c.steps)),
                *(_phase(c.phases.get(p), margin) for p in phases),
                Cell(divergence(c.first_divergence, words)),
            ]
        )
    unit = words("unit.phase")
    head = [
        *heads(words, "arm", "seed", "pair", "verdict", "steps:count"),
        *(Head(words.either(f"phase.{p}", p), unit, True) for p in phases),
        *heads(words, "first"),
    ]
    return Table("parity", words("table.parity"), head, rows)


def _phase(phase: Mapping[str, Any] | None, margin: float) -> Cell:
    if not phase or not numbers.known(phase.get("max")):
        return number(numbers.NONE)
    ratio = phase.get("ratio")
    tone = "bad" if numbers.known(ratio) and ratio > margin else ""
    share = f"× {numbers.scientific(ratio)}" if numbers.known(ratio) else ""
    return Cell(numbers.scientific(phase["max"]), "number", tone, share)


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
                *(number(_percent(v)) for v in accuracies),
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
