"""Classification of sentences: confusion matrix, precision, recall and F1 per class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dualml.common.confusion import (
    ClassMetrics,
    class_metrics,
    classification_report,
    macro_average,
    weighted_average,
)
from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import ranks
from dualml.report.blocks import Block, Column, Fold
from dualml.report.columns import PLACE, Columns, table, tabulate
from dualml.report.figure import Axis, Figure, Heatmap, Panel
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure, mean_seeds_note
from dualml.report.results import ArmResult
from dualml.report.topics import ReportSection

MAX_COLUMNS = 2


@dataclass(frozen=True, eq=False)
class ClassifierResult(ArmResult):
    """Classification results of an arm on a backend, the confusion matrices summed over the
    seeds."""

    @cached_property
    def confusions(self) -> list[NDArray[np.int64]]:
        """Confusion matrix of each seed, of the weights with the smallest validation loss if they
        were kept; tables that do not fit the classes are skipped."""
        n = len(class_names(self.run))
        tables = [t.best["confusion"] if t.best else t.confusion for t in self.trials]
        fitting = [table for table in tables if [len(row) for row in table] == n * [n]]
        return [np.array(table, np.int64) for table in fitting]

    @cached_property
    def accuracies(self) -> dict[int, float]:  # type: ignore[override]
        """Seed → test accuracy, of the same weights as the confusion matrix."""
        known = {
            t.seed: t.best["test_accuracy"] if t.best else t.test_accuracy for t in self.trials
        }
        return {seed: float(value) for seed, value in known.items() if value is not None}

    def best_weights_mean(self, key: str) -> float | None:
        """Return a number recorded with the weights of the smallest validation loss, e.g. ``step``
        or ``validation_accuracy``, mean over the seeds that kept them; None if none did."""
        return numbers.mean([t.best[key] for t in self.trials if t.best])

    @cached_property
    def confusion(self) -> NDArray[np.int64]:
        """Confusion matrix summed over the seeds, (classes, classes), true classes as rows;
        `confusions` must not be empty."""
        return np.array(sum(self.confusions))

    @cached_property
    def class_measures(self) -> ClassMetrics:
        """Precision, recall, F1 and support of every class."""
        return class_metrics(self.confusion)

    def macro(self, which: int) -> float | None:
        """Return the macro mean of precision (0), recall (1) or F1 (2), a fraction, mean over the
        seeds."""
        return numbers.mean([macro_average(table)[which] for table in self.confusions])

    def weighted(self, which: int) -> float | None:
        """Return the mean of precision (0), recall (1) or F1 (2) weighted by the classes' support,
        a fraction, mean over the seeds."""
        return numbers.mean([weighted_average(table)[which] for table in self.confusions])


def class_names(run: RunData) -> list[str]:
    """Return the names of the classes, empty without classes."""
    return list((run.meta.get("data") or {}).get("classes") or ())


def classifier_results(run: RunData) -> list[ClassifierResult]:
    """Return the arms on every backend that have a confusion matrix."""
    known = (ClassifierResult(run, *place) for place in ranks.successful_places(run, run.arms))
    return [one for one in known if one.confusions]


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the table of precision, recall and F1, the confusion matrix and the table of classes of
    the first arm on each backend, and a folded report per arm and backend; nothing without
    confusion matrices."""
    every = classifier_results(run)
    if not every:
        return
    best = any(t.best for one in every for t in one.trials)
    weights = words("value.weights_kept" if best else "value.weights_last")
    read: Columns[ClassifierResult] = {
        **PLACE,
        "kept_at:updates?": lambda one: one.best_weights_mean("step"),
        "validation_accuracy:percent?": lambda one: one.best_weights_mean("validation_accuracy"),
        "test_accuracy:percent": lambda one: one.accuracy and one.accuracy.plus_minus(100.0, 2),
        ("precision:percent", "recall:percent", "f1:percent"): lambda one: map(one.macro, range(3)),
        ("weighted_precision:percent", "weighted_f1:percent"): lambda one: (
            one.weighted(0),
            one.weighted(2),
        ),
    }
    yield from tabulate(words, "macro", every, read, weights=weights)
    first = [one for one in every if one.arm == every[0].arm]
    yield _confusion(run, words, first, weights)
    parts = ("precision", "recall", "f1")
    columns = [
        Column(
            f"{part} {one.backend}",
            words("value.of_backend", what=words(f"column.{part}"), backend=one.backend),
            "%",
            "number",
            "percent",
        )
        for one in first
        for part in parts
    ]
    lines = [
        [
            name,
            str(int(first[0].class_measures.support[at])),
            *(float(getattr(one.class_measures, part)[at]) for one in first for part in parts),
        ]
        for at, name in enumerate(class_names(run))
    ]
    yield from table(
        words,
        "each-class",
        ("class", "support:samples", *columns),
        lines,
        arm=first[0].arm,
        weights=weights,
    )
    for one in every:
        title = words("value.report_of", arm=one.arm, backend=one.backend)
        yield Fold(title, list(_report(one, words, weights)))


def _report(one: ClassifierResult, words: Messages, weights: str) -> Iterator[Block]:
    """Yield the table of an arm's measures per class and their means, all seeds together."""
    told = classification_report(one.confusion, class_names(one.run))
    keys = ("precision", "recall", "f1")
    lines = [
        [row["name"], *(row[key] for key in keys), str(row["support"])] for row in told["classes"]
    ]
    lines.append([words("value.accuracy"), None, None, told["accuracy"], str(told["support"])])
    for mean in ("macro", "weighted"):
        row = told[mean]
        lines.append(
            [words(f"value.{mean}_mean"), *(row[key] for key in keys), str(told["support"])]
        )
    head = ("class", "precision:percent", "recall:percent", "f1:percent", "support:samples")
    yield from table(
        words,
        f"report-{one.arm}-{one.backend}",
        head,
        lines,
        "classification",
        arm=one.arm,
        backend=one.backend,
        weights=weights,
    )


def _confusion(
    run: RunData, words: Messages, first: Sequence[ClassifierResult], weights: str
) -> Figure:
    """Return a figure with a panel per backend: true classes as rows, predicted ones as columns,
    percentages of each row."""
    panels = []
    classes = class_names(run)
    for one in first:
        counts = one.confusion.sum(axis=1, keepdims=True)
        shares = np.divide(
            100.0 * one.confusion, counts, out=np.zeros(one.confusion.shape), where=counts > 0
        )
        marks = [Heatmap(shares, 100.0, words("axis.taken_for"))]
        across = Axis(words("axis.predicted"), names=classes)
        down = Axis(words("axis.true_class"), names=classes)
        panels.append(Panel(marks, across, down, one.backend, height=24 * len(classes)))
    said = "; ".join(f"{one.backend} {numbers.percent(one.macro(2))}" for one in first)
    values = {"arm": first[0].arm, "values": said, "weights": weights}
    return build_figure(
        words,
        "confusion",
        panels,
        [],
        values,
        more=[mean_seeds_note(run, words)],
        columns=min(MAX_COLUMNS, len(first)),
        share_y="row",
    )


def findings(notes: Notes, run: RunData) -> None:
    """Add the class with the lowest F1 and the most frequent confusion of two classes, of the
    first arm and backend."""
    classes = class_names(run)
    every = classifier_results(run)
    for one in every[:1]:
        table_of = one.confusion.copy()
        f1, there = one.class_measures.f1, one.class_measures.support > 0
        worst = int(np.where(there, f1, np.inf).argmin())
        notes.add("worst", arm=one.arm, backend=one.backend, name=classes[worst], f1=f1[worst])
        np.fill_diagonal(table_of, 0)
        true, taken = np.unravel_index(int(table_of.argmax()), table_of.shape)
        if count := int(table_of[true, taken]):
            of = int(one.class_measures.support[true])
            notes.add(
                "taken",
                name=classes[int(true)],
                other=classes[int(taken)],
                n=f"{count:,}",
                of=f"{of:,}",
            )


TOPIC = ReportSection("classes", 130, evidence, findings, "table-each-class", when=class_names)
