"""A model described without a framework: named layers in sequence."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from dualml.errors import UserError


@dataclass(frozen=True)
class Linear:
    """y = x·Wᵀ + b: (B, inputs) → (B, outputs).

    ``weight`` (outputs, inputs), ``bias`` (outputs,).
    """

    inputs: int
    outputs: int

    def parameters(self) -> dict[str, tuple[int, ...]]:
        return {"weight": (self.outputs, self.inputs), "bias": (self.outputs,)}

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if shape != (self.inputs,):
            raise UserError(f"Linear takes ({self.inputs},) per sample; received {shape}")
        return (self.outputs,)


@dataclass(frozen=True)
class Conv2d:
    """Cross-correlation, stride 1, zero padding: (B, C, H, W) → (B, C', H+2p−k+1, W+2p−k+1).

    ``weight`` (outputs, inputs, kernel, kernel), ``bias`` (outputs,).
    """

    inputs: int
    outputs: int
    kernel: int
    padding: int = 0

    def parameters(self) -> dict[str, tuple[int, ...]]:
        return {
            "weight": (self.outputs, self.inputs, self.kernel, self.kernel),
            "bias": (self.outputs,),
        }

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) != 3 or shape[0] != self.inputs:
            raise UserError(f"Conv2d takes ({self.inputs}, H, W) per sample; received {shape}")
        grow = 2 * self.padding - self.kernel + 1
        out = (self.outputs, shape[1] + grow, shape[2] + grow)
        if min(out) < 1:
            raise UserError(f"Conv2d with kernel {self.kernel} does not fit into {shape}")
        return out


@dataclass(frozen=True)
class MaxPool2d:
    """Maximum over k×k windows with stride k; a remainder at the border is dropped."""

    kernel: int

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) != 3 or min(shape[1:]) < self.kernel:
            raise UserError(f"MaxPool2d({self.kernel}) does not fit into {shape}")
        return (shape[0], shape[1] // self.kernel, shape[2] // self.kernel)


@dataclass(frozen=True)
class ReLU:
    """max(x, 0), with derivative 0 at 0."""

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape


@dataclass(frozen=True)
class Tanh:
    """tanh(x)."""

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape


@dataclass(frozen=True)
class Flatten:
    """(B, …) → (B, product)."""

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        size = 1
        for length in shape:
            size *= length
        return (size,)


Layer = Linear | Conv2d | MaxPool2d | ReLU | Tanh | Flatten
LAYERS: dict[str, type[Layer]] = {
    cls.__name__: cls for cls in (Linear, Conv2d, MaxPool2d, ReLU, Tanh, Flatten)
}
LOSSES = ("cross_entropy", "mse")


@dataclass(frozen=True)
class ModelSpec:
    """Named layers applied one after the other.

    Args:
        name: the model's name in the zoo.
        input_shape: one sample, without the batch axis: (1, 28, 28).
        layers: (name, layer) in order; parameters are called ``<name>.weight``, ``<name>.bias``.

    Raises:
        UserError: a layer that does not fit its predecessor, or a repeated name.
    """

    name: str
    input_shape: tuple[int, ...]
    layers: tuple[tuple[str, Layer], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.layers]
        if len(set(names)) != len(names):
            raise UserError(f"model {self.name!r}: layer names repeat: {names}")
        self.shapes()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Layer name → output shape per sample."""
        shape, out = self.input_shape, {}
        for name, layer in self.layers:
            try:
                shape = layer.output_shape(shape)
            except UserError as error:
                raise UserError(f"model {self.name!r}, layer {name!r}: {error}") from None
            out[name] = shape
        return out

    def nbytes(self, width: int = 4) -> int:
        """Bytes of all parameters, of elements of ``width`` bytes."""
        return width * sum(math.prod(shape) for shape in self.parameters().values())

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Canonical parameter name → shape, in layer order."""
        return {
            f"{name}.{leaf}": shape
            for name, layer in self.layers
            if isinstance(layer, Linear | Conv2d)
            for leaf, shape in layer.parameters().items()
        }

    def describe(self) -> dict[str, Any]:
        """JSON form; `ModelSpec.restore` reads it back."""
        return {
            "name": self.name,
            "input_shape": list(self.input_shape),
            "layers": [
                {"name": name, "type": type(layer).__name__, **asdict(layer)}
                for name, layer in self.layers
            ],
        }

    @classmethod
    def restore(cls, text: dict[str, Any]) -> ModelSpec:
        layers = []
        for entry in text["layers"]:
            fields = {k: v for k, v in entry.items() if k not in ("name", "type")}
            layers.append((entry["name"], LAYERS[entry["type"]](**fields)))
        return cls(text["name"], tuple(text["input_shape"]), tuple(layers))
