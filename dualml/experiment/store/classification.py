"""The key ``classification`` of a trial in ``run.json``: how well each class is recognised."""

from __future__ import annotations

from dualml.experiment.store.jsonfile import Count, Number, Record


class Means(Record):
    """Means over the classes, as fractions."""

    precision: Number
    recall: Number
    f1: Number


class ClassMeasures(Means):
    """Measures of one class; ``support`` is its number of test samples."""

    name: str
    support: Count


class Classification(Record):
    """A trial's `dualml.common.confusion.classification_report`, for the kept weights if there are
    any, else for the final ones."""

    classes: list[ClassMeasures]
    accuracy: Number
    macro: Means
    weighted: Means
    support: Count
