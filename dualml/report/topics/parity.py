"""Framework against framework: verdicts, the distances behind them, the end of training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dualml.report import ranks
from dualml.report.blocks import Block, Cells, Fold, Item, Prose, Table
from dualml.report.columns import columns, percent, verdict
from dualml.report.distances import distance_figures
from dualml.report.headline import WORST_FIRST
from dualml.report.measures import loss_unit
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.report.verdicts import (
    divergence,
    phase_cells,
    phase_columns,
    phases_of,
    place,
    short_verdict,
)
from dualml.store.run import Comparison, Run
from dualml.words import Words, numbers


def evidence(run: Run, words: Words) -> Iterator[Block]:
    if run.comparisons is None:
        yield Prose(words("intro.no_parity"))
        return
    for group, arms in run.groups().items():
        compared = [c for c in run.comparisons if c.arm in arms and c.curve.get("step")]
        main = set(arms) >= set(run.main_arms())
        if compared and (main or any(c.verdict == "different" for c in compared)):
            plain = all(ranks.size(run, arm) == 1 for arm in arms)
            yield from distance_figures(run, words, group, compared if plain else _worst(compared))
    if run.comparisons:
        yield _phases(run, words, run.comparisons)
        yield from _outcomes(run, words, run.comparisons)
        values = [
            f"{words.either(f'parity_setting.{k}', k)} {numbers.quantity(v)}"
            for k, v in run.parity_settings.items()
        ]
        settings = words("intro.envelope_settings", values=words.join(values)) if values else ""
        texts = [Prose(text) for text in (words("intro.envelope"), settings) if text]
        yield Fold(words("page.calibration"), texts)


def _worst(compared: Sequence[Comparison], most: int = 3) -> list[Comparison]:
    """The arms whose pairs are furthest apart: of many arms with ranks all look alike."""

    def far(arm: str) -> tuple[bool, float]:
        pairs = [c for c in compared if c.arm == arm]
        ratios = [p["ratio"] for c in pairs for p in c.phases.values() if p.get("ratio")]
        return any(c.verdict == "different" for c in pairs), max(ratios, default=0.0)

    arms = sorted({c.arm for c in compared}, key=lambda arm: (*far(arm), arm))[-most:]
    return [c for c in compared if c.arm in arms]


def _phases(run: Run, words: Words, comparisons: Sequence[Comparison]) -> Table:
    phases = phases_of(comparisons)
    # In a run with ranks the table is long enough without a column of nothing.
    several = ranks.distributed(run)
    apart = any(c.first_divergence for c in comparisons) or not several
    rows: list[Cells] = [
        [
            c.arm,
            str(c.seed),
            f"{c.a} – {c.b}",
            short_verdict(c, words) if several else verdict(c, words),
            numbers.quantity(c.steps),
            *phase_cells(c, phases, run),
            *([divergence(c.first_divergence, words)] if apart else []),
        ]
        for c in comparisons
    ]
    shown = [
        *columns(words, "`arm`", "seed:", "pair", "verdict", "steps:count"),
        *phase_columns(phases, words),
        *(columns(words, "first") if apart else []),
    ]
    return Table("parity", words("table.parity"), shown, rows)


def _outcomes(run: Run, words: Words, comparisons: Sequence[Comparison]) -> Iterator[Table]:
    rows = []
    for c in comparisons:
        if c.outcome:
            losses = list(c.outcome.get("final_loss") or [None, None])
            accuracies = list(c.outcome.get("test_accuracy") or [None, None])
            numbers_of = [*map(numbers.loss, losses), *map(percent, accuracies)]
            weights = numbers.scientific(c.outcome.get("weights"))
            rows.append([c.arm, str(c.seed), f"{c.a} – {c.b}", *numbers_of, weights])
    unit = loss_unit(run)
    shown = columns(
        words,
        *("`arm`", "seed:", "pair", f"loss_a:{unit}", f"loss_b:{unit}"),
        *("accuracy_a:percent", "accuracy_b:percent", "weights:relative"),
    )
    if rows:
        yield Table("outcome", words("table.outcome"), shown, rows)


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "parity", "table-parity")
    if not ranks.training(run):
        return notes
    if not run.comparisons:
        notes.warn("none")
        return notes
    counts = Counter(c.verdict for c in run.comparisons)
    listed = [
        words("say.parity.item", n=counts[v], verdict=words(f"verdict.{v.replace(' ', '_')}"))
        for v in reversed(WORST_FIRST)
        if counts[v]
    ]
    notes.say("count", len(run.comparisons), n=len(run.comparisons), values=words.join(listed))
    equal = [c for c in run.comparisons if c.verdict == "equal"]
    worst = max(equal, key=lambda c: _worst_phase(c)[1].get("max", 0.0), default=None)
    if worst is not None:
        phase, values = _worst_phase(worst)
        notes.say(
            "closest",
            distance=numbers.scientific(values.get("max")),
            phase=words.either(f"phase.{phase}", phase),
            arm=worst.arm,
            a=worst.a,
            b=worst.b,
            seed=worst.seed,
            ratio=numbers.scientific(values.get("ratio")),
        )
    free = list(dict.fromkeys(c.arm for c in run.comparisons if c.reason == "free_order"))
    if free:
        notes.say("free", len(free), arms=words.join(free))
    for c in run.comparisons:
        if c.reason != "free_order":
            _difference(notes, c)
    return notes


def _difference(notes: Notes, c: Comparison) -> None:
    """Where two backends part, or why that cannot be said, and how far apart they end."""
    words = notes.words
    who: dict[str, Any] = {"arm": c.arm, "a": c.a, "b": c.b, "seed": c.seed}
    notes.about("table-parity")
    if c.verdict == "different" and c.first_divergence:
        notes.say("diverged", **who, **place(c.first_divergence, words))
    elif c.verdict == "not comparable":
        notes.warn("incomparable", **who, reason=words.either(f"reason.{c.reason}", c.reason))
    if c.verdict not in ("equal", "not comparable"):
        a, b = c.outcome.get("test_accuracy") or [None, None]
        if numbers.known(a) and numbers.known(b):
            notes.about("table-outcome")
            notes.say("outcome", **who, points=f"{100 * abs(a - b):.2f}")


def _worst_phase(c: Comparison) -> tuple[str, Mapping[str, float]]:
    """The phase with the largest distance."""
    known = {name: p for name, p in c.phases.items() if numbers.known(p.get("max"))}
    if not known:
        return numbers.NONE, {}
    name = max(known, key=lambda n: known[n]["max"])
    return name, known[name]


TOPIC = Topic("parity", 700, evidence, findings, leads=lambda run: 5)
