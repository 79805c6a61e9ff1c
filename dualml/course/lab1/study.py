"""Study of Lab 1: curves of a student's optimizers, both frameworks in one figure, with the
rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dualml.common.words import Messages
from dualml.course.exercise import Array, ExerciseCall, ExerciseFile
from dualml.course.lab1.curves import (
    UPDATES,
    loss_tolerance,
    make_calls,
    observed_losses,
    reference_losses,
)
from dualml.course.study import Run, Study, curves_legend, equality_cell
from dualml.report.blocks import Block, Cell, Column, Table
from dualml.report.columns import Columns, make_table
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Panel, SeriesId

COLOURS = {"GD": "blue", "SGD": "vermilion", "Adam": "green"}
#: Number of updates at the end of a curve whose mean is its final loss.
FINAL_UPDATES = 10


def study(files: Sequence[ExerciseFile], run: Run, words: Messages) -> Study:
    """Train by the student's optimizers; return figure, table and questions about those that
    returned a loss for every update."""
    asked, data = make_calls()
    curves: dict[tuple[str, str], Array] = {}
    for file in files:
        for call, answer in zip(asked, run(file, asked), strict=True):
            if answer.trouble is None and "losses" in answer.arrays[0]:
                curve = observed_losses(answer.arrays[0])
                if curve.shape == (UPDATES,):
                    curves[call.target, file.backend] = curve
    rules = {call.target: reference_losses(call) for call in asked}
    blocks: list[Block] = [figure(curves, rules, data, words), table(asked, curves, rules, words)]
    return Study(blocks, questions(curves, words))


def figure(
    curves: Mapping[tuple[str, str], Array], rules: Mapping[str, Array], data: str, words: Messages
) -> Figure:
    """Make the figure of the losses by update: the student's by optimizer and backend, and the
    rule's."""
    updates = np.arange(1, UPDATES + 1, dtype=np.float64)
    lines = [
        LineMark(updates, rule, SeriesId(arm=target, series="rule"))
        for target, rule in rules.items()
    ]
    lines += [
        LineMark(updates, curve, SeriesId(arm=target, backend=backend))
        for (target, backend), curve in curves.items()
    ]
    keys = [LegendEntry("arm", target, color=COLOURS[target]) for target in rules]
    keys += curves_legend({backend for _, backend in curves}, words)
    x, y = Axis(words("study.update")), Axis(words("study.loss"), scale="auto")
    caption = words("study.lab1.caption", data=data)
    return Figure("curves", caption, caption, [Panel(lines, x, y, height=330)], keys)


def table(
    asked: Sequence[ExerciseCall],
    curves: Mapping[tuple[str, str], Array],
    rules: Mapping[str, Array],
    words: Messages,
) -> Table:
    """Make the table of each optimizer's and backend's final loss, distance from the rule (the
    largest relative to the allowed one), that allowed one and verdict."""

    def compare(row: tuple[ExerciseCall, str, Array]) -> tuple[str, str, Cell]:
        call, _, curve = row
        rule = rules[call.target]
        allowed = loss_tolerance(call, rule)
        off = np.abs(curve - rule)
        worst = int(np.argmax(np.nan_to_num(off / allowed, nan=np.inf)))
        equal = equality_cell(bool(off[worst] <= allowed[worst]), words)
        return f"{off[worst]:.1e}", f"{allowed[worst]:.1e}", equal

    last = Column("last", words("study.lab1.last", n=FINAL_UPDATES), show="number")
    read: Columns[tuple[ExerciseCall, str, Array]] = {
        ("`optimizer`", "framework"): lambda row: (row[0].target, row[1]),
        last: lambda row: f"{row[2][-FINAL_UPDATES:].mean():.4f}",
        ("away:", "allowed:", "verdict"): compare,
    }
    rows = [
        (call, backend, curve)
        for call in asked
        for (target, backend), curve in curves.items()
        if target == call.target
    ]
    return make_table(words, "curves", rows, read, words("study.lab1.table"), "study.{}")


def questions(curves: Mapping[tuple[str, str], Array], words: Messages) -> list[str]:
    """Return the questions to the student, with the student's own numbers: about the optimizers, in
    the first framework with two to compare, and about the frameworks' distance."""
    asked = []
    for backend in ("torch", "mindspore"):
        own = {target: c for (target, b), c in curves.items() if b == backend}
        if {"SGD", "Adam"} <= own.keys():
            goal = float(own["SGD"][-FINAL_UPDATES:].mean())
            first = next((n for n, v in enumerate(own["Adam"], 1) if v <= goal), None)
            if first is not None:
                asked.append(
                    words("study.lab1.sooner", backend=backend, n=first, loss=goal, of=UPDATES)
                )
        if {"GD", "SGD"} <= own.keys():
            rough = {t: float(np.abs(np.diff(own[t])).mean()) for t in ("GD", "SGD")}
            asked.append(
                words("study.lab1.rough", backend=backend, gd=rough["GD"], sgd=rough["SGD"])
            )
        if asked:
            break
    for target in ("GD", "SGD", "Adam"):
        pair = [curves.get((target, b)) for b in ("torch", "mindspore")]
        if pair[0] is not None and pair[1] is not None:
            away = float(np.abs(pair[0] - pair[1]).max())
            asked.append(words("study.lab1.apart", target=target, away=away))
    return asked
