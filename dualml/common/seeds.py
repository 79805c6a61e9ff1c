"""Derive seeds by hashing named purposes, so that all backends draw the same numbers."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Derive a seed, from 0 to 2⁶⁴ − 1, for one purpose: ``derive_seed(0, "init", "lenet")``; equal
    arguments give equal seeds."""
    return int.from_bytes(hashlib.sha256(_text(seed, *purpose)).digest()[:8], "little")


def make_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Make a NumPy generator, seeded by `derive_seed`; the global generator is never touched."""
    return np.random.Generator(np.random.PCG64(derive_seed(seed, *purpose)))


def random_bits(count: int, seed: int, *purpose: str | int) -> NDArray[np.uint8]:
    """Return (count,) random zeros and ones, uint8, for one purpose, from one long hash: fast."""
    return np.unpackbits(packed_random_bits(count, seed, *purpose), count=count)


def packed_random_bits(count: int, seed: int, *purpose: str | int) -> NDArray[np.uint8]:
    """Return the numbers of `random_bits` as (⌈count / 8⌉,) bytes, the first one in the highest
    bit."""
    drawn = hashlib.shake_128(_text(seed, *purpose)).digest(-(-count // 8))
    return np.frombuffer(drawn, np.uint8)


def _text(*parts: str | int) -> bytes:
    """Encode a seed and a purpose as bytes to hash."""
    return "\x1f".join(map(str, parts)).encode()
