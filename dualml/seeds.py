"""Seeds derived by hashing named purposes, never a backend's: all backends draw the same."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def seed_for(seed: int, *purpose: str | int) -> int:
    """A 64-bit seed for one purpose: ``seed_for(0, "init", "lenet")``."""
    return int.from_bytes(hashlib.sha256(_text(seed, *purpose)).digest()[:8], "little")


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A local NumPy generator for one purpose; the global generator is never touched."""
    return np.random.Generator(np.random.PCG64(seed_for(seed, *purpose)))


def bits(count: int, seed: int, *purpose: str | int) -> NDArray[np.uint8]:
    """(count,) zeros and ones for one purpose: a hash as long as needed, for much noise quickly."""
    drawn = hashlib.shake_128(_text(seed, *purpose)).digest(-(-count // 8))
    return np.unpackbits(np.frombuffer(drawn, np.uint8), count=count)


def _text(*parts: str | int) -> bytes:
    return "\x1f".join(map(str, parts)).encode()
