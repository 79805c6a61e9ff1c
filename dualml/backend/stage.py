"""Interface that splitting a model needs from a backend: segments of layers with forward and
backward passes.

A rank holds several segments, numbered through all its stages. Tensors are the framework's. Values
are stacks of tensors, the top last: a residual connection keeps one below the top. Nothing here
communicates with other ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from numpy.typing import NDArray

from dualml.algorithms.model.base import Layer

Tensor = Any
Values = tuple[Tensor, ...]
Arrays = dict[str, NDArray[Any]]
#: Which keys and values a block holds, relative to queries that have an early chunk of the
#: positions and a late one of equal length. "own": the same positions, masked causally. "early":
#: an earlier early chunk and a later late one, of which all queries see the first half. "late":
#: the reverse, which the second half of the queries sees completely.
Block = Literal["own", "early", "late"]


def visible_slices(block: Block, length: int) -> tuple[slice, slice]:
    """Return the slice of ``length`` queries that attend to a block, and the slice of its
    ``length`` keys that they see: all of both for ``own``; all queries and the first half of the
    keys for ``early``; the second half of the queries and all keys for ``late``."""
    whole, first, second = slice(0, length), slice(0, length // 2), slice(length // 2, length)
    return {"own": (whole, whole), "early": (whole, first), "late": (second, whole)}[block]


class OutputSplit(NamedTuple):
    """Split of a layer's output among ranks; see `dualml.parallel.split.shards.TensorShard`.

    Attributes:
        axis: axis that is split, counted with the batch axis.
        blocks: number of equal blocks, each of which is split.
        mirrored: whether every second block is assigned to the ranks in reverse order.
    """

    axis: int
    blocks: int = 1
    mirrored: bool = False


@dataclass(frozen=True)
class Segment:
    """Consecutive layers that a rank computes without communication.

    Attributes:
        layers: (name, layer) pairs with the shapes that this rank has.
        depth: number of tensors on the stack before them.
        split: layer name → how its output is split; layers that are missing have a whole output.
        low_precision: for each tensor on the stack before them, whether it is of the low-precision
            type (`dualml.algorithms.precision`).
    """

    layers: tuple[tuple[str, Layer], ...]
    depth: int
    split: Mapping[str, OutputSplit]
    low_precision: tuple[bool, ...] = (False,)


class Stage(Protocol):
    """The layers of one rank, their gradients and their optimizer, on one device.

    Names of parameters are canonical; arrays have the shape of this rank's part. ``segment`` is
    the index of one of the rank's segments (from 0, through all its stages), ``micro`` the number
    of a micro-batch, ``masks`` the dropout masks and, among them in layer order, the initial states
    of stateful layers; without them nothing is dropped, and states are zeros.
    """

    def samples(self, index: NDArray[Any]) -> Tensor:
        """Return the training samples with indices ``index``, int64 (B,), in the form that the
        first stage takes."""

    def labels(self, index: NDArray[Any]) -> Tensor:
        """Return the labels of the training samples with indices ``index`` in the form that the
        loss takes."""

    def inputs(self, x: NDArray[Any]) -> Tensor:
        """Convert samples from outside the training set to the form that the first stage takes."""

    def targets(self, y: NDArray[Any]) -> Tensor:
        """Convert labels from outside the training set to the form that the loss takes."""

    def empty(self, shape: tuple[int, ...]) -> Tensor:
        """Return a contiguous, uninitialised float tensor to receive into."""

    def forward(
        self, segment: int, micro: int, values: Values, masks: Sequence[Any] = ()
    ) -> Values:
        """Return the stack after the segment from ``values``, the stack before it (top last), and
        save what the backward pass of micro-batch ``micro`` needs. ``masks`` as for `Stage`."""

    def backward(self, segment: int, micro: int, gradients: Values) -> Values | None:
        """Run the backward pass of a segment for the ``gradients`` of its output stack; add the
        parameters' gradients to those of this update. Return the gradients of the input stack, or
        None where the input is the samples. The activations saved for the micro-batch are freed."""

    def loss(self, micro: int, values: Values, labels: Tensor, masks: Sequence[Any] = ()) -> Any:
        """Run the last segment on the stack ``values`` and return the lazy mean loss of the
        micro-batch; None where the loss is computed in the backward pass. ``masks`` as for
        `Stage`."""

    def loss_backward(self, micro: int, share: float) -> tuple[Any, Values | None]:
        """Run the last segment's backward pass for ``share`` times the loss of a micro-batch;
        return the lazy loss (None if `loss` returned it) and the gradients of the segment's input
        (None where that is the samples)."""

    def pop_states(self) -> dict[int, Arrays]:
        """Return, and forget, the final hidden states of the micro-batches since the last call:
        micro-batch → layer → (B, S, H), for stateful layers of a stage with `StateCarryover`."""

    def combine_losses(self, losses: Sequence[tuple[Any, float]]) -> Any:
        """Return the sum of loss · share over (lazy loss, share of the batch) pairs, one per
        micro-batch, in a form for `Backend.materialize_losses`."""

    def infer(self, segment: int, values: Values) -> tuple[Values, list[Tensor]]:
        """Run a segment in evaluation mode on the stack ``values``, saving nothing; return the
        output stack, and a list of the top of the stack after every layer."""

    #: Minimum batch that `infer` receives, so that no smaller shape is compiled; 0: no minimum.
    min_eval_batch: int

    def evaluate(self, logits: Tensor, labels: Tensor) -> tuple[float, NDArray[Any]]:
        """Return the mean loss and the predicted classes, one per label. Only where
        ``min_eval_batch`` is above 0 may there be more ``logits``, of which the first count."""

    #: Whether the bytes saved for backward passes are counted.
    counts_saved_bytes: bool

    def saved_activation_bytes(self) -> int:
        """Return the bytes that are saved for backward passes at this moment; valid while
        ``counts_saved_bytes``."""

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Concatenate tensors along an axis."""

    def take_chunk(self, x: Tensor, axis: int, part: int, parts: int) -> Tensor:
        """Return part number ``part`` (from 0) of ``parts`` equal parts of ``x`` along an axis,
        contiguous."""

    def zero_grad(self) -> None:
        """Set the gradients to zero and free all saved activations."""

    def flatten_gradients(self) -> Tensor:
        """Return all gradients as one contiguous 1-D tensor."""

    def assign_flat_gradients(self, flat: Tensor) -> None:
        """Replace the gradients by a reduced tensor in the layout of `flatten_gradients`. They may
        become views of ``flat``, which must not change before the update."""

    def gradients(self) -> Arrays:
        """Return copies of the gradients by canonical name."""

    def update(self, step: int) -> None:
        """Apply update ``step`` (from 1) of the optimizer with the accumulated gradients."""

    def weights(self) -> Arrays:
        """Return copies of the parameters by canonical name."""

    def state(self) -> dict[str, Arrays]:
        """Return copies of the optimizer state: state key → parameter name → array."""

    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        """Restore parameters and optimizer state to ``weights`` and ``state``, those after update
        ``step``."""


class BlockAttention(Protocol):
    """Attention of a rank's T positions to blocks of keys and values, one block after the other.

    Shapes: B batch, G groups of R heads, K entries per head. The backend chooses the layout of the
    heads; keys and values are one contiguous tensor, which is sent as it is.
    """

    def split_qkv(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Split ``x`` (B, T, G·(R + 2)·K) into queries and a tensor of keys and values, with the
        rotary position embedding applied."""

    def attend(
        self, q: Tensor, kv: Tensor, block: Block, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """Attend to one block of keys and values; return the outputs and the log-sum-exp over this
        block and those before it. ``state`` is what the previous call returned and may be
        overwritten; None: this is the rank's own block, the first."""

    def merge_heads(self, y: Tensor) -> Tensor:
        """Return outputs ``y``, separated by heads, as (B, T, G·R·K)."""

    def split_heads(self, y: Tensor) -> Tensor:
        """Split (B, T, G·R·K) into heads; the inverse of `merge_heads`."""

    def backward_block(
        self, q: Tensor, kv: Tensor, block: Block, flow: Tensor, y: Tensor, lse: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return what a block contributes to the gradients of the queries and of its keys and
        values, in full shape. ``flow`` is the gradient of the outputs ``y``; ``y`` and the
        log-sum-exp ``lse`` are those of all blocks."""

    def merge_qkv_gradients(self, dq: Tensor, dkv: Tensor) -> Tensor:
        """Combine the gradients of queries, keys and values into the gradient of the input of
        `split_qkv`."""
