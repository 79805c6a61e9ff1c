"""Where to cut: the time of an update over the position of the cut, and what a balance chose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report import keys
from dualml.report.blocks import Block, Cell, Column, Table
from dualml.report.columns import columns
from dualml.report.figure import Axis, Figure, Key, Line, Mark, Owner, Panel, Text
from dualml.report.notes import Notes
from dualml.report.splits import shown, times
from dualml.report.splits.arms import SplitArm, Splits, healthy
from dualml.report.spread import cell
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers


def cut_groups(splits: Splits) -> list[list[SplitArm]]:
    """Arms with one cut that differ in nothing else, in the order of the model."""
    arms = [arm for arm in healthy(splits.pipelines) if len(arm.cut) == 1]
    return [
        sorted(group, key=position)
        for group in splits.groups(arms, "split.cut")
        if len({position(arm) for arm in group}) > 1
    ]


def position(arm: SplitArm) -> int:
    """The number of the layer before which it is cut."""
    layers = [name for stage in arm.stages for name in stage]
    return layers.index(arm.cut[0]) if arm.cut[0] in layers else 0


def by_hand(arm: SplitArm) -> bool:
    return bool(arm.split.cut)


def chosen_by(arm: SplitArm, words: Words) -> str:
    return words(f"splits.cut_by.{'hand' if by_hand(arm) else arm.split.balance}")


def evidence(run: Run, words: Words) -> Iterator[Block]:
    splits = Splits(run)
    groups = cut_groups(splits)
    if not groups:
        return
    yield from shown.crowded(run, (arm for group in groups for arm in group), words)
    for number, group in enumerate(groups):
        if any(times.step(run, arm.name, b) for arm in group for b in times.compared(splits)):
            yield _figure(splits, group, f"cuts-{number + 1}" if number else "cuts", words)
    yield _table(run, groups, words)


def _table(run: Run, groups: Sequence[Sequence[SplitArm]], words: Words) -> Table:
    arms = [arm for group in groups for arm in group]
    backends = [b for b in run.backends if any(run.select(arm.name, b) for arm in arms)]
    head = columns(words, "`arm`", "`cut_at`", "cut_by", "parameters:bytes_ranks")
    head += columns(words, "links_planned:bytes_update")
    for key, unit in (("split_step", "milliseconds"), ("split_computing", "ms_ranks")):
        for b in backends:
            label, unit_text = words(f"column.{key}", backend=b), words(f"unit.{unit}")
            head.append(Column(f"{key}-{b}", label, unit_text, "number"))
    rows: list[list[Cell | str]] = []
    for arm in arms:
        sizes = [numbers.nbytes(4 * r["elements"]) for r in arm.plan.get("ranks") or ()]
        rows.append(
            [
                arm.name,
                ", ".join(arm.cut),
                chosen_by(arm, words),
                " · ".join(sizes) or numbers.NONE,
                numbers.nbytes(arm.planned("links") or None),
                *(cell(times.step(run, arm.name, b), 1e3) for b in backends),
                *(_computing(run, arm, b) for b in backends),
            ]
        )
    return Table("cuts", words("table.cuts"), head, rows)


def _computing(run: Run, arm: SplitArm, backend: str) -> str:
    ranks = times.by_rank(run, arm.name, backend)
    each = [times.milliseconds(parts["gradient"] + parts["update"]) for parts in ranks]
    return " · ".join(each) or numbers.NONE


def _figure(splits: Splits, group: Sequence[SplitArm], name: str, words: Words) -> Figure:
    """Lines through the fastest arm at every cut; hollow marks where a balance cut."""
    run, backends = splits.run, times.compared(splits)
    cuts = sorted({(position(arm), arm.cut[0]) for arm in group})
    place = {at: k for k, (at, _) in enumerate(cuts)}
    marks: list[Mark] = []
    for backend in backends:
        steps = {
            arm.name: (place[position(arm)], 1e3 * step.mean)
            for arm in group
            if (step := times.step(run, arm.name, backend)) is not None
        }
        fastest: dict[int, float] = {}
        for x, ms in steps.values():
            fastest[x] = min(ms, fastest.get(x, ms))
        marks.append(Line(list(fastest), list(fastest.values()), Owner(backend=backend)))
        for arm in group:
            if arm.name in steps:
                x, ms = steps[arm.name]
                hint = f"{arm.name} · {chosen_by(arm, words)};{ms:.3g}"
                owner = Owner(backend=backend, series="hand" if by_hand(arm) else "balance")
                marks.append(Line([x], [ms], owner, joined=False, hints=[hint]))
    balances: dict[int, list[str]] = {}
    for arm in group:
        if not by_hand(arm):
            balances.setdefault(place[position(arm)], []).append(chosen_by(arm, words))
    for x, names in balances.items():
        marks.append(Text(x, 0, "\n".join(names), align="center", muted=True, small=True,
                          dy=-6.0 - 6.5 * len(names)))  # fmt: skip
    look = [
        *keys.colored_backends(backends, marker=""),
        Key("series", "hand", marker="circle", listed=False),
        Key("series", "balance", words("cuts.balanced"), marker="diamond", hollow=True),
    ]
    values = shown.listed(
        [arm.name for arm in group], backends, lambda name, b: times.update_ms(run, name, b)
    )
    ticks = [(float(k), layer) for k, (_, layer) in enumerate(cuts)]
    axis = Axis(words("axis.cut"), low=-0.3, high=len(cuts) - 0.7, ticks=ticks)
    panel = Panel(marks, axis, Axis(words("axis.update_ms"), low=0))
    caption = words("cuts.figure", model=group[0].model)
    alt = words("alt.update_parts", values=values)
    return Figure(name, caption, alt, [panel], look, width=640)


# --- sentences ------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Notes:
    """The best and the worst place, and what each balance chose."""
    notes, splits = Notes(words, "cuts", "figure-cuts"), Splits(run)
    for group in cut_groups(splits):
        items = (_place(words, run, b, group) for b in times.compared(splits))
        values = shown.joined(words, items)
        if values:
            notes.say("cut", model=group[0].model, values=values)
        balanced = list(
            dict.fromkeys(
                words("say.cuts.balance", balance=chosen_by(arm, words), cut=arm.cut[0])
                for arm in group
                if not by_hand(arm)
            )
        )
        if values and balanced:
            notes.say("balances", values=words.semicolons(balanced))
    return notes


def _place(words: Words, run: Run, backend: str, group: Sequence[SplitArm]) -> str:
    steps = [(a, s.mean) for a in group if (s := times.step(run, a.name, backend)) is not None]
    if len({position(arm) for arm, _ in steps}) < 2:
        return ""
    (best, least), (worst, most) = (f(steps, key=lambda each: each[1]) for f in (min, max))
    return words("say.cuts.item", backend=backend, best=best.cut[0], worst=worst.cut[0],
                 best_ms=times.milliseconds(least), worst_ms=times.milliseconds(most),
                 times=numbers.factor(most / least))  # fmt: skip


TOPIC = Topic("cuts", 650, evidence, findings)
