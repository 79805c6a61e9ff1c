"""Skewed partitions: accuracy per class and divergence of the ranks, by the skew of the partition
and by what and how often ranks average."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dualml.report import keys, ranks
from dualml.report.blocks import Block, Cell, Item
from dualml.report.columns import table
from dualml.report.deals import SKEWED, deal_of, dealt, partition, rule, settings_text
from dualml.report.figure import Axis, Band, Cells, Figure, Line, Mark, Owner, Panel
from dualml.report.notes import Notes
from dualml.report.results import Result, each, gap, in_list, in_words
from dualml.report.shown import figure, mean_seeds
from dualml.report.topics import Topic
from dualml.report.uneven import uneven, uneven_table
from dualml.store.run import Array, Run
from dualml.words import Words, numbers

LEAST = 3  # arms needed for a rank correlation
MOST_COLUMNS = 3


@dataclass(frozen=True, eq=False)
class Skewed(Result):
    """Results of an arm with the skew of its partition and the divergence of its ranks."""

    @cached_property
    def rule(self) -> str:
        return rule(self.run, self.arm)

    @cached_property
    def every(self) -> int:
        """Updates from one average to the next."""
        return ranks.aggregation(self.run, self.arm).every

    @cached_property
    def emd(self) -> float | None:
        """Earth mover's distance of the labels, None if unknown."""
        return emd(self.run, self.arm)

    @cached_property
    def rows(self) -> Array:
        """(update, divergence, drift) of every averaging, rank and seed, shape (rows, 3)."""
        recorded = [rows for t in self.trials for rows in t.apart]
        return np.concatenate(recorded) if recorded else np.zeros((0, 3))

    @cached_property
    def common(self) -> Array:
        """The rows up to the last update that all seeds made."""
        ends = [t.apart[0][-1, 0] for t in self.trials if t.apart]
        return self.rows[self.rows[:, 0] <= min(ends, default=0)]

    @property
    def divergence(self) -> float | None:
        """Mean divergence of the ranks before averaging, None if unknown."""
        return mean(self.rows[:, 1])

    @property
    def drift(self) -> float | None:
        """Mean drift of the ranks, None if unknown."""
        return mean(self.rows[:, 2])

    @cached_property
    def classes(self) -> list[float | None]:
        """Test accuracy of each class, mean over the seeds; None for a class without samples."""
        known = [t.class_accuracy for t in self.trials if t.class_accuracy]
        most = min(map(len, known), default=0)
        return [numbers.mean([c[k] for c in known]) for k in range(most)]

    @cached_property
    def worst(self) -> tuple[float | None, int]:
        """The lowest accuracy of a class (None if unknown), and the class."""
        return min(((v, k) for k, v in enumerate(self.classes) if v is not None),
                   default=(None, 0))  # fmt: skip


def mean(column: Array) -> float | None:
    """Return the mean of the finite values, None without any."""
    finite = column[np.isfinite(column)]
    return float(finite.mean()) if len(finite) else None


def skewed(run: Run) -> list[str]:
    """Return the partitioned arms of groups with a skewed partition whose arms differ in their
    partition or let ranks diverge between averages; the least skewed first."""
    chosen: list[str] = []
    for arms in run.groups().values():
        here = [a for a in dealt(run) if a in arms]
        rules = {settings_text(partition(run, a)) for a in here}
        loose = any(t.apart for a in here for t in run.select(a))
        if any(rule(run, a) in SKEWED for a in here) and (len(rules) > 1 or loose):
            chosen += here
    return sorted(chosen, key=lambda a: (emd(run, a) is None, round(emd(run, a) or 0.0, 2)))


def emd(run: Run, arm: str) -> float | None:
    """Return the earth mover's distance of the labels, mean over ranks, epochs and seeds; None if
    unknown."""
    deal = deal_of(run, arm)
    return deal.skew()[0] if deal is not None else None


def every(run: Run) -> list[Skewed]:
    """Return the results of all skewed arms on every backend."""
    return [Skewed(run, *place) for place in ranks.ran(run, skewed(run))]


# --- evidence -------------------------------------------------------------------------------------


def evidence(run: Run, words: Words) -> Iterator[Block]:
    results = every(run)
    if any(s.classes for s in results):
        yield _classes(run, words, results)
    if any(len(s.rows) for s in results):
        yield _apart(run, words, [s for s in results if len(s.rows)])
    head = ("`arm`", "`partition`", "of", "backend", "emd:1", "test_accuracy:percent",
            "worst_class:percent", "divergence:relative", "drift:relative")  # fmt: skip
    rows = [
        [
            s.arm,
            settings_text(partition(run, s.arm)),
            _combined(run, s.arm, words),
            s.backend,
            None if s.emd is None else f"{s.emd:.3f}",
            s.accuracy and s.accuracy.plus_minus(100.0, 2),
            _worst_cell(s, words),
            numbers.quantity(s.divergence),
            numbers.quantity(s.drift),
        ]
        for s in results
    ]
    yield from table(words, "skew", head, rows)
    yield from uneven_table(run, words)


def _worst_cell(s: Skewed, words: Words) -> Cell | None:
    accuracy, label = s.worst
    if accuracy is None:
        return None
    return Cell(f"{100 * accuracy:.1f}", note=words("value.class", label=label))


def _combined(run: Run, arm: str, words: Words) -> str:
    """Return what ranks combine, ``gradients`` or ``parameters, every 16``, on one line."""
    settings = ranks.aggregation(run, arm)
    of = words.either(f"of.{settings.of}", settings.of)
    if settings.of != "parameters":
        return of
    text = words("value.averaged", of=of, every=settings.every)
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _classes(run: Run, words: Words, results: Sequence[Skewed]) -> Figure:
    """Return a panel per backend: arms as rows, classes as columns."""
    shown = [b for b in run.backends if any(s.classes for s in results if s.backend == b)]
    arms = list(dict.fromkeys(s.arm for s in results if s.classes))
    panels = []
    for backend in shown:
        by_arm = {s.arm: s.classes for s in results if s.backend == backend}
        most = max(map(len, by_arm.values()))
        cells = np.full((len(arms), most), np.nan)
        for y, arm in enumerate(arms):
            row = by_arm.get(arm, [])
            cells[y, : len(row)] = [np.nan if v is None else 100 * v for v in row]
        marks = [Cells(cells, 100.0, words("axis.class_accuracy"))]
        x = Axis(words("axis.class"), names=[str(label) for label in range(most)])
        panels.append(Panel(marks, x, Axis(names=arms), backend, height=24 * len(arms)))

    def lowest(s: Skewed) -> str:
        accuracy, label = s.worst
        return numbers.NONE if accuracy is None else f"{numbers.percent(accuracy)} ({label})"

    return figure(words, "skew-classes", panels, [], {"values": each(results, lowest)},
                  more=[mean_seeds(run, words)], columns=min(MOST_COLUMNS, len(shown)),
                  share_y="row")  # fmt: skip


def _apart(run: Run, words: Words, results: Sequence[Skewed]) -> Figure:
    """Return divergence and drift at every averaging: mean and range over the ranks."""
    arms = list(dict.fromkeys(s.arm for s in results))
    shown = ["divergence"]
    if any(np.isfinite(s.common[:, 2]).any() for s in results):
        shown.append("drift")  # known only from the second averaging on
    panels = []
    for column, quantity in enumerate(shown, start=1):
        marks = [mark for s in results for mark in _band(s, column)]
        means = [float(v) for mark in marks if isinstance(mark, Line) for v in mark.y]
        # A rank that stands still is close to the average, so its band reaches far down.
        low = min(means) / 2.5 if means else None
        y = Axis(words(f"axis.{quantity}"), "log", low=low)
        panels.append(Panel(marks, Axis(words("axis.updates"), low=0), y))
    values = each(results, lambda s: numbers.quantity(mean(s.common[:, 1])))
    base = plainest(results)
    looks = [*keys.distinct(arms, base.arm if base else ""), *keys.backends(run)]
    return figure(words, "divergence", panels, looks, {"values": values},
                  more=[mean_seeds(run, words)], columns=len(shown))  # fmt: skip


def _band(s: Skewed, column: int) -> Iterator[Mark]:
    rows = s.common[np.isfinite(s.common[:, column]) & (s.common[:, column] > 0)]
    if not len(rows):
        return
    steps = np.unique(rows[:, 0])
    at = [rows[rows[:, 0] == step, column] for step in steps]
    owner = Owner(s.arm, s.backend)
    yield Band(steps, [float(v.min()) for v in at], [float(v.max()) for v in at], owner)
    marker = "circle" if len(steps) < 3 else ""
    yield Line(steps, [float(v.mean()) for v in at], owner, marker=marker)


# --- findings -------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes, results = Notes(words, "skew", "table-skew"), every(run)
    families = run.contrast.groups(skewed(run), vary=("partition",))
    for backend in run.backends:
        here = [s for s in results if s.backend == backend]
        for family in families:
            _order(notes, [s for s in here if s.arm in family and s.emd is not None])
        _worst(notes, [s for s in here if s.worst[0] is not None])
    for s in results:
        _averages(notes, s)
    notes.close()
    notes.about("table-uneven")
    for u in uneven(run):
        notes.say("uneven" if u.whole else "uneven_partial", u=u)
    return notes


def plainest(results: Sequence[Skewed]) -> Skewed | None:
    """Return the arm with a random partition, with which the others are compared; None without
    one."""
    return next((s for s in results if s.rule == "random_partition"), None)


def _order(notes: Notes, here: Sequence[Skewed]) -> None:
    """Add arms that differ only in their partition, ordered by skew: their divergence and
    accuracy."""
    if len(here) < 2:
        return
    backend, words = here[0].backend, notes.words
    items = [words("say.skew.item_alike" if s.divergence is None else "say.skew.item", s=s)
             for s in here]  # fmt: skip
    notes.share(backend, "order", values=items)
    _correlation(notes, [s for s in here if s.rule != "feature_noise"])
    base = plainest(here)
    if base is None:
        return
    others = [s for s in here if s is not base]
    gaps = {s.arm: g for s in others if (g := gap(s, base))}
    if gaps:
        few = all(g.kind == "few" for g in gaps.values())
        notes.share(backend, "gaps_few" if few else "gaps", base=base.arm,
                    seeds=min(g.seeds for g in gaps.values()),
                    values=in_list(gaps, words))  # fmt: skip
    for s in others:
        if s.rule == "feature_noise":
            notes.share(backend, "features", s=s, base=base)


def _correlation(notes: Notes, here: Sequence[Skewed]) -> None:
    skews = [s.emd for s in here]
    accuracy = correlation(skews, [s.accuracy.mean if s.accuracy else None for s in here])
    divergence = correlation(skews, [s.divergence for s in here])
    if accuracy is not None:
        key = "correlation_accuracy" if divergence is None else "correlation"
        notes.share(here[0].backend, key, n=len(here), divergence=_rho(divergence),
                    accuracy=_rho(accuracy))  # fmt: skip


def correlation(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    """Return Spearman's rank correlation; None with too few or constant values."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    if len(pairs) < LEAST or any(len(set(column)) < 2 for column in zip(*pairs, strict=True)):
        return None
    from scipy.stats import spearmanr  # takes a second to import

    return float(spearmanr(pairs).statistic)


def _rho(x: float | None) -> str:
    return "" if x is None else f"{x:.2f}".replace("-", "−")


def _worst(notes: Notes, known: Sequence[Skewed]) -> None:
    base = plainest(known)
    worst = min(known, key=lambda s: s.worst[0] or 0.0, default=None)
    if base and worst and worst is not base:
        notes.share(base.backend, "worst", s=worst, base=base)


def _averages(notes: Notes, s: Skewed) -> None:
    """Add the comparison with the otherwise equal arm that averages more often (the nearest of
    several), and of gradients combined at every update with parameters averaged periodically."""
    oftener = [o for o in _others(s, "aggregation.every") if o.every < s.every]
    key = "every_end" if s.divergence is None else "every"
    pairs = [(key, max(oftener, key=lambda o: o.every))] if oftener else []
    if ranks.aggregation(s.run, s.arm).of == "gradients":
        others = _others(s, "aggregation.of", "aggregation.every")
        pairs += [("gradients", o) for o in others if o.every > 1]
    for key, other in pairs:
        if difference := gap(s, other):
            notes.share(s.backend, key, s=s, other=other, gap=in_words(difference, notes.words))


def _others(s: Skewed, *vary: str) -> list[Skewed]:
    """Return the arms that differ only in ``vary``, on the same backend."""
    alike = s.run.contrast.partners(s.arm, vary=vary)
    return [Skewed(s.run, arm, s.backend) for arm in skewed(s.run) if arm in alike]


TOPIC = Topic("skew", 520, evidence, findings, leads=lambda run: 50 if skewed(run) else 0)
