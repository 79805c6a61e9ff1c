"""A framework-neutral model specification: named layers in sequence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dualml.algorithms.model.base import Layer, Shape
from dualml.algorithms.model.layers import LAYERS, Branch, Dropout, Embedding, Merge, Swap
from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.common.json_types import JsonObject


def canonical_parameter_names(name: str, layer: Layer) -> dict[str, str]:
    """Return the last part of each parameter's name → its canonical name, ``<layer>.<leaf>``; a
    parameter shared with another layer has that layer's name."""
    return {leaf: f"{layer.parameter_owner(name, leaf)}.{leaf}" for leaf in layer.parameters()}


def parameter_shapes(layers: Sequence[tuple[str, Layer]]) -> dict[str, Shape]:
    """Return canonical parameter name → shape, in layer order; a shared parameter appears once."""
    return {
        full: layer.parameters()[leaf]
        for name, layer in layers
        for leaf, full in canonical_parameter_names(name, layer).items()
    }


def stack_shapes(
    layers: Sequence[tuple[str, Layer]], entry: Sequence[Shape]
) -> dict[str, list[Shape]]:
    """Return layer name → shapes of the stack after it, the top last, for a stack ``entry`` before
    the first layer.

    Raises:
        UserError: a layer that does not fit the stack before it.
    """
    stack, after = list(entry), {}
    for name, layer in layers:
        try:
            stack = _apply_to_stack(layer, stack)
        except UserError as error:
            raise UserError(f"layer {name!r}: {error}") from None
        after[name] = stack
    return after


def _apply_to_stack(layer: Layer, stack: list[Shape]) -> list[Shape]:
    """Return the shapes of the stack after ``layer``, the top last: `Branch` doubles the top,
    `Swap` exchanges the top two, `Merge` adds them, any other layer changes the top. Raise
    `UserError` if the layer does not fit."""
    if isinstance(layer, Branch):
        return [*stack, stack[-1]]
    if isinstance(layer, Swap):
        if len(stack) < 2:
            raise UserError("Swap has no Branch before it")
        return [*stack[:-2], stack[-1], stack[-2]]
    if not isinstance(layer, Merge):
        return [*stack[:-1], layer.output_shape(stack[-1])]
    if len(stack) < 2:
        raise UserError("Merge has no Branch before it")
    if stack[-1] != stack[-2]:
        raise UserError(f"Merge adds equal shapes; received {stack[-2]} and {stack[-1]}")
    return stack[:-1]


def buffer_shapes(layers: Sequence[tuple[str, Layer]]) -> dict[str, Shape]:
    """Return canonical buffer name → shape, in layer order."""
    return {
        f"{name}.{leaf}": shape for name, layer in layers for leaf, shape in layer.buffers().items()
    }


LOSSES = ("cross_entropy", "mse")


@keep_former_members
@dataclass(frozen=True)
class ModelSpec:
    """Named layers applied one after the other.

    Args:
        name: the model's name in the zoo.
        input_shape: shape of one sample, without the batch axis: (1, 28, 28); (32,) for 32 tokens.
        layers: (name, layer) in order; parameters are called ``<name>.weight``, ``<name>.bias``.

    Raises:
        UserError: a layer that does not fit its predecessor, a repeated name, an unmatched branch,
            an embedding that is not first, a tied layer without its table, a layer that skips
            padding without an embedding.
    """

    name: str
    input_shape: tuple[int, ...]
    layers: tuple[tuple[str, Layer], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.layers]
        if len(set(names)) != len(names):
            raise UserError(f"model {self.name!r}: layer names repeat: {names}")
        for name, layer in self.layers[1:]:
            if isinstance(layer, Embedding):
                raise UserError(f"model {self.name!r}, layer {name!r}: tokens only come in first")
        if self.needs_padding_mask and not self.takes_tokens:
            raise UserError(f"model {self.name!r}: padding is of tokens, and it has no Embedding")
        for name, layer in self.layers:
            self._check_holder(name, layer)
        if any(list(self.open_branches().values())[-1:]):
            raise UserError(f"model {self.name!r}: a Branch has no Merge after it")

    def _check_holder(self, name: str, layer: Layer) -> None:
        """Raise `UserError` if ``layer`` shares a parameter with another layer, unless that is an
        embedding in first place with a parameter of the same name and shape."""
        first = dict(self.layers[:1])
        for leaf, shape in layer.parameters().items():
            holder = layer.parameter_owner(name, leaf)
            owner = first.get(holder)
            if holder == name:
                continue
            if not isinstance(owner, Embedding) or owner.parameters().get(leaf) != shape:
                raise UserError(
                    f"model {self.name!r}, layer {name!r}: its parameters have {leaf} "
                    f"{shape} of {holder!r}, which is no embedding of that shape"
                )

    def stack_shapes(self) -> dict[str, list[tuple[int, ...]]]:
        """Return layer name → shapes per sample of the stack after it, the top last.

        Raises:
            UserError: a layer that does not fit its predecessor.
        """
        try:
            return stack_shapes(self.layers, [self.input_shape])
        except UserError as error:
            raise UserError(f"model {self.name!r}, {error}") from None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return layer name → output shape per sample."""
        return {name: stack[-1] for name, stack in self.stack_shapes().items()}

    def open_branches(self) -> dict[str, int]:
        """Return layer name → number of branches that are open after it, not yet merged."""
        return {name: len(stack) - 1 for name, stack in self.stack_shapes().items()}

    def residual_blocks(self) -> list[slice]:
        """Return slices that cover all layers, split after every outermost residual connection."""
        depth = self.open_branches()
        ends = [
            i
            for i, (name, layer) in enumerate(self.layers, start=1)
            if isinstance(layer, Merge) and not depth[name]
        ]
        cuts = [0, *(end for end in ends if end < len(self.layers)), len(self.layers)]
        return [slice(start, stop) for start, stop in itertools.pairwise(cuts)]

    @property
    def takes_tokens(self) -> bool:
        """Whether samples are tokens (integers) rather than floating-point numbers."""
        return bool(self.layers) and isinstance(self.layers[0][1], Embedding)

    @cached_property
    def needs_padding_mask(self) -> bool:
        """Whether some layers skip positions without a token."""
        return any(layer.needs_padding_mask for _, layer in self.layers)

    @cached_property  # read in every step
    def dropout_names(self) -> tuple[str, ...]:
        """Names of all Dropout layers, also of rate 0, in order: they take a mask in training."""
        return tuple(name for name, layer in self.layers if isinstance(layer, Dropout))

    @cached_property
    def stateful(self) -> bool:
        """Whether some layers start a batch from the final state of the previous batch."""
        return any(getattr(layer, "stateful", False) for _, layer in self.layers)

    def nbytes(self, width: int = 4) -> int:
        """Return the bytes of all parameters, shared ones once and buffers not counted, with
        ``width`` bytes per element."""
        return width * sum(math.prod(shape) for shape in self.parameters().values())

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Return canonical parameter name → shape, in layer order."""
        return parameter_shapes(self.layers)

    @cached_property  # read in every step
    def buffers(self) -> dict[str, tuple[int, ...]]:
        """Canonical name of batch normalisation's running statistics → shape; no optimizer changes
        them, and they are saved with the weights."""
        return buffer_shapes(self.layers)

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Return canonical name → shape of all tensors of a trained model, in layer order: of each
        layer its parameters first, then its buffers."""
        both: dict[str, tuple[int, ...]] = {}
        for item in self.layers:
            both |= parameter_shapes([item]) | buffer_shapes([item])
        return both

    def describe(self) -> JsonObject:
        """Return the model without weights as JSON values; `ModelSpec.restore` reads them back."""
        return {
            "name": self.name,
            "input_shape": list(self.input_shape),
            "layers": [{"name": name, **layer.describe()} for name, layer in self.layers],
        }

    @classmethod
    def restore(cls, text: JsonObject) -> ModelSpec:
        """Return the model that `describe` described."""
        layers = []
        for entry in text["layers"]:
            fields = {k: v for k, v in entry.items() if k not in ("name", "type")}
            layers.append((entry["name"], LAYERS[entry["type"]](**fields)))
        return cls(text["name"], tuple(text["input_shape"]), tuple(layers))
