"""Large batches: larger global batches with an unchanged or a scaled learning rate.

Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", sec. 2.1
(the linear scaling rule) and 2.2 (warm-up).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.parity.statistics import LEVEL, MARGIN
from dualml.report import legend, ranks
from dualml.report.blocks import Block
from dualml.report.cards import CardFooter, make_card
from dualml.report.columns import Columns, tabulate
from dualml.report.confidence import paired_interval
from dualml.report.curves import mean_lines
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId
from dualml.report.measures import loss_unit
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure, interval_line
from dualml.report.results import ArmResult, accuracy_gap, arm_results, format_results
from dualml.report.scaling_families import crowding_notices
from dualml.report.topics import ReportSection

#: Kinds of learning rates: that of the smallest batch, scaled in proportion to the batch, scaled
#: with a warm-up, or another one.
SAME_RATE, SCALED_RATE, WARMUP_RATE, OTHER_RATE = "same", "scaled", "warm", "other"
#: Marker of each way to choose the learning rate.
MARKERS = {
    SAME_RATE: "circle",
    SCALED_RATE: "square",
    WARMUP_RATE: "triangle",
    OTHER_RATE: "diamond",
}
VARIED = ("batch_size", "optimizer.lr", "schedule.warmup")
FORMULA = r"\eta_B = \eta \cdot \frac{B}{B_0}"
SOURCE = "Goyal et al. 2017, Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, sec. 2"


@dataclass(frozen=True)
class BatchArm:
    """An arm with its batch size. ``kind``: the learning rate is that of the smallest batch
    (`SAME_RATE`), is scaled in proportion (`SCALED_RATE`; with a warm-up: `WARMUP_RATE`), or is
    another one (`OTHER_RATE`)."""

    name: str
    batch: int
    rate: float
    warmup: int
    kind: str = ""


@dataclass(frozen=True)
class Batches:
    """Arms that differ in batch size, learning rate and warm-up and train for the same epochs;
    ``base`` has the smallest batch."""

    base: BatchArm
    arms: tuple[BatchArm, ...]

    @property
    def all_arms(self) -> tuple[BatchArm, ...]:
        """All arms of the family, the one with the smallest batch first."""
        return (self.base, *self.arms)

    def by_kind(self) -> Mapping[str, list[BatchArm]]:
        """Return kind → the base, then its arms ordered by batch size; kinds without arms are left
        out."""
        kinds = {kind: [a for a in self.arms if a.kind == kind] for kind in MARKERS}
        return {kind: [self.base, *arms] for kind, arms in kinds.items() if arms}


def batches(run: RunData) -> list[Batches]:
    """Return the groups of training arms with at least two batch sizes, the base first, then by
    size; arms with a straggler, a fixed number of updates or no batch size are left out. Empty in a
    run with neither several ranks nor partitions, whose topic is ``sweep``."""
    if not ranks.is_distributed(run) and not run.dealt:
        return []
    among = [
        arm
        for arm in ranks.training_arms(run)
        if run.arms[arm].get("batch_size")
        and not run.arms[arm].get("updates")
        and not ranks.straggler(run, arm)
    ]
    families = []
    for names in run.contrast.groups(among, vary=VARIED):
        arms = sorted((_arm(run, name) for name in names), key=lambda a: (a.batch, a.warmup))
        if arms[0].batch < arms[-1].batch:
            base, *others = (replace(arm, kind=_kind(arm, arms[0])) for arm in arms)
            families.append(Batches(base, tuple(sorted(others, key=_order))))
    return families


def _arm(run: RunData, name: str) -> BatchArm:
    """Return the batch size, learning rate and warm-up (in updates) of an arm; 0 for a rate or
    warm-up that is not set."""
    settings = run.arms[name]
    rate = float((settings.get("optimizer") or {}).get("lr") or 0.0)
    warmup = int((settings.get("schedule") or {}).get("warmup") or 0)
    return BatchArm(name, int(settings["batch_size"]), rate, warmup)


def _kind(arm: BatchArm, first: BatchArm) -> str:
    """Return how an arm chooses its learning rate relative to the smallest batch."""

    def matches_rate(rate: float) -> bool:
        return abs(arm.rate - rate) <= 1e-6 * rate

    if matches_rate(first.rate * arm.batch / first.batch) and arm.batch != first.batch:
        return WARMUP_RATE if arm.warmup else SCALED_RATE
    return SAME_RATE if matches_rate(first.rate) and not arm.warmup else OTHER_RATE


def _order(arm: BatchArm) -> tuple[int, int, float]:
    """Return the sort key of an arm: batch size, kind of learning rate, learning rate."""
    return arm.batch, list(MARKERS).index(arm.kind), arm.rate


# --- evidence -------------------------------------------------------------------------------------


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a notice if ranks shared cores, a card of the linear scaling rule if an arm follows it,
    a figure per family of arms (`batches`), and the table of batch sizes; nothing without a
    successful trial of them."""
    families = batches(run)
    ran = [f for f in families if any(run.select(arm.name) for arm in f.all_arms)]
    if not ran:
        return
    yield from crowding_notices(
        run, words, [arm.name for family in families for arm in family.all_arms]
    )
    scaled = [a.name for f in families for a in f.all_arms if a.kind in (SCALED_RATE, WARMUP_RATE)]
    if scaled:
        does = words("batch.does")
        footer = CardFooter(scaled, SOURCE, most=len(scaled))
        yield make_card(words, words("batch.rule"), [FORMULA], does, footer)
    for k, family in enumerate(ran, start=1):
        yield _figure(run, words, family, f"-{k}" if k > 1 else "")
    read: Columns[tuple[Batches, BatchArm, ArmResult]] = {
        "`arm`": lambda r: r[1].name,
        "backend": lambda r: r[2].backend,
        "batch_size:samples": lambda r: r[1].batch,
        "lr:1": lambda r: f"{r[1].rate:g}",
        "step_size": lambda r: describe_learning_rate(r[0], r[1], words),
        "warmup:updates": lambda r: str(r[1].warmup or numbers.NO_VALUE),
        "updates:count": lambda r: " / ".join(
            sorted({numbers.quantity(t.updates) for t in r[2].trials})
        ),
        f"final_loss:{loss_unit(run)}": lambda r: r[2].loss,
        "test_accuracy:percent": lambda r: r[2].accuracy,
        "epoch:seconds": lambda r: r[2].epoch,
    }
    records = (
        (family, arm, ArmResult(run, arm.name, backend))
        for family, backend in itertools.product(families, run.backends)
        for arm in family.all_arms
        if run.select(arm.name, backend)
    )
    yield from tabulate(words, "batch", records, read)


def describe_learning_rate(family: Batches, arm: BatchArm, words: Messages) -> str:
    """Return the text that says how the arm's learning rate compares with that of the smallest
    batch: the base itself, unchanged, scaled in proportion, or another one, with the factor."""
    if arm == family.base:
        return words("batch.base")
    if arm.kind == SAME_RATE:
        return words("batch.same")
    times = numbers.factor(arm.rate / family.base.rate) if family.base.rate else numbers.NO_VALUE
    return words("batch.other" if arm.kind == OTHER_RATE else "batch.scaled", times=times)


def _figure(run: RunData, words: Messages, family: Batches, suffix: str) -> Figure:
    """Return a figure of the loss against epochs, and of the accuracy against the batch size."""
    names = [arm.name for arm in family.all_arms]
    sizes = [(size, f"{size:,}") for size in sorted({arm.batch for arm in family.all_arms})]
    loss = Axis(words("axis.loss", unit=loss_unit(run)), "auto", log_factor=5.0)
    size = Axis(words("axis.batch_size") + words("axis.log"), "log2", ticks=sizes)
    kinds = [
        LegendEntry(
            "series", kind, words(f"batch.series.{kind}"), color="grey", marker=MARKERS[kind]
        )
        for kind in family.by_kind()
    ]
    losses = mean_lines(run, names, "loss", "epochs")
    percents = format_results(
        arm_results(run, names), lambda r: numbers.format_by_name("percent", r.accuracy)
    )
    return build_figure(
        words,
        "large-batch",
        [
            Panel(losses, Axis(words("axis.epochs"), low=0), loss, weight=1.15),
            Panel(list(_points(run, family)), size, Axis(words("axis.test_accuracy"))),
        ],
        [*legend.distinct_colors(names), *kinds, *legend.backends(run)],
        {"values": percents},
        more=[words("figure.mean_line"), words("figure.intervals")],
        name=f"large-batch{suffix}",
    )


def _points(run: RunData, family: Batches) -> Iterator[Mark]:
    """Yield the accuracies in the colour of their arm, joined where the learning rate is chosen in
    the same way; backends side by side."""
    for kind, arms in family.by_kind().items():
        for k, backend in enumerate(run.backends):
            shift = 5.0 * (k - (len(run.backends) - 1) / 2)
            means = [(arm, ArmResult(run, arm.name, backend).accuracy) for arm in arms]
            known = [(arm, mean) for arm, mean in means if mean]
            x, y = [arm.batch for arm, _ in known], [100 * mean.mean for _, mean in known]
            owner = SeriesId(backend=backend, series=kind)
            yield LineMark(x, y, owner, weight="thin", marker="none", shift=shift)
            for arm, mean in known:
                marker = MARKERS[arm.kind] if arm != family.base else "circle"
                yield interval_line(
                    [arm.batch],
                    [mean],
                    SeriesId(arm.name, backend),
                    100.0,
                    joined=False,
                    marker=marker,
                    shift=shift,
                )


# --- findings -------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData) -> None:
    """Add the loss of accuracy at an unchanged learning rate, what scaling it recovers, and the
    time of an epoch with the largest batch."""
    for family, backend in itertools.product(batches(run), run.backends):
        first = ArmResult(run, family.base.name, backend)
        for arm in family.arms:
            result = ArmResult(run, arm.name, backend)
            if arm.kind == SAME_RATE:
                _add_cost(notes, arm, result, family.base, first)
            elif arm.kind in (SCALED_RATE, WARMUP_RATE):
                _add_recovery(notes, arm, result, family.base, first)
        # The benefit of the larger batch: the time of an epoch.
        largest = max(family.arms, key=lambda a: a.batch)
        last = ArmResult(run, largest.name, backend)
        if last.epoch and first.epoch and last.epoch.mean:
            notes.add(
                "epoch",
                arm=largest,
                result=last,
                base=family.base,
                first=first,
                times=first.epoch.mean / last.epoch.mean,
            )


def _add_cost(
    notes: Notes, arm: BatchArm, result: ArmResult, base: BatchArm, first: ArmResult
) -> None:
    """Add by how much the accuracy of a larger batch with the same learning rate differs from the
    smallest batch's (equal epochs, fewer updates); nothing without a common seed."""
    gain = paired_interval(result.accuracies, first.accuracies, lambda a, b: a - b)
    if gain:
        notes.add(
            "cost_open" if gain.contains(0) else "cost",
            arm=arm,
            result=result,
            base=base,
            first=first,
            gain=gain,
            interval=gain.format_labelled_interval(notes.words, numbers.points),
        )


def _add_recovery(
    notes: Notes, arm: BatchArm, result: ArmResult, base: BatchArm, first: ArmResult
) -> None:
    """Add whether the accuracy of an arm with a scaled learning rate is within a percentage point
    of the smallest batch's, by two one-sided tests; nothing without a common seed."""
    gain = accuracy_gap(result, first)
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
    notes.add(
        key,
        gain.seeds if gain.kind == "few" else None,
        arm=arm,
        result=result,
        base=base,
        gain=gain,
        warmup=warmup,
        level=f"{100 * (1 - 2 * LEVEL):g}",
        margin=f"{100 * MARGIN:g}",
    )


TOPIC = ReportSection(
    "batch", 320, evidence, findings, "table-batch", priority=lambda run: 40 if batches(run) else 0
)
