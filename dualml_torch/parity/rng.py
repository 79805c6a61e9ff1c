"""PyTorch's random functions, drawing from an RNG that both frameworks share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode, handle_torch_function

from dualml.parity.models.rng import SharedRng
from dualml_torch.parity.operations import find_parts

Tensor = torch.Tensor

#: The limit of SELU at −∞, −scale · alpha, to which alpha dropout sets what it drops.
SELU_LIMIT = -1.7580993408473766
#: Names under which outer modes see Dropout with shared numbers.
DROPOUTS = ("dropout", "alpha_dropout")


class SharedRngMode(TorchFunctionMode):
    """A mode inside which Dropout of every kind, ``bernoulli`` and ``rand`` draw from a
    `SharedRng`, whose numbers MindSpore gets, too.

    Enter it last, so that it intercepts calls first: tracers then see a function ``dropout`` that
    gives the same numbers in every replay.

    Args:
        keeps_attention: whether fused attention is one call, see
            `dualml_torch.parity.operations.find_parts`.
    """

    def __init__(self, chance: SharedRng, keeps_attention: bool = False) -> None:
        super().__init__()
        self.chance, self.keeps_attention = chance, keeps_attention

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", "")
        parts = find_parts(name, args, kwargs or {}, self.keeps_attention)
        if parts is not None:  # these draw inside
            with self:
                return parts(*args, **(kwargs or {}))
        replacement = DRAWS.get(func)
        result = None if replacement is None else replacement(self, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if result is None else result

    def uniform(self, shape: Sequence[int]) -> Tensor:
        """Draw shared uniform numbers in [0, 1) as a tensor of this shape, on the CPU."""
        return torch.from_numpy(self.chance.uniform(tuple(shape)))

    def dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor | None:
        """Apply Dropout with shared random numbers, to ``input`` itself if ``inplace``, and return
        the result; None, which leaves the call to PyTorch, if ``training`` is false or ``p`` is
        0."""
        if not training or p == 0:
            return None
        result = apply_dropout(self.uniform(input.shape), input, p)
        return input.copy_(result) if inplace else result

    def dropout_channels(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor | None:
        """Drop whole channels, the entries of the first two axes of the input, with shared random
        numbers, in ``input`` itself if ``inplace``, and return the result; None, which leaves the
        call to PyTorch, if ``training`` is false or ``p`` is 0."""
        if not training or p == 0:
            return None
        numbers = self.chance.uniform(tuple(input.shape[:2]))
        axes = [1] * (input.ndim - 2)
        result = apply_dropout(torch.from_numpy(numbers.reshape(*numbers.shape, *axes)), input, p)
        return input.copy_(result) if inplace else result

    def alpha_dropout(
        self, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
    ) -> Tensor | None:
        """Apply alpha dropout (Klambauer et al. 2017, Self-Normalizing Neural Networks) with shared
        random numbers, to ``input`` itself if ``inplace``, and return the result; None, which
        leaves the call to PyTorch, if ``training`` is false or ``p`` is 0 or 1."""
        return self.drop_to_alpha(input, input.shape, p, training, inplace)

    def feature_alpha_dropout(
        self, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
    ) -> Tensor | None:
        """Apply alpha dropout to whole channels, the entries of the first two axes, otherwise like
        `alpha_dropout`."""
        shape = (*input.shape[:2], *[1] * (input.ndim - 2))
        return self.drop_to_alpha(input, shape, p, training, inplace)

    def drop_to_alpha(
        self, input: Tensor, shape: Sequence[int], p: float, training: bool, inplace: bool
    ) -> Tensor | None:
        """Set entries of ``input``, drawn in ``shape`` and broadcast, to SELU's negative limit, and
        scale and shift all so that mean and variance stay, in ``input`` itself if ``inplace``;
        return the result. None, which leaves the call to PyTorch, if ``training`` is false or ``p``
        is not between 0 and 1."""
        if not training or not 0 < p < 1:
            return None
        result = apply_alpha_dropout(self.uniform(shape), input, p)
        return input.copy_(result) if inplace else result

    def bernoulli_(self, input: Tensor, p: Any = 0.5, generator: Any = None) -> Tensor | None:
        """Overwrite ``input`` with ones, with probability ``p`` each, and zeros; None, which leaves
        the call to PyTorch, if there is a ``generator``."""
        return None if generator is not None else input.copy_(self.draw_ones(input.shape, p))

    def bernoulli(self, input: Tensor, p: Any = None, generator: Any = None) -> Tensor | None:
        """Return ones and zeros of the shape and type of ``input``, ones with the probabilities
        ``p`` or, if that is None, ``input``; None, which leaves the call to PyTorch, if there is a
        ``generator``."""
        if generator is not None:
            return None
        return self.draw_ones(input.shape, input.detach() if p is None else p).to(input.dtype)

    def draw_ones(self, shape: Sequence[int], p: Any) -> Tensor:
        """Draw a float32 mask of this shape whose entries are one with probability ``p``, a number
        or a tensor, else zero."""
        numbers = self.uniform(shape)
        return (numbers.to(device=p.device if torch.is_tensor(p) else None) >= 1 - p).float()

    def rand(self, *size: Any, dtype: Any = None, **ignored: Any) -> Tensor | None:
        """Draw shared uniform numbers in [0, 1) of the shape ``size`` (numbers, or one list or
        tuple) in ``dtype`` and on the keyword ``device``; None, which leaves the call to PyTorch,
        if there is a ``generator`` or ``out``. Other keyword arguments are ignored."""
        if ignored.keys() & {"generator", "out"}:
            return None
        shape = size[0] if len(size) == 1 and isinstance(size[0], list | tuple) else size
        return self.uniform(shape).to(device=ignored.get("device"), dtype=dtype)

    def rand_like(self, input: Tensor, dtype: Any = None, **ignored: Any) -> Tensor:
        """Draw shared uniform numbers in [0, 1) of the shape of ``input``, in ``dtype`` or its own
        type, on its device; other arguments are ignored."""
        return self.uniform(input.shape).to(input.device, dtype or input.dtype)


def apply_dropout(numbers: Tensor, input: Tensor, p: float) -> Tensor:
    """Return an input with Dropout of rate ``p``: entries whose uniform numbers are at least ``p``
    are divided by 1 − p, the others 0. An outer mode sees it as one function ``dropout``."""

    def dropout(input: Tensor, p: float) -> Tensor:
        if has_outer_mode():  # dispatch to the next mode
            result: Tensor = handle_torch_function(dropout, (input,), input, p)
            return result
        scale = 1 / (1 - p) if p < 1 else 0.0
        return input * ((numbers >= p).to(input.device, input.dtype) * scale)

    return dropout(input, p)


def apply_alpha_dropout(numbers: Tensor, input: Tensor, p: float) -> Tensor:
    """Return an input with alpha dropout of rate ``p``, above 0 and below 1: entries whose uniform
    numbers are below ``p`` become SELU's limit, and all are scaled and shifted so that mean and
    variance stay. An outer mode sees it as one function ``alpha_dropout``."""

    def alpha_dropout(input: Tensor, p: float) -> Tensor:
        if has_outer_mode():  # dispatch to the next mode
            result: Tensor = handle_torch_function(alpha_dropout, (input,), input, p)
            return result
        kept = (numbers >= p).to(input.device, input.dtype)
        scale = ((1 + p * SELU_LIMIT**2) * (1 - p)) ** -0.5
        return input * (kept * scale) + (kept - (1 - p)) * (-SELU_LIMIT * scale)

    return alpha_dropout(input, p)


def has_outer_mode() -> bool:
    """Return whether another torch function mode is active."""
    return torch.overrides._len_torch_function_stack() > 0  # type: ignore[attr-defined]


DRAWS: dict[Any, Callable[..., Tensor | None]] = {
    functional.dropout: SharedRngMode.dropout,
    functional.alpha_dropout: SharedRngMode.alpha_dropout,
    functional.feature_alpha_dropout: SharedRngMode.feature_alpha_dropout,
    **dict.fromkeys(
        (functional.dropout1d, functional.dropout2d, functional.dropout3d),
        SharedRngMode.dropout_channels,
    ),
    Tensor.bernoulli_: SharedRngMode.bernoulli_,
    torch.bernoulli: SharedRngMode.bernoulli,
    Tensor.bernoulli: SharedRngMode.bernoulli,
    torch.rand: SharedRngMode.rand,
    torch.rand_like: SharedRngMode.rand_like,
}
