"""Split plans as figures: one for each that looks different."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dualml.report.model import Run
from dualml.report.split_plan import plan_figure
from dualml.report.splits import arms
from dualml.report.style import Figure, slug
from dualml.report.words import Words

MOST, RANKS = 6, 4  # figures, and ranks that fit into one


def chosen(run: Run) -> list[str]:
    """Arms whose plans look different, the first of each look."""
    found: dict[Any, str] = {}
    for arm in arms.split_arms(run):
        if 0 < len(arms.plan(run, arm).get("ranks") or ()) <= RANKS:
            found.setdefault(arms.kind(run, arm), arm)
    return list(found.values())[:MOST]


def same(run: Run, arm: str) -> list[str]:
    """Other arms with the plan of this one, whatever their order and handicap."""

    def key(name: str) -> Any:
        plan = arms.plan(run, name)
        told = ("model", "mesh", "stages", "place", "styles", "trainers", "engine")
        return [plan.get(k) for k in told]

    return [a for a in arms.split_arms(run) if a != arm and key(a) == key(arm)]


def plan_figures(run: Run, words: Words) -> Iterator[Figure]:
    for arm in chosen(run):
        caption = words("splits.figure.plan", arm=arm, model=arms.model(run, arm))
        others = same(run, arm)
        if others:
            more = others if len(others) < 9 else [*others[:8], "…"]
            told = words("splits.figure.same_plan", arms=words("list.comma").join(more))
            caption = words.sentences([caption, told])
        yield plan_figure(f"plan-{slug(arm)}", arms.plan(run, arm), words, caption)
