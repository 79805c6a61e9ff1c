"""Tables of what was set for split arms, and of the plans that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dualml.report import numbers, ranks
from dualml.report.cells import Cell, Table, heads, number
from dualml.report.collectives import size_of
from dualml.report.model import Run
from dualml.report.splits import arms
from dualml.report.splits.layers import span
from dualml.report.words import Words


def split_settings(run: Run, words: Words) -> list[Table]:
    used = arms.split_arms(run)
    if not used:
        return []
    made = [_settings(run, words, used), _plans(run, words, used)]
    return [table for table in made if table.rows]


def _settings(run: Run, words: Words, used: Sequence[str]) -> Table:
    """An arm in each row: what its ranks share, and in which order they work."""
    rows = []
    pinned = any(run.arms[arm].get("cores") for arm in used)
    trained = any(arms.split(run, arm)["trainers"] > 1 for arm in used)
    called = any(arms.split(run, arm)["engine"] != "messages" for arm in used)
    slowed = any(ranks.slow(run, arm) for arm in used)
    for arm in used:
        s, shape = arms.split(run, arm), arms.mesh(run, arm)
        pipelined = arms.piped(run, arm) or s["trainers"] > 1
        cores = run.arms[arm].get("cores")
        rows.append(
            [
                Cell(arm, "code"),
                Cell(arms.model(run, arm), "code"),
                number(str(ranks.size(run, arm))),
                *([number(str(cores) if cores else numbers.NONE)] if pinned else []),
                number(str(shape)),
                number(str(arms.stages(run, arm)) if shape.pipeline > 1 else "1"),
                Cell(arms.called(arms.schedule(run, arm), words) if pipelined else numbers.NONE),
                number(str(s["micro_batches"])),
                *([Cell(_trainers(s, words))] if trained else []),
                *([Cell(words(f"splits.engine.{s['engine']}"))] if called else []),
                Cell(_cut_by(run, arm, words)),
                *([Cell(ranks.told_slow(run, arm, words))] if slowed else []),
            ]
        )
    head = heads(
        words,
        *("arm", "model", "ranks:count", *(["cores_each:count"] if pinned else [])),
        *("mesh:mesh", "stages:count", "split_schedule", "micro_batches:count"),
        *([*(["trainers"] if trained else []), *(["engine"] if called else []), "cut_by"]),
        *(["handicap"] if slowed else []),
    )
    return Table("splits", words("table.splits"), head, rows)


def _trainers(s: Mapping[str, Any], words: Words) -> str:
    if s["trainers"] == 1:
        return numbers.NONE
    return f"{s['trainers']}, {words('splits.told.' + s['arrival'])}"


def _cut_by(run: Run, arm: str, words: Words) -> str:
    """Who chose the cut: the file, or what was to be even."""
    s, shape = arms.split(run, arm), arms.mesh(run, arm)
    if shape.pipeline == 1:
        return numbers.NONE
    return words("splits.cut_by.hand") if s["cut"] else words(f"splits.cut_by.{s['balance']}")


def _plans(run: Run, words: Words, used: Sequence[str]) -> Table:
    """Every plan once: stages, slices, and what an update sends."""
    found: dict[str, tuple[list[Cell], list[str]]] = {}
    for arm in used:
        plan = arms.plan(run, arm)
        if plan:
            cells = _row(plan, words)
            key = repr([cell.text for cell in cells])
            found.setdefault(key, (cells, []))[1].append(arm)
    rows = [[Cell(", ".join(named), "code"), *cells] for cells, named in found.values()]
    head = heads(words, "arms", "model", "stage_layers", "slices", "parameters:bytes_ranks")
    head += heads(words, "links_planned:bytes_update", "meetings_planned:bytes_update")
    return Table("split-plans", words("table.split_plans"), head, rows)


def _row(plan: Mapping[str, Any], words: Words) -> list[Cell]:
    stages = plan.get("stages") or []
    place = plan.get("place") or []
    told = [
        words("splits.on", stage=span(names), rank=place[k] if k < len(place) else numbers.NONE)
        for k, names in enumerate(stages)
    ]
    styles: dict[str, list[str]] = {}
    for layer, style in (plan.get("styles") or {}).items():
        styles.setdefault(str(style), []).append(layer)
    slices = [f"{words(f'splits.style.{s}')} {', '.join(layers)}" for s, layers in styles.items()]
    parameters = [size_of(4 * r["elements"]) for r in plan.get("ranks") or ()]
    links, meetings = (
        sum(x["nbytes"] for x in plan.get(key) or ()) for key in ("links", "meetings")
    )
    return [
        Cell(str(plan.get("model") or numbers.NONE), "code"),
        Cell(words("list.semicolon").join(told) if len(stages) > 1 else numbers.NONE),
        Cell(words("list.semicolon").join(slices) or numbers.NONE),
        number(" · ".join(dict.fromkeys(parameters)) or numbers.NONE),
        number(size_of(links) if links else numbers.NONE),
        number(size_of(meetings) if meetings else numbers.NONE),
    ]
