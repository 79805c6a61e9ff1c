"""The results of several ranks, in chapters: collectives alone, training, the slow node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dualml.report import ranks
from dualml.report.analysis.caveats import crowded_items
from dualml.report.batch import batch_arms, batch_cards, batch_table
from dualml.report.batch_figures import batch_figures
from dualml.report.bottleneck import bottleneck_figures
from dualml.report.cells import Table
from dualml.report.collective_tables import collective_tables
from dualml.report.collectives import collective_figures
from dualml.report.families import crowded
from dualml.report.fits import check_table, fit_table
from dualml.report.model import Run
from dualml.report.modes import missing_table, mode_arms, mode_table
from dualml.report.partitions import partition_figures, partition_table
from dualml.report.predictions import prediction_figures
from dualml.report.rank_tables import slow_table, staleness_table, training_table
from dualml.report.sampling import curves_here, sampling_table
from dualml.report.sampling_figures import sampling_figures
from dualml.report.scaling import notices
from dualml.report.scaling_figures import scaling_figures
from dualml.report.scaling_tables import scaling_cards, scaling_table, speedup_table
from dualml.report.skew import skew_table
from dualml.report.skew_figures import skew_figures
from dualml.report.splits import chapters as splits
from dualml.report.strategies import Card
from dualml.report.style import Figure
from dualml.report.training import training_figures
from dualml.report.uneven import uneven_table
from dualml.report.words import Words

#: Chapters in which no time is shown.
UNTIMED = ("staleness", "partitions", "sampling", "skew", *splits.UNTIMED)


@dataclass(frozen=True)
class Chapter:
    """``name`` is the anchor; its heading and introduction are looked up by it. ``cards`` have its
    formulas."""

    name: str
    intro: Sequence[str]
    figures: Sequence[Figure]
    tables: Sequence[Table]
    cards: Sequence[Card] = ()


def chapters(run: Run, words: Words) -> list[Chapter]:
    """Those this run has something for; none where all arms have one rank."""
    if not ranks.distributed(run) and not run.dealt:
        return []
    made = {
        "collectives": (
            [*collective_figures(run, words), *prediction_figures(run, words)],
            [*collective_tables(run, words), fit_table(run, words), check_table(run, words)],
        ),
        "scaling": (
            list(scaling_figures(run, words)),
            [speedup_table(run, words), scaling_table(run, words)],
        ),
        "modes": ([], [mode_table(run, words), missing_table(run, words)]),
        "batch": (list(batch_figures(run, words)), [batch_table(run, words)]),
        "training": (
            [f for f in training_figures(run, words) if f.name not in curves_here(run)],
            [training_table(run, words) if ranks.several(run) else None],
        ),
        "bottleneck": (list(bottleneck_figures(run, words)), [slow_table(run, words)]),
        "staleness": ([], [staleness_table(run, words)]),
        "partitions": (list(partition_figures(run, words)), [partition_table(run, words)]),
        "sampling": (list(sampling_figures(run, words)), [sampling_table(run, words)]),
        "skew": (
            list(skew_figures(run, words)),
            [skew_table(run, words), uneven_table(run, words)],
        ),
        **splits.split_chapters(run, words),
    }
    cards = {"scaling": scaling_cards(run, words), "batch": batch_cards(run, words)}
    cards |= splits.split_cards(run, words)
    found = []
    for name, (figures, tables) in made.items():
        kept = [t for t in tables if t is not None]
        if figures or kept:
            intro = [words(f"intro.{name}"), *_crowded(run, words, name)]
            found.append(Chapter(name, intro, figures, kept, cards.get(name, ())))
    return found


def _crowded(run: Run, words: Words, name: str) -> list[str]:
    """Beside every time: the ranks had to share cores."""
    if name in UNTIMED:
        return []
    if name in splits.NAMES:
        return splits.notices(run, words, name)
    if name == "scaling":
        return notices(run, words)
    own = {"modes": mode_arms, "batch": batch_arms}.get(name)
    if own is not None and not crowded(run, own(run)):
        return []
    items = crowded_items(run, words)
    return [words("page.crowded", values=words.semicolons(items))] if items else []
