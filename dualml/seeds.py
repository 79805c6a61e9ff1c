"""Seeds derived by hashing named purposes, never a backend's: all backends draw the same."""

from __future__ import annotations

import hashlib

import numpy as np


def seed_for(seed: int, *purpose: str | int) -> int:
    """A 64-bit seed for one purpose: ``seed_for(0, "init", "lenet")``."""
    text = "\x1f".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A local NumPy generator for one purpose; the global generator is never touched."""
    return np.random.Generator(np.random.PCG64(seed_for(seed, *purpose)))
