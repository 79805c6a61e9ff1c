"""What data parallel training needs of a backend: one update, taken apart.

Gradients and parameters leave and enter as flat 1-D tensors, one per bucket (`layout`): there is
nothing to copy together when they are sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

Tensor = Any


class Pieces(Protocol):
    """One update of a `Training` in parts; the weights change only in `update` and `assign`."""

    def gradient(self, batch: NDArray[Any], factor: float) -> tuple[Any, list[Tensor]]:
        """Lazy mean loss of ``batch`` and ``factor`` times its mean gradient, one tensor a bucket.

        An empty batch has the loss None and the gradient zero. The tensors may be overwritten by
        whoever receives them, and are overwritten by the next call.
        """

    def update(self, gradients: Sequence[Tensor], step: int) -> None:
        """Update ``step`` of the optimizer with these gradients."""

    def parameters(self) -> list[Tensor]:
        """Copies of the parameters, one tensor a bucket."""

    def assign(self, parameters: Sequence[Tensor]) -> None:
        """Replace the parameters."""

    def named(self, tensors: Sequence[Tensor]) -> Mapping[str, NDArray[Any]]:
        """Copies of the parts of bucket tensors under their canonical names."""


class Summing(Pieces, Protocol):
    """Pieces whose gradient is added up over the ranks while it is computed."""

    #: How, for the records: ``torch.nn.parallel.DistributedDataParallel``.
    detail: str

    def settle(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """What `gradient` returned, once it is the sum over all ranks of their gradients, each
        times its own factor."""
