"""Skewed partitions: accuracy per class and divergence of the ranks, by the skew of the partition
and by what and how often ranks average."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import Array, RunData
from dualml.report import legend, ranks
from dualml.report.blocks import Block, Cell
from dualml.report.columns import Columns
from dualml.report.epoch_ends import uneven_epochs, uneven_table
from dualml.report.figure import Axis, Band, Figure, Heatmap, LineMark, Mark, Panel, SeriesId
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure, mean_seeds_note
from dualml.report.results import ArmResult, accuracy_gap, format_gap, format_gaps, format_results
from dualml.report.run_partitions import (
    SKEWED,
    find_partition,
    format_settings,
    partition_rule,
    partition_settings,
    partitioned_arms,
)
from dualml.report.topics import table_section

MIN_RANKED_ARMS = 3  # arms needed for a rank correlation
MAX_COLUMNS = 3


@dataclass(frozen=True, eq=False)
class SkewResult(ArmResult):
    """Results of an arm with the skew of its partition and the divergence of its ranks."""

    @cached_property
    def rule(self) -> str:
        """Name of the arm's partition rule, empty without one."""
        return partition_rule(self.run, self.arm)

    @cached_property
    def sync_period(self) -> int:
        """Number of updates from one average to the next."""
        return ranks.aggregation(self.run, self.arm).every

    @cached_property
    def emd(self) -> float | None:
        """Earth mover's distance of the labels, None if unknown."""
        return emd(self.run, self.arm)

    @cached_property
    def rows(self) -> Array:
        """(update, divergence, drift) of every averaging, rank and seed, shape (rows, 3): the
        distance of the rank's parameters from the average, relative to the average and to how far
        that moved since the last averaging (NaN for the first)."""
        recorded = [rows for t in self.trials for rows in t.apart]
        return np.concatenate(recorded) if recorded else np.zeros((0, 3))

    @cached_property
    def common(self) -> Array:
        """The `rows` up to the last update that all seeds made, shape (rows, 3)."""
        ends = [t.apart[0][-1, 0] for t in self.trials if t.apart]
        return self.rows[self.rows[:, 0] <= min(ends, default=0)]

    @property
    def divergence(self) -> float | None:
        """Mean distance of the ranks' parameters from the average before averaging, relative to the
        average; None if unknown."""
        return finite_mean(self.rows[:, 1])

    @property
    def drift(self) -> float | None:
        """Mean distance of the ranks' parameters from the average before averaging, relative to how
        far the average moved since the last one; None if unknown."""
        return finite_mean(self.rows[:, 2])

    @cached_property
    def classes(self) -> list[float | None]:
        """Test accuracy of each class, mean over the seeds; None for a class without samples."""
        known = [t.class_accuracy for t in self.trials if t.class_accuracy]
        most = min(map(len, known), default=0)
        return [numbers.mean([c[k] for c in known]) for k in range(most)]

    @cached_property
    def worst(self) -> tuple[float | None, int]:
        """The lowest accuracy of a class and the index of the class; (None, 0) if unknown."""
        return min(((v, k) for k, v in enumerate(self.classes) if v is not None), default=(None, 0))


def finite_mean(column: Array) -> float | None:
    """Return the mean of the finite values, None without any."""
    finite = column[np.isfinite(column)]
    return float(finite.mean()) if len(finite) else None


def skewed_arms(run: RunData) -> list[str]:
    """Return the partitioned arms of groups with a skewed partition whose arms differ in their
    partition or let ranks diverge between averages; the least skewed first."""
    chosen: list[str] = []
    for arms in run.groups().values():
        here = [a for a in partitioned_arms(run) if a in arms]
        rules = {format_settings(partition_settings(run, a)) for a in here}
        loose = any(t.apart for a in here for t in run.select(a))
        if any(partition_rule(run, a) in SKEWED for a in here) and (len(rules) > 1 or loose):
            chosen += here
    return sorted(chosen, key=lambda a: (emd(run, a) is None, round(emd(run, a) or 0.0, 2)))


def emd(run: RunData, arm: str) -> float | None:
    """Return the earth mover's distance of the labels, mean over ranks, epochs and seeds; None if
    unknown."""
    deal = find_partition(run, arm)
    return deal.skew()[0] if deal is not None else None


def skew_results(run: RunData) -> list[SkewResult]:
    """Return the results of all skewed arms (`skewed_arms`) on every backend with a successful
    trial."""
    return [SkewResult(run, *place) for place in ranks.successful_places(run, skewed_arms(run))]


# --- evidence -------------------------------------------------------------------------------------


def figures(run: RunData, words: Messages, results: Sequence[SkewResult]) -> Iterator[Block]:
    """Yield the figures of accuracy per class and of divergence."""
    if any(s.classes for s in results):
        yield _classes_figure(run, words, results)
    if any(len(s.rows) for s in results):
        yield _divergence_figure(run, words, [s for s in results if len(s.rows)])


def columns(run: RunData, words: Messages, results: Sequence[SkewResult]) -> Columns[SkewResult]:
    """Return the columns of skew, accuracy and divergence."""
    return {
        "`arm`": lambda s: s.arm,
        "`partition`": lambda s: format_settings(partition_settings(run, s.arm)),
        "of": lambda s: _combined(run, s.arm, words),
        "backend": lambda s: s.backend,
        "emd:1": lambda s: None if s.emd is None else f"{s.emd:.3f}",
        "test_accuracy:percent": lambda s: s.accuracy and s.accuracy.plus_minus(100.0, 2),
        "worst_class:percent": lambda s: _worst_cell(s, words),
        "divergence:relative": lambda s: numbers.quantity(s.divergence),
        "drift:relative": lambda s: numbers.quantity(s.drift),
    }


def _worst_cell(s: SkewResult, words: Messages) -> Cell | None:
    """Return the cell of the lowest accuracy of a class, in percent; None if unknown."""
    accuracy, label = s.worst
    if accuracy is None:
        return None
    return Cell(f"{100 * accuracy:.1f}", note=words("value.class", label=label))


def _combined(run: RunData, arm: str, words: Messages) -> str:
    """Return what ranks combine, ``gradients`` or ``parameters, every 16``, on one line."""
    settings = ranks.aggregation(run, arm)
    of = words.get(f"of.{settings.of}", settings.of)
    if settings.of != "parameters":
        return of
    text = words("value.averaged", of=of, every=settings.every)
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _classes_figure(run: RunData, words: Messages, results: Sequence[SkewResult]) -> Figure:
    """Return a figure of the test accuracy per class: a panel per backend, arms as rows, classes as
    columns."""
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
        marks = [Heatmap(cells, 100.0, words("axis.class_accuracy"))]
        x = Axis(words("axis.class"), names=[str(label) for label in range(most)])
        panels.append(Panel(marks, x, Axis(names=arms), backend, height=24 * len(arms)))

    def lowest(s: SkewResult) -> str:
        accuracy, label = s.worst
        return numbers.NO_VALUE if accuracy is None else f"{numbers.percent(accuracy)} ({label})"

    return build_figure(
        words,
        "skew-classes",
        panels,
        [],
        {"values": format_results(results, lowest)},
        more=[mean_seeds_note(run, words)],
        columns=min(MAX_COLUMNS, len(shown)),
        share_y="row",
    )


def _divergence_figure(run: RunData, words: Messages, results: Sequence[SkewResult]) -> Figure:
    """Return a figure of divergence and drift at every averaging: mean and range over the ranks."""
    arms = list(dict.fromkeys(s.arm for s in results))
    shown = ["divergence"]
    if any(np.isfinite(s.common[:, 2]).any() for s in results):
        shown.append("drift")  # known only from the second averaging on
    panels = []
    for column, quantity in enumerate(shown, start=1):
        marks = [mark for s in results for mark in _band(s, column)]
        means = [float(v) for mark in marks if isinstance(mark, LineMark) for v in mark.y]
        # A rank that stands still is close to the average, so its band reaches far down.
        low = min(means) / 2.5 if means else None
        y = Axis(words(f"axis.{quantity}"), "log", low=low)
        panels.append(Panel(marks, Axis(words("axis.updates"), low=0), y))
    values = format_results(results, lambda s: numbers.quantity(finite_mean(s.common[:, 1])))
    base = random_baseline(results)
    looks = [*legend.distinct_colors(arms, base.arm if base else ""), *legend.backends(run)]
    return build_figure(
        words, "divergence", panels, looks, {"values": values}, more=[mean_seeds_note(run, words)]
    )


def _band(s: SkewResult, column: int) -> Iterator[Mark]:
    """Yield the mean of a column of ``common`` against updates, and the band between its minimum
    and maximum."""
    rows = s.common[np.isfinite(s.common[:, column]) & (s.common[:, column] > 0)]
    if not len(rows):
        return
    steps = np.unique(rows[:, 0])
    at = [rows[rows[:, 0] == step, column] for step in steps]
    owner = SeriesId(s.arm, s.backend)
    yield Band(steps, [float(v.min()) for v in at], [float(v.max()) for v in at], owner)
    marker = "circle" if len(steps) < 3 else ""
    yield LineMark(steps, [float(v.mean()) for v in at], owner, marker=marker)


# --- findings -------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData, results: Sequence[SkewResult]) -> None:
    """Add how divergence and accuracy depend on skew and on the period of averaging, and which
    epochs end unevenly."""
    families = run.contrast.groups(skewed_arms(run), vary=("partition",))
    for backend in run.backends:
        here = [s for s in results if s.backend == backend]
        for family in families:
            _add_order(notes, [s for s in here if s.arm in family and s.emd is not None])
        _add_worst_class(notes, [s for s in here if s.worst[0] is not None])
    for s in results:
        _add_averages(notes, s)
    notes.add_collected()
    notes.set_anchor("table-uneven")
    for u in uneven_epochs(run):
        notes.add("uneven" if u.whole else "uneven_partial", u=u)


def random_baseline(results: Sequence[SkewResult]) -> SkewResult | None:
    """Return the first result of an arm with a random partition, with which the others are
    compared; None without one."""
    return next((s for s in results if s.rule == "random_partition"), None)


def _add_order(notes: Notes, here: Sequence[SkewResult]) -> None:
    """Add arms that differ only in their partition, ordered by skew: their divergence and
    accuracy."""
    if len(here) < 2:
        return
    backend, words = here[0].backend, notes.words
    items = [
        words("say.skew.item_alike" if s.divergence is None else "say.skew.item", s=s) for s in here
    ]
    notes.add_per_backend(backend, "order", values=items)
    _add_correlation(notes, [s for s in here if s.rule != "feature_noise"])
    base = random_baseline(here)
    if base is None:
        return
    others = [s for s in here if s is not base]
    gaps = {s.arm: g for s in others if (g := accuracy_gap(s, base))}
    if gaps:
        few = all(g.kind == "few" for g in gaps.values())
        notes.add_per_backend(
            backend,
            "gaps_few" if few else "gaps",
            base=base.arm,
            seeds=min(g.seeds for g in gaps.values()),
            values=format_gaps(gaps, words),
        )
    for s in others:
        if s.rule == "feature_noise":
            notes.add_per_backend(backend, "features", s=s, base=base)


def _add_correlation(notes: Notes, here: Sequence[SkewResult]) -> None:
    """Add the rank correlations of skew with accuracy and divergence, if they are known."""
    skews = [s.emd for s in here]
    accuracy = correlation(skews, [s.accuracy.mean if s.accuracy else None for s in here])
    divergence = correlation(skews, [s.divergence for s in here])
    if accuracy is not None:
        key = "correlation_accuracy" if divergence is None else "correlation"
        notes.add_per_backend(
            here[0].backend, key, n=len(here), divergence=_rho(divergence), accuracy=_rho(accuracy)
        )


def correlation(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    """Return Spearman's rank correlation of the pairs that are known on both sides; None with fewer
    than `MIN_RANKED_ARMS`, or if all values of one side are equal."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    if len(pairs) < MIN_RANKED_ARMS or any(
        len(set(column)) < 2 for column in zip(*pairs, strict=True)
    ):
        return None
    from scipy.stats import spearmanr  # takes a second to import

    return float(spearmanr(pairs).statistic)


def _rho(x: float | None) -> str:
    """Format a correlation with two decimals, empty for None."""
    return "" if x is None else f"{x:.2f}".replace("-", "−")


def _add_worst_class(notes: Notes, known: Sequence[SkewResult]) -> None:
    """Add the arm with the lowest accuracy of a class beside the arm with a random partition, if
    both are known."""
    base = random_baseline(known)
    worst = min(known, key=lambda s: s.worst[0] or 0.0, default=None)
    if base and worst and worst is not base:
        notes.add_per_backend(base.backend, "worst", s=worst, base=base)


def _add_averages(notes: Notes, s: SkewResult) -> None:
    """Add the comparison with the otherwise equal arm that averages more often (the nearest of
    several), and of gradients combined at every update with parameters averaged periodically."""
    oftener = [o for o in _results_varying(s, "aggregation.every") if o.sync_period < s.sync_period]
    key = "every_end" if s.divergence is None else "every"
    pairs = [(key, max(oftener, key=lambda o: o.sync_period))] if oftener else []
    if ranks.aggregation(s.run, s.arm).of == "gradients":
        others = _results_varying(s, "aggregation.of", "aggregation.every")
        pairs += [("gradients", o) for o in others if o.sync_period > 1]
    for key, other in pairs:
        if difference := accuracy_gap(s, other):
            notes.add_per_backend(
                s.backend, key, s=s, other=other, gap=format_gap(difference, notes.words)
            )


def _results_varying(s: SkewResult, *vary: str) -> list[SkewResult]:
    """Return the results of the skewed arms that differ only in ``vary``, on the same backend."""
    alike = s.run.contrast.partners(s.arm, vary=vary)
    return [SkewResult(s.run, arm, s.backend) for arm in skewed_arms(s.run) if arm in alike]


TOPIC = table_section(
    "skew",
    520,
    reads=skew_results,
    columns=columns,
    figures=figures,
    below=lambda run, words, results: uneven_table(run, words),
    findings=findings,
    priority=lambda run: 50 if skewed_arms(run) else 0,
)
