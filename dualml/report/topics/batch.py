"""Large batches: larger global batches with an unchanged or a scaled learning rate.

Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", sec. 2.1
(the linear scaling rule) and 2.2 (warm-up).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dualml.parity.statistics import LEVEL, MARGIN
from dualml.report import keys, ranks
from dualml.report.blocks import Block, Item
from dualml.report.cards import card
from dualml.report.columns import Row, table
from dualml.report.curves import drawn
from dualml.report.families import crowding
from dualml.report.figure import Axis, Figure, Key, Line, Mark, Owner, Panel
from dualml.report.measures import loss_unit
from dualml.report.notes import Notes
from dualml.report.results import Result, each, gap, results
from dualml.report.shown import figure, intervals
from dualml.report.spread import paired
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

#: Kinds of learning rates: that of the smallest batch, scaled in proportion to the batch, scaled
#: with a warm-up, or another one.
SAME, SCALED, WARM, OTHER = "same", "scaled", "warm", "other"
#: Marker of each way to choose the learning rate.
MARKERS = {SAME: "circle", SCALED: "square", WARM: "triangle", OTHER: "diamond"}
VARIED = ("batch_size", "optimizer.lr", "schedule.warmup")
FORMULA = r"\eta_B = \eta \cdot \frac{B}{B_0}"
SOURCE = "Goyal et al. 2017, Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, sec. 2"


@dataclass(frozen=True)
class Arm:
    """An arm with its batch size. ``kind``: the learning rate is that of the smallest batch
    (`SAME_RATE`), is scaled in proportion (`SCALED_RATE`; with a warm-up: `WARMUP_RATE`), or is another one
    (`OTHER_RATE`)."""

    name: str
    batch: int
    rate: float
    warmup: int
    kind: str = ""


@dataclass(frozen=True)
class Batches:
    """Arms that differ in batch size, learning rate and warm-up and train for the same epochs;
    ``base`` has the smallest batch."""

    base: Arm
    arms: tuple[Arm, ...]

    @property
    def all(self) -> tuple[Arm, ...]:
        return (self.base, *self.arms)

    def by_kind(self) -> Mapping[str, list[Arm]]:
        """Return kind → arms ordered by batch size, the base first."""
        kinds = {kind: [a for a in self.arms if a.kind == kind] for kind in MARKERS}
        return {kind: [self.base, *arms] for kind, arms in kinds.items() if arms}


def batches(run: Run) -> list[Batches]:
    """Return the groups of multi-rank arms with at least two batch sizes, the base first, then by
    size; single-rank runs have the topic ``sweep``."""
    if not ranks.distributed(run) and not run.dealt:
        return []
    among = [
        arm
        for arm in ranks.training(run)
        if run.arms[arm].get("batch_size")
        and not run.arms[arm].get("updates")
        and not ranks.slow(run, arm)
    ]
    families = []
    for names in run.contrast.groups(among, vary=VARIED):
        arms = sorted((_arm(run, name) for name in names), key=lambda a: (a.batch, a.warmup))
        if arms[0].batch < arms[-1].batch:
            base, *others = (replace(arm, kind=_kind(arm, arms[0])) for arm in arms)
            families.append(Batches(base, tuple(sorted(others, key=_order))))
    return families


def _arm(run: Run, name: str) -> Arm:
    settings = run.arms[name]
    rate = float((settings.get("optimizer") or {}).get("lr") or 0.0)
    warmup = int((settings.get("schedule") or {}).get("warmup") or 0)
    return Arm(name, int(settings["batch_size"]), rate, warmup)


def _kind(arm: Arm, first: Arm) -> str:
    """Return how an arm chooses its learning rate relative to the smallest batch."""

    def near(rate: float) -> bool:
        return abs(arm.rate - rate) <= 1e-6 * rate

    if near(first.rate * arm.batch / first.batch) and arm.batch != first.batch:
        return WARM if arm.warmup else SCALED
    return SAME if near(first.rate) and not arm.warmup else OTHER


def _order(arm: Arm) -> tuple[int, int, float]:
    return arm.batch, list(MARKERS).index(arm.kind), arm.rate


# --- evidence -------------------------------------------------------------------------------------


def evidence(run: Run, words: Words) -> Iterator[Block]:
    families = batches(run)
    ran = [f for f in families if any(run.select(arm.name) for arm in f.all)]
    if not ran:
        return
    yield from crowding(run, words, [arm.name for family in families for arm in family.all])
    scaled = [a.name for f in families for a in f.all if a.kind in (SCALED, WARM)]
    if scaled:
        does = words("batch.does")
        yield card(words, words("batch.rule"), [FORMULA], does, scaled, source=SOURCE,
                   most=len(scaled))  # fmt: skip
    for k, family in enumerate(ran, start=1):
        yield _figure(run, words, family, f"-{k}" if k > 1 else "")
    head = ("`arm`", "backend", "batch_size:samples", "lr:1", "step_size", "warmup:updates",
            "updates:count", f"final_loss:{loss_unit(run)}", "test_accuracy:percent",
            "epoch:seconds")  # fmt: skip
    rows = [
        _row(family, arm, Result(run, arm.name, backend), words)
        for family, backend in itertools.product(families, run.backends)
        for arm in family.all
        if run.select(arm.name, backend)
    ]
    yield from table(words, "batch", head, rows)


def _row(family: Batches, arm: Arm, result: Result, words: Words) -> Row:
    return [
        arm.name,
        result.backend,
        arm.batch,
        f"{arm.rate:g}",
        step_size(family, arm, words),
        str(arm.warmup) if arm.warmup else None,
        " / ".join(sorted({numbers.quantity(t.updates) for t in result.trials})),
        result.loss,
        result.accuracy,
        result.epoch,
    ]


def step_size(family: Batches, arm: Arm, words: Words) -> str:
    """Return the text that says whether the learning rate grew with the batch."""
    if arm == family.base:
        return words("batch.base")
    if arm.kind == SAME:
        return words("batch.same")
    times = numbers.factor(arm.rate / family.base.rate) if family.base.rate else numbers.NONE
    return words("batch.other" if arm.kind == OTHER else "batch.scaled", times=times)


def _figure(run: Run, words: Words, family: Batches, suffix: str) -> Figure:
    """Return the loss against epochs, and the accuracy against the batch size."""
    names = [arm.name for arm in family.all]
    sizes = [(size, f"{size:,}") for size in sorted({arm.batch for arm in family.all})]
    loss = Axis(words("axis.loss", unit=loss_unit(run)), "auto", wide=5.0)
    size = Axis(words("axis.batch_size") + words("axis.log"), "log2", ticks=sizes)
    kinds = [
        Key("series", kind, words(f"batch.series.{kind}"), color="grey", marker=MARKERS[kind])
        for kind in family.by_kind()
    ]
    losses = drawn(run, names, "loss", "epochs")
    percents = each(results(run, names), lambda r: numbers.show("percent", r.accuracy))
    return figure(
        words, "large-batch",
        [
            Panel(losses, Axis(words("axis.epochs"), low=0), loss, weight=1.15),
            Panel(list(_points(run, family)), size, Axis(words("axis.test_accuracy"))),
        ],
        [*keys.distinct(names), *kinds, *keys.backends(run)], {"values": percents},
        more=[words("figure.mean_line"), words("figure.intervals")], suffix=suffix, columns=2,
    )  # fmt: skip


def _points(run: Run, family: Batches) -> Iterator[Mark]:
    """Yield the accuracies in the colour of their arm, joined where the learning rate is chosen in
    the same way; backends side by side."""
    for kind, arms in family.by_kind().items():
        for k, backend in enumerate(run.backends):
            shift = 5.0 * (k - (len(run.backends) - 1) / 2)
            means = [(arm, Result(run, arm.name, backend).accuracy) for arm in arms]
            known = [(arm, mean) for arm, mean in means if mean]
            x, y = [arm.batch for arm, _ in known], [100 * mean.mean for _, mean in known]
            owner = Owner(backend=backend, series=kind)
            yield Line(x, y, owner, weight="thin", marker="none", shift=shift)
            for arm, mean in known:
                marker = MARKERS[arm.kind] if arm != family.base else "circle"
                yield intervals([arm.batch], [mean], Owner(arm.name, backend), 100.0,
                                joined=False, marker=marker, shift=shift)  # fmt: skip


# --- findings -------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "batch", "table-batch")
    for family, backend in itertools.product(batches(run), run.backends):
        first = Result(run, family.base.name, backend)
        for arm in family.arms:
            result = Result(run, arm.name, backend)
            if arm.kind == SAME:
                _cost(notes, arm, result, family.base, first)
            elif arm.kind in (SCALED, WARM):
                _recovery(notes, arm, result, family.base, first)
        # The benefit of the larger batch: the time of an epoch.
        largest = max(family.arms, key=lambda a: a.batch)
        last = Result(run, largest.name, backend)
        if last.epoch and first.epoch and last.epoch.mean:
            notes.say("epoch", arm=largest, result=last, base=family.base, first=first,
                      times=first.epoch.mean / last.epoch.mean)  # fmt: skip
    return notes


def _cost(notes: Notes, arm: Arm, result: Result, base: Arm, first: Result) -> None:
    """Add what the larger batch costs with the same learning rate: the same epochs, fewer
    updates."""
    gain = paired(result.accuracies, first.accuracies, lambda a, b: a - b)
    if gain:
        notes.say("cost_open" if gain.holds(0) else "cost", arm=arm, result=result, base=base,
                  first=first, gain=gain,
                  interval=gain.between(notes.words, numbers.points))  # fmt: skip


def _recovery(notes: Notes, arm: Arm, result: Result, base: Arm, first: Result) -> None:
    """Add whether the accuracy is within a percentage point of the smallest batch's, by two
    one-sided tests."""
    gain = gap(result, first)
    if gain is None:
        return
    key = "recovered" if gain.kind == "equal" else "not_recovered"
    if gain.kind == "few":
        key = "untested"
    elif gain.high < -MARGIN:
        key = "lost"
    warmup = ""
    if arm.warmup:
        short = result.updates and result.updates.mean <= arm.warmup
        warmup = notes.words("batch.warming" if short else "batch.with_warmup", n=arm.warmup)
    notes.say(key, gain.seeds if gain.kind == "few" else None, arm=arm, result=result, base=base,
              gain=gain, warmup=warmup, level=f"{100 * (1 - 2 * LEVEL):g}",
              margin=f"{100 * MARGIN:g}")  # fmt: skip


TOPIC = Topic("batch", 320, evidence, findings, leads=lambda run: 40 if batches(run) else 0)
