"""A small dataset with MNIST's layout, written as IDX files, for the tests of `dualml.data`."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from dualml.data import idx
from dualml.data.registry import FILE_NAMES, MNIST, DatasetInfo, four_files

TRAIN, TEST = 20, 10


def arrays(seed: int = 0) -> tuple[np.ndarray, ...]:
    """Train images, train labels, test images, test labels; uint8."""
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
    """MNIST's entry in the registry, with these arrays' sizes and checksums."""
    sums = tuple("sha256:" + hashlib.sha256(idx.encode(p)).hexdigest() for p in parts)
    files = four_files(len(parts[0]), len(parts[2]), sums)  # type: ignore[arg-type]
    shaped = tuple(replace(f, shape=p.shape) for f, p in zip(files, parts, strict=True))
    return replace(MNIST, train=TRAIN, test=TEST, files=shaped, mirrors=mirrors)
