"""Simulated rounding inside a loss, where a difference of larger terms rounds like them, and in
functions that kernels approximate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from dualml_torch.parity.operations import ASSIGNS, operation_name

#: One unit in the last place of float32.
UNIT = 2.0**-23
#: Functions that a kernel approximates, with errors of one sign in all elements: the error of
#: their sum is not that of random rounding.
APPROXIMATED = frozenset(
    {
        "exp",
        "expm1",
        "log",
        "log1p",
        "log2",
        "log10",
        "logsigmoid",
        "sigmoid",
        "softplus",
        "tanh",
        "softmax",
        "log_softmax",
        "elu",
        "silu",
        "mish",
        "scaled_dot_product_attention",  # a kernel with a softmax inside
    }
)


class RoundingMode(TorchFunctionMode):
    """A mode inside which every float32 result of a function, but those of in-place functions, is
    multiplied by 1 ± ``units`` · 2⁻²³ (units in the last place), with a sign drawn from ``rng``.

    Moved weights do not show the rounding of a loss: a divergence between two distributions hardly
    depends on them, but strongly on the rounding of each logarithm. All elements of a result are
    moved in the same direction, as by a kernel that approximates its function.

    Args:
        is_active: whether all results are moved yet; before, while the model itself runs, only
            those of `APPROXIMATED` functions are.
    """

    def __init__(self, rng: np.random.Generator, units: int, is_active: Callable[[], bool]) -> None:
        super().__init__()
        self.rng, self.units, self.is_active = rng, units, is_active

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = operation_name(func)
        if (
            not (self.is_active() or name in APPROXIMATED)
            or name in ("", *ASSIGNS)
            or name.endswith("_")
            or not isinstance(result, torch.Tensor)
            or result.dtype != torch.float32
            or any(result is one for one in args)
        ):
            return result
        move = self.units * UNIT * float(self.rng.choice((-1, 1)))
        with torch._C.DisableTorchFunction():
            return result * (1 + move)
