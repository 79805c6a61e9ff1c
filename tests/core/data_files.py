"""A small dataset with MNIST's layout, written as IDX files, for the tests of
`dualml.experiment.data`."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dualml.experiment.data import idx
from dualml.experiment.data.registry import DATASETS, FILE_NAMES, DatasetInfo, IdxFile

TRAIN, TEST = 20, 10
MNIST = DATASETS["mnist"]


@dataclass(frozen=True, kw_only=True)
class OfAnyShape(DatasetInfo):
    """A dataset with MNIST's files that may hold more images than labels."""

    shapes: tuple[tuple[int, ...], ...]

    @property
    def files(self) -> tuple[IdxFile, ...]:
        return tuple(map(IdxFile, FILE_NAMES, self.shapes, self.checksums))


def arrays(seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return train images, train labels, test images and test labels (uint8)."""
    rng = np.random.default_rng(seed)
    out: list[np.ndarray] = []
    for n in (TRAIN, TEST):
        out += [
            rng.integers(0, 256, (n, 28, 28), np.uint8),
            rng.integers(0, 10, n).astype(np.uint8),
        ]
    return tuple(out)


def write(folder: Path, parts: tuple[np.ndarray, ...], *, packed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in zip(FILE_NAMES, parts, strict=True):
        data = idx.encode(part)
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / name).write_bytes(data)
    return folder


def info_for(parts: tuple[np.ndarray, ...], mirrors: tuple[str, ...] = ()) -> DatasetInfo:
    """Return MNIST's registry entry with these arrays' sizes and checksums."""
    sums = [f"sha256:{hashlib.sha256(idx.encode(part)).hexdigest()}" for part in parts]
    facts = {**vars(MNIST), "train": TRAIN, "test": TEST, "checksums": sums, "mirrors": mirrors}
    return OfAnyShape(**facts, shapes=tuple(part.shape for part in parts))
