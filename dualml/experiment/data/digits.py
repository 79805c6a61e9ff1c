"""The embedded dataset: scikit-learn's real handwritten digits, enlarged from 8×8 to 28×28.

Everything is integer arithmetic, so that the images are the same bytes on every machine. Bilinear
interpolation with pixel centres at half integers reads output pixel i at (i + ½)·8/28 − ½ =
(4i − 5)/14; its weights are multiples of 1/14, and the grey value 0…16 becomes 0…255, rounded.
"""

from __future__ import annotations

import gzip
import hashlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dualml.common.array_types import Array

SIDE, LEVELS = 28, 16
TEST_PER_CLASS = 36

#: `fingerprint` of the four arrays, which shows whether scikit-learn still ships the same digits.
SHA256 = "06b3d7255a60ae20928a6443c2e9fd1b6a23e0f4eca560bf57ec064973507399"


def interpolation_weights() -> NDArray[np.int64]:
    """Return W (28, 8) in units of 1/14: an enlarged line is W·line/14, with edge values
    repeated."""
    out = np.zeros((SIDE, 8), np.int64)
    for i in range(SIDE):
        position = min(max(4 * i - 5, 0), 7 * 14)
        left, right_share = divmod(position, 14)
        out[i, left] += 14 - right_share
        out[i, min(left + 1, 7)] += right_share
    return out


def enlarge(images: Array) -> NDArray[np.uint8]:
    """Enlarge images of grey values 0…16, shape (N, 8, 8), to uint8 (N, 28, 28) of grey values
    0…255 by bilinear interpolation."""
    w = interpolation_weights()
    scaled = w @ images.astype(np.int64) @ w.T
    unit = 14 * 14 * LEVELS
    out: NDArray[np.uint8] = ((scaled * 255 + unit // 2) // unit).astype(np.uint8)
    return out


def split_indices(labels: Array) -> tuple[Array, Array]:
    """Return the indices of the training and test samples, each in the dataset's own order.

    The 36 samples of each class whose index has the smallest SHA-256 are for testing: as good as a
    random draw, and independent of any random generator's version.
    """
    rank = [hashlib.sha256(f"digits {i}".encode()).digest() for i in range(len(labels))]
    order = np.array(sorted(range(len(labels)), key=rank.__getitem__))
    test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        test[order[labels[order] == label][:TEST_PER_CLASS]] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


def csv_path() -> Path:
    """Return the path of scikit-learn's file ``digits.csv.gz``, without importing scikit-learn,
    which takes two seconds."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.submodule_search_locations
    return Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")


def load_arrays() -> tuple[Array, Array, Array, Array]:
    """Read scikit-learn's digits and return ``train_x, train_y, test_x, test_y``: images enlarged
    to uint8 (N, 28, 28), and labels int64 (N,)."""
    with gzip.open(csv_path(), "rt", encoding="ascii") as file:
        rows = np.loadtxt(file, np.int64, delimiter=",")
    x, y = enlarge(rows[:, :-1].reshape(-1, 8, 8)), rows[:, -1]
    train, test = split_indices(y)
    return x[train], y[train], x[test], y[test]
