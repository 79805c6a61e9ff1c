"""The results of several ranks, in chapters: collectives alone, training, the slow node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dualml.report import ranks
from dualml.report.analysis.caveats import crowded_items
from dualml.report.bottleneck import bottleneck_figures
from dualml.report.cells import Table
from dualml.report.collective_tables import collective_tables
from dualml.report.collectives import collective_figures
from dualml.report.fits import check_table, fit_table
from dualml.report.model import Run
from dualml.report.predictions import prediction_figures
from dualml.report.rank_tables import slow_table, staleness_table, training_table
from dualml.report.style import Figure
from dualml.report.training import training_figures
from dualml.report.words import Words


@dataclass(frozen=True)
class Chapter:
    """``name`` is the anchor; its heading and introduction are looked up by it."""

    name: str
    intro: Sequence[str]
    figures: Sequence[Figure]
    tables: Sequence[Table]


def chapters(run: Run, words: Words) -> list[Chapter]:
    """Those this run has something for; none where all arms have one rank."""
    if not ranks.distributed(run):
        return []
    made = {
        "collectives": (
            [*collective_figures(run, words), *prediction_figures(run, words)],
            [*collective_tables(run, words), fit_table(run, words), check_table(run, words)],
        ),
        "training": (
            list(training_figures(run, words)),
            [training_table(run, words) if ranks.several(run) else None],
        ),
        "bottleneck": (list(bottleneck_figures(run, words)), [slow_table(run, words)]),
        "staleness": ([], [staleness_table(run, words)]),
    }
    found = []
    for name, (figures, tables) in made.items():
        kept = [t for t in tables if t is not None]
        if figures or kept:
            intro = [words(f"intro.{name}"), *_crowded(run, words, name)]
            found.append(Chapter(name, intro, figures, kept))
    return found


def _crowded(run: Run, words: Words, name: str) -> list[str]:
    """Beside every time: the ranks had to share cores."""
    if name == "staleness":
        return []
    items = crowded_items(run, words)
    return [words("page.crowded", values=words.semicolons(items))] if items else []
