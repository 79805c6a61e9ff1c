"""MindSpore's random operators, drawing from an RNG that both frameworks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore.utils import MsDispatchMode

from dualml.parity.models.rng import SharedRng

#: Whole channels, the first two axes.
CHANNELS = ("Dropout2D", "Dropout3D")


class SharedRngMode(MsDispatchMode):
    """A mode inside which Dropout of every kind, ``Bernoulli`` and ``UniformReal`` draw from a
    `SharedRng`, whose numbers PyTorch gets, too; MindSpore computes the gradient of a Dropout from
    the drawn mask."""

    def __init__(self, chance: SharedRng) -> None:
        super().__init__()
        self.chance = chance

    def __ms_dispatch__(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = draw_result(self.chance, func, args)
        return func(*args, **(kwargs or {})) if result is None else result


def draw_result(chance: SharedRng, func: Any, args: Sequence[Any]) -> Any:
    """Return the result of a Dropout (output and mask), ``Bernoulli`` or ``UniformReal`` operator,
    drawn from ``chance``; None for every other operator. The tensors' contents are drawn and
    computed on the host."""
    if len(args) != 3 or not isinstance(args[0], ms.ops.Primitive):
        return None
    primitive, (first, *rest) = args[0], args[2] or (None,)
    if func.name == "Dropout" or func.name in CHANNELS:
        keep = float(getattr(primitive, "keep_prob", 1.0))
        x = first.asnumpy()
        few = func.name in CHANNELS
        shape = x.shape[:2] if few else x.shape
        mask = chance.keep_mask(shape, 1 - keep).reshape(*shape, *[1] * (x.ndim - len(shape)))
        mask = np.broadcast_to(mask, x.shape)
        scale = np.float32(1 / keep if keep else 0.0)
        out = ms.Tensor((x * (mask * scale)).astype(x.dtype))
        return out, ms.Tensor(mask.astype(bool if few else x.dtype))
    if func.name == "Bernoulli":
        p = rest[0].asnumpy() if rest else 0.5
        ones = chance.uniform(first.shape) >= 1 - p
        return ms.Tensor(ones.astype(np.float32), first.dtype)
    if func.name == "UniformReal":
        shape = first.asnumpy() if isinstance(first, ms.Tensor) else first
        return ms.Tensor(chance.uniform(tuple(int(n) for n in shape)))
    return None
