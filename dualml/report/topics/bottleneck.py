"""One slow node: who suffers, who waits, and whether it was foreseen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dualml.report import keys, ranks, slowed
from dualml.report.blocks import Block, Item, Table
from dualml.report.columns import Line as Row
from dualml.report.columns import percent, table
from dualml.report.crowding import crowding
from dualml.report.figure import Axis, Figure, Key, Line, Mark, Owner, Panel, Rule
from dualml.report.measures import slug
from dualml.report.notes import Notes
from dualml.report.shown import extremes, foreseen, listed, stacked
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

COLUMNS = 3
NAN = float("nan")
WITHOUT = "-without"  # the parts of an update of the arm that has no slow node


def evidence(run: Run, words: Words) -> Iterator[Block]:
    arms = slowed.slow_arms(run)
    if not arms:
        return
    yield from crowding(run, words)
    yield _slowdowns(run, words, list(arms))
    yield from _table(run, words, arms)
    for backend in run.backends:
        shown = {a: base for a, base in arms.items() if ranks.parts(run, a, backend)}
        if shown:
            yield _ranks(run, words, backend, shown)


def _slowdowns(run: Run, words: Words, arms: Sequence[str]) -> Figure:
    """Factor on the time of an update: measured by backend, predicted beside it."""
    backends = list(dict.fromkeys(b for _, b in ranks.ran(run, arms)))
    rows = list(range(len(arms)))
    marks: list[Mark] = [Rule(1, axis="x")]
    for k, backend in enumerate(backends):
        shift = 5.0 * (k - (len(backends) - 1) / 2)
        value, guess = ([f(run, arm, backend) or NAN for arm in arms]
                        for f in (slowed.measured, slowed.predicted))  # fmt: skip
        between = [x for pair in zip(guess, value, strict=True) for x in (*pair, NAN)]
        places = [y for y in rows for _ in range(3)]
        owner, predicted = Owner(backend=backend), Owner("", backend, "predicted")
        marks.append(Line(between, places, owner, marker="none", weight="thin", shift=shift))
        marks.append(Line(value, rows, owner, joined=False, shift=shift))
        if any(x == x for x in guess):
            marks.append(Line(guess, rows, predicted, joined=False, shift=shift))
    x = Axis(words("axis.slowdown"), "auto", wide=8)
    diamond = Key("series", "predicted", words("figure.predicted"), marker="diamond", hollow=True)
    return Figure(
        "slowdown", words("figure.slowdown"), _alt(run, words, "slowdown", arms, backends),
        [Panel(marks, x, Axis(names=arms), height=30 * len(arms))],
        [*keys.colored_backends(backends), diamond],
    )  # fmt: skip


def _alt(run: Run, words: Words, key: str, arms: Sequence[str], backends: Sequence[str]) -> str:
    def times(arm: str, backend: str) -> str:
        factor = slowed.measured(run, arm, backend)
        return numbers.NONE if factor is None else f"× {numbers.factor(factor)}"

    return words(f"alt.{key}", backend=backends[-1], values=listed(arms, backends, times))


def _ranks(run: Run, words: Words, backend: str, arms: Mapping[str, str]) -> Figure:
    """A panel for each slow arm: a bar for each rank, above it a pale one without the handicap.
    Panels with one handicap have one scale."""
    longest: dict[str, float] = {}
    panels = []
    for arm, base in arms.items():
        slow, healthy = ([{p: row[p] for p in keys.PARTS} for row in ranks.parts(run, a, backend)]
                         for a in (arm, base))  # fmt: skip
        kind = ranks.handicap(run, arm)
        most = 1.04e3 * max(sum(row.values()) for row in (*slow, *healthy))
        longest[kind] = max(longest.get(kind, 0.0), most)
        marks: list[Mark] = []
        for r, row in enumerate(slow):
            marks += stacked(r + 0.12, row, 1e3, height=0.44)
        for r, row in enumerate(healthy[: len(slow)]):
            marks += stacked(r - 0.27, row, 1e3, height=0.26, suffix=WITHOUT)
        handicap = ranks.slow(run, arm)
        names = [f"{r} ◂" if handicap and r == handicap.rank else str(r) for r in range(len(slow))]
        y = Axis(words("axis.rank"), names=names, grid=False)
        panels.append((kind, Panel(marks, y=y, title=arm, height=34 * len(names))))
    parts = keys.parts(words)
    pale = [replace(k, name=k.name + WITHOUT, pale=True, listed=False) for k in parts]
    pale[0] = replace(pale[0], label=words("figure.without"), listed=True)
    return Figure(
        "bottleneck" if len(run.backends) == 1 else f"bottleneck-{slug(backend)}",
        words("figure.bottleneck", backend=backend),
        _alt(run, words, "bottleneck", list(arms), [backend]),
        [replace(p, x=Axis(words("axis.update_ms"), low=0, high=longest[k])) for k, p in panels],
        [*parts, *pale], columns=min(COLUMNS, len(panels)),
    )  # fmt: skip


def _table(run: Run, words: Words, arms: Mapping[str, str]) -> Iterator[Table]:
    rows: list[Row] = []
    for arm, backend in ranks.ran(run, arms):
        times = [ranks.update_seconds(run, name, backend) for name in (arms[arm], arm)]
        factors = (slowed.measured, slowed.predicted, slowed.of_others)
        if None not in times:
            rows.append(
                [
                    *(arm, backend, ranks.handicap_text(run, arm, words), *map(numbers.ms, times)),
                    *(numbers.factor(factor(run, arm, backend)) for factor in factors),
                    percent(slowed.waiting(run, arm, backend)),
                ]
            )
    head = ("`arm`", "backend", "handicap", "without:milliseconds", "with:milliseconds",
            "slowdown:relative", "slowdown_predicted:relative", "slowdown_others:relative",
            "others_wait:percent")  # fmt: skip
    yield from table(words, "slowdown", head, rows)


# --- sentences ------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes, arms = Notes(words, "bottleneck", "table-slowdown"), slowed.slow_arms(run)
    places = list(ranks.ran(run, arms))
    others = {at: f for at in places if (f := slowed.of_others(run, *at)) is not None}
    if len({arm for arm, _ in others}) > 1:
        notes.say("range", **extremes(others, ", ".join))
    for backend in run.backends:
        here = {arm: factor for (arm, b), factor in others.items() if b == backend}
        for kind in ranks.HANDICAPS:
            _ranking(notes, run, words, kind, backend, here)
        waits = {a: w for a in arms if (w := slowed.waiting(run, a, backend)) is not None}
        if waits:
            most = max(waits, key=lambda a: waits[a])
            notes.say("waits", backend=backend, arm=most, share=numbers.percent(waits[most]))
    for arm, backend in places:
        _since(notes, run, arm, backend)
    ratios = {
        at: guess / value
        for at in places
        if (value := slowed.measured(run, *at)) and (guess := slowed.predicted(run, *at))
    }
    if ratios:
        notes.about("figure-slowdown")
        notes.say("foreseen", len(ratios), **foreseen(ratios, ", ".join))
    slow = [a for a in ranks.several(run) if ranks.slow(run, a) and run.select(a)]
    alone = [a for a in slow if a not in arms]
    if alone:
        notes.warn("no_base", len(alone), arms=words.join(alone))
    return notes


def _ranking(
    notes: Notes, run: Run, words: Words, kind: str, backend: str, others: Mapping[str, float]
) -> None:
    """Arms with one kind of handicap from the first update on, from the one whose other ranks
    suffer most."""
    worst = sorted(
        (a for a in others if ranks.handicap(run, a) == kind and not slowed.sets_in_later(run, a)),
        key=lambda a: -others[a],
    )
    if worst:
        values = words.join([f"{a} × {numbers.factor(others[a])}" for a in worst])
        notes.say("one" if len(worst) == 1 else "ranking", backend=backend, values=values,
                  kind=words(f"handicap_name.{kind}"))  # fmt: skip


def _since(notes: Notes, run: Run, arm: str, backend: str) -> None:
    """An arm whose handicap sets in midway, held against itself."""
    times, slow = slowed.before_and_after(run, arm, backend), ranks.slow(run, arm)
    if times is not None and slow is not None:
        before, after = times
        notes.say("since", arm=arm, backend=backend, step=slow.since, before=numbers.ms(before),
                  after=numbers.ms(after),
                  times=numbers.factor(after / before) if before else numbers.NONE)  # fmt: skip


TOPIC = Topic("bottleneck", 410, evidence, findings, lambda run: 45 if slowed.slow_arms(run) else 0)
