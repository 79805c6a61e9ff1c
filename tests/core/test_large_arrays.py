"""Large arrays are compared and moved in blocks, with the results of small ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dualml.common.distance import CACHED_ELEMENTS, blocked_distance, distance
from dualml.common.seeds import packed_random_bits, random_bits
from dualml.parity import envelope
from dualml.parity.models import gap as gaps
from dualml.parity.models.gap import gap
from dualml.parity.models.value_matching import ValueIndex

RNG = np.random.default_rng(0)
X = RNG.standard_normal(3 * CACHED_ELEMENTS + 7).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("change", [1.0, 1.0 + 1e-6, 2.0])
def test_blocks_give_the_distance(change: float, threads: int) -> None:
    other = X * np.float32(change)
    assert blocked_distance(X, other, threads) == pytest.approx(distance(X, other), rel=1e-12)
    assert (blocked_distance(X, other, threads) == 0) == (change == 1)


def test_every_block_counts() -> None:
    for at in (0, CACHED_ELEMENTS, X.size - 1):
        other = X.copy()
        other[at] += 1
        assert blocked_distance(X, other) == pytest.approx(distance(X, other), rel=1e-12)
        other[at] = np.nan
        assert blocked_distance(X, other) == np.inf


def test_odd_numbers_of_large_arrays_are_judged_like_those_of_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gaps, "LARGE", 4)
    masked, off, nan = X.copy(), X.copy(), X.copy()
    masked[3] = off[3] = -np.inf
    off[9] += 1
    nan[5] = np.nan
    tiny = np.full(X.size, 1e-42, np.float32)
    assert gap(masked, masked) == 0
    assert gap(masked, off) == pytest.approx(gap(np.delete(masked, 3), np.delete(off, 3)))
    assert gap(masked, X) == gap(nan, X) == gap(nan, nan) == np.inf
    assert gap(tiny, 2 * tiny) == 0
    assert gap(X, X + 1) == pytest.approx(distance(X, X + 1), rel=1e-12)


def test_weights_are_moved_as_if_they_were_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "PERTURBED_ELEMENTS", 1000)
    w = np.concatenate([X[:5000], [0.0, 1e-42, -3e38]]).astype(np.float32).reshape(-1, 1)
    up = random_bits(w.size, 5, "ulp", 2, 7, "w").reshape(w.shape)
    move = np.float32(2**2) * np.spacing(np.abs(w))
    expected = w + move * (2 * up.astype(np.float32) - 1)
    assert np.array_equal(envelope.perturb({"w": w}, 5, 2, 7)["w"], expected)
    assert w[0, 0] == X[0]  # not changed


def test_a_large_parameter_is_read_when_an_array_of_its_size_is_looked_for() -> None:
    reads = []

    def read() -> NDArray[np.float32]:
        reads.append(1)
        return X

    values = ValueIndex()
    values.add_later("w", X.shape, read)
    assert values.find(X[1:], 1e-6) is None
    assert not reads
    assert values.find(X.copy(), 1e-6) == "w"


def test_last_places_are_those_of_numpy() -> None:
    numbers = RNG.integers(0, 2**32, 100_000, np.uint64).astype(np.uint32).view(np.float32)
    odd = np.array([0, -0.0, 1e-45, 1e-38, 1.2e-38, 1, 2, 3.4e38], np.float32)
    for x in (numbers[np.isfinite(numbers)], odd, np.array([1, np.inf], np.float32)):
        expected = np.spacing(np.abs(x))
        assert np.array_equal(envelope.last_places(x), expected, equal_nan=True)


def test_packed_bits_are_the_random_bits() -> None:
    packed = packed_random_bits(21, 3, "x")
    assert packed.shape == (3,)
    assert np.array_equal(np.unpackbits(packed)[:21], random_bits(21, 3, "x"))


def test_equal_bits_are_seen_in_every_block_and_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "LARGE", 4)
    nan = np.array([1, np.nan, -0.0, 2, 3], np.float32)
    for dtype in (np.float32, np.float64, np.complex128, np.float16, np.bool_, np.int64):
        x = nan.astype(dtype) if np.dtype(dtype).kind in "fc" else np.arange(5).astype(dtype)
        off = x.copy()
        off[4] = 0
        assert gaps.is_bit_identical(x, x.copy())
        assert not gaps.is_bit_identical(x, off)
    assert not gaps.is_bit_identical(nan, np.where(nan == 0, np.float32(0), nan))  # -0.0
