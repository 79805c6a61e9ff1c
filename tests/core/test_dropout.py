"""Dropout masks are a pure function of the arguments they are drawn for."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from dualml.algorithms.model import model
from dualml.algorithms.model.dropout import dropout_mask, dropout_masks, splitmix64

SHAPE = (32, 128)
SAMPLES = np.arange(32)


def test_the_hash_is_splitmix64() -> None:
    """The generator gives the first outputs of java.util.SplittableRandom for the seed 1234567."""
    golden, state, found = 0x9E3779B97F4A7C15, 1234567, []
    for _ in range(3):
        state = (state + golden) % 2**64
        found.append(int(splitmix64(np.array([state], np.uint64))[0]))
    assert found == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_known_values() -> None:
    """Recorded masks stay the same on other days, machines and NumPy versions."""
    found = dropout_mask("dropout1", 0.5, (2, 8), 0, 1, np.array([3, 50_000]))
    assert found.dtype == np.float32
    assert ["".join(str(int(v > 0)) for v in row.ravel()) for row in found] == [
        "1010110110001010",
        "1001110011010000",
    ]


def test_the_share_that_is_dropped_is_the_rate() -> None:
    for rate in (0.0, 0.1, 0.2, 0.5, 0.9):
        found = dropout_mask("d", rate, SHAPE, 0, 1, SAMPLES)
        assert set(np.unique(found)) <= {np.float32(0), np.float32(1 / (1 - rate))}
        dropped = int((found == 0).sum())
        assert (dropped == 0) if rate == 0 else binomtest(dropped, found.size, rate).pvalue > 1e-4


def test_entries_are_independent() -> None:
    """Groups of eight entries of neighbours, samples and updates take all 256 patterns equally
    often."""
    steps = [dropout_mask("d", 0.5, SHAPE, 0, step, SAMPLES) > 0 for step in range(1, 9)]
    bits = np.stack(steps)  # update, sample, position, feature
    for axis in range(4):
        eight = np.moveaxis(bits, axis, -1).reshape(-1, 8)
        forms = np.packbits(eight, axis=1).ravel()
        assert chisquare(np.bincount(forms, minlength=256)).pvalue > 1e-4, axis


def test_a_mask_depends_on_its_sample_alone_not_on_the_batch() -> None:
    spec = model("rnn_lm_dropout", words=20, length=5)
    index = np.array([7, 3, 90_000, 12])
    whole = dropout_masks(spec, 1, 4, index)
    assert list(whole) == ["dropout1", "dropout2"]
    assert whole["dropout1"].shape == (4, 5, 64)
    assert whole["dropout2"].shape == (4, 5, 128)
    for order in ([2, 0], [3, 2, 1, 0], [1]):
        for name, part in dropout_masks(spec, 1, 4, index[order]).items():
            np.testing.assert_array_equal(part, whole[name][order])
    assert dropout_masks(spec, 1, 4, index[:0])["dropout1"].shape == (0, 5, 64)


def test_seed_layer_update_and_sample_all_count() -> None:
    base = dropout_mask("a", 0.5, SHAPE, 0, 1, SAMPLES)
    others = [
        dropout_mask("b", 0.5, SHAPE, 0, 1, SAMPLES),
        dropout_mask("a", 0.5, SHAPE, 1, 1, SAMPLES),
        dropout_mask("a", 0.5, SHAPE, 0, 2, SAMPLES),
        dropout_mask("a", 0.5, SHAPE, 0, 1, SAMPLES + 1),
    ]
    for other in others:
        assert np.mean(other == base) == pytest.approx(0.5, abs=4 / math.sqrt(base.size))


def test_models_without_dropout_draw_nothing() -> None:
    assert dropout_masks(model("vit"), 0, 1, SAMPLES) == {}


def test_a_mask_takes_little_time() -> None:
    """Masks are fast: 0.4 ms for 131,072 entries when this was written; the bound allows for a busy
    machine."""
    times = []
    for step in range(20):
        begin = time.perf_counter()
        dropout_mask("d", 0.2, SHAPE, 0, step, SAMPLES)
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.01
