"""Sizes of the Llama-shaped model of `compare_size.py` and `compare_lockstep.py`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Size(NamedTuple):
    """Shape of a model: see Llama's configuration for the words."""

    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    inner: int


#: Length of the sequence of a step.
TOKENS = 64
SIZES = {
    "5m": Size(4096, 256, 4, 4, 4, 704),
    "20m": Size(8192, 384, 8, 6, 6, 1024),
    "60m": Size(20480, 512, 12, 8, 8, 1408),
    "159m": Size(48256, 768, 12, 12, 12, 2048),
    "1100m": Size(32000, 2048, 22, 32, 4, 5632),
    "7b": Size(32000, 4096, 32, 32, 32, 11008),
}


def rotary_table(size: Size) -> tuple[Any, Any]:
    """Return cosine and sine of each position's angles, (tokens, half a head), as float32."""
    half = size.width // size.heads // 2
    angles = np.arange(TOKENS)[:, None] * 10000.0 ** (-np.arange(half) / half)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
