"""Seconds of a device's kernels, from their shapes: matrix products and attention.

Sources: Williams et al. 2009, "Roofline: An Insightful Visual Performance Model for Multicore
Architectures"; NVIDIA, "Matrix Multiplication Background User's Guide" (tile and wave
quantisation); Dao 2023 (FlashAttention-2) and Shah et al. 2024 (FlashAttention-3), whose speeds
count 4·s²·d operations forward and 2.5 times as many backward, half of them with a causal mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: Rows and columns of the tiles that a product may be cut into, and the share of the largest tile's
#: speed that each reaches, because a smaller tile loads more operands per operation.
TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.9), (64, 128, 0.7), (16, 64, 0.3))
#: Operations of a backward pass of attention per operation of its forward pass, where the kernel
#: computes the scores again instead of reading them.
FLASH_BACKWARD = 2.5
#: Head width of the kernels' published speeds; narrower heads reach less (Shah et al. 2024, figures
#: 5 and 6: 64 reaches 83 % of 128).
FULL_HEAD, HEAD_POWER = 128, 0.27


@dataclass(frozen=True)
class AttentionKernel:
    """Measured speed of a fused attention kernel on one device.

    Args:
        forward, backward: share of the 16-bit peak that long sequences approach in each pass.
        half_forward, half_backward: sequence length that reaches half of that share.
    """

    forward: float
    backward: float
    half_forward: float
    half_backward: float

    def shares(self, sequence: Any, head: int) -> tuple[Any, Any]:
        """Return the shares of the 16-bit peak in the forward and the backward pass for causal
        sequences of ``sequence`` tokens and heads of ``head`` elements."""
        narrow = min(1.0, head / FULL_HEAD) ** HEAD_POWER
        ahead = self.forward * narrow * sequence / (sequence + self.half_forward)
        back = self.backward * narrow * sequence / (sequence + self.half_backward)
        return ahead, back


@dataclass(frozen=True)
class Chip:
    """Description of how the kernels of a device reach its peaks.

    Args:
        processors: number of multiprocessors, each of which computes a tile at a time; 0: not
            known, and every product takes its operations over the speed.
        product_share: share of the peak that the best measured product reaches.
        low_precision: the peak over that of 16-bit numbers, where layers compute in a smaller type;
            attention and the output layer stay in 16 bits.
        wide_share: `product_share` in 16 bits.
        attention: kernel → its speed; without an entry it computes as matrix products do.
    """

    processors: int = 0
    product_share: float = 1.0
    low_precision: float = 1.0
    wide_share: float = 1.0
    attention: Mapping[str, AttentionKernel] = field(default_factory=dict)

    def filled_share(self, m: Any, n: Any, count: Any = 1) -> Any:
        """Return the share of the multiprocessors' speed that ``count`` products of m × n elements
        reach: tiles at the edge are computed whole, and so is the last wave of tiles."""
        if not self.processors:
            return 1.0
        best: Any = 0.0
        for rows, columns, speed in TILES:
            tiles = count * np.ceil(m / rows) * np.ceil(n / columns)
            computed = np.ceil(tiles / self.processors) * self.processors * rows * columns
            best = np.maximum(best, speed * count * m * n / computed)
        return best


@dataclass(frozen=True)
class ProductSpeed:
    """Speeds at which a device computes products.

    Args:
        chip: the device's kernels.
        flops: operations per second of the largest products.
        bandwidth: bytes per second of device memory.
        stores: share of the time of reading and writing the result that no arithmetic hides.
    """

    chip: Chip
    flops: float
    bandwidth: float
    stores: float

    def seconds(
        self, m: Any, n: Any, k: Any, element: float, result: float = 0.0, count: Any = 1
    ) -> Any:
        """Return the seconds of ``count`` products of an m × k and a k × n matrix.

        A product takes the longer of its operations and its bytes, and in addition the share of its
        result's bytes that is not hidden.

        Args:
            element: bytes of an element of the operands.
            result: bytes per element that the result moves; 0: ``element``. A gradient that is
                added to another one is read and written.
        """
        flops = 2.0 * count * m * n * k
        if not self.chip.processors:
            return flops / self.flops
        stored = count * m * n * (result or element) / self.bandwidth
        loaded = count * (m * k + k * n) * element / self.bandwidth
        computed = flops / (self.flops * self.chip.filled_share(m, n, count))
        return np.maximum(computed, loaded + stored) + self.stores * stored
