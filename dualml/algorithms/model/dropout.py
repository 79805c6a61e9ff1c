"""Dropout masks, drawn here for all backends and every way of splitting a batch.

A mask is a hash of the seed, the layer, the update, the number of the sample in the training set
and the entry. It has no state: a rank with part of the batch, a batch split into chunks and a
resumed trial all get the mask that one pass over the whole batch would get.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.model.layers import Dropout
from dualml.algorithms.model.spec import ModelSpec
from dualml.common.seeds import derive_seed

Bits = NDArray[np.uint64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio: the stride of SplitMix64


def dropout_masks(
    spec: ModelSpec, seed: int, step: int, samples: NDArray[np.int64]
) -> dict[str, NDArray[np.float32]]:
    """Return the name of every Dropout layer, also of rate 0, → its mask (B, …), float32, for
    update ``step`` (from 1) of a trial.

    Args:
        seed: seed of the trial.
        samples: numbers of the samples in the training set, shape (B,).
    """
    shapes = spec.shapes() if spec.dropout_names else {}
    return {
        name: dropout_mask(name, layer.rate, shapes[name], seed, step, samples)
        for name, layer in spec.layers
        if isinstance(layer, Dropout)
    }


def dropout_mask(
    name: str,
    rate: float,
    shape: tuple[int, ...],
    seed: int,
    step: int,
    samples: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Return a mask of shape (B, *shape): 0 with probability ``rate``, else 1 / (1 − rate)."""
    key = np.uint64(derive_seed(seed, "dropout", name, step))
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴
        own = splitmix64(key + samples.astype(np.uint64) * GOLDEN)
        bits = splitmix64(own[:, None] + np.arange(math.prod(shape), dtype=np.uint64) * GOLDEN)
    kept = bits >= np.uint64(round(rate * 2**64))
    return (kept * np.float32(1 / (1 - rate))).reshape(len(samples), *shape)


def splitmix64(z: Bits) -> Bits:
    """Apply the finaliser of SplitMix64, a bijection of 64-bit integers; overwrites ``z`` and
    returns it.

    Source: Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators", OOPSLA,
    with variant 13 of Stafford's constants, as in `java.util.SplittableRandom`.
    """
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
    return z
