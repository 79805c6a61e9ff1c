"""Larger global batches, with the step they had or with one in proportion.

Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", sec. 2.1
(the linear scaling rule) and 2.2 (warm-up).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dualml.parity.statistics import ENOUGH, LEVEL, MARGIN, equivalent
from dualml.report import curves, keys, ranks
from dualml.report.blocks import Block, Card, Cell, Formula, Item, Prose, Table
from dualml.report.columns import columns, percent
from dualml.report.crowding import crowding
from dualml.report.figure import Axis, Figure, Key, Line, Mark, Owner, Panel
from dualml.report.measures import epoch_seconds, loss_unit
from dualml.report.notes import Notes
from dualml.report.spread import cell, interval, paired, spread
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

SAME, SCALED, WARM, OTHER = "same", "scaled", "warm", "other"
#: Marker of each way to choose the step.
MARKERS = {SAME: "circle", SCALED: "square", WARM: "triangle", OTHER: "diamond"}
VARIED = ("batch_size", "optimizer.lr", "schedule.warmup")
FORMULA = r"\eta_B = \eta \cdot \frac{B}{B_0}"
SOURCE = "Goyal et al. 2017, Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, sec. 2"


@dataclass(frozen=True)
class Arm:
    """``kind``: the step of the smallest batch (`SAME`), one in proportion (`SCALED`; with a
    warm-up: `WARM`), or some `OTHER`."""

    name: str
    batch: int
    rate: float
    warmup: int
    kind: str


@dataclass(frozen=True)
class Batches:
    """Arms that differ in batch, step and warm-up and train for as many epochs; ``base`` has the
    smallest batch."""

    base: Arm
    arms: tuple[Arm, ...]

    @property
    def all(self) -> tuple[Arm, ...]:
        return (self.base, *self.arms)

    def by_kind(self) -> Mapping[str, list[Arm]]:
        """Kind → arms in the order of their batch, the base in front."""
        kinds = {kind: [a for a in self.arms if a.kind == kind] for kind in MARKERS}
        return {kind: [self.base, *arms] for kind, arms in kinds.items() if arms}


def batches(run: Run) -> list[Batches]:
    """Families with two sizes of batch or more, the base first, then by size; of one rank sweeps
    tell them."""
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
        settings = sorted(
            ((name, *_settings(run, name)) for name in names), key=lambda s: (s[1], s[3])
        )
        if len({batch for _, batch, _, _ in settings}) > 1:
            _, smallest, rate, _ = settings[0]
            base, *others = (Arm(*s, _kind(*s[1:], smallest, rate)) for s in settings)
            families.append(Batches(base, tuple(sorted(others, key=_order))))
    return families


def _settings(run: Run, arm: str) -> tuple[int, float, int]:
    settings = run.arms[arm]
    warmup = int((settings.get("schedule") or {}).get("warmup") or 0)
    rate = float((settings.get("optimizer") or {}).get("lr") or 0.0)
    return int(settings["batch_size"]), rate, warmup


def _kind(batch: int, rate: float, warmup: int, smallest: int, first: float) -> str:
    def near(x: float) -> bool:
        return abs(rate - x) <= 1e-6 * x

    if near(first * batch / smallest) and batch != smallest:
        return WARM if warmup else SCALED
    return SAME if near(first) and not warmup else OTHER


def _order(arm: Arm) -> tuple[int, int, float]:
    return arm.batch, list(MARKERS).index(arm.kind), arm.rate


def accuracies(run: Run, arm: Arm, backend: str) -> dict[int, float]:
    """Seed → test accuracy at the end."""
    trials = run.select(arm.name, backend)
    return {t.seed: float(t.test_accuracy) for t in trials if numbers.known(t.test_accuracy)}


# --- evidence -------------------------------------------------------------------------------------


def evidence(run: Run, words: Words) -> Iterator[Block]:
    families = batches(run)
    ran = [f for f in families if any(run.select(arm.name) for arm in f.all)]
    if not ran:
        return
    yield from crowding(run, words, [arm.name for family in families for arm in family.all])
    scaled = [a.name for f in families for a in f.all if a.kind in (SCALED, WARM)]
    if scaled:
        arms = words("page.arms") + words("list.colon") + ", ".join(scaled)
        source = words("page.source") + words("list.colon") + SOURCE
        small = [Prose(arms, small=True), Prose(source, small=True)]
        yield Card(words("batch.rule"), [Formula(FORMULA), Prose(words("batch.does")), *small])
    for k, family in enumerate(ran):
        yield _figure(run, words, family, "large-batch" if k == 0 else f"large-batch-{k + 1}")
    spec = (
        *("`arm`", "backend", "batch_size:samples", "lr:1", "step_size", "warmup:updates"),
        *("updates:count", f"final_loss:{loss_unit(run)}", "test_accuracy:percent"),
        "epoch:seconds",
    )
    rows = [
        _row(run, family, arm, backend, words)
        for family in families
        for backend in run.backends
        for arm in family.all
        if run.select(arm.name, backend)
    ]
    yield Table("batch", words("table.batch"), columns(words, *spec), rows)


def _row(run: Run, family: Batches, arm: Arm, backend: str, words: Words) -> list[Cell | str]:
    trials = run.select(arm.name, backend)
    return [
        arm.name,
        backend,
        numbers.quantity(arm.batch),
        f"{arm.rate:g}",
        step_size(family, arm, words),
        str(arm.warmup) if arm.warmup else numbers.NONE,
        " / ".join(sorted({numbers.quantity(t.updates) for t in trials})),
        cell(spread(t.final_loss for t in trials), text=numbers.loss),
        cell(spread(accuracies(run, arm, backend).values()), text=percent),
        cell(spread(epoch_seconds(run, t) for t in trials)),
    ]


def step_size(family: Batches, arm: Arm, words: Words) -> str:
    """Whether the step grew with the batch."""
    if arm == family.base:
        return words("batch.base")
    if arm.kind == SAME:
        return words("batch.same")
    times = numbers.factor(arm.rate / family.base.rate) if family.base.rate else numbers.NONE
    return words("batch.other" if arm.kind == OTHER else "batch.scaled", times=times)


def _figure(run: Run, words: Words, family: Batches, name: str) -> Figure:
    """The loss against epochs, and the accuracy against the size of the batch."""
    sizes = sorted({arm.batch for arm in family.all})
    loss = Axis(words("axis.loss", unit=loss_unit(run)), "auto", wide=5.0)
    size = Axis(
        words("axis.batch_size") + words("axis.log"), "log2", ticks=[(s, f"{s:,}") for s in sizes]
    )
    kinds = [
        Key("series", kind, words(f"batch.series.{kind}"), color="grey", marker=MARKERS[kind])
        for kind in family.by_kind()
    ]
    texts = [words("figure.large_batch"), words("figure.mean_line"), words("figure.intervals")]
    percents = [
        f"{arm.name} {backend} {numbers.percent(mean.mean)}"
        for arm in family.all
        for backend in run.backends
        if (mean := spread(accuracies(run, arm, backend).values())) is not None
    ]
    return Figure(
        name,
        words.sentences(texts),
        words("alt.large_batch", values=", ".join(percents)),
        [
            Panel(list(_losses(run, family)), Axis(words("axis.epochs"), low=0), loss, weight=1.15),
            Panel(list(_points(run, family)), size, Axis(words("axis.test_accuracy"))),
        ],
        [*keys.distinct([arm.name for arm in family.all]), *kinds, *keys.backends(run)],
        columns=2,
    )


def _losses(run: Run, family: Batches) -> Iterator[Mark]:
    for backend in run.backends:
        for arm in family.all:
            curve = curves.line(run.select(arm.name, backend), "loss", "epochs")
            if curve is not None:
                x, mean = curves.thin(curve.x, curve.mean)
                yield Line(x, mean, Owner(arm.name, backend))


def _points(run: Run, family: Batches) -> Iterator[Mark]:
    """Points in the colour of their arm, joined where the step is chosen in the same way; backends
    side by side."""
    middle = (len(run.backends) - 1) / 2
    for kind, arms in family.by_kind().items():
        for k, backend in enumerate(run.backends):
            shift = 5.0 * (k - middle)
            means = [(arm, spread(accuracies(run, arm, backend).values())) for arm in arms]
            known = [(arm, mean) for arm, mean in means if mean is not None]
            yield Line(
                [arm.batch for arm, _ in known],
                [100 * mean.mean for _, mean in known],
                Owner(backend=backend, series=kind),
                weight="thin",
                marker="none",
                shift=shift,
            )
            for arm, mean in known:
                ends = mean.low is not None and mean.high is not None
                yield Line(
                    [arm.batch],
                    [100 * mean.mean],
                    Owner(arm.name, backend),
                    low=[100 * (mean.low or 0.0)] if ends else None,
                    high=[100 * (mean.high or 0.0)] if ends else None,
                    bars="y",
                    joined=False,
                    marker=MARKERS[arm.kind] if arm != family.base else "circle",
                    shift=shift,
                )


# --- findings -------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "batch", "table-batch")
    for family in batches(run):
        for backend in run.backends:
            for arm in family.arms:
                if not (accuracies(run, arm, backend) and accuracies(run, family.base, backend)):
                    continue
                if arm.kind == SAME:
                    _cost(notes, run, words, family, arm, backend)
                elif arm.kind in (SCALED, WARM):
                    _recovery(notes, run, words, family, arm, backend)
            _epoch(notes, run, family, backend)
    return notes


def points(x: float) -> str:
    """A difference of accuracies in percentage points."""
    sign = "+" if round(100 * x, 2) > 0 else "−" if round(100 * x, 2) < 0 else ""
    return f"{sign}{abs(100 * x):.2f}"


def _cost(notes: Notes, run: Run, words: Words, family: Batches, arm: Arm, backend: str) -> None:
    """The same step, as many epochs, fewer updates."""
    at_arm, at_base = (accuracies(run, a, backend) for a in (arm, family.base))
    gap = paired(at_arm, at_base, lambda a, b: a - b)
    if gap is None:
        return
    unclear = gap.low is not None and gap.high is not None and gap.low < 0 < gap.high
    updates, base_updates = (_updates(run, a, backend) for a in (arm, family.base))
    loss, base_loss = (
        numbers.mean([t.final_loss for t in run.select(a.name, backend)])
        for a in (arm, family.base)
    )
    ends = interval(gap, text=points)
    notes.say(
        "cost_open" if unclear and gap.seeds >= ENOUGH else "cost",
        backend=backend,
        batch=numbers.quantity(arm.batch),
        base=numbers.quantity(family.base.batch),
        rate=f"{arm.rate:g}",
        updates=updates,
        base_updates=base_updates,
        points=points(gap.mean),
        interval=words("batch.interval" if gap.seeds >= ENOUGH else "batch.range", values=ends)
        if ends
        else "",
        loss=numbers.loss(loss),
        base_loss=numbers.loss(base_loss),
    )


def _updates(run: Run, arm: Arm, backend: str) -> str:
    return numbers.quantity(numbers.mean([t.updates for t in run.select(arm.name, backend)]))


def _recovery(
    notes: Notes, run: Run, words: Words, family: Batches, arm: Arm, backend: str
) -> None:
    """Within a percentage point of the smallest batch, by two one-sided tests."""
    at_arm, at_base = (accuracies(run, a, backend) for a in (arm, family.base))
    seeds = sorted(at_arm.keys() & at_base.keys())
    if not seeds:
        return
    values = {
        "backend": backend,
        "arm": arm.name,
        "batch": numbers.quantity(arm.batch),
        "base": numbers.quantity(family.base.batch),
        "rate": f"{arm.rate:g}",
        "warmup": _warmup(run, words, arm, backend),
    }
    gap = sum(at_arm[s] - at_base[s] for s in seeds) / len(seeds)
    if len(seeds) < ENOUGH:
        notes.say("untested", len(seeds), **values, points=points(gap), seeds=len(seeds))
        return
    test = equivalent([at_arm[s] for s in seeds], [at_base[s] for s in seeds])
    key = "recovered" if test["equivalent"] else "not_recovered"
    notes.say(
        "lost" if test["high"] < -MARGIN else key,
        **values,
        points=points(gap),
        low=points(test["low"]),
        high=points(test["high"]),
        level=f"{100 * (1 - 2 * LEVEL):g}",
        margin=f"{100 * MARGIN:g}",
        seeds=len(seeds),
    )


def _warmup(run: Run, words: Words, arm: Arm, backend: str) -> str:
    if not arm.warmup:
        return ""
    updates = numbers.mean([t.updates for t in run.select(arm.name, backend)])
    short = updates is not None and updates <= arm.warmup
    key = "batch.warming" if short else "batch.with_warmup"
    return words(key, n=words.count("update", arm.warmup))


def _epoch(notes: Notes, run: Run, family: Batches, backend: str) -> None:
    """What the larger batch buys: the time of an epoch."""
    largest = max(family.arms, key=lambda a: a.batch)
    seconds, base_seconds = (
        spread(epoch_seconds(run, t) for t in run.select(a.name, backend))
        for a in (largest, family.base)
    )
    if seconds and base_seconds and seconds.mean:
        notes.say(
            "epoch",
            backend=backend,
            batch=numbers.quantity(largest.batch),
            base=numbers.quantity(family.base.batch),
            seconds=numbers.quantity(seconds.mean),
            base_seconds=numbers.quantity(base_seconds.mean),
            times=numbers.factor(base_seconds.mean / seconds.mean),
        )


TOPIC = Topic("batch", 320, evidence, findings, leads=lambda run: 40 if batches(run) else 0)
