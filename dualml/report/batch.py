"""Larger global batches, with the step they had or with one in proportion: found, and as a table.

Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", sec. 2.1
(the linear scaling rule) and 2.2 (warm-up).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dualml.report import numbers, ranks
from dualml.report.cells import Cell, Table, heads, number, percent
from dualml.report.model import Run
from dualml.report.spread import cell, spread
from dualml.report.strategies import Card
from dualml.report.style import loss_unit
from dualml.report.sweeps import epoch_seconds
from dualml.report.words import Words

SAME, SCALED, WARM, OTHER = "same", "scaled", "warm", "other"
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

    def of(self, kind: str) -> list[Arm]:
        return [arm for arm in self.arms if arm.kind == kind]


def batches(run: Run) -> list[Batches]:
    """Families with two sizes of batch or more, the base first, then by size."""
    alike: dict[str, list[str]] = {}
    for arm in ranks.training(run):
        settings = run.arms[arm]
        if settings.get("batch_size") and not settings.get("updates") and not ranks.slow(run, arm):
            alike.setdefault(ranks.key(run, arm, *VARIED), []).append(arm)
    found = []
    for arms in alike.values():
        told = sorted((_told(run, arm) for arm in arms), key=lambda t: (t[1], t[3]))
        if len({batch for _, batch, _, _ in told}) > 1:
            made = [Arm(*t, kind=_kind(t, told[0])) for t in told]
            found.append(Batches(made[0], tuple(sorted(made[1:], key=_order))))
    return found


def _told(run: Run, arm: str) -> tuple[str, int, float, int]:
    settings = run.arms[arm]
    warmup = int((settings.get("schedule") or {}).get("warmup") or 0)
    rate = float((settings.get("optimizer") or {}).get("lr") or 0.0)
    return arm, int(settings["batch_size"]), rate, warmup


def _kind(told: tuple[str, int, float, int], base: tuple[str, int, float, int]) -> str:
    _, batch, rate, warmup = told
    _, smallest, first, _ = base

    def near(x: float) -> bool:
        return abs(rate - x) <= 1e-6 * x

    if near(first * batch / smallest) and batch != smallest:
        return WARM if warmup else SCALED
    return SAME if near(first) and not warmup else OTHER


def _order(arm: Arm) -> tuple[int, int, float]:
    return arm.batch, (SAME, SCALED, WARM, OTHER).index(arm.kind), arm.rate


def accuracies(run: Run, arm: Arm, backend: str) -> dict[int, float]:
    """Seed → test accuracy at the end."""
    found = run.select(arm.name, backend)
    return {t.seed: float(t.test_accuracy) for t in found if numbers.known(t.test_accuracy)}


def batch_arms(run: Run) -> list[str]:
    return [arm.name for told in batches(run) for arm in told.all]


def batch_table(run: Run, words: Words) -> Table | None:
    rows = [
        _row(run, told, arm, backend, words)
        for told in batches(run)
        for backend in run.backends
        for arm in told.all
        if run.select(arm.name, backend)
    ]
    if not rows:
        return None
    head = heads(
        words,
        *("arm", "backend", "batch_size:samples", "lr:1", "step_size", "warmup:updates"),
        *("updates:count", f"final_loss:{loss_unit(run)}", "test_accuracy:percent"),
        "epoch:seconds",
    )
    return Table("batch", words("table.batch"), head, rows)


def _row(run: Run, told: Batches, arm: Arm, backend: str, words: Words) -> list[Cell]:
    trials = run.select(arm.name, backend)
    return [
        Cell(arm.name, "code"),
        Cell(backend),
        number(numbers.quantity(arm.batch)),
        number(f"{arm.rate:g}"),
        Cell(step_size(told, arm, words)),
        number(str(arm.warmup) if arm.warmup else numbers.NONE),
        number(" / ".join(sorted({numbers.quantity(t.updates) for t in trials}))),
        cell(spread(t.final_loss for t in trials), text=numbers.loss),
        cell(spread(accuracies(run, arm, backend).values()), text=percent),
        cell(spread(epoch_seconds(run, t) for t in trials)),
    ]


def step_size(told: Batches, arm: Arm, words: Words) -> str:
    """Whether the step grew with the batch."""
    if arm == told.base:
        return words("batch.base")
    if arm.kind == SAME:
        return words("batch.same")
    times = numbers.factor(arm.rate / told.base.rate) if told.base.rate else numbers.NONE
    return words("batch.other" if arm.kind == OTHER else "batch.scaled", times=times)


def batch_cards(run: Run, words: Words) -> list[Card]:
    """The linear scaling rule."""
    found: Sequence[Batches] = batches(run)
    arms = [a.name for told in found for a in told.all if a.kind in (SCALED, WARM)]
    if not arms:
        return []
    return [Card(words("batch.rule"), arms, (FORMULA,), words("batch.does"), source=SOURCE)]


def series(told: Batches) -> Mapping[str, list[Arm]]:
    """Kind → arms in the order of their batch, the base in front."""
    found = {kind: told.of(kind) for kind in (SAME, SCALED, WARM, OTHER)}
    return {kind: [told.base, *arms] for kind, arms in found.items() if arms}
