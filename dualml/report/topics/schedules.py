"""A strategy's schedule drawn: ranks as lines, steps as columns, every message as an arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dualml.report import keys, ranks
from dualml.report.blocks import Block, Row
from dualml.report.figure import WIDTH, Arrow, Axis, Figure, Mark, Owner, Panel, Rule
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words

if TYPE_CHECKING:
    from dualml.aggregation import Schedule, Transfer

MOST = 8  # ranks that stay readable
#: What the receiver does with a message.
THEN = {"add": "blue", "put": "vermilion"}
COLUMN = {False: 60, True: 86}  # pixels of a step, wider where chunks are named


def schedules(run: Run, words: Words) -> Iterator[Figure]:
    """Every schedule this run's strategies follow, alike ones once."""
    from dualml.aggregation import STRATEGIES

    alike: dict[Schedule, list[str]] = {}
    for name in ranks.strategies(run):
        if name in STRATEGIES:
            n = _ranks(run, name)
            schedule = STRATEGIES[name]().schedule(n)
            if schedule.steps:
                alike.setdefault(schedule, []).append(name)
    for schedule, names in alike.items():
        yield _figure(schedule, names, words)


def _ranks(run: Run, name: str) -> int:
    """The most ranks the run used the strategy with that can be drawn."""
    used = {
        ranks.size(run, arm)
        for arm in run.arms
        if ranks.strategy(run, arm) == name or name in (run.arms[arm].get("strategies") or ())
    }
    fit = [n for n in used if 1 < n <= MOST]
    return max(fit) if fit else 4


def _figure(schedule: Schedule, names: list[str], words: Words) -> Figure:
    n, steps = schedule.ranks, len(schedule.steps)
    several = schedule.chunks > 1
    marks: list[Mark] = [Rule(rank) for rank in range(n)]
    marks += [Rule(k - 0.5, axis="x", faint=True) for k in range(1, steps)]
    marks += [
        _message(number, message, several)
        for number, step in enumerate(schedule.steps)
        for message in step
    ]
    alt = words(
        "alt.schedule",
        names=words.join(names),
        ranks=n,
        steps=words.count("step", steps),
        messages=words.count("message", sum(map(len, schedule.steps))),
    )
    key = "chunks" if several else "whole"
    return Figure(
        f"schedule-{names[0].replace('_', '-')}",
        words(f"figure.schedule.{key}", names=words.join(names), n=n, k=schedule.chunks),
        alt,
        [
            Panel(
                marks,
                Axis(words("axis.step"), names=[str(k + 1) for k in range(steps)]),
                Axis(words("axis.rank"), names=[str(rank) for rank in range(n)]),
                height=34 * n,
            )
        ],
        keys.series(words, "figure.then", THEN),
        width=min(WIDTH, max(320, 80 + steps * COLUMN[several])),
    )


def _message(step: int, message: Transfer, named: bool) -> Arrow:
    """From the sender's line to the receiver's, across the column of the step; the name stands
    left of the dot, where no arrow passes."""
    first = 0.12 if not named else 0.2 + 0.05 * (len(message.name) - 1)
    return Arrow(
        step - 0.5 + first,
        message.source,
        step + 0.4,
        message.target,
        Owner(series=message.then),
        text=message.name if named else "",
        dot=True,
    )


def evidence(run: Run, words: Words) -> Iterator[Block]:
    drawn = list(schedules(run, words))
    if drawn:
        yield Row(drawn)


TOPIC = Topic("schedules", 40, evidence, part="principle")
