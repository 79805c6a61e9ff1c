"""The samples of a plan in the form that a model takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.experiment.data import normalised
from dualml.experiment.data.partial import (
    in_memory_bytes,
    is_placeholder,
    load_partial,
    make_placeholder,
    select_samples,
)
from dualml.experiment.data.registry import Constant
from dualml.experiment.plan import Plan


@dataclass(frozen=True)
class Samples:
    """Samples and labels for training and evaluation: normalised float32 images (N, C, H, W) and
    int64 labels (N,); for a text int32 tokens (N, T) and the int64 next tokens (N, T), for labelled
    sentences int64 labels (N,).

    ``monitor`` has the indices of the training samples on which training accuracy is measured.
    Labels go from 0 to ``classes`` - 1; for a text ``classes`` is 0, since its words are not
    reported separately. ``validation`` has x and y of the samples by which the weights to keep are
    chosen, for labelled sentences only.
    """

    train_x: NDArray[Any]
    train_y: NDArray[np.int64]
    monitor: NDArray[np.int64]
    test_x: NDArray[Any]
    test_y: NDArray[np.int64]
    classes: int
    #: Whether the samples are labelled sentences.
    labelled: bool = False
    validation: tuple[NDArray[Any], NDArray[np.int64]] | None = None

    @property
    def is_text(self) -> bool:
        """Whether the samples are windows of a text."""
        return self.classes == 0

    @property
    def memory_bytes(self) -> tuple[int, int]:
        """Bytes in memory of samples and of labels, over training, test and validation;
        placeholders count 0."""
        arrays = self._arrays()
        return sum(map(in_memory_bytes, arrays[::2])), sum(map(in_memory_bytes, arrays[1::2]))

    def omit(self, *, samples: bool, labels: bool) -> Samples:
        """Return a copy with placeholders, which take no memory, for the samples, the labels, or
        both (those that are True), for a rank that shares its process's arrays."""
        gone = {"x": samples, "y": labels}

        def change(array: NDArray[Any], axis: str) -> NDArray[Any]:
            return make_placeholder(array.shape, array.dtype) if gone[axis] else array

        return self._map_arrays(change)

    def fill_from(self, other: Samples) -> Samples:
        """Return a copy in which the arrays of ``other``, of the same dataset, replace the
        placeholders."""
        arrays = iter(other._arrays())

        def change(array: NDArray[Any], axis: str) -> NDArray[Any]:
            read = next(arrays)
            return read if is_placeholder(array) else array

        return self._map_arrays(change)

    def _arrays(self) -> list[NDArray[Any]]:
        """Return samples and labels alternately: training, test, then validation if there is
        one."""
        own = [self.train_x, self.train_y, self.test_x, self.test_y]
        return [*own, *(self.validation or ())]

    def _map_arrays(self, change: Callable[[NDArray[Any], str], NDArray[Any]]) -> Samples:
        """Return a copy in which ``change(array, axis)`` replaces every array, ``axis`` being ``x``
        for samples and ``y`` for labels; ``monitor`` stays."""
        new = [change(array, "xy"[i % 2]) for i, array in enumerate(self._arrays())]
        names = ("train_x", "train_y", "test_x", "test_y")
        arrays: dict[str, Any] = dict(zip(names, new[:4], strict=True))
        validation = (new[4], new[5]) if self.validation is not None else None
        return replace(self, **arrays, validation=validation)


def load_samples(plan: Plan, *, samples: bool = True, labels: bool = True) -> Samples:
    """Load the training, test and, for labelled sentences, validation samples that the plan selects
    from its dataset, normalised if they are images. Raise `UserError` if the dataset is not
    available any more, or another one.

    Args:
        samples, labels: which of the two to read; the other gets placeholders without memory
            (`dualml.experiment.data.partial`).
    """
    data = load_partial(plan.data, samples=samples, labels=labels)

    def select_part(part: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
        x, y, index = getattr(data, f"{part}_x"), getattr(data, f"{part}_y"), plan.order[part]
        # All samples in their own order need no copy, so that the largest array of a trial exists
        # only once.
        chosen = x if len(index) == len(x) else select_samples(x, index)
        if data.kind == "images":
            chosen = normalise_if_present(chosen, plan.data["mean"], plan.data["std"])
        return chosen, select_samples(y, index)

    labelled = data.kind == "labelled"
    return Samples(
        *select_part("train"),
        plan.order["monitor"].astype("int64"),
        *select_part("test"),
        classes=0 if data.kind == "text" else len(data.classes),
        labelled=labelled,
        validation=select_part("validation") if labelled else None,
    )


def normalise_if_present(images: NDArray[Any], mean: Constant, std: Constant) -> NDArray[Any]:
    """Return the images normalised by ``mean`` and ``std``; for a placeholder a placeholder of the
    normalised shape and dtype."""
    if not is_placeholder(images):
        return normalised(images, mean, std)
    one = normalised(images[:1], mean, std)
    return make_placeholder((len(images), *one.shape[1:]), one.dtype)
