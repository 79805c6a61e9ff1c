"""``classification`` of a trial in ``run.json``: how well each class is recognised."""

from __future__ import annotations

from dualml.store.jsonfile import Count, Number, Record


class Means(Record):
    """Means over the classes, fractions."""

    precision: Number
    recall: Number
    f1: Number


class ClassMeasures(Means):
    """Measures of one class; ``support``: its samples in the test set."""

    name: str
    support: Count


class Classification(Record):
    """A trial's `dualml.confusion.classification_report`, of the kept weights where there are any,
    else of those at the end."""

    classes: list[ClassMeasures]
    accuracy: Number
    macro: Means
    weighted: Means
    support: Count
