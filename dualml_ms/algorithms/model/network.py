"""Layer specs as `nn.Cell`s whose parameters carry the canonical names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mindspore as ms
from mindspore import nn, ops
from numpy.typing import NDArray

from dualml.algorithms.model.base import DtypePolicy, Layer
from dualml.algorithms.model.layers import PADDING, Branch, Dropout, Merge, Swap
from dualml.algorithms.model.recompute import Groups, LayerSpan, layer_spans
from dualml.algorithms.model.spec import (
    ModelSpec,
    buffer_shapes,
    canonical_parameter_names,
    parameter_shapes,
)
from dualml.algorithms.model.streams import carries_state
from dualml.algorithms.precision import Stack, layer_precisions
from dualml_ms.algorithms.model.layers import make_layer, make_low_precision_layer
from dualml_ms.algorithms.model.modules import LowPrecisionCast

#: Kinds of layers: all but `CELL` are implemented by `ModelPart` itself.
CELL, BRANCH, MERGE, DROPOUT, CARRY, SWAP = range(6)
KINDS: dict[type[Layer], int] = {Branch: BRANCH, Merge: MERGE, Dropout: DROPOUT, Swap: SWAP}


def attribute_name(name: str) -> str:
    """Return the attribute name of a layer's cell in its `ModelPart`: MindSpore's have no dots."""
    return name.replace(".", "_")


def layer_kind(layer: Layer) -> int:
    """Return the kind of a layer: `BRANCH`, `MERGE`, `SWAP` or `DROPOUT`, which `ModelPart`
    computes itself; `CARRY`, a stateful cell; or `CELL`, any other."""
    return CARRY if carries_state(layer) else KINDS.get(type(layer), CELL)


class ModelPart(nn.Cell):
    """Consecutive layers of a model; parameters are named ``conv1.weight``, ``fc1.bias``, …

    The layers work on a stack of tensors: its top, the last one, is what a layer transforms;
    `Branch` pushes a copy of it, which `Merge` later adds to the top and removes; `Swap` exchanges
    the top two.

    Args:
        depth: number of values on the stack before the layers.
        dropouts: number of masks and states that are passed after the values, one for each Dropout
            and each stateful layer, in order; 0, or if they are omitted: Dropout is the identity
            and states are zeros.
        precision: type of the products (`dualml.algorithms.precision`); parameters are always
            float32.
        before: for each value on the stack before the layers whether it is in low precision.
        others: canonical name → parameter, of previous parts, with which it may share some.

    Attributes:
        computes_padding_mask: whether the inputs are tokens with padding that layers must mask.

    Example:
        >>> from dualml.algorithms.model import model
        >>> part = ModelPart(model("vit").layers[4:9], depth=2)  # from the first branch to its end
        >>> x = ms.ops.zeros((2, 28, 64))
        >>> [y.shape for y in part(x, x)]
        [(2, 28, 64)]
    """

    def __init__(
        self,
        layers: Sequence[tuple[str, Layer]],
        depth: int = 1,
        dropouts: int = 0,
        precision: str = "fp32",
        before: Stack = (False,),
        others: Mapping[str, ms.Parameter] | None = None,
    ) -> None:
        super().__init__()
        self.layers, self.depth, self.dropouts = tuple(layers), depth, dropouts
        self.computes_padding_mask = False
        self.kinds = tuple(layer_kind(layer) for _, layer in layers)
        self.padded = tuple(layer.needs_padding_mask for _, layer in layers)
        self.has_statistics = tuple(bool(layer.buffers()) for _, layer in layers)
        self.low_cast = LowPrecisionCast(precision) if precision != "fp32" else None
        around = self.precisions = layer_precisions(layers, before) if self.low_cast else []
        self.after = tuple(held.after for held in around)
        self.casts = tuple(layer.dtype_policy is DtypePolicy.PRODUCT for _, layer in layers)
        self.widens = tuple(
            layer.dtype_policy is DtypePolicy.SINGLE and held.before
            for (_, layer), held in zip(layers, around, strict=False)
        )
        for (name, layer), kind in zip(layers, self.kinds, strict=True):
            if kind not in (CELL, CARRY):
                cell = nn.Identity()
            elif self.low_cast is not None:
                cell = make_low_precision_layer(layer, self.low_cast)
            else:
                cell = make_layer(layer)
            setattr(self, attribute_name(name), cell)
            if "." in name:
                for parameter in cell.get_parameters():
                    parameter.name = f"{name}.{parameter.name.rpartition('.')[2]}"
        self.share_parameters(dict(others or {}))
        # A CellList would rename the parameters; the attributes above keep the canonical names.
        self.order = [getattr(self, attribute_name(name)) for name, _ in layers]
        self.blocks: list[LayerBlock] = []

    def set_recompute(self, groups: Groups) -> None:
        """Set the layers whose activations are computed again in the backward pass instead of
        saved, in place of any set before: groups of consecutive layers' names."""
        self.blocks = [LayerBlock(self, some) for some in layer_spans(self.layers, groups)]

    def share_parameters(self, known: dict[str, ms.Parameter]) -> None:
        """Let layers that share a parameter with another layer use its tensor, under the name of
        the layer that owns it. ``known``, name → parameter, has those of earlier parts and is
        extended."""
        for name, layer in self.layers:
            for leaf, full in canonical_parameter_names(name, layer).items():
                if layer.parameter_owner(name, leaf) == name:
                    continue
                known |= {p.name: p for p in self.trainable_params()}
                cell = getattr(self, attribute_name(name))
                if full in known:
                    setattr(cell, leaf, known[full])
                else:
                    getattr(cell, leaf).name = full

    def construct(self, *arguments):
        """Return the stack after the layers, a tuple with the top last. Arguments: the values of
        the stack before them, one by one, then the Dropout masks and initial states in layer order,
        if any."""
        masks = arguments[self.depth : self.depth + self.dropouts]
        return self.run_blocks(arguments[: self.depth], masks, self.padding_mask(arguments[0]))

    def padding_mask(self, x):
        """Return the boolean mask (B, T) of positions of ``x`` (B, T) that hold a token; None if no
        layer needs it."""
        return x != PADDING if self.computes_padding_mask else None

    def run_blocks(self, values, masks, here=None):
        """Return the stack (see `ModelPart`) after the layers, a tuple, from that before them,
        ``values``; layers chosen by `set_recompute` are recomputed in the backward pass.

        Args:
            masks: Dropout masks and initial states, in layer order; may be empty.
            here: which positions hold a token, (B, T), for layers that need a padding mask.
        """
        if len(self.blocks) == 0:
            return self.walk(values, masks, here, self.training)[-1]
        for i in range(len(self.blocks)):
            block = self.blocks[i]
            below = len(values) - block.depth
            own = masks[block.first_mask : block.first_mask + block.dropouts]
            more = (here,) if block.takes_padding_mask else ()
            values = (*values[:below], *block(*values[below:], *own, *more))
        return values

    def walk(self, values, masks, here=None, learning=True):
        """Return the stacks (see `ModelPart`) before the first layer and after each layer, a tuple
        of tuples: one more than layers.

        Args:
            values: the stack before the first layer.
            masks: Dropout masks and initial states, in layer order; may be empty.
            here: which positions hold a token, (B, T), for layers that need a padding mask.
            learning: whether batch normalization uses the batch's statistics, and updates the
                running ones.
        """
        stacks, _ = self.walk_with_states(values, masks, here, learning)
        return stacks

    def walk_with_states(self, values, masks, here=None, learning=True):
        """Return two tuples: the stacks as `walk` returns them for the same arguments, and the
        final states of the stateful layers in order, empty if ``masks``, with their initial states,
        is empty."""
        kept, x, used = values[:-1], values[-1], 0
        stacks, states = (values,), ()
        for i in range(len(self.order)):
            if self.low_cast is not None and self.casts[i]:
                x = self.low_cast(x)
            elif self.low_cast is not None and self.widens[i]:
                x = x.astype(ms.float32)
            if self.kinds[i] == BRANCH:
                kept += (x,)
            elif self.kinds[i] == SWAP:
                kept, x = (*kept[:-1], x), kept[-1]
            elif self.has_statistics[i]:
                x = self.order[i](x, learning)
            elif self.kinds[i] == MERGE:
                x = kept[-1] + x
                kept = kept[:-1]
            elif self.kinds[i] == DROPOUT:
                if len(masks) > 0:
                    mask = masks[used]
                    x = x * (self.low_cast(mask) if self.after and self.after[i] else mask)
                    used += 1
            elif self.kinds[i] == CARRY and len(masks) > 0:
                x, state = self.order[i](x, masks[used])
                states += (state,)
                used += 1
            elif self.padded[i]:
                x = self.order[i](x, here)
            else:
                x = self.order[i](x)
            if self.low_cast is not None and self.after[i]:
                x = self.low_cast(x)
            stacks += ((*kept, x),)
        return stacks, states

    def canonical(self) -> dict[str, ms.Parameter]:
        """Return the parameters by canonical name, in the order of the layers."""
        own = {parameter.name: parameter for parameter in self.trainable_params()}
        return {name: own[name] for name in parameter_shapes(self.layers)}

    def statistics(self) -> dict[str, ms.Parameter]:
        """Return the running statistics of batch normalization by canonical name, in the order of
        the layers; empty if there are none."""
        own = {parameter.name: parameter for parameter in self.untrainable_params()}
        return {name: own[name] for name in buffer_shapes(self.layers)}

    def load(self, weights: Mapping[str, NDArray]) -> None:
        """Copy ``weights``, canonical name → array, into all parameters and running statistics of
        these layers; others are ignored. Raise KeyError for a missing one."""
        for name, parameter in (self.canonical() | self.statistics()).items():
            parameter.set_data(ms.Tensor(weights[name], parameter.dtype))


class Network(ModelPart):
    """A whole model: the layers of ``spec`` in sequence.

    Example:
        >>> from dualml.algorithms.model import model
        >>> Network(model("softmax"))(ms.ops.zeros((2, 1, 28, 28))).shape
        (2, 10)
    """

    def __init__(self, spec: ModelSpec, precision: str = "fp32", recompute: Groups = ()) -> None:
        super().__init__(spec.layers, precision=precision)
        self.spec, self.computes_padding_mask = spec, spec.needs_padding_mask
        self.set_recompute(recompute)

    def construct(self, x, *masks):
        """Return the float32 logits of samples ``x``. While training, ``masks`` are those of the
        Dropout layers and initial states of stateful layers, in layer order."""
        return self.run_blocks((x,), masks, self.padding_mask(x))[-1].astype(ms.float32)

    def forward_with_states(self, x, *masks):
        """Return float32 logits, and the final states of stateful layers; ``masks`` are those of
        Dropout layers and the initial states, in layer order."""
        stacks, states = self.walk_with_states((x,), masks, self.padding_mask(x))
        return stacks[-1][-1].astype(ms.float32), states


class LayerBlock(ModelPart):
    """A span of consecutive layers of a `ModelPart`, with the part's own cells: takes the stack
    values that go into them, their masks, and a padding mask if one of them needs it.

    If the span is recomputed, MindSpore's compiler inserts its operators a second time in the
    backward pass.
    """

    def __init__(self, part: ModelPart, some: LayerSpan) -> None:
        nn.Cell.__init__(self, auto_prefix=False)  # the parameters have their names
        own = some.layers
        self.layers, self.depth, self.takes_padding_mask = (
            part.layers[own],
            some.input_count,
            some.needs_padding_mask,
        )
        self.kinds, self.padded, self.order = part.kinds[own], part.padded[own], part.order[own]
        self.has_statistics = part.has_statistics[own]
        self.low_cast, self.after = part.low_cast, part.after[own]
        self.casts, self.widens = part.casts[own], part.widens[own]
        self.first_mask, self.dropouts = some.masks.start, some.masks.stop - some.masks.start
        for (name, _), cell in zip(self.layers, self.order, strict=True):
            setattr(self, attribute_name(name), cell)
        if some.recomputed:
            self.recompute()

    def construct(self, *arguments):
        """Return the stack after the layers, a tuple. Arguments: the stack before them, their
        masks, and the padding mask (B, T) if one of them needs it."""
        here = arguments[-1] if self.takes_padding_mask else None
        masks = arguments[self.depth : self.depth + self.dropouts]
        return self.walk(arguments[: self.depth], masks, here)[-1]


class LayerOutputs(nn.Cell):
    """A cell that returns loss and predicted class of every sample, then the outputs of every layer
    in order, of a ``network`` with the cell ``loss``."""

    def __init__(self, network: Network, loss: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.loss = network, loss

    def construct(self, x, y):
        """Return a flat tuple for samples ``x`` and labels ``y`` in evaluation mode: the sample
        losses, the predicted classes, then the output of every layer, in float32 if the network is
        in low precision."""
        after = self.network.walk((x,), (), self.network.padding_mask(x), False)
        logits = after[-1][-1].astype(ms.float32)
        outputs = (self.loss.sample_losses(logits, y), ops.argmax(logits, -1))
        for values in after[1:]:
            outputs += (values[-1].astype(ms.float32) if self.network.low_cast else values[-1],)
        return outputs
