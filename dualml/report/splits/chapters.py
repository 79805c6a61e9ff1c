"""The results of split models, in chapters; one appears only where this run has what it shows."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.report.cells import Table
from dualml.report.model import Run
from dualml.report.splits import arms
from dualml.report.splits.bubbles import bubble_figures, bubble_table
from dualml.report.splits.calibration import predictions
from dualml.report.splits.cuts import cut_figures, cut_groups, cut_table
from dualml.report.splits.links import link_table
from dualml.report.splits.memory import memory_figures, memory_table
from dualml.report.splits.pays import (
    calibrations,
    constants_table,
    pays_cards,
    pays_figures,
    prediction_table,
)
from dualml.report.splits.slow import slow_link_figures, slow_link_table, slow_splits
from dualml.report.splits.spent import turns_anywhere as turns
from dualml.report.splits.timelines import timeline_figures
from dualml.report.splits.whole import parts_table, whole_figures, whole_table
from dualml.report.strategies import Card
from dualml.report.style import Figure
from dualml.report.words import Words

NAMES = ("splits", "timelines", "bubble", "held", "links", "cuts", "slow_link", "pays")
#: Chapters in which no time is shown.
UNTIMED = ("held", "links")
Made = dict[str, tuple[Sequence[Figure], Sequence[Table | None]]]


def split_chapters(run: Run, words: Words) -> Made:
    """Name → figures and tables; empty without split arms."""
    if not arms.split_arms(run):
        return {}
    return {
        "splits": (
            list(whole_figures(run, words)),
            [whole_table(run, words), parts_table(run, words)],
        ),
        "timelines": (list(timeline_figures(run, words)), []),
        "bubble": (list(bubble_figures(run, words)), [bubble_table(run, words)]),
        "held": (list(memory_figures(run, words)), [memory_table(run, words)]),
        "links": ([], [link_table(run, words)]),
        "cuts": (list(cut_figures(run, words)), [cut_table(run, words)]),
        "slow_link": (list(slow_link_figures(run, words)), [slow_link_table(run, words)]),
        "pays": (
            list(pays_figures(run, words)),
            [constants_table(run, words), prediction_table(run, words)],
        ),
    }


def notices(run: Run, words: Words, name: str) -> list[str]:
    """Beside every time: whose ranks had to share cores."""
    shown = {
        "cuts": lambda: [a for group in cut_groups(run) for a in group],
        "slow_link": lambda: [a for pair in slow_splits(run) for a in pair],
        "pays": lambda: [p.arm for c in calibrations(run) for p in predictions(run, c)],
    }
    here = shown[name]() if name in shown else arms.split_arms(run)
    found = [arm for arm in turns(run) if arm in here]
    return [words("page.crowded_split", arms=words.join(found))] if found else []


def split_cards(run: Run, words: Words) -> dict[str, list[Card]]:
    return {"pays": pays_cards(run, words)} if arms.split_arms(run) else {}
