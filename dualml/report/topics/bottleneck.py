"""One straggler: which ranks slow down, which wait, and whether it was predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import legend, ranks
from dualml.report.blocks import Block
from dualml.report.columns import PLACE, Columns
from dualml.report.draw.palette import SERIES
from dualml.report.figure import (
    Axis,
    Figure,
    LegendEntry,
    LineMark,
    Mark,
    Panel,
    ReferenceLine,
    SeriesId,
)
from dualml.report.measures import slug, sort_by_value
from dualml.report.notes import Notes
from dualml.report.presentation import (
    build_figure,
    format_extremes,
    format_values,
    stacked_bars,
    summarize_predictions,
)
from dualml.report.scaling_families import crowding_notices
from dualml.report.straggler import (
    StragglerEffect,
    seconds_before_and_after,
    straggler_arms,
    straggler_effects,
)
from dualml.report.topics import table_section

COLUMNS = 3
NAN = float("nan")
NO_STRAGGLER_SUFFIX = "-without"  # suffix of the parts of an update without the straggler


def figures(run: RunData, words: Messages, every: Sequence[StragglerEffect]) -> Iterator[Block]:
    """Yield a notice if ranks shared cores, and the figure of slowdowns; nothing without straggler
    arms."""
    arms = straggler_arms(run)
    if arms:
        yield from crowding_notices(run, words)
        yield _slowdowns(words, list(arms), every)


def columns(
    run: RunData, words: Messages, every: Sequence[StragglerEffect]
) -> Columns[StragglerEffect]:
    """Return the columns of both times of an update, the slowdown, its prediction, and the waiting
    of the other ranks."""
    return {
        **PLACE,
        "handicap": lambda s: ranks.handicap_text(run, s.arm, words),
        ("without:milliseconds", "with:milliseconds"): lambda s: s.step_seconds,
        "slowdown:relative": lambda s: s.factor,
        "slowdown_predicted:relative": lambda s: s.predicted,
        "slowdown_others:relative": lambda s: s.others,
        "others_wait:percent": lambda s: s.waiting,
    }


def rank_figures(
    run: RunData, words: Messages, every: Sequence[StragglerEffect]
) -> Iterator[Figure]:
    """Yield per backend a figure of the times of all ranks of each straggler arm beside those of
    the same arm without the handicap; nothing for a backend where they were not recorded."""
    for backend in run.backends:
        arms = straggler_arms(run)
        if shown := {a: b for a, b in arms.items() if ranks.rank_parts(run, a, backend)}:
            yield _ranks(run, words, backend, shown, every)


def _slowdowns(words: Messages, arms: Sequence[str], every: Sequence[StragglerEffect]) -> Figure:
    """Return a figure of the slowdown of an update: measured by backend, with the prediction beside
    it."""
    backends = list(dict.fromkeys(s.backend for s in every))
    marks: list[Mark] = [ReferenceLine(1, axis="x")]
    for k, backend in enumerate(backends):
        shift = 5.0 * (k - (len(backends) - 1) / 2)
        here = [s for s in every if s.backend == backend]
        rows = [arms.index(s.arm) for s in here]
        value, guess = (
            [x or NAN for x in each]
            for each in ([s.factor for s in here], [s.predicted for s in here])
        )
        between = [x for pair in zip(guess, value, strict=True) for x in (*pair, NAN)]
        places = [y for y in rows for _ in range(3)]
        owner, predicted = SeriesId(backend=backend), SeriesId("", backend, "predicted")
        marks.append(LineMark(between, places, owner, marker="none", weight="thin", shift=shift))
        marks.append(LineMark(value, rows, owner, joined=False, shift=shift))
        if any(x == x for x in guess):
            marks.append(LineMark(guess, rows, predicted, joined=False, shift=shift))
    x = Axis(words("axis.slowdown"), "auto", log_factor=8)
    diamond = LegendEntry(
        "series", "predicted", words("figure.predicted"), marker="diamond", hollow=True
    )
    panel = Panel(marks, x, Axis(names=arms), height=30 * len(arms))
    values = {"values": _format_factors(arms, backends, every)}
    return build_figure(
        words, "slowdown", [panel], [*legend.colored_backends(backends), diamond], values
    )


def _format_factors(
    arms: Sequence[str], backends: Sequence[str], every: Sequence[StragglerEffect]
) -> str:
    """Return the slowdown of every arm on every backend as text for a figure's description."""
    factors = {(s.arm, s.backend): numbers.times(s.factor) for s in every if s.factor is not None}
    return format_values(arms, backends, lambda *at: factors.get(at, numbers.NO_VALUE))


def _ranks(
    run: RunData,
    words: Messages,
    backend: str,
    arms: Mapping[str, str],
    every: Sequence[StragglerEffect],
) -> Figure:
    """Return a figure with a panel per straggler arm: a bar per rank, above it a pale one without
    the handicap. Panels with the same kind of handicap share one scale."""
    longest: dict[str, float] = {}
    panels = []
    for arm, base in arms.items():
        slow, healthy = (
            [
                {p: row[p] for p in SERIES["rank_update"]}
                for row in ranks.rank_parts(run, a, backend)
            ]
            for a in (arm, base)
        )
        kind = ranks.handicap(run, arm)
        most = 1.04e3 * max(sum(row.values()) for row in (*slow, *healthy))
        longest[kind] = max(longest.get(kind, 0.0), most)
        marks: list[Mark] = []
        for r, row in enumerate(slow):
            marks += stacked_bars(r + 0.12, row, 1e3, height=0.44)
        for r, row in enumerate(healthy[: len(slow)]):
            marks += stacked_bars(r - 0.27, row, 1e3, height=0.26, suffix=NO_STRAGGLER_SUFFIX)
        handicap = ranks.straggler(run, arm)
        names = [f"{r} ◂" if handicap and r == handicap.rank else str(r) for r in range(len(slow))]
        y = Axis(words("axis.rank"), names=names, grid=False)
        panels.append((kind, Panel(marks, y=y, title=arm, height=34 * len(names))))
    parts = legend.parts(words)
    pale = [replace(k, name=k.name + NO_STRAGGLER_SUFFIX, pale=True, listed=False) for k in parts]
    pale[0] = replace(pale[0], label=words("figure.without"), listed=True)
    scaled = [
        replace(p, x=Axis(words("axis.update_ms"), low=0, high=longest[k])) for k, p in panels
    ]
    values = {"backend": backend, "values": _format_factors([*arms], [backend], every)}
    suffix = "" if len(run.backends) == 1 else f"-{slug(backend)}"
    return build_figure(
        words,
        "bottleneck",
        scaled,
        [*parts, *pale],
        values,
        name=f"bottleneck{suffix}",
        columns=min(COLUMNS, len(panels)),
    )


def findings(notes: Notes, run: RunData, every: Sequence[StragglerEffect]) -> None:
    """Add which handicaps slow training most, how long the other ranks wait, and whether the
    slowdown was predicted."""
    others = {(s.arm, s.backend): s.others for s in every if s.others is not None}
    if len({arm for arm, _ in others}) > 1:
        notes.add("range", **format_extremes(others, ", ".join))
    for backend in run.backends:
        here = [s for s in every if s.backend == backend]
        for kind in ranks.HANDICAPS:
            _add_ranking(notes, run, kind, [s for s in here if ranks.handicap(run, s.arm) == kind])
        waits = [s for s in here if s.waiting is not None]
        if waits:
            notes.add("waits", s=max(waits, key=lambda s: s.waiting or 0.0))
    for s in every:
        times = seconds_before_and_after(run, s)
        if times is not None:
            before, after = times
            notes.add(
                "since", s=s, before=before, after=after, times=after / before if before else None
            )
    ratios = {(s.arm, s.backend): s.predicted / s.factor for s in every if s.factor and s.predicted}
    if ratios:
        notes.set_anchor("figure-slowdown")
        notes.add("foreseen", len(ratios), **summarize_predictions(ratios, ", ".join))
    slow = [a for a in ranks.multi_rank_arms(run) if ranks.straggler(run, a) and run.select(a)]
    alone = [a for a in slow if a not in straggler_arms(run)]
    if alone:
        notes.add_warning("no_base", len(alone), arms=alone)


def _add_ranking(notes: Notes, run: RunData, kind: str, every: Sequence[StragglerEffect]) -> None:
    """Add the arms with one kind of handicap from the first update on, the largest slowdown of the
    ranks that have none first."""
    factors = {s.arm: s.others for s in every if s.others is not None and s.since <= 1}
    if factors:
        notes.add(
            "one" if len(factors) == 1 else "ranking",
            backend=every[0].backend,
            values=sort_by_value(factors, descending=True),
            kind=notes.words(f"handicap_name.{kind}"),
        )


TOPIC = table_section(
    "bottleneck",
    410,
    reads=straggler_effects,
    columns=columns,
    figures=figures,
    below=rank_figures,
    findings=findings,
    keep=lambda effect: None not in effect.step_seconds,
    table="slowdown",
    priority=lambda run: 45 if straggler_arms(run) else 0,
)
