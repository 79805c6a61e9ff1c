"""Training on several ranks: seconds of an update by strategy, and where its time goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from dualml.common.words import Messages, numbers
from dualml.experiment.exactness import single_process_arm
from dualml.experiment.store.run import RunData
from dualml.report import curves, legend, ranks
from dualml.report.blocks import Block, Cell, Table
from dualml.report.columns import Columns, highlight_best, number, tabulate
from dualml.report.draw.palette import SERIES
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId
from dualml.report.measures import drop_missing, loss_unit, mean_over_trials, slug, sort_by_value
from dualml.report.notes import Notes
from dualml.report.presentation import (
    build_figure,
    compare_speed,
    format_on_backend,
    format_values,
    join_by_name,
    stacked_panels,
)
from dualml.report.scaling_families import crowding_notices
from dualml.report.topics import ReportSection
from dualml.report.topics.sampling import groups_shown
from dualml.report.verdicts import serial_cell


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield learning curves, seconds of an update by strategy, its parts, and the table of arms,
    after a notice if ranks shared cores."""
    yield from crowding_notices(run, words)
    groups = dict(_healthy_groups(run))
    figures = [_curves(run, words, g, groups[g]) for g in groups if g not in groups_shown(run)]
    yield from figures[:1]
    yield from _by_strategy(run, words)
    yield from figures[1:]
    healthy = [a for arms in groups.values() for a in arms if ranks.world_size(run, a) > 1]
    if any(ranks.rank_parts(run, a, b) for a in healthy for b in run.backends):
        yield _parts(run, words, healthy)
    yield from _table(run, words)


def _healthy_groups(run: RunData) -> Iterator[tuple[str, list[str]]]:
    """Yield (group, its training arms that succeeded and are not split) for each group where one of
    these arms has several ranks and none has a straggler."""
    whole = [a for a in ranks.training_arms(run) if not ranks.is_split(run, a) and run.select(a)]
    for group, arms in run.groups().items():
        ran = [a for a in arms if a in whole]
        if any(ranks.world_size(run, a) > 1 for a in ran) and not any(
            ranks.straggler(run, a) for a in ran
        ):
            yield group, ran


# --- figures --------------------------------------------------------------------------------------


def _curves(run: RunData, words: Messages, group: str, arms: Sequence[str]) -> Figure:
    """Return a figure of the loss against updates and against seconds, with a row per number of
    ranks and the single-rank arms in each."""
    several = [a for a in arms if ranks.world_size(run, a) > 1]
    alone = [a for a in arms if a not in several]
    if not alone:  # the single-rank baselines, if the group has no single-rank arm
        singles = dict.fromkeys(single_process_arm(a, run.contrast) for a in arms)
        alone = [a for a in singles if a is not None and run.select(a)]
    alike = run.contrast.groups(several, vary=("aggregation.strategy", "world_size"))
    names = {a: ranks.strategy(run, a) for a in several}
    if len(alike) == 1 < len({*names.values()}):  # named by the setting that differs
        owners = {a: SeriesId(series=name) for a, name in names.items()}
        colors = legend.without_markers(legend.strategies(names.values()))
    else:
        owners, colors = {a: SeriesId(a) for a in several}, legend.distinct_colors(several)
    owners = {a: SeriesId(a) for a in alone} | owners
    loss = Axis(words("axis.loss", unit=loss_unit(run)), "auto")
    panels = []
    for n in sorted({ranks.world_size(run, a) for a in several}):
        shown = [*alone, *(a for a in several if ranks.world_size(run, a) == n)]
        for axis, backends in (("updates", run.backends), ("seconds", ranks.timed_backends(run))):
            marks: list[Mark] = []
            for arm, backend in ((a, b) for a in shown for b in backends):
                line = curves.mean_curve(run.select(arm, backend), "loss", axis)
                if line is not None:
                    x, y = curves.thin_points(line.x, line.mean)
                    marks.append(
                        LineMark(x, y, SeriesId(owners[arm].arm, backend, owners[arm].series))
                    )
            title = words("figure.ranks", n=n) if axis == "updates" else ""
            panels.append(Panel(marks, Axis(words(f"axis.{axis}"), low=0), loss, title))
    title = words("figure.training", group=words.get(f"group.{group}", group))
    black = [words("figure.one_rank")] if alone else []
    notes = [title, *black, words("figure.mean_line"), words("figure.interpolated")]
    finals = format_values(
        owners, run.backends, lambda a, b: numbers.loss(mean_over_trials(run, a, b, "final_loss"))
    )
    return Figure(
        f"ranks-{slug(group)}",
        words.join_sentences(notes),
        words("alt.training", title=title, finals=finals),
        panels,
        [*(LegendEntry("arm", a, color="black") for a in alone), *colors, *legend.backends(run)],
        columns=2,
        share_y="row",
    )


def _parts(run: RunData, words: Messages, arms: Sequence[str]) -> Figure:
    """Return a figure of computing, waiting and transferring in an update, means over the ranks: a
    bar per arm and a panel per backend."""

    def share(arm: str, backend: str) -> str:
        part = ranks.communication_share(run, arm, backend)
        return numbers.NO_VALUE if part is None else f"{100 * part:.0f} %"

    shown = [b for b in run.backends if any(ranks.rank_parts(run, a, b) for a in arms)]

    def milliseconds(arm: str, backend: str) -> dict[str, float]:
        rows = ranks.rank_parts(run, arm, backend)
        whole = ranks.average(rows) if rows else {}
        return {p: 1e3 * whole[p] for p in SERIES["rank_update"] if p in whole}

    panels = stacked_panels(arms, shown, words("axis.update_ms"), milliseconds, share, 20)
    values = {"values": format_values(arms, shown, share)}
    return build_figure(words, "communication", panels, legend.parts(words), values, share_y="row")


# --- tables ---------------------------------------------------------------------------------------


def by_strategy(run: RunData, n: int) -> dict[str, str]:
    """Return strategy → arm for the largest set of arms with n ranks that differ only in their
    (exact) strategy; empty with a single one."""
    exact = [
        a
        for a in ranks.multi_rank_arms(run)
        if ranks.world_size(run, a) == n
        and ranks.is_exact(ranks.strategy(run, a))
        and not ranks.straggler(run, a)
        and run.select(a)
    ]
    groups = run.contrast.groups(exact, vary=("aggregation.strategy",))
    first: dict[str, str] = {}
    for arm in max(groups, key=len, default=[]):
        first.setdefault(ranks.strategy(run, arm), arm)
    return first if len(first) > 1 else {}


def _sizes(run: RunData) -> list[int]:
    """Return the numbers of ranks of multi-rank arms, ascending."""
    return sorted({ranks.world_size(run, a) for a in ranks.multi_rank_arms(run)})


def _by_strategy(run: RunData, words: Messages) -> Iterator[Table]:
    """Yield the table of the largest set of arms that differ only in their strategy (`by_strategy`,
    over all numbers of ranks): seconds of an update and share of communication."""
    most = max((by_strategy(run, n) for n in _sizes(run)), key=len, default={})
    timed = ranks.timed_backends(run)
    steps = {(a, b): ranks.median_step_seconds(run, a, b) for a in most.values() for b in timed}
    least = {min((s for (_, b), s in steps.items() if b == x and s), default=None) for x in timed}

    def cells(arm: str) -> Iterator[Cell | float | None]:
        for backend in timed:
            step = steps[arm, backend]
            yield highlight_best(numbers.ms(step), step in least)
            yield ranks.communication_share(run, arm, backend)

    heads = [
        number(words, f"{b}-{key}", f"{b}, {words(f'column.{key}')}", unit)
        for b in timed
        for key, unit in (("step", "milliseconds"), ("share", "percent"))
    ]
    read: Columns[tuple[str, str]] = {
        "`strategy`": lambda item: item[0],
        tuple(heads): lambda item: cells(item[1]),
    }
    arms = sorted(most.items(), key=lambda item: steps[item[1], timed[0]] or 0.0)
    n = ranks.world_size(run, next(iter(most.values()))) if most else 0
    yield from tabulate(words, "steps", arms, read, n=n)


def _table(run: RunData, words: Messages) -> Iterator[Table]:
    """Yield a table with a row per training arm, single-rank ones too, and backend: seconds of an
    update, results, and the comparison with one rank. Split models and groups with a straggler are
    left out."""
    # Groups with a straggler and split models have tables of their own.
    slow = {run.settings[a].group for a in run.arms if ranks.straggler(run, a)}
    arms = [
        a
        for a in ranks.training_arms(run)
        if run.settings[a].group not in slow and not ranks.is_split(run, a)
    ]
    read: Columns[tuple[str, str]] = {
        ("`arm`", "backend"): lambda at: at,
        "ranks:count": lambda at: ranks.world_size(run, at[0]),
        "`strategy`": lambda at: (
            ranks.strategy(run, at[0]) if ranks.world_size(run, at[0]) > 1 else None
        ),
        "step:milliseconds": lambda at: ranks.median_step_seconds(run, *at),
        "share:percent": lambda at: ranks.communication_share(run, *at),
        f"final_loss:{loss_unit(run)}": lambda at: mean_over_trials(run, *at, "final_loss"),
        "test_accuracy:percent": lambda at: mean_over_trials(run, *at, "test_accuracy"),
        "serial": lambda at: serial_cell(
            (s for s in run.serial if (s.arm, s.backend) == at), words
        ),
    }
    yield from tabulate(words, "training", ranks.successful_places(run, arms), read)


# --- sentences ------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData) -> None:
    """Add the fastest strategy for each number of ranks, and the speeds of the backends
    compared."""
    words = notes.words
    for n in _sizes(run):
        _add_strategies(notes, run, words, n)
    notes.set_anchor("table-training")
    for a, b in combinations(ranks.timed_backends(run), 2):
        ratios = {
            arm: second / first
            for arm in ranks.multi_rank_arms(run)
            if (first := ranks.median_step_seconds(run, arm, a))
            and (second := ranks.median_step_seconds(run, arm, b))
        }
        if ratios:
            notes.add("backends", len(ratios), k=len(ratios), **compare_speed(a, b, ratios, str))


def _add_strategies(notes: Notes, run: RunData, words: Messages, n: int) -> None:
    """Add the fastest and slowest of the arms that differ only in their strategy, and their shares
    of communication."""
    arms, shares = by_strategy(run, n), []
    fast: dict[str, list[str]] = {}
    slow: dict[str, list[str]] = {}
    for backend in run.backends:
        steps = sort_by_value(
            drop_missing({a: ranks.median_step_seconds(run, a, backend) for a in arms.values()})
        )
        if len(set(steps.values())) > 1:
            for ends, arm in ((fast, next(iter(steps))), (slow, next(reversed(steps)))):
                ends.setdefault(arm, []).append(format_on_backend(words, backend, steps[arm]))
        values = sort_by_value(
            drop_missing({x: ranks.communication_share(run, a, backend) for x, a in arms.items()})
        )
        if len(values) > 1:
            shares.append(words("say.training.of", backend=backend, values=values))
    if fast:
        notes.add("steps", n=n, fast=join_by_name(words, fast), slow=join_by_name(words, slow))
    if shares:
        notes.add("shares", n=n, values=shares)


TOPIC = ReportSection(
    "training",
    400,
    evidence,
    findings,
    "table-steps",
    priority=lambda run: 55,
    when=ranks.multi_rank_arms,
)
