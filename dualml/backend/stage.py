"""What splitting a model needs of a backend: segments of layers that go forward and backward.

A rank holds some segments, numbered through all its stages. Tensors are the framework's; values are
stacks of them, the top last (residual connections keep a tensor aside). Nothing here talks to other
ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from dualml.model.base import Layer

Tensor = Any
Values = tuple[Tensor, ...]
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Segment:
    """Consecutive layers that a rank computes without the others.

    Attributes:
        layers: as this rank has them.
        depth: tensors on the stack before them.
        split: layer → (axis of its output, batch axis included, that is split; blocks that each
            are split, see `Piece`); the output of others is whole.
        lower: which of the tensors before them are of the lower type, where the model is trained
            in one (`dualml.precision`).
    """

    layers: tuple[tuple[str, Layer], ...]
    depth: int
    split: Mapping[str, tuple[int, int]]
    lower: tuple[bool, ...] = (False,)


class Stage(Protocol):
    """The layers of one rank, their gradients and their optimizer, on one device.

    Names of parameters are canonical; arrays have the shape of this rank's part.
    """

    def samples(self, index: NDArray[Any]) -> Tensor:
        """Training samples as what the first stage takes."""

    def labels(self, index: NDArray[Any]) -> Tensor:
        """Labels of training samples as what the loss takes."""

    def inputs(self, x: NDArray[Any]) -> Tensor:
        """Samples that are not the training set's."""

    def targets(self, y: NDArray[Any]) -> Tensor:
        """Labels that are not the training set's."""

    def empty(self, shape: tuple[int, ...]) -> Tensor:
        """A contiguous float tensor with arbitrary content, to receive into."""

    def forward(
        self, segment: int, micro: int, values: Values, masks: Sequence[Any] = ()
    ) -> Values:
        """The segment's output; what its backward pass needs is kept for this micro-batch."""

    def backward(self, segment: int, micro: int, gradients: Values) -> Values | None:
        """Add to the gradients of the parameters; the gradients of the segment's input, None where
        its input is the samples. What was kept for the micro-batch is dropped."""

    def loss(self, micro: int, values: Values, labels: Tensor, masks: Sequence[Any] = ()) -> Any:
        """Lazy mean loss of the micro-batch through the last segment, None where it comes with the
        backward pass."""

    def loss_backward(self, micro: int, share: float) -> tuple[Any, Values | None]:
        """The lazy loss, None where it came before, and what `backward` returns, for the last
        segment and ``share`` times the loss."""

    def lazy(self, losses: Sequence[tuple[Any, float]]) -> Any:
        """Losses of micro-batches and their shares of the batch, as `Backend.read` takes them."""

    def infer(self, segment: int, values: Values) -> tuple[Values, list[Tensor]]:
        """Output in evaluation mode, and the top of the stack after every layer."""

    #: Samples that `infer` is given at least, so that no other number is compiled; 0: as many as
    #: there are.
    infers: int

    def score(self, logits: Tensor, labels: Tensor) -> tuple[float, NDArray[Any]]:
        """Mean loss and predicted classes; of the first of ``logits``, where labels are fewer."""

    #: Whether what is kept for backward passes is to be counted.
    measuring: bool

    def held(self) -> int:
        """Bytes kept for backward passes at this moment, while ``measuring``."""

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors put together along an axis."""

    def cut(self, x: Tensor, axis: int, part: int, parts: int) -> Tensor:
        """One of equal parts along an axis, contiguous."""

    def zero(self) -> None:
        """Gradients of zero, and nothing kept."""

    def flat(self) -> Tensor:
        """All gradients as one contiguous 1-D tensor."""

    def assign_flat(self, flat: Tensor) -> None:
        """Replace the gradients by what `flat` returned, reduced."""

    def gradients(self) -> Arrays:
        """Copies."""

    def update(self, step: int) -> None:
        """Update ``step`` of the optimizer with the gradients that are there."""

    def weights(self) -> Arrays:
        """Copies."""

    def state(self) -> dict[str, Arrays]:
        """Optimizer state: slot → parameter → copy."""

    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        """Go to the point after update ``step``."""
