"""Pipelines in sentences: the bubble, the number of micro-batches, what ranks hold, the cut."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from dualml.report import numbers
from dualml.report.analysis.base import Finding, Notes
from dualml.report.analysis.splits import ms
from dualml.report.collectives import size_of
from dualml.report.model import Run
from dualml.report.splits import arms, bubbles, cuts, grids, memory, spent
from dualml.report.splits.principle import piped
from dualml.report.words import Words


def pipeline(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "pipeline")
    for backend in spent.shown(run):
        _bubble(notes, run, words, backend)
        for group in bubbles.counted(run):
            for order in ("gpipe", "1f1b", "eager-1f1b", "naive"):
                _counts(notes, run, words, backend, group, order)
            _held(notes, run, backend, group)
        for group in cuts.cut_groups(run):
            _cut(notes, run, words, backend, group)
    _live(notes, run)
    return notes


def _bubble(notes: Notes, run: Run, words: Words, backend: str) -> None:
    """Of pipelines whose link is healthy: how far above the schedule's own idle share."""
    found, uneven = {}, {}
    for arm in arms.healthy(run, piped(run)):
        ideal, idle = grids.ideal(run, arm), spent.idle(run, arm, backend)
        passes = spent.uneven(run, arm, backend)
        if ideal is not None and idle is not None and passes is not None:
            found[arm], uneven[arm] = (ideal, idle.mean), passes - ideal
    if not found:
        return
    gaps = {arm: idle - ideal for arm, (ideal, idle) in found.items()}
    close, far = (f(gaps, key=lambda a: gaps[a]) for f in (min, max))

    def told(arm: str) -> str:
        ideal, idle = found[arm]
        return words("say.pipeline.idle", arm=arm, idle=numbers.percent(idle),
                     ideal=numbers.percent(ideal))  # fmt: skip

    if len(found) == 1:
        notes.say("bubble_one", backend=backend, told=told(close))
        return
    notes.say("bubble", backend=backend, n=len(found), close=told(close), far=told(far),
              gap=f"{100 * median(gaps.values()):.1f}",
              uneven=f"{100 * median(uneven.values()):.1f}")  # fmt: skip


def _counts(
    notes: Notes, run: Run, words: Words, backend: str, group: Sequence[str], order: str
) -> None:
    """From the fewest to the most micro-batches."""
    mine = [a for a in group if arms.schedule(run, a) == order]
    told = [(a, i, s) for a in mine if (i := spent.idle(run, a, backend)) is not None
            and (s := spent.step(run, a, backend)) is not None]  # fmt: skip
    if len(told) < 2:
        return
    (few, few_idle, few_step), (many, many_idle, many_step) = told[0], told[-1]
    best, _, best_step = min(told, key=lambda x: x[2].mean)
    notes.say(
        "counts",
        backend=backend,
        order=arms.called(order, words),
        few=arms.micro_batches(run, few),
        many=arms.micro_batches(run, many),
        few_idle=numbers.percent(few_idle.mean),
        many_idle=numbers.percent(many_idle.mean),
        few_ideal=numbers.percent(grids.ideal(run, few)),
        many_ideal=numbers.percent(grids.ideal(run, many)),
        few_ms=ms(few_step.mean),
        many_ms=ms(many_step.mean),
        best=arms.micro_batches(run, best),
        best_ms=ms(best_step.mean),
    )


def _held(notes: Notes, run: Run, backend: str, group: Sequence[str]) -> None:
    """GPipe against 1F1B with as many micro-batches, on the first rank."""
    by_order: dict[str, dict[int, str]] = {"gpipe": {}, "1f1b": {}}
    for arm in group:
        by_order.get(arms.schedule(run, arm), {})[arms.micro_batches(run, arm)] = arm
    both = sorted(by_order["gpipe"].keys() & by_order["1f1b"].keys())
    if not both:
        return
    m = both[-1]
    a, b = (by_order[name][m] for name in ("gpipe", "1f1b"))
    first, second = (memory.by_rank(run, arm, backend, "held_bytes")[:1] for arm in (a, b))
    if first and second and second[0]:
        notes.say("held", backend=backend, m=m, gpipe=size_of(first[0]), other=size_of(second[0]),
                  times=numbers.factor(first[0] / second[0]))  # fmt: skip


def _live(notes: Notes, run: Run) -> None:
    """Whether any rank held more micro-batches than its schedule lets it."""
    checked, over = 0, []
    for arm in piped(run):
        bound = memory.bounds(run, arm)
        for backend in run.backends:
            live = memory.by_rank(run, arm, backend, "live")
            if not bound or not any(live):
                continue
            for rank, (most, limit) in enumerate(zip(live, bound, strict=False)):
                checked += 1
                if most > limit:
                    over.append((arm, backend, rank, most, limit))
    if checked and not over:
        notes.say("live", n=checked)
    for arm, backend, rank, most, limit in over[:1]:
        notes.warn("live_over", arm=arm, backend=backend, rank=rank, live=f"{most:g}", bound=limit)


def _cut(notes: Notes, run: Run, words: Words, backend: str, group: Sequence[str]) -> None:
    """The best and the worst place, and what each balance chose."""
    found = {a: s.mean for a in group if (s := spent.step(run, a, backend)) is not None}
    if len({cuts.position(run, a) for a in found}) < 2:
        return
    best, worst = min(found, key=lambda a: found[a]), max(found, key=lambda a: found[a])
    notes.say("cut", backend=backend, model=arms.model(run, best), best=arms.cut(run, best)[0],
              best_ms=ms(found[best]), worst=arms.cut(run, worst)[0], worst_ms=ms(found[worst]),
              times=numbers.factor(found[worst] / found[best]))  # fmt: skip
    items = []
    for arm in found:
        if not cuts.by_hand(run, arm):
            balance = words(f"splits.cut_by.{arms.split(run, arm)['balance']}")
            items.append(words("say.pipeline.balance", balance=balance, cut=arms.cut(run, arm)[0],
                               ms=ms(found[arm])))  # fmt: skip
    if items:
        notes.say("balances", backend=backend, values=words.semicolons(items))
