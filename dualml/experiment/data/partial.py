"""Partly loaded datasets: samples without labels, labels without samples, or neither.

An omitted array keeps its shape and takes no memory: one element, broadcast. The element is NaN, or
−1 for integers, so that computing with a placeholder by mistake is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dualml.experiment.data import sources
from dualml.experiment.data.dataset import Array, Dataset
from dualml.experiment.data.locations import locate
from dualml.experiment.data.registry import DATASETS, FILE_NAMES, DatasetInfo, IdxFile


def make_placeholder(shape: tuple[int, ...], dtype: Any) -> Array:
    """Make a read-only array of a shape that takes no memory: one element, broadcast; NaN for
    floats, 255 for uint8, −1 for other integers."""
    kind = np.dtype(dtype)
    filled = np.nan if kind.kind == "f" else 255 if kind == np.uint8 else -1
    return np.broadcast_to(np.array(filled, kind), shape)


def is_placeholder(array: Array) -> bool:
    """Return whether an array comes from `make_placeholder`, judged by its strides, which are all
    0; False for an empty array."""
    return array.size > 0 and not any(array.strides)


def in_memory_bytes(array: Array) -> int:
    """Return the bytes of an array that are in memory; 0 for a placeholder."""
    return 0 if is_placeholder(array) else array.nbytes


def select_samples(array: Array, index: Array) -> Array:
    """Return the samples at the positions ``index``; of a placeholder, a placeholder of the new
    length."""
    if is_placeholder(array):
        return make_placeholder((len(index), *array.shape[1:]), array.dtype)
    picked: Array = array[index]
    return picked


def load_partial(planned: Mapping[str, Any], *, samples: bool, labels: bool) -> Dataset:
    """Load of a plan's dataset (``planned``, the plan's ``data``) the samples, the labels, or both,
    and put placeholders for what is not asked for.

    IDX files that are not needed are not opened; each one that is read is checked against its
    published digest. Other datasets are loaded completely and then reduced.

    Raises:
        UserError: as for `dualml.experiment.data.load_planned`.
    """
    info = DATASETS.get(planned["name"])
    place = locate(info) if info is not None and has_idx_files(info) else None
    if (samples and labels) or info is None or place is None:
        data = sources.load_planned(planned)
        keep = {"x": samples, "y": labels}
        gone: dict[str, Any] = {
            name: make_placeholder(array.shape, array.dtype)
            for part in ("train", "validation", "test")
            for axis, kept in keep.items()
            if not kept and (array := getattr(data, name := f"{part}_{axis}")) is not None
        }
        return replace(data, **gone)
    remedy = info.env_remedy if place.kind == "env" else info.remedy
    arrays = [
        sources.read_idx_file(place.folder, file, remedy)
        if (samples if len(file.shape) > 1 else labels)
        else make_placeholder(file.shape, np.uint8)
        for file in info.files
        if isinstance(file, IdxFile)
    ]
    train_x, train_y, test_x, test_y = arrays
    y = [
        array.astype(np.int64) if labels else make_placeholder(array.shape, np.int64)
        for array in (train_y, test_y)
    ]
    return Dataset(
        info.name,
        place.kind,
        None,
        train_x,
        y[0],
        test_x,
        y[1],
        sha256=planned["sha256"],
        mean=info.mean,
        std=info.std,
        classes=tuple(info.classes),
    )


def has_idx_files(info: DatasetInfo) -> bool:
    """Return whether the dataset has the four IDX files `FILE_NAMES`, with images and labels
    apart."""
    return [file.name for file in info.files] == list(FILE_NAMES)
