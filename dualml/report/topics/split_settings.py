"""What was set for split arms, and the plans that follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualml.report import ranks
from dualml.report.blocks import Block, Table
from dualml.report.columns import columns
from dualml.report.splits.arms import SplitArm, Splits, schedule_name
from dualml.report.splits.layers import span
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers


def evidence(run: Run, words: Words) -> Iterator[Block]:
    splits = Splits(run)
    if splits:
        yield _settings(splits, words)
    plans: dict[tuple[str, ...], list[str]] = {}
    for arm in splits:
        if arm.plan:
            plans.setdefault(_plan(arm.plan, words), []).append(arm.name)
    head = columns(words, "`arms`", "`model`", "stage_layers", "slices")
    head += columns(words, "parameters:bytes_ranks", "links_planned:bytes_update")
    head += columns(words, "collectives_planned:bytes_update")
    rows = [[", ".join(arms), *texts] for texts, arms in plans.items()]
    yield Table("split-plans", words("table.split_plans"), head, rows)


def _settings(splits: Splits, words: Words) -> Table:
    """An arm in each row: what its ranks share, and in which order they work."""
    run = splits.run
    cells: dict[str, Any] = {
        "`arm`": lambda arm: arm.name,
        "`model`": lambda arm: arm.model,
        "ranks:count": lambda arm: str(arm.size),
        "cores_each:count": lambda arm: str(run.settings[arm.name].cores or numbers.NONE),
        "mesh:mesh": lambda arm: str(arm.mesh),
        "stages:count": lambda arm: str(arm.depth) if arm.mesh.pipeline > 1 else "1",
        "split_schedule": lambda arm: _schedule(arm, words),
        "micro_batches:count": lambda arm: str(arm.micro_batches),
        "trainers": lambda arm: _trainers(arm, words),
        "engine": lambda arm: words(f"splits.engine.{arm.split.engine}"),
        "cut_by": lambda arm: _cut_by(arm, words),
        "handicap": lambda arm: ranks.handicap_text(run, arm.name, words),
    }
    optional = {
        "cores_each:count": any(run.settings[arm.name].cores for arm in splits),
        "trainers": any(arm.trainers > 1 for arm in splits),
        "engine": any(arm.rpc for arm in splits),
        "handicap": any(arm.slow for arm in splits),
    }
    shown = {spec: cell for spec, cell in cells.items() if optional.get(spec, True)}
    rows = [[cell(arm) for cell in shown.values()] for arm in splits]
    return Table("split-settings", words("table.split_settings"), columns(words, *shown), rows)


def _schedule(arm: SplitArm, words: Words) -> str:
    follows = arm.piped or arm.trainers > 1
    return schedule_name(arm.schedule, words) if follows else numbers.NONE


def _trainers(arm: SplitArm, words: Words) -> str:
    if arm.trainers == 1:
        return numbers.NONE
    return f"{arm.trainers}, {words('splits.how.' + arm.split.arrival)}"


def _cut_by(arm: SplitArm, words: Words) -> str:
    """Who chose the cut: the file, or what was to be even."""
    if arm.mesh.pipeline == 1:
        return numbers.NONE
    return words(f"splits.cut_by.{'hand' if arm.split.cut else arm.split.balance}")


def _plan(plan: Mapping[str, Any], words: Words) -> tuple[str, ...]:
    """Model, stages, slices, parameters of the ranks, bytes over links and in collectives."""
    stages, place = plan.get("stages") or [], plan.get("place") or []
    where = [
        words("splits.on", stage=span(names), rank=place[k] if k < len(place) else numbers.NONE)
        for k, names in enumerate(stages)
    ]
    styles: dict[str, list[str]] = {}
    for layer, style in (plan.get("styles") or {}).items():
        styles.setdefault(str(style), []).append(layer)
    slices = [f"{words(f'splits.style.{s}')} {', '.join(layers)}" for s, layers in styles.items()]
    parameters = [numbers.nbytes(4 * r["elements"]) for r in plan.get("ranks") or ()]
    crossing = (sum(x["nbytes"] for x in plan.get(key) or ()) for key in ("links", "meetings"))
    return (
        str(plan.get("model") or numbers.NONE),
        words("list.semicolon").join(where) if len(stages) > 1 else numbers.NONE,
        words("list.semicolon").join(slices) or numbers.NONE,
        " · ".join(dict.fromkeys(parameters)) or numbers.NONE,
        *(numbers.nbytes(size or None) for size in crossing),
    )


TOPIC = Topic("split_settings", 40, evidence, part="settings")
