"""Each rank's input data, known to all ranks, and the comparisons that the checks use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualml.algorithms.communicator import OPS, Communicator

FOLD = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
#: (shape at creation, transformation): the last two are not contiguous.
SHAPES = [
    *(((), ""), ((0,), ""), ((1,), ""), ((7,), ""), ((3, 5), ""), ((2, 0, 3), "")),
    *(((5, 3), "transposed"), ((14,), "strided")),
]


class Failures(list[str]):
    """The failures of a check, as texts; `assert_none` raises if there are any."""

    def expect_equal(self, found: Any, want: np.ndarray, what: str, bound: float = 0.0) -> None:
        """Record a failure unless ``found`` has the dtype, shape and entries of ``want``, the
        entries within ``bound``."""
        if found.dtype != want.dtype or found.shape != want.shape:
            kinds = f"{found.dtype}{found.shape} instead of {want.dtype}{want.shape}"
            self.append(f"{what}: {kinds}")
        elif found.size:
            off = np.abs(found.astype(np.float64) - want.astype(np.float64)).max()
            if not off <= bound:
                self.append(f"{what}: off by {off:g} > {bound:g}; {found!r:.300}; {want!r:.300}")

    def expect(self, fact: bool, what: str) -> None:
        if not fact:
            self.append(what)

    def assert_none(self) -> None:
        assert not self, "\n".join(self[:5])


def values(rank: int, shape: Sequence[int], dtype: str, seed: int = 0) -> np.ndarray:
    """Return the values that ``rank`` contributes, known to every rank: integers with small
    products."""
    rng = np.random.default_rng([seed, rank, *shape])
    if dtype.startswith("int"):
        return np.asarray(rng.integers(-4, 5, shape), dtype)
    return np.asarray(rng.normal(size=shape), dtype)


def altered(x: Any, how: str) -> Any:
    """Return the tensor or array with the memory layout of `SHAPES`, such as not contiguous."""
    if how == "transposed":
        return x.T
    return x[::2] if how == "strided" else x


def rank_inputs(comm: Communicator, shape: Sequence[int], dtype: str, how: str, seed: int) -> Any:
    """Return this rank's tensor, and the arrays of all ranks."""
    arrays = [altered(values(r, shape, dtype, seed), how) for r in range(comm.size)]
    return altered(comm.tensor(values(comm.rank, shape, dtype, seed)), how), arrays


def reduced(arrays: Sequence[np.ndarray], op: str) -> tuple[np.ndarray, float]:
    """Return the expected reduction (floats in float64), and how far another order of the same
    operations may be from it."""
    dtype, n = arrays[0].dtype, len(arrays)
    if dtype.kind == "i" or op in ("max", "min"):
        return np.asarray(FOLD[op].reduce(np.stack(arrays)), dtype), 0.0
    wide = np.stack(arrays).astype(np.float64)
    total = FOLD[op].reduce(wide)
    largest = FOLD[op].reduce(np.abs(wide)).max(initial=0)
    if op == "mean":
        total, largest = total / n, largest / n
    return np.asarray(total, dtype), float(2 * n * np.finfo(dtype).eps * largest)


def ops_of(dtype: str) -> list[str]:
    return [op for op in OPS if op != "mean" or dtype.startswith("float")]
