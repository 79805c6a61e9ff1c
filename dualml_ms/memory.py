"""Bytes in MindSpore: of parameters and the optimizer's state, and the peak of a device.

What a compiled graph keeps between its forward and its backward pass is seen by nobody outside,
and on a CPU `mindspore.runtime` counts nothing: ``max_memory_allocated`` is documented, and was
measured with graphs and in PyNative mode, to be 0 there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import mindspore as ms

from dualml_ms.optim.base import RuleOptimizer


def nbytes(tensors: Iterable[Any]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def state_bytes(optimizer: RuleOptimizer | None) -> int:
    if optimizer is None:
        return 0
    return sum(nbytes(getattr(optimizer, slot)) for slot in optimizer.rule.slots)


def peak(device: str, work: Callable[[], object]) -> int | None:
    """See `dualml.backend.Metered`."""
    if device == "CPU":
        return None
    ms.runtime.synchronize()
    ms.runtime.reset_peak_memory_stats()
    work()
    ms.runtime.synchronize()
    return int(ms.runtime.max_memory_allocated())
