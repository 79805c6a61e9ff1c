"""Precision, recall and F1 against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import classification_report as theirs
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from dualml.common.confusion import (
    class_metrics,
    classification_report,
    macro_average,
    weighted_average,
)


@pytest.mark.parametrize("seed", range(8))
def test_as_scikit_learn_counts_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes = 5
    # Some classes never occur, some are never predicted.
    truth, found = rng.integers(0, 3 + seed % 3, 40), rng.integers(seed % 2, classes, 40)
    table = confusion_matrix(truth, found, labels=range(classes))
    given = {"labels": range(classes), "zero_division": 0}
    precision, recall, f1, support = precision_recall_fscore_support(truth, found, **given)
    ours = class_metrics(table.tolist())
    for a, b in zip(ours, (precision, recall, f1, support), strict=True):
        assert a.tolist() == pytest.approx(b.tolist())
    there = {"labels": sorted({*truth, *found}), "zero_division": 0, "average": "macro"}
    assert macro_average(table) == pytest.approx(
        precision_recall_fscore_support(truth, found, **there)[:3]
    )
    shares = {**given, "average": "weighted"}
    assert weighted_average(table) == pytest.approx(
        precision_recall_fscore_support(truth, found, **shares)[:3]
    )


def test_the_report_is_scikit_learns() -> None:
    rng = np.random.default_rng(1)
    names, truth, found = ["sad", "glad", "mad"], rng.integers(0, 3, 50), rng.integers(0, 3, 50)
    told = classification_report(confusion_matrix(truth, found), names)
    want = theirs(truth, found, target_names=names, output_dict=True)
    assert told["accuracy"] == pytest.approx(want["accuracy"])
    assert told["support"] == want["macro avg"]["support"] == 50
    for row, key in [
        *((row, row["name"]) for row in told["classes"]),
        (told["macro"], "macro avg"),
        (told["weighted"], "weighted avg"),
    ]:
        assert row["precision"] == pytest.approx(want[key]["precision"])
        assert row["recall"] == pytest.approx(want[key]["recall"])
        assert row["f1"] == pytest.approx(want[key]["f1-score"])


def test_of_nothing() -> None:
    assert macro_average(np.zeros((3, 3), np.int64)) == (0.0, 0.0, 0.0)
    assert weighted_average(np.zeros((3, 3), np.int64)) == (0.0, 0.0, 0.0)
