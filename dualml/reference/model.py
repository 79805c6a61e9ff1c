"""Layer specs executed by NumPy in float64: forward, and backward by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualml.model.base import Layer
from dualml.model.layers import PADDING, Branch, Dropout, Merge
from dualml.model.spec import ModelSpec
from dualml.reference.layers import GRADIENTS, PAIRS
from dualml.reference.losses import LOSSES
from dualml.reference.types import HERE, Array, Params, copies

Values = tuple[Array, ...]


class Entry(NamedTuple):
    """What a layer left on the tape: its output is the top of the stack after it."""

    name: str
    layer: Layer
    output: Array
    cache: Any


Tape = list[Entry]


def forward(
    layers: Sequence[tuple[str, Layer]],
    params: Params,
    values: Sequence[NDArray[Any]],
    masks: Sequence[NDArray[Any]] = (),
    here: NDArray[Any] | None = None,
) -> tuple[Values, Tape]:
    """The stack after any consecutive layers of a model, and the tape for `backward`.

    Args:
        params: canonical name → array; others than those of these layers may be among them.
        values: the stack before them, the top last; each (B, …).
        masks: of the Dropout layers, in order; without them Dropout is the identity.
        here: which positions hold a token, (B, T), for layers that are `padded`.
    """
    *kept, x = values
    tape: Tape = []
    waiting = iter(masks)
    for name, layer in layers:
        cache: Any = None
        if isinstance(layer, Branch):
            kept.append(x)
        elif isinstance(layer, Merge):
            x = kept.pop() + x
        elif isinstance(layer, Dropout):
            cache = next(waiting) if masks else 1.0
            x = x * cache
        else:
            given = own(name, layer, params)
            if layer.padded:
                assert here is not None, f"{name} has to know which positions hold a token"
                given[HERE] = here
            x, cache = PAIRS[type(layer)][0](layer, x, given)
        tape.append(Entry(name, layer, x, cache))
    return (*kept, x), tape


def backward(tape: Tape, params: Params, gradients: Sequence[Array]) -> tuple[Values, Params]:
    """From the loss's gradients with respect to the stack after the layers of `forward`: those
    with respect to the stack before them, and canonical name → gradient of every parameter."""
    *kept, flow = gradients
    gradients_of: Params = {}
    for name, layer, _, cache in reversed(tape):
        if isinstance(layer, Branch):
            flow = flow + kept.pop()
        elif isinstance(layer, Merge):
            kept.append(flow)
        elif isinstance(layer, Dropout):
            flow = flow * cache
        else:
            flow, grads = PAIRS[type(layer)][1](layer, flow, cache, own(name, layer, params))
            gradients_of |= {f"{name}.{leaf}": g for leaf, g in grads.items()}
    return (*kept, flow), gradients_of


def gradients_alone(tape: Tape, params: Params, gradients: Sequence[Array]) -> Params:
    """Of `backward` the gradients of the parameters: what flows out of the first layer that has
    some, and through those before it, is not computed."""
    at = next((i for i, entry in enumerate(tape) if entry.layer.parameters()), len(tape))
    if at == len(tape) or type(tape[at].layer) not in GRADIENTS:
        return backward(tape[at:], params, gradients)[1]
    name, layer, _, cache = tape[at]
    (*_, flow), inner = backward(tape[at + 1 :], params, gradients)
    grads = GRADIENTS[type(layer)](layer, flow, cache)
    return inner | {f"{name}.{leaf}": g for leaf, g in grads.items()}


def own(name: str, layer: Layer, params: Params) -> Params:
    """The layer's parameters by the last part of their names."""
    return {leaf: params[f"{name}.{leaf}"] for leaf in layer.parameters()}


def present(spec: ModelSpec, x: NDArray[Any]) -> Any:
    """Which positions of tokens (B, T) hold one; None where no layer asks."""
    return x != PADDING if spec.padded else None


class Model:
    """The referee's model.

    Args:
        spec: layers in sequence.
        weights: canonical name → array of any float type; kept as float64.
    """

    def __init__(self, spec: ModelSpec, weights: Mapping[str, NDArray[Any]]) -> None:
        self.spec = spec
        self.weights: Params = copies(weights)

    def inputs(self, x: NDArray[Any]) -> NDArray[Any]:
        """Samples as the first layer takes them."""
        return np.asarray(x, np.int64 if self.spec.tokens else np.float64)

    def forward(self, x: NDArray[Any], masks: Sequence[NDArray[Any]] = ()) -> tuple[Array, Tape]:
        """Logits, and the tape that they leave.

        Args:
            masks: of the Dropout layers, in order; without them Dropout is the identity.
        """
        x = self.inputs(x)
        here = present(self.spec, x)
        (logits,), tape = forward(self.spec.layers, self.weights, (x,), masks, here)
        return logits, tape

    def loss_and_gradients(
        self, x: NDArray[Any], y: NDArray[Any], loss: str, masks: Sequence[NDArray[Any]] = ()
    ) -> tuple[float, Params]:
        """Mean loss over (B, …) samples with labels (B,) or, for sequences, (B, T), and the
        gradient of every parameter."""
        logits, tape = self.forward(x, masks)
        value, flow = LOSSES[loss](logits, y)
        grads = gradients_alone(tape, self.weights, (flow,))
        return value, {name: grads[name] for name in self.weights}
