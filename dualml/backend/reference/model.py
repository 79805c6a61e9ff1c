"""The reference's model: layer specifications executed by NumPy in float64, with a backward pass
written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.model.base import DtypePolicy, Layer
from dualml.algorithms.model.layers import PADDING, Branch, Dropout, Merge, Swap
from dualml.algorithms.model.recompute import Groups, LayerSpan, layer_spans
from dualml.algorithms.model.spec import ModelSpec, canonical_parameter_names
from dualml.algorithms.model.streams import carries_state
from dualml.algorithms.precision import (
    FULL,
    LayerPrecision,
    Precision,
    Stack,
    layer_precisions,
    propagate_precision,
)
from dualml.algorithms.precision import round_to_type as rounded_to
from dualml.backend.reference.layers import GRADIENTS, PAIRS
from dualml.backend.reference.losses import LOSSES
from dualml.backend.reference.types import (
    LEARNING,
    STATE,
    TOKEN_MASK,
    Array,
    Params,
    float64_copies,
)
from dualml.common.errors import UserError

Values = tuple[Array, ...]
Rounding = Callable[[NDArray[Any]], Array]


class TapeEntry(NamedTuple):
    """Record that a layer leaves on the tape.

    Attributes:
        output: top of the stack after the layer.
        cache: what its backward pass needs.
        lower: rounds a value to the low-precision type; None in full precision.
        held: which values around the layer are in low precision.
    """

    name: str
    layer: Layer
    output: Array
    cache: Any
    lower: Rounding | None = None
    held: LayerPrecision = LayerPrecision(False, False)


class ForwardContext(NamedTuple):
    """Everything that a forward pass depends on, besides the layers' parameters and inputs.

    Attributes:
        masks: masks of the Dropout layers and, among them, initial states of stateful layers, in
            layer order; without them Dropout is the identity, and states are zeros.
        token_mask: mask of the positions that hold a token, (B, T), for layers that need it.
        lower: rounds to the type of `dualml.algorithms.precision`; None in full precision.
        before: which of the input values are in low precision.
    """

    masks: Sequence[NDArray[Any]] = ()
    token_mask: NDArray[Any] | None = None
    lower: Rounding | None = None
    before: Stack = (False,)


#: Context of a forward pass in full precision, without dropout, states and padding.
PLAIN = ForwardContext()


class RecomputedSpan(NamedTuple):
    """Record that recomputed layers leave on the tape: their inputs.

    Attributes:
        values, context: as `forward` takes them.
        output_count: number of stack values that they return.
    """

    layers: Sequence[tuple[str, Layer]]
    values: Values
    context: ForwardContext
    output_count: int

    def tape(self, params: Params) -> Tape:
        """Recompute the layers and return the tape that they would have left."""
        return forward(self.layers, params, self.values, self.context)[1]


Tape = list["TapeEntry | RecomputedSpan"]


def forward(
    layers: Sequence[tuple[str, Layer]],
    params: Params,
    values: Sequence[NDArray[Any]],
    context: ForwardContext = PLAIN,
    spans: Sequence[LayerSpan] = (),
    learning: bool = False,
) -> tuple[Values, Tape]:
    """Return the stack after some consecutive layers of a model, and the tape for `backward`.

    Args:
        params: canonical name → array, of parameters and buffers; other layers' may be included.
        values: the stack before the layers, the top last; each (B, …).
        context: masks, and the precision of the computation and of ``values``.
        spans: all layers as spans, if some are recomputed; else empty.
        learning: whether batch normalisation uses the batch's statistics, and moves the running
            ones in ``params``; ignored, as if False, with ``spans``.
    """
    if spans:
        return forward_spans(layers, params, values, context, spans)
    masks, token_mask, lower, before = context
    *kept, x = values
    tape: Tape = []
    waiting = iter(masks)
    around = (
        layer_precisions(layers, before) if lower else [LayerPrecision(False, False)] * len(layers)
    )
    for (name, layer), held in zip(layers, around, strict=True):
        cache: Any = None
        product = lower if layer.dtype_policy is DtypePolicy.PRODUCT else None
        if isinstance(layer, Branch):
            kept.append(x)
        elif isinstance(layer, Merge):
            x = kept.pop() + x
        elif isinstance(layer, Swap):
            kept[-1], x = x, kept[-1]
        elif isinstance(layer, Dropout):
            cache = next(waiting) if masks else 1.0
            cache = lower(cache) if lower and held.before else cache
            x = x * cache
        else:
            given = layer_params(name, layer, params)
            if product:
                x, given = product(x), {leaf: product(w) for leaf, w in given.items()}
            if masks and carries_state(layer):
                given[STATE] = next(waiting)
            if layer.needs_padding_mask:
                assert token_mask is not None, f"{name} has to know which positions hold a token"
                given[TOKEN_MASK] = token_mask
            if layer.buffers():
                given |= {leaf: params[f"{name}.{leaf}"] for leaf in layer.buffers()}
                given[LEARNING] = np.array(learning)
            x, cache = PAIRS[type(layer)][0](layer, x, given)
        if lower and held.after:
            whole, x = x, lower(x)
            cache = x if cache is whole else cache  # of the output it keeps what it gives out
        tape.append(TapeEntry(name, layer, x, cache, lower, held))
    return (*kept, x), tape


def forward_spans(
    layers: Sequence[tuple[str, Layer]],
    params: Params,
    values: Sequence[NDArray[Any]],
    context: ForwardContext,
    spans: Sequence[LayerSpan],
) -> tuple[Values, Tape]:
    """Run `forward` on one span of layers after another; recomputed spans leave only their inputs
    on the tape. Arguments and results as for `forward`."""
    stack, whole, before = tuple(values), Tape(), context.before
    for some in spans:
        own, below = layers[some.layers], stack[: -some.input_count]
        given = stack[-some.input_count :]
        inner = ForwardContext(
            context.masks[some.masks],
            context.token_mask if some.needs_padding_mask else None,
            context.lower,
            before[-some.input_count :],
        )
        after, tape = forward(own, params, given, inner)
        if some.recomputed:
            tape = [RecomputedSpan(own, given, inner, len(after))]
        stack, whole = (*below, *after), whole + tape
        for _, layer in own:
            before = propagate_precision(layer, before)
    return stack, whole


def backward(tape: Tape, params: Params, gradients: Sequence[Array]) -> tuple[Values, Params]:
    """Backpropagate the loss's gradients with respect to the stack after the layers of `forward`.
    Return those with respect to the stack before them, and canonical name → gradient of every
    parameter."""
    *kept, flow = gradients
    gradients_of: Params = {}
    for entry in reversed(tape):
        if isinstance(entry, RecomputedSpan):
            stack = (*kept, flow)
            (*inner, flow), grads = backward(
                entry.tape(params), params, stack[-entry.output_count :]
            )
            kept = [*stack[: -entry.output_count], *inner]
            accumulate_gradients(gradients_of, grads)
            continue
        name, layer, _, cache, lower, held = entry
        flow = lower(flow) if lower and held.after else flow
        if isinstance(layer, Branch):
            flow = flow + kept.pop()
        elif isinstance(layer, Merge):
            kept.append(lower(flow) if lower and held.branch else flow)
        elif isinstance(layer, Swap):
            kept[-1], flow = flow, kept[-1]
        elif isinstance(layer, Dropout):
            flow = flow * cache
        else:
            product = layer.dtype_policy is DtypePolicy.PRODUCT
            given = layer_params(name, layer, params)
            if lower and product:
                given = {leaf: lower(w) for leaf, w in given.items()}
            flow, grads = PAIRS[type(layer)][1](layer, flow, cache, given)
            if lower and product:  # what comes back through its casts has been of the type
                flow, grads = lower(flow), {leaf: lower(g) for leaf, g in grads.items()}
            add_layer_gradients(gradients_of, name, layer, grads)
        flow = lower(flow) if lower and held.before else flow
    return (*kept, flow), gradients_of


def parameter_gradients(tape: Tape, params: Params, gradients: Sequence[Array]) -> Params:
    """Return only the parameters' gradients of `backward`. The pass stops at the first layer with
    parameters; the gradient of its input is not computed if `GRADIENTS` has that layer."""
    at = next((i for i, entry in enumerate(tape) if has_parameters(entry)), len(tape))
    if at == len(tape):
        return {}
    entry = tape[at]
    if isinstance(entry, RecomputedSpan):
        stack, inner = backward(tape[at + 1 :], params, gradients)
        accumulate_gradients(
            inner, parameter_gradients(entry.tape(params), params, stack[-entry.output_count :])
        )
        return inner
    if type(entry.layer) not in GRADIENTS:
        return backward(tape[at:], params, gradients)[1]
    name, layer, _, cache, lower, held = entry
    (*_, flow), inner = backward(tape[at + 1 :], params, gradients)
    flow = lower(flow) if lower and held.after else flow
    grads = GRADIENTS[type(layer)](layer, flow, cache)
    if lower and layer.dtype_policy is DtypePolicy.PRODUCT:
        grads = {leaf: lower(g) for leaf, g in grads.items()}
    add_layer_gradients(inner, name, layer, grads)
    return inner


def final_states(tape: Tape) -> Params:
    """Return name of each stateful layer on the tape → its state after the last position, (B, S,
    H); layers that are recomputed are left out."""
    entries = [
        entry for entry in tape if isinstance(entry, TapeEntry) and carries_state(entry.layer)
    ]
    return {entry.name: np.stack(entry.cache[-1], axis=1) for entry in entries}


def accumulate_gradients(total: Params, more: Params) -> None:
    """Add the gradients ``more`` to ``total`` in place, name by name; a new name is inserted."""
    for name, gradient in more.items():
        total[name] = total[name] + gradient if name in total else gradient


def has_parameters(entry: TapeEntry | RecomputedSpan) -> bool:
    """Return whether a tape entry's layers have parameters."""
    layers = (
        [layer for _, layer in entry.layers] if isinstance(entry, RecomputedSpan) else [entry.layer]
    )
    return any(layer.parameters() for layer in layers)


def make_rounding(
    precision: Precision,
) -> tuple[Rounding | None, Callable[[], AbstractContextManager[Any]]]:
    """Return the function that rounds a value to the low-precision type (None in full precision),
    and a function that makes the context manager for a computation. The latter silences overflow in
    low precision, which shows in the loss, or is detected in the gradients by a `Scaler`."""
    lower = partial(rounded_to, precision=precision.type)
    quiet: Literal["ignore", "warn"] = "ignore" if precision.is_low else "warn"
    return lower if precision.is_low else None, partial(np.errstate, over=quiet, invalid=quiet)


def layer_params(name: str, layer: Layer, params: Params) -> Params:
    """Return a layer's parameters as last part of the name (``weight``) → array from ``params``,
    which has canonical names; ``name`` is the layer's."""
    return {leaf: params[full] for leaf, full in canonical_parameter_names(name, layer).items()}


def add_layer_gradients(total: Params, name: str, layer: Layer, grads: Params) -> None:
    """Add a layer's gradients ``grads``, by last part of the name (``weight``), to ``total`` in
    place under their canonical names; a parameter may belong to several layers."""
    for leaf, full in canonical_parameter_names(name, layer).items():
        total[full] = total[full] + grads[leaf] if full in total else grads[leaf]


def token_mask(spec: ModelSpec, x: NDArray[Any]) -> Any:
    """Return which positions of the tokens ``x`` (B, T) hold a token, not padding, as booleans (B,
    T); None if no layer of the model needs it."""
    return x != PADDING if spec.needs_padding_mask else None


class Model:
    """The reference's model, with float64 parameters.

    Args:
        spec: layers in sequence.
        weights: canonical name → array of any float type; stored as float64.
        precision: values are rounded to its type where `dualml.algorithms.precision` says so.
        recompute: groups of layers that are recomputed (`dualml.algorithms.model.recompute`).

    Raises:
        UserError: layers with running statistics, which a second forward pass would move again,
            and ``recompute``.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: Mapping[str, NDArray[Any]],
        precision: Precision = FULL,
        recompute: Groups = (),
    ) -> None:
        self.spec, self.spans = spec, layer_spans(spec.layers, recompute)
        if self.spans and spec.buffers:
            raise UserError(
                f"model {spec.name!r} has running statistics, which recomputation does not keep: "
                "leave out recompute"
            )
        self.weights: Params = float64_copies({name: weights[name] for name in spec.parameters()})
        self.buffers: Params = float64_copies({name: weights[name] for name in spec.buffers})
        #: Final states of stateful layers after the last batch.
        self.final_states: Params = {}
        self.lower, self.overflowing = make_rounding(precision)

    def inputs(self, x: NDArray[Any]) -> NDArray[Any]:
        """Convert samples to the type that the first layer takes."""
        return np.asarray(x, np.int64 if self.spec.takes_tokens else np.float64)

    def forward(
        self,
        x: NDArray[Any],
        masks: Sequence[NDArray[Any]] = (),
        spans: Sequence[LayerSpan] = (),
        learning: bool = False,
    ) -> tuple[Array, Tape]:
        """Return the logits, and the tape that their computation leaves.

        Args:
            masks: masks of the Dropout layers and initial states of stateful layers, in layer
                order; without them Dropout is the identity, and states are zeros.
            spans: all layers as spans, if some are recomputed; else empty.
            learning: whether batch normalisation uses the batch's statistics and moves the running
                ones; ignored, as if False, with ``spans``.
        """
        x, layers = self.inputs(x), self.spec.layers
        context = ForwardContext(masks, token_mask(self.spec, x), self.lower)
        arrays = {**self.weights, **self.buffers}
        with self.overflowing():
            (logits,), tape = forward(layers, arrays, (x,), context, spans, learning)
        return logits, tape

    def loss_and_gradients(
        self,
        x: NDArray[Any],
        y: NDArray[Any],
        loss: str,
        masks: Sequence[NDArray[Any]] = (),
        scale: float = 1.0,
    ) -> tuple[float, Params]:
        """Return the mean loss over (B, …) samples with labels (B,) or, for sequences, (B, T), and
        the gradient of ``scale`` times the loss for every parameter. Running statistics
        move, and `final_states` is set. Batch normalisation excludes recomputation."""
        logits, tape = self.forward(x, masks, self.spans, learning=True)
        self.final_states = final_states(tape)
        with self.overflowing():
            value, flow = LOSSES[loss](logits, y)
            grads = parameter_gradients(tape, self.weights, (flow * scale,))
        return value, {name: grads[name] for name in self.weights}
