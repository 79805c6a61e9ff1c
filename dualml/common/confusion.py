"""Compute precision, recall and F1 from a confusion matrix.

The conventions are those of scikit-learn: a measure is 0 where its denominator is 0; the macro
average is over the classes that occur in labels or predictions; the weighted average weights each
class by its support, so that weighted recall equals accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.int64] | Sequence[Sequence[int]]


class ClassMetrics(NamedTuple):
    """Precision, recall and F1 per class, float64 (C,), and samples per class, int64 (C,)."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]
    support: NDArray[np.int64]


def class_metrics(confusion: Table) -> ClassMetrics:
    """Compute precision, recall, F1 and support of each class; 0 where a denominator is 0.

    Args:
        confusion: (C, C), the samples of each class (rows) by the class that was predicted.
    """
    table = np.asarray(confusion, np.int64)
    hits, support, predicted = table.diagonal(), table.sum(axis=1), table.sum(axis=0)
    precision, recall = _safe_ratio(hits, predicted), _safe_ratio(hits, support)
    return ClassMetrics(precision, recall, _safe_ratio(2 * hits, support + predicted), support)


def macro_average(confusion: Table) -> tuple[float, float, float]:
    """Return precision, recall and F1, each averaged over the classes that occur in labels or
    predictions; all 0 for an empty matrix."""
    table = np.asarray(confusion, np.int64)
    there = (table.sum(axis=0) + table.sum(axis=1)) > 0
    if not there.any():
        return 0.0, 0.0, 0.0
    precision, recall, f1, _ = class_metrics(table)
    return float(precision[there].mean()), float(recall[there].mean()), float(f1[there].mean())


def weighted_average(confusion: Table) -> tuple[float, float, float]:
    """Return precision, recall and F1 averaged over the classes, weighted by support; all 0 for an
    empty matrix."""
    precision, recall, f1, support = class_metrics(confusion)
    if not support.any():
        return 0.0, 0.0, 0.0
    shares = support / support.sum()
    return float(shares @ precision), float(shares @ recall), float(shares @ f1)


class ClassificationContent(TypedDict):
    """Content of `dualml.experiment.store.classification.Classification`."""

    classes: list[dict[str, Any]]
    accuracy: float
    macro: dict[str, float]
    weighted: dict[str, float]
    support: int


def classification_report(confusion: Table, names: Sequence[str]) -> ClassificationContent:
    """Summarize a confusion matrix like scikit-learn's ``classification_report``, as JSON.

    Args:
        confusion: (C, C), the samples of each class (rows) by the class that was predicted.
        names: names of the C classes.

    Returns:
        ``classes``: per class ``name``, ``precision``, ``recall``, ``f1`` and ``support`` in
        samples; ``accuracy``; ``macro`` and ``weighted``: averages of precision, recall and F1;
        ``support``: samples of all classes. All measures are fractions.
    """
    keys = ("precision", "recall", "f1")
    per_class, table = class_metrics(confusion), np.asarray(confusion, np.int64)
    rows = zip(names, *(column.tolist() for column in per_class), strict=True)
    support = int(table.sum())
    return {
        "classes": [dict(zip(("name", *keys, "support"), row, strict=True)) for row in rows],
        "accuracy": float(table.trace() / support) if support else 0.0,
        "macro": dict(zip(keys, macro_average(confusion), strict=True)),
        "weighted": dict(zip(keys, weighted_average(confusion), strict=True)),
        "support": support,
    }


def _safe_ratio(part: NDArray[np.int64], of: NDArray[np.int64]) -> NDArray[np.float64]:
    """Divide element by element, with 0 where the denominator is 0."""
    return np.divide(part, of, out=np.zeros(len(part)), where=of > 0)
