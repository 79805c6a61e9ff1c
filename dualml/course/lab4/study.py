"""Study of Lab 4: the student's schedules as a drawing, with waiting times and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages
from dualml.course.exercise import ExerciseCall, ExerciseFile
from dualml.course.lab4.orders import BACKWARD, FORWARD, Order, makespan, max_in_flight, start_times
from dualml.course.study import Run, Study
from dualml.report.blocks import Block, Table
from dualml.report.columns import Columns, make_table
from dualml.report.figure import Axis, BoxMark, Figure, LegendEntry, Panel, SeriesId

STAGES, COUNT = 4, 8
KINDS = ("gpipe", "1f1b")


def study(files: Sequence[ExerciseFile], run: Run, words: Messages) -> Study:
    """Ask the student's ``schedule`` for an order of each kind; return figure, table and questions
    about those that can run, or an empty study."""
    asked = [
        ExerciseCall(
            "orders", "schedule", {"stages": STAGES, "micro_batches": COUNT, "kind": kind}, [{}]
        )
        for kind in KINDS
    ]
    orders: dict[str, list[Order]] = {}
    for file in files:
        if file.task == "schedule":
            for kind, answer in zip(KINDS, run(file, asked), strict=True):
                arrays = answer.arrays[0] if answer.trouble is None else {}
                made = [
                    [(int(a), int(b)) for a, b in arrays[str(s)]]
                    for s in range(STAGES)
                    if str(s) in arrays
                ]
                if len(made) == STAGES and start_times(made) is not None:
                    orders[kind] = made
    if not orders:
        return Study()
    return Study([figure(orders, words), table(orders, words)], questions(orders, words))


def figure(orders: dict[str, list[Order]], words: Messages) -> Block:
    """Make the figure of the schedules, one panel per kind with a row per stage."""
    names = [words("study.lab4.stage", s=s) for s in range(STAGES)]
    panels = []
    for kind, made in orders.items():
        x, y = Axis(words("study.lab4.time"), low=0), Axis(names=names, grid=False)
        panels.append(Panel(list(boxes(made)), x, y, title=kind, height=130))
    keys = [
        LegendEntry("series", "F", label=words("study.lab4.forward"), color="forward"),
        LegendEntry("series", "B", label=words("study.lab4.backward"), color="backward"),
    ]
    caption = words("study.lab4.caption", p=STAGES, m=COUNT, f=FORWARD, b=BACKWARD)
    return Figure("schedules", caption, caption, panels, keys, share_x="all")


def boxes(orders: list[Order]) -> Iterator[BoxMark]:
    """Yield a box for each pass of a schedule."""
    begun = start_times(orders)
    assert begun is not None
    for (way, stage, m), time in begun.items():
        width = BACKWARD if way else FORWARD
        owner = SeriesId(series="B" if way else "F")
        yield BoxMark(time, stage - 0.4, width, 0.8, owner, str(m))


def idle_percent(orders: list[Order]) -> float:
    """Return the bubble of a schedule without a deadlock, in percent of its time."""
    time = makespan(orders)
    assert time is not None
    return 100 * (1 - COUNT * (FORWARD + BACKWARD) / time)


def table(orders: dict[str, list[Order]], words: Messages) -> Table:
    """Make the table of each schedule's time units, bubble (percent) and most micro-batches in
    flight, stage by stage."""
    read: Columns[str] = {
        "`kind`": str,
        "units:": lambda kind: str(makespan(orders[kind])),
        "bubble:": lambda kind: f"{idle_percent(orders[kind]):.1f}",
        "kept": lambda kind: " · ".join(str(max_in_flight(order)) for order in orders[kind]),
    }
    caption = words("study.lab4.table")
    return make_table(words, "schedules", orders, read, caption, "study.lab4.{}")


def questions(orders: dict[str, list[Order]], words: Messages) -> list[str]:
    """Return the questions to the student, with the student's own numbers."""
    asked = []
    if "gpipe" in orders:
        idle = idle_percent(orders["gpipe"])
        asked.append(words("study.lab4.closed", p=STAGES, m=COUNT, idle=idle))
    if len(orders) == 2:
        most = [max(max_in_flight(order) for order in orders[kind]) for kind in KINDS]
        asked.append(words("study.lab4.why", gpipe=most[0], other=most[1]))
    return asked
