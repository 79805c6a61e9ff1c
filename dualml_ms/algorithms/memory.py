"""Bytes in MindSpore: of parameters and optimizer state, and the peak of a device.

What a compiled graph saves between its forward and backward pass is not visible, and on a CPU
`mindspore.runtime` counts nothing: ``max_memory_allocated`` is documented, and was measured with
graphs and in PyNative mode, to be 0 there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import mindspore as ms

from dualml_ms.algorithms.optim.base import RuleOptimizer


def nbytes(tensors: Iterable[Any]) -> int:
    """Return the total bytes of the tensors' elements."""
    return sum(tensor.nbytes for tensor in tensors)


def state_bytes(optimizer: RuleOptimizer | None) -> int:
    """Return the bytes of the optimizer's state; 0 without an optimizer."""
    if optimizer is None:
        return 0
    return sum(nbytes(getattr(optimizer, slot)) for slot in optimizer.rule.state_keys)


def measure_peak_memory(device: str, work: Callable[[], object]) -> int | None:
    """Run ``work`` and return the peak bytes allocated on the device meanwhile, those allocated
    before included; None for ``device`` ``CPU``, where ``work`` is not run."""
    if device == "CPU":
        return None
    ms.runtime.synchronize()
    ms.runtime.reset_peak_memory_stats()
    work()
    ms.runtime.synchronize()
    return int(ms.runtime.max_memory_allocated())
