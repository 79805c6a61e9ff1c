"""Settings of split arms, and the plans that follow from them."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import ranks
from dualml.report.blocks import Block
from dualml.report.columns import Columns, table, tabulate
from dualml.report.splits.arms import SplitArm, Splits, schedule_name
from dualml.report.splits.layers import format_span
from dualml.report.topics import ReportSection

PLANS = (
    "`arms`",
    "`model`",
    "stage_layers",
    "slices",
    "parameters:bytes_ranks",
    "links_planned:bytes_update",
    "collectives_planned:bytes_update",
)


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a table with a row per arm: how it is split, and its schedule; then the plans."""
    splits = Splits(run)
    pinned = any(run.settings[arm.name].cores for arm in splits)
    several = any(arm.rpc or arm.on_devices for arm in splits)
    read: Columns[SplitArm] = {
        "`arm`": lambda arm: arm.name,
        "`model`": lambda arm: arm.model,
        "ranks:count": lambda arm: arm.size,
        "cores_each:count?": lambda arm: pinned and run.settings[arm.name].cores,
        "mesh:mesh": lambda arm: str(arm.mesh),
        "stages:count": lambda arm: arm.depth if arm.has_stages else 1,
        "split_schedule": lambda arm: _schedule(arm, words),
        "micro_batches:count": lambda arm: arm.micro_batches,
        "trainers?": lambda arm: _trainers(arm, words),
        "engine?": lambda arm: several and words(f"splits.engine.{arm.split.engine}"),
        "cut_by": lambda arm: arm.cut_origin(words) if arm.has_stages else None,
        "handicap?": lambda arm: ranks.handicap_text(run, arm.name, words),
    }
    yield from tabulate(words, "split-settings", splits, read)
    plans: dict[tuple[str | float | None, ...], list[str]] = {}
    for arm in splits:
        if arm.plan:
            plans.setdefault(_plan(arm, words), []).append(arm.name)
    rows = ([", ".join(arms), *cells] for cells, arms in plans.items())
    yield from table(words, "split-plans", PLANS, rows)


def _schedule(arm: SplitArm, words: Messages) -> str | None:
    """Return the name of the arm's schedule; None for an arm with neither a pipeline nor several
    trainers."""
    return schedule_name(arm.schedule, words) if arm.is_pipelined or arm.trainers > 1 else None


def _trainers(arm: SplitArm, words: Messages) -> str | None:
    """Return the number of trainers and the order in which their gradients arrive, None for one
    trainer."""
    how = words("splits.how." + arm.split.arrival)
    return f"{arm.trainers}, {how}" if arm.trainers > 1 else None


def _plan(arm: SplitArm, words: Messages) -> tuple[str | float | None, ...]:
    """Return model, stages, slices, parameters of the ranks, bytes over links and in
    collectives."""
    places = dict(enumerate(arm.plan.get("place") or ()))
    on = "splits.on_device" if arm.devices else "splits.on"
    places |= enumerate(arm.devices)
    where = [
        words(on, stage=format_span(names), rank=places.get(k, numbers.NO_VALUE))
        for k, names in enumerate(arm.stages)
    ]
    styles: dict[str, list[str]] = {}
    for layer, style in (arm.plan.get("styles") or {}).items():
        styles.setdefault(str(style), []).append(layer)
    slices = [f"{words(f'splits.style.{s}')} {', '.join(layers)}" for s, layers in styles.items()]
    return (
        str(arm.plan.get("model") or numbers.NO_VALUE),
        words.semicolons(where) if len(where) > 1 else None,
        words.semicolons(slices) or None,
        " · ".join(dict.fromkeys(arm.parameters().split(" · "))),
        arm.planned("links") + arm.planned("transfers") or None,
        arm.planned("meetings") or None,
    )


TOPIC = ReportSection("split_settings", 40, evidence, group="settings")
