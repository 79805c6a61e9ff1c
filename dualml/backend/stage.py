"""What splitting a model needs of a backend: segments of layers that go forward and backward.

A rank holds some segments, numbered through all its stages. Tensors are the framework's; values are
stacks of them, the top last (residual connections keep a tensor aside). Nothing here talks to other
ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from numpy.typing import NDArray

from dualml.model.base import Layer

Tensor = Any
Values = tuple[Tensor, ...]
Arrays = dict[str, NDArray[Any]]
#: Of keys and values, seen from queries that have an early chunk of the positions and a late one of
#: equal length: their own, causal; those of an earlier early chunk and a later late one, of which
#: all queries see the first half; or the reverse, which the second half of the queries sees whole.
Block = Literal["own", "early", "late"]


def seen(block: Block, length: int) -> tuple[slice, slice]:
    """Which of ``length`` queries see something of a block, and which of its keys they see."""
    whole, first, second = slice(0, length), slice(0, length // 2), slice(length // 2, length)
    return {"own": (whole, whole), "early": (whole, first), "late": (second, whole)}[block]


class Sliced(NamedTuple):
    """Where an output is split among ranks; see `dualml.split.pieces.Piece`.

    Attributes:
        axis: batch axis included.
        blocks: equal ones that are split each.
        mirrored: whether every second block is dealt in the reverse order of ranks.
    """

    axis: int
    blocks: int = 1
    mirrored: bool = False


@dataclass(frozen=True)
class Segment:
    """Consecutive layers that a rank computes without the others.

    Attributes:
        layers: as this rank has them.
        depth: tensors on the stack before them.
        split: layer → where its output is split; the output of others is whole.
        lower: which of the tensors before them are of the lower type, where the model is trained
            in one (`dualml.precision`).
    """

    layers: tuple[tuple[str, Layer], ...]
    depth: int
    split: Mapping[str, Sliced]
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

    def states(self) -> dict[int, Arrays]:
        """Micro-batch → layer → state that its samples ended with, (B, S, H), of stateful layers
        and of those passes since the last call; of a stage that is `Carrying`."""

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


class BlockAttention(Protocol):
    """Attention of a rank's T positions to blocks of keys and values, one after the other.

    Shapes: B batch, G groups of R heads, K entries of a head. Heads are laid out as the backend
    likes; keys and values are one contiguous tensor, which travels as it is.
    """

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Queries, and keys and values, turned by their positions, of (B, T, G·(R + 2)·K)."""

    def attend(
        self, q: Tensor, kv: Tensor, block: Block, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """Outputs, and logarithms of the sums of exponentials, of this block and those before it,
        whose ``state`` it may overwrite; None: it is the first, one's own."""

    def joined(self, y: Tensor) -> Tensor:
        """(B, T, G·R·K) of outputs by heads."""

    def heads(self, y: Tensor) -> Tensor:
        """The reverse of `joined`."""

    def back(
        self, q: Tensor, kv: Tensor, block: Block, flow: Tensor, y: Tensor, lse: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What a block adds to the gradients of the queries, and of its keys and values, of full
        shape; the gradient ``flow`` of the outputs ``y`` and ``lse`` are of all blocks."""

    def whole(self, dq: Tensor, dkv: Tensor) -> Tensor:
        """The gradient of what `split` took."""
