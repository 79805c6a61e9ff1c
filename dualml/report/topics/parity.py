"""Comparison of frameworks: verdicts, the distances behind them, the end of training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData, TrialComparison
from dualml.experiment.verdict import VERDICTS
from dualml.report import ranks
from dualml.report.blocks import Block, Fold, Prose, Table
from dualml.report.columns import Columns, tabulate, verdict
from dualml.report.distances import distance_figures
from dualml.report.measures import loss_unit
from dualml.report.notes import Notes
from dualml.report.topics import ReportSection
from dualml.report.verdicts import (
    divergence_fields,
    format_divergence,
    phase_cells,
    phase_columns,
    phases_of,
    short_verdict,
)


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the figures of loss distances (of the groups with the main arms or with a different
    verdict), the tables of verdicts and final results, and the settings of the comparison; only a
    sentence if the run was not compared."""
    if run.comparisons is None:
        yield Prose(words("intro.no_parity"))
        return
    for group, arms in run.groups().items():
        compared = [c for c in run.comparisons if c.arm in arms and c.curve.get("step")]
        main = set(arms) >= set(run.main_arms())
        if compared and (main or any(c.verdict == "different" for c in compared)):
            plain = all(ranks.world_size(run, arm) == 1 for arm in arms)
            yield from distance_figures(
                run, words, group, compared if plain else _comparisons_of_furthest_arms(compared)
            )
    if run.comparisons:
        yield from _phases(run, words, run.comparisons)
        yield from _outcomes(run, words, run.comparisons)
        texts = [words("intro.envelope")]
        if run.parity_settings:
            settings = {
                words.get(f"parity_setting.{k}", k): v for k, v in run.parity_settings.items()
            }
            texts.append(words("intro.envelope_settings", values=settings))
        yield Fold(words("page.calibration"), [*map(Prose, texts)])


def _comparisons_of_furthest_arms(
    compared: Sequence[TrialComparison], most: int = 3
) -> list[TrialComparison]:
    """Return the comparisons of the ``most`` arms whose backends are furthest apart; an arm with
    the verdict ``different`` counts as further than any without it."""

    def distance_of(arm: str) -> tuple[bool, float]:
        pairs = [c for c in compared if c.arm == arm]
        ratios = [p["ratio"] for c in pairs for p in c.phases.values() if p.get("ratio")]
        return any(c.verdict == "different" for c in pairs), max(ratios, default=0.0)

    arms = sorted({c.arm for c in compared}, key=lambda arm: (*distance_of(arm), arm))[-most:]
    return [c for c in compared if c.arm in arms]


def _phases(
    run: RunData, words: Messages, comparisons: Sequence[TrialComparison]
) -> Iterator[Table]:
    """Yield the table of verdicts with the largest distance of each phase of an update."""
    phases = phases_of(comparisons)
    # In multi-rank runs the long table omits a column without entries.
    several = ranks.is_distributed(run)
    apart = any(c.first_divergence for c in comparisons) or not several
    read: Columns[TrialComparison] = {
        ("`arm`", "seed:", "pair"): lambda c: (c.arm, str(c.seed), f"{c.a} – {c.b}"),
        "verdict": lambda c: short_verdict(c, words) if several else verdict(c, words),
        "steps:count": lambda c: c.steps,
        tuple(phase_columns(phases, words)): lambda c: phase_cells(c, phases, run),
        "first?": lambda c: apart and format_divergence(c.first_divergence, words),
    }
    yield from tabulate(words, "parity", comparisons, read)


def _outcomes(
    run: RunData, words: Messages, comparisons: Sequence[TrialComparison]
) -> Iterator[Table]:
    """Yield the table of final losses, accuracies and weight distances of both backends."""
    unit = loss_unit(run)
    read: Columns[TrialComparison] = {
        ("`arm`", "seed:", "pair"): lambda c: (c.arm, str(c.seed), f"{c.a} – {c.b}"),
        (f"loss_a:{unit}", f"loss_b:{unit}"): lambda c: c.outcome.get("final_loss") or [None] * 2,
        ("accuracy_a:percent", "accuracy_b:percent"): lambda c: (
            c.outcome.get("test_accuracy") or [None] * 2
        ),
        "weights:relative": lambda c: numbers.scientific(c.outcome.get("weights")),
    }
    yield from tabulate(words, "outcome", (c for c in comparisons if c.outcome), read)


def findings(notes: Notes, run: RunData) -> None:
    """Add the number of comparisons per verdict, the largest distance among equal ones, and
    where the others diverge."""
    words = notes.words
    if not run.comparisons:
        if ranks.training_arms(run):
            notes.add_warning("none")
        return
    counts = Counter(c.verdict for c in run.comparisons)
    listed = [
        words("say.parity.item", n=counts[v], verdict=words(f"verdict.{v.replace(' ', '_')}"))
        for v in VERDICTS
        if counts[v]
    ]
    notes.add("count", len(run.comparisons), n=len(run.comparisons), values=listed)
    equal = [(c, *_worst_phase(c)) for c in run.comparisons if c.verdict == "equal"]
    if equal:
        c, phase, worst = max(equal, key=lambda each: each[2].get("max", 0.0))
        notes.add(
            "closest",
            c=c,
            phase=words.get(f"phase.{phase}", phase),
            distance=worst.get("max"),
            ratio=worst.get("ratio"),
        )
    free = list(dict.fromkeys(c.arm for c in run.comparisons if c.reason == "free_order"))
    if free:
        notes.add("free", len(free), arms=free)
    for c in run.comparisons:
        if c.reason != "free_order":
            _difference(notes, words, c)


def _difference(notes: Notes, words: Messages, c: TrialComparison) -> None:
    """Add where two backends diverge, or why that is unknown, and how far apart they end."""
    notes.set_anchor("table-parity")
    if c.verdict == "different" and c.first_divergence:
        notes.add("diverged", c=c, **divergence_fields(c.first_divergence, words))
    elif c.verdict == "not comparable":
        notes.add_warning("incomparable", c=c, reason=words.get(f"reason.{c.reason}", c.reason))
    if c.verdict not in ("equal", "not comparable"):
        a, b = c.outcome.get("test_accuracy") or [None, None]
        if numbers.is_finite_number(a) and numbers.is_finite_number(b):
            notes.set_anchor("table-outcome")
            notes.add("outcome", c=c, points=100 * abs(a - b))


def _worst_phase(c: TrialComparison) -> tuple[str, Mapping[str, float]]:
    """Return name and distances of the phase with the largest distance; a dash and an empty mapping
    if none is known."""
    known = [
        (name, phase)
        for name, phase in c.phases.items()
        if numbers.is_finite_number(phase.get("max"))
    ]
    return max(known, key=lambda pair: pair[1]["max"], default=(numbers.NO_VALUE, {}))


TOPIC = ReportSection("parity", 700, evidence, findings, "table-parity", priority=lambda run: 5)
