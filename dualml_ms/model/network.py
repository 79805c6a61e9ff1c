"""Layer specs as `nn.Cell`s whose parameters carry the canonical names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mindspore as ms
from mindspore import nn, ops
from numpy.typing import NDArray

from dualml.model.base import Layer, Way
from dualml.model.layers import PADDING, Branch, Dropout, Merge, Swap
from dualml.model.recompute import Groups, Stretch, stretches
from dualml.model.spec import ModelSpec, buffers, canonical, parameters
from dualml.model.streams import carries
from dualml.precision import Stack, holding
from dualml_ms.model.layers import realise, realise_lower
from dualml_ms.model.modules import Lower

#: Kinds of layers: all but `CELL` are implemented by `ModelPart` itself.
CELL, BRANCH, MERGE, DROPOUT, CARRY, SWAP = range(6)
KINDS: dict[type[Layer], int] = {Branch: BRANCH, Merge: MERGE, Dropout: DROPOUT, Swap: SWAP}


def attribute(name: str) -> str:
    """Return the attribute name of a layer's cell in its `ModelPart`: MindSpore's have no dots."""
    return name.replace(".", "_")


def kind_of(layer: Layer) -> int:
    """Return the kind of a layer: a cell, a stateful cell (`CARRY`), or a stack operation."""
    return CARRY if carries(layer) else KINDS.get(type(layer), CELL)


class Part(nn.Cell):
    """Consecutive layers of a model; parameters are named ``conv1.weight``, ``fc1.bias``, …

    Args:
        depth: number of values on the stack before the layers.
        dropouts: number of masks and states that are passed after the values, one for each Dropout
            and each stateful layer, in order; 0, or if they are omitted: Dropout is the identity
            and states are zeros.
        precision: type of the products (`dualml.precision`); parameters are always float32.
        before: which of the values before the layers are in low precision.
        others: canonical name → parameter, of previous parts, with which it may share some.

    Attributes:
        computes_padding_mask: whether the inputs are tokens with padding that layers must mask.

    Example:
        >>> from dualml.model import model
        >>> part = Part(model("vit").layers[4:9], depth=2)  # from the first branch to its end
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
        self.seeks = False
        self.kinds = tuple(kind_of(layer) for _, layer in layers)
        self.padded = tuple(layer.padded for _, layer in layers)
        self.running = tuple(bool(layer.buffers()) for _, layer in layers)
        self.lower = Lower(precision) if precision != "fp32" else None
        around = self.around = holding(layers, before) if self.lower else []
        self.after = tuple(held.after for held in around)
        self.casts = tuple(layer.way is Way.PRODUCT for _, layer in layers)
        self.widens = tuple(
            layer.way is Way.SINGLE and held.before
            for (_, layer), held in zip(layers, around, strict=False)
        )
        for (name, layer), kind in zip(layers, self.kinds, strict=True):
            if kind not in (CELL, CARRY):
                cell = nn.Identity()
            elif self.lower is not None:
                cell = realise_lower(layer, self.lower)
            else:
                cell = realise(layer)
            setattr(self, attribute(name), cell)
            if "." in name:
                for parameter in cell.get_parameters():
                    parameter.name = f"{name}.{parameter.name.rpartition('.')[2]}"
        self.share(dict(others or {}))
        # A CellList would rename the parameters; the attributes above keep the canonical names.
        self.order = [getattr(self, attribute(name)) for name, _ in layers]
        self.blocks: list[Block] = []

    def compute_again(self, groups: Groups) -> None:
        """Set the layers that are recomputed in the backward pass, in place of any set before."""
        self.blocks = [Block(self, some) for some in stretches(self.layers, groups)]

    def share(self, known: dict[str, ms.Parameter]) -> None:
        """Share parameters between layers, under the name of the layer that owns them."""
        for name, layer in self.layers:
            for leaf, full in canonical(name, layer).items():
                if layer.holder(name, leaf) == name:
                    continue
                known |= {p.name: p for p in self.trainable_params()}
                cell = getattr(self, attribute(name))
                if full in known:
                    setattr(cell, leaf, known[full])
                else:
                    getattr(cell, leaf).name = full

    def construct(self, *arguments):
        """Return the stack after the layers, a tuple with the top last."""
        masks = arguments[self.depth : self.depth + self.dropouts]
        return self.through(arguments[: self.depth], masks, self.here(arguments[0]))

    def here(self, x):
        """Return which positions of tokens (B, T) hold a token; None if no layer needs it."""
        return x != PADDING if self.seeks else None

    def through(self, values, masks, here=None):
        """Return the stack after the layers, of which some may be recomputed."""
        if len(self.blocks) == 0:
            return self.walk(values, masks, here, self.training)[-1]
        for i in range(len(self.blocks)):
            block = self.blocks[i]
            below = len(values) - block.depth
            own = masks[block.begins : block.begins + block.dropouts]
            more = (here,) if block.asks else ()
            values = (*values[:below], *block(*values[below:], *own, *more))
        return values

    def walk(self, values, masks, here=None, learning=True):
        """Return the stack before the first layer and after each layer.

        Args:
            here: which positions hold a token, (B, T), for layers that need a padding mask.
            learning: whether batch normalization uses the batch's statistics, and updates the
                running ones.
        """
        stacks, _ = self.carried(values, masks, here, learning)
        return stacks

    def carried(self, values, masks, here=None, learning=True):
        """Return the stacks as `walk`, and the final states of stateful layers that were given
        initial ones."""
        kept, x, used = values[:-1], values[-1], 0
        stacks, states = (values,), ()
        for i in range(len(self.order)):
            if self.lower is not None and self.casts[i]:
                x = self.lower(x)
            elif self.lower is not None and self.widens[i]:
                x = x.astype(ms.float32)
            if self.kinds[i] == BRANCH:
                kept += (x,)
            elif self.kinds[i] == SWAP:
                kept, x = (*kept[:-1], x), kept[-1]
            elif self.running[i]:
                x = self.order[i](x, learning)
            elif self.kinds[i] == MERGE:
                x = kept[-1] + x
                kept = kept[:-1]
            elif self.kinds[i] == DROPOUT:
                if len(masks) > 0:
                    mask = masks[used]
                    x = x * (self.lower(mask) if self.after and self.after[i] else mask)
                    used += 1
            elif self.kinds[i] == CARRY and len(masks) > 0:
                x, state = self.order[i](x, masks[used])
                states += (state,)
                used += 1
            elif self.padded[i]:
                x = self.order[i](x, here)
            else:
                x = self.order[i](x)
            if self.lower is not None and self.after[i]:
                x = self.lower(x)
            stacks += ((*kept, x),)
        return stacks, states

    def canonical(self) -> dict[str, ms.Parameter]:
        """Return the parameters by canonical name, in the order of the layers."""
        own = {parameter.name: parameter for parameter in self.trainable_params()}
        return {name: own[name] for name in parameters(self.layers)}

    def statistics(self) -> dict[str, ms.Parameter]:
        """Return the running statistics by canonical name, in the order of the layers."""
        own = {parameter.name: parameter for parameter in self.untrainable_params()}
        return {name: own[name] for name in buffers(self.layers)}

    def load(self, weights: Mapping[str, NDArray]) -> None:
        """Copy canonical weights into the parameters and running statistics."""
        for name, parameter in (self.canonical() | self.statistics()).items():
            parameter.set_data(ms.Tensor(weights[name], parameter.dtype))


class Network(Part):
    """A whole model: the layers of ``spec`` in sequence.

    Example:
        >>> from dualml.model import model
        >>> Network(model("softmax"))(ms.ops.zeros((2, 1, 28, 28))).shape
        (2, 10)
    """

    def __init__(self, spec: ModelSpec, precision: str = "fp32", recompute: Groups = ()) -> None:
        super().__init__(spec.layers, precision=precision)
        self.spec, self.seeks = spec, spec.padded
        self.compute_again(recompute)

    def construct(self, x, *masks):
        """Return logits, in float32; ``masks`` of the Dropout layers, in order, while training."""
        return self.through((x,), masks, self.here(x))[-1].astype(ms.float32)

    def ending(self, x, *masks):
        """Return logits, and the final states of stateful layers."""
        stacks, states = self.carried((x,), masks, self.here(x))
        return stacks[-1][-1].astype(ms.float32), states


class Block(Part):
    """Consecutive layers of a part, with its cells: takes the values before them, their masks, and
    a padding mask if one of them needs it.

    If they are recomputed, MindSpore's compiler inserts their operators a second time in the
    backward pass.
    """

    def __init__(self, part: Part, some: Stretch) -> None:
        nn.Cell.__init__(self, auto_prefix=False)  # the parameters have their names
        own = some.layers
        self.layers, self.depth, self.asks = part.layers[own], some.takes, some.here
        self.kinds, self.padded, self.order = part.kinds[own], part.padded[own], part.order[own]
        self.running = part.running[own]
        self.lower, self.after = part.lower, part.after[own]
        self.casts, self.widens = part.casts[own], part.widens[own]
        self.begins, self.dropouts = some.masks.start, some.masks.stop - some.masks.start
        for (name, _), cell in zip(self.layers, self.order, strict=True):
            setattr(self, attribute(name), cell)
        if some.again:
            self.recompute()

    def construct(self, *arguments):
        """Return the values after the layers."""
        here = arguments[-1] if self.asks else None
        masks = arguments[self.depth : self.depth + self.dropouts]
        return self.walk(arguments[: self.depth], masks, here)[-1]


class Look(nn.Cell):
    """A cell that returns loss and predicted class of every sample, then the outputs of every layer
    in order."""

    def __init__(self, network: Network, loss: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.loss = network, loss

    def construct(self, x, y):
        after = self.network.walk((x,), (), self.network.here(x), False)
        logits = after[-1][-1].astype(ms.float32)
        outputs = (self.loss.each(logits, y), ops.argmax(logits, -1))
        for values in after[1:]:
            outputs += (values[-1].astype(ms.float32) if self.network.lower else values[-1],)
        return outputs
