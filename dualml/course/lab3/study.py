"""Study of Lab 3: the student's training on 1, 2 and 4 ranks, beside one node with all samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.common.seeds import make_generator
from dualml.common.words import Messages
from dualml.course.exercise import Array, ExerciseCall, ExerciseFile
from dualml.course.lab3.draws import FEATURES, OUTPUTS, draw_parameters
from dualml.course.lab3.rules import trajectory
from dualml.course.study import Run, Study, curves_legend, equality_cell
from dualml.report.blocks import Block, Column, Table
from dualml.report.columns import Columns, make_table
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Panel, SeriesId

RANKS, UPDATES, BATCH = (1, 2, 4), 60, 24
COLOURS = {1: "blue", 2: "vermilion", 4: "green"}
#: Largest distance of a right answer from the rule after all updates in float32.
ALLOWED = 1e-4


def study(files: Sequence[ExerciseFile], run: Run, words: Messages) -> Study:
    """Train by the student's ``train`` files on 1, 2 and 4 ranks; return figure, table and
    questions about the trainings without an error, or an empty study."""
    asked = [make_call(ranks) for ranks in RANKS]
    rule = losses_by_update(trajectory(asked[0].options, asked[0].arrays, frozenset())[0])
    curves: dict[tuple[int, str], Array] = {}
    for file in files:
        if not file.task.startswith("train"):
            continue
        for one, answer in zip(asked, run(file, asked), strict=True):
            if answer.trouble is None:
                curves[one.ranks, file.backend] = losses_by_update(answer.arrays[0])
    if not curves:
        return Study()
    blocks: list[Block] = [figure(curves, rule, words), table(curves, rule, words)]
    return Study(blocks, questions(curves, rule, words))


def make_call(ranks: int) -> ExerciseCall:
    """Make a call of `UPDATES` updates on ``ranks`` ranks, which divide evenly samples that are the
    same for any number of ranks."""
    draw = make_generator(0, "exercise", "lab3 curves")
    start = draw_parameters(draw)
    teacher = draw.normal(size=(FEATURES, OUTPUTS))
    arrays: list[dict[str, Any]] = [dict(start) for _ in range(ranks)]
    for step in range(1, UPDATES + 1):
        x = draw.normal(size=(BATCH, FEATURES)).astype(np.float32)
        y = (np.tanh(x @ teacher) + 0.1 * draw.normal(size=(BATCH, OUTPUTS))).astype(np.float32)
        for own, part in zip(arrays, np.array_split(np.arange(BATCH), ranks), strict=True):
            own |= {f"x/{step}": x[part], f"y/{step}": y[part]}
    hyper = {"lr": 0.2, "adaptive": False, "eps": 0.1}
    options = {"comm": True, "hyper": hyper, "steps": UPDATES, "loss": True}
    return ExerciseCall("train_steps", "train_step", options, arrays)


def losses_by_update(arrays: Mapping[str, Any]) -> Array:
    """Return the loss of each update, shape (UPDATES,)."""
    return np.array([float(arrays[f"{s}/loss"]) for s in range(1, UPDATES + 1)])


def figure(curves: Mapping[tuple[int, str], Array], rule: Array, words: Messages) -> Figure:
    """Make the figure of the losses by update: the student's by number of ranks and backend, and
    the rule's."""
    updates = np.arange(1, UPDATES + 1, dtype=np.float64)
    lines = [LineMark(updates, rule, SeriesId(series="rule"), weight="faint")]
    lines += [
        LineMark(updates, curve, SeriesId(arm=str(n), backend=b))
        for (n, b), curve in curves.items()
    ]
    keys = [
        LegendEntry("arm", str(n), label=words.count("rank", n), color=COLOURS[n])
        for n in RANKS
        if any(ranks == n for ranks, _ in curves)
    ]
    keys += curves_legend({backend for _, backend in curves}, words)
    caption = words("study.lab3.caption", batch=BATCH)
    panel = Panel(lines, Axis(words("study.update")), Axis(words("study.loss")), height=300)
    return Figure("curves", caption, caption, [panel], keys)


def table(curves: Mapping[tuple[int, str], Array], rule: Array, words: Messages) -> Table:
    """Make the table of each training's final loss (mean of ten updates), largest distance from the
    rule and verdict."""
    away = {key: float(np.max(np.abs(curve - rule))) for key, curve in curves.items()}
    ranks, last = (
        Column(key, words(f"study.lab3.{key}"), show="number") for key in ("ranks", "last")
    )
    read: Columns[tuple[int, str]] = {
        (ranks, "framework"): lambda key: (str(key[0]), key[1]),
        last: lambda key: f"{curves[key][-10:].mean():.4f}",
        "away:": lambda key: f"{away[key]:.1e}",
        "verdict": lambda key: equality_cell(away[key] <= ALLOWED, words),
    }
    caption = words("study.lab3.table", allowed=ALLOWED)
    return make_table(words, "curves", sorted(curves), read, caption, "study.{}")


def questions(curves: Mapping[tuple[int, str], Array], rule: Array, words: Messages) -> list[str]:
    """Return the questions to the student, with the student's own numbers."""
    away = {key: float(np.max(np.abs(curve - rule))) for key, curve in curves.items()}
    most = max(away, key=lambda key: away[key])
    return [
        words("study.lab3.why", n=most[0], backend=most[1], away=away[most]),
        words("study.lab3.uneven", batch=BATCH),
        words("study.lab3.larger", batch=BATCH, n=max(RANKS), of=BATCH * max(RANKS)),
    ]
