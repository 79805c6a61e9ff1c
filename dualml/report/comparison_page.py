"""Comparisons of runs, traces and models as blocks, which every renderer takes: the sentences, a
table, and for runs the curves of every pair of trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dualml.common.words import Messages, numbers
from dualml.experiment.comparison import Comparison
from dualml.experiment.store.records import read_records
from dualml.experiment.store.trial import trial_folder
from dualml.experiment.verdict import AGREEING
from dualml.parity.places import FLOOR
from dualml.report import curves
from dualml.report.blocks import (
    Block,
    Bullets,
    Cell,
    Code,
    Fold,
    Item,
    Page,
    SectionBlock,
    Table,
    VerdictBlock,
)
from dualml.report.columns import VERDICT_TONES, Columns, make_table, percent, verdict_cell
from dualml.report.distances import COLUMNS, distance_axis, distance_panel
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId

if TYPE_CHECKING:
    from dualml.parity.against import RunComparison
    from dualml.parity.against.pair import RunPair

PAIR = "A – B"


def comparison_page(comparison: Comparison, words: Messages, *, drawn: bool = True) -> Page:
    """Return the page about a comparison; without figures unless ``drawn``."""
    first, *rest = comparison.paragraphs(words)
    table, caption = comparison_table(comparison, words), words("models.table.phases")
    blocks: list[Block] = [
        VerdictBlock(first, VERDICT_TONES[comparison.final_verdict]),
        Bullets([Item(text, warning=comparison.final_verdict not in AGREEING) for text in rest]),
        *([replace(table, caption=table.caption or caption)] if table.rows else []),
        *([blocks_table] if (blocks_table := block_table(comparison, words)).rows else []),
    ]
    blocks += patch_blocks(comparison, words)
    if comparison.pairs and drawn:
        blocks += figures(cast("RunComparison", comparison), words)
    a, b = comparison.sides
    whole = SectionBlock("against", "", blocks)
    footer = words("page.footer", version=" → ".join(dict.fromkeys(comparison.versions)))
    return Page(
        words.lang, words("against.title"), words("against.sides", a=a, b=b), [whole], footer
    )


def patch_blocks(comparison: Comparison, words: Messages) -> Iterator[Block]:
    """Yield the patch of a comparison of models, folded: a unified diff, or pairs of parameters;
    nothing without one."""
    patch = getattr(comparison, "patch", None) or {}
    for name, language in (("diff", "diff"), ("map", "toml")):
        if text := str(patch.get(name) or ""):
            proved = "proved" if patch["verdict"] == "equal" else "partial"
            code = Code(text.rstrip("\n"), words(f"models.patch.text_{name}"), language=language)
            yield Fold(words(f"models.patch.{proved}"), [code], "patch")


def comparison_table(comparison: Comparison, words: Messages) -> Table:
    """Return the table of a comparison: a row per pair of trials of two runs, else per phase of an
    update, without rows if no update was compared."""
    if comparison.pairs:
        return pair_table(cast("RunComparison", comparison), words)
    return phase_table(comparison, words)


def phase_table(comparison: Comparison, words: Messages) -> Table:
    """Return a table with a row per phase of an update: the number of arrays, and the one with the
    largest ratio to its rounding."""
    read: Columns[tuple[str, Mapping[str, Any]]] = {
        "phase": lambda row: words(f"models.phase.{row[0]}"),
        ("arrays:", "step:"): lambda row: (str(row[1]["arrays"]), str(row[1]["step"])),
        "tensor": lambda row: row[1]["tensor"],
        "distance:": lambda row: f"{row[1]['distance']:.1e}",
        "envelope:": lambda row: f"{row[1]['envelope']:.1e}",
        "ratio:": lambda row: f"{row[1]['ratio']:.3g}",
    }
    phases = comparison.phases.items()
    return make_table(words, "phases", phases, read, labels="models.column.{}")


def block_table(comparison: Comparison, words: Messages) -> Table:
    """Return a table with a row per block of two models that were compared block by block, without
    rows for another comparison: the largest ratios to rounding, and the drift of the two."""

    def ratio(value: float | None) -> str:
        """Format a ratio; a dash for None."""
        return numbers.NO_VALUE if value is None else f"{value:.3g}"

    def distance(value: float | None) -> str:
        """Format a relative distance; a dash for None."""
        return numbers.NO_VALUE if value is None else f"{value:.1e}"

    rows = getattr(comparison, "blocks", ())
    updated = any("update" in row for row in rows)
    read: Columns[Mapping[str, Any]] = {
        "block": lambda row: row["block"],
        ("forward:", "gradient:"): lambda row: (ratio(row["forward"]), ratio(row["gradient"])),
        **({"update:": lambda row: ratio(row["update"])} if updated else {}),
        ("drift:", "rounding:"): lambda row: (distance(row["drift"]), distance(row["rounding"])),
    }
    caption = words("models.table.blocks")
    return make_table(words, "blocks", rows, read, caption, labels="models.column.{}")


def pair_table(comparison: RunComparison, words: Messages) -> Table:
    """Return a table with one row per pair of trials: verdict, judged updates, ratio to the
    envelope, results of A and B, ratios of time and memory, first divergence."""
    from dualml.parity.against.sentences import format_cell

    read: Columns[RunPair] = {
        ("arm", "backend"): attrgetter("arm", "backend"),
        "seed:": lambda pair: str(pair.seed),
        "verdict": lambda pair: verdict_cell(pair.verdict, words),
        "steps:": lambda pair: numbers.quantity(pair.evidence.get("judged_steps")),
        "ratio:": lambda pair: numbers.factor(pair.ratio),
        "final_loss:": lambda pair: _format_change(pair.outcome.get("final_loss"), numbers.loss),
        "test_accuracy:percent": lambda pair: _format_change(
            pair.outcome.get("test_accuracy"), percent
        ),
        ("time_ratio:", "memory_ratio:"): lambda pair: _cost_cells(pair, comparison),
        "first": lambda pair: format_cell(pair, words),
    }
    return make_table(words, "against", comparison.pairs, read, words("against.pairs"))


def _cost_cells(pair: RunPair, comparison: RunComparison) -> Iterator[Cell]:
    """Yield the cells of the ratios of time and memory of a pair of trials, red beyond their
    limits."""
    broken = {failure.limit for failure in comparison.failures if failure.pair is pair}
    for name, limit in (("time", "slower"), ("memory", "more_memory")):
        cost = pair.costs.get(name)
        text = numbers.times(cost.ratio) if cost else numbers.NO_VALUE
        yield Cell(text, "bad" if limit in broken else "")


def _format_change(two: Sequence[float] | None, shown: Any) -> str:
    """Return two values as ``0.31 → 0.42``, or once if both are displayed the same; a dash without
    values. ``shown`` formats a value."""
    return " → ".join(dict.fromkeys(map(shown, two))) if two else numbers.NO_VALUE


def figures(comparison: RunComparison, words: Messages) -> Iterator[Figure]:
    """Yield figures with a column per pair of trials, at most `COLUMNS` in each: the losses of the
    two runs, A and B, above their distance and its limit. Pairs without compared losses are left
    out."""
    judged = [pair for pair in comparison.pairs if pair.curve]
    if not judged:
        return
    y = distance_axis(words, [p.curve for p in judged], comparison.margin, FLOOR)
    keys = [
        LegendEntry("series", "A", color="blue", stroke="wide"),
        LegendEntry("series", "B", color="vermilion", stroke="dashes"),
        LegendEntry("series", PAIR, color="black"),
        LegendEntry("series", "envelope", words("figure.envelope"), color="line"),
    ]
    for start in range(0, len(judged), COLUMNS):
        shown = judged[start : start + COLUMNS]
        panels = [_losses(pair, comparison, words) for pair in shown]
        for pair in shown:
            curve = {PAIR: [pair.curve]}
            panels.append(distance_panel(words, curve, y, comparison.margin, FLOOR))
        yield Figure(
            f"against-{start // COLUMNS + 1}",
            words("against.curves"),
            words("against.alt", trials=[_title(pair) for pair in shown]),
            panels,
            keys,
            columns=len(shown),
            share_x="column",
            share_y="row",
        )


def _losses(pair: RunPair, comparison: RunComparison, words: Messages) -> Panel:
    """Return a panel with the unsmoothed losses of both trials of a pair, up to the last compared
    update."""
    last = max(pair.curve["step"])
    marks: list[Mark] = []
    names = zip("AB", comparison.folders, pair.arms, pair.sides, strict=True)
    for side, folder, arm, backend in names:
        curve = read_records(trial_folder(Path(folder), (arm, backend, pair.seed)))["loss"]
        kept = curve.step <= last
        x, y = curves.thin_points(np.asarray(curve.step[kept]), curve.value[kept])
        marks.append(LineMark(x, y, SeriesId(series=side)))
    cross = comparison.runs[0].experiment.get("loss", "cross_entropy") == "cross_entropy"
    loss = Axis(words("axis.loss", unit="nat" if cross else "1"))
    return Panel(marks, Axis(words("axis.updates")), loss, _title(pair), height=190)


def _title(pair: RunPair) -> str:
    """Return ``ARM, BACKEND, SEED`` as the title of a pair's figure."""
    return f"{pair.arm}, {pair.backend}, {pair.seed}"
