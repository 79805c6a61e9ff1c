"""The samples of a plan, as a model gets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.data import load_again, normalised
from dualml.experiment.plan import Plan


@dataclass(frozen=True)
class Samples:
    """Normalised float32 images (N, 1, H, W) and int64 labels (N,) for training and evaluation; of
    a text int32 tokens (N, T) and the int64 token after each, of labelled sentences int64 (N,).

    ``monitor`` are the indices of the training samples on which training accuracy is measured;
    labels go from 0 to ``classes`` - 1. Of a text ``classes`` is 0: its words are not told apart.
    ``validation``: x and y of the samples that choose the weights to keep, of labelled sentences.
    """

    train_x: NDArray[Any]
    train_y: NDArray[np.int64]
    monitor: NDArray[np.int64]
    test_x: NDArray[Any]
    test_y: NDArray[np.int64]
    classes: int
    #: Whether it is sentences that are classified.
    labelled: bool = False
    validation: tuple[NDArray[Any], NDArray[np.int64]] | None = None

    @property
    def text(self) -> bool:
        return self.classes == 0


def samples_of(plan: Plan) -> Samples:
    """Read the plan's dataset again and take the plan's part of it."""
    data = load_again(plan.data)
    train, test, monitor = (plan.order[key] for key in ("train", "test", "monitor"))
    if data.kind == "text":
        parts = (data.train_x[train], data.train_y[train], monitor.astype("int64"))
        return Samples(*parts, data.test_x[test], data.test_y[test], 0)
    if data.kind == "labelled":
        x, y = data.train_x[train], data.train_y[train]
        tested = data.test_x[test], data.test_y[test]
        assert data.validation_x is not None
        assert data.validation_y is not None
        chosen = plan.order["validation"]
        validation = data.validation_x[chosen], data.validation_y[chosen]
        classes = len(data.classes)
        return Samples(x, y, monitor.astype("int64"), *tested, classes, True, validation)
    # All samples in their own order need no copy: the largest array of a trial stays the only one.
    images = data.train_x if len(train) == len(data.train_x) else data.train_x[train]
    x, y = normalised(images, data.mean, data.std), data.train_y[train]
    test_x = normalised(data.test_x[test], data.mean, data.std)
    labels = (monitor.astype("int64"), test_x, data.test_y[test], len(data.classes))
    return Samples(x, y, *labels)
