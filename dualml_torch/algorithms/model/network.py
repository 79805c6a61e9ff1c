"""Layer specs as `nn.Module`s whose parameters carry the canonical names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from dualml.algorithms.model.base import DtypePolicy, Layer
from dualml.algorithms.model.layers import PADDING, Branch, Dropout, Merge, Swap
from dualml.algorithms.model.recompute import Groups, LayerSpan, layer_spans
from dualml.algorithms.model.spec import ModelSpec, canonical_parameter_names
from dualml.algorithms.model.streams import carries_state
from dualml_torch.algorithms.model.layers import make_layer

Values = tuple[Tensor, ...]
LOWER = {"bf16": torch.bfloat16, "fp16": torch.float16}


class ModelPart(nn.Module):
    """Consecutive layers of a model; parameters are named ``conv1.weight``, ``fc1.bias``, …

    Args:
        lower: type of the products (`dualml.algorithms.precision`), None for float32; the
            parameters themselves are always float32.
        others: canonical name → parameter, of previous parts, with which it may share some.
        recompute: the layers that are recomputed (`dualml.algorithms.model.recompute`).

    Example:
        >>> from dualml.algorithms.model import model
        >>> part = ModelPart(model("vit").layers[4:9])  # from the first branch to its end
        >>> x = torch.zeros(2, 28, 64)
        >>> [tuple(y.shape) for y in part((x, x))]
        [(2, 28, 64)]
    """

    def __init__(
        self,
        layers: Sequence[tuple[str, Layer]],
        lower: torch.dtype | None = None,
        others: Mapping[str, nn.Parameter] | None = None,
        recompute: Groups = (),
    ) -> None:
        super().__init__()
        self.layers, self.low_dtype, known = tuple(layers), lower, dict(others or {})
        self.modules_by_name: dict[str, nn.Module] = {}
        for name, layer in layers:
            if not isinstance(layer, Branch | Merge | Swap | Dropout):
                module = make_layer(layer)
                for leaf, full in canonical_parameter_names(name, layer).items():
                    if full in known:
                        setattr(module, leaf, known[full])
                    known[full] = getattr(module, leaf)
                self.add_dotted_module(name, module)
        #: Stateful layer → its final state of the last batch, (B, S, H).
        self.final_states = dict[str, Tensor]()
        self.set_recompute(recompute)

    def add_dotted_module(self, name: str, module: nn.Module) -> None:
        """Add a module under a dotted name: ``layer1.0.conv1`` is inside ``layer1``, as in PyTorch
        models."""
        *path, last = name.split(".")
        place: nn.Module = self
        for part in path:
            if part not in place._modules:
                place.add_module(part, nn.Module())
            place = place.get_submodule(part)
        place.add_module(last, module)
        self.modules_by_name[name] = module

    def set_recompute(self, groups: Groups) -> None:
        """Set the layers that are recomputed in the backward pass, in place of any set before."""
        self.spans = layer_spans(self.layers, groups)

    def forward(
        self, values: Values, masks: Sequence[Tensor] = (), here: Tensor | None = None
    ) -> Values:
        """Return the stack after the layers from the stack before them, the top last.

        Args:
            masks: masks of the Dropout layers and, among them in the order of the layers, the
                states that stateful layers begin with; without them Dropout is the identity, and
                states are zeros.
            here: which positions hold a token, (B, T), for layers that need a padding mask.
        """
        if self.spans and torch.is_grad_enabled():
            for some in self.spans:
                below, own = values[: -some.input_count], values[-some.input_count :]
                values = (*below, *self.run_span(some, own, masks[some.masks], here))
            return values
        for _, after in self.walk(values, masks, here):
            values = after
        return values

    def run_span(
        self, some: LayerSpan, values: Values, masks: Sequence[Tensor], here: Tensor | None
    ) -> Values:
        """Return the values after a span of layers from the ``input_count`` top values before it,
        which ``values`` are; ``masks`` are those of the span. Recomputed in the backward pass if
        the span says so."""
        count = len(masks)

        def run_layers(*given: Tensor) -> Values:
            values = given[: some.input_count]
            drawn = given[some.input_count : some.input_count + count]
            tokens = given[some.input_count + count :]  # padding mask, if a layer needs it
            *_, (_, after) = self.walk(values, drawn, *tokens, some=some.layers)
            return after

        asked = (here,) if some.needs_padding_mask and here is not None else ()
        given = (*values, *masks, *asked)
        if not some.recomputed:
            return run_layers(*given)
        again: Values = checkpoint(
            run_layers, *given, use_reentrant=False, preserve_rng_state=False
        )
        return again

    def walk(
        self,
        values: Values,
        masks: Sequence[Tensor] = (),
        here: Tensor | None = None,
        some: slice = slice(None),
    ) -> Iterator[tuple[str, Values]]:
        """Run the layers one by one, or only those in the slice ``some``; after each, yield its
        name and the whole stack, the top last. Arguments as in `forward`; nothing is recomputed."""
        *kept, x = values
        waiting = iter(masks)
        for name, layer in self.layers[some]:
            if isinstance(layer, Branch):
                kept.append(x)
            elif isinstance(layer, Merge):
                x = kept.pop() + x
            elif isinstance(layer, Swap):
                kept[-1], x = x, kept[-1]
            elif isinstance(layer, Dropout):
                x = x * next(waiting).to(x.dtype) if masks else x
            elif masks and carries_state(layer):
                x, self.final_states[name] = self.run_layer(name, layer, x, next(waiting))
            else:
                given = (x, here) if layer.needs_padding_mask else (x,)
                x = self.run_layer(name, layer, *given)
            yield name, (*kept, x)

    def run_layer(self, name: str, layer: Layer, x: Tensor, *more: Tensor | None) -> Any:
        """Run the module ``name`` on ``x`` and ``more`` and return its result. In low precision,
        layers of the policy PRODUCT cast their input and parameters to `low_dtype`; others use
        float32 parameters, and SINGLE also a float32 input."""
        module = self.modules_by_name[name]
        if self.low_dtype is not None and layer.dtype_policy is DtypePolicy.PRODUCT:
            own = {leaf: p.to(self.low_dtype) for leaf, p in module.named_parameters()}
            return functional_call(module, own, (x.to(self.low_dtype), *more))
        if self.low_dtype is None:
            return module(x, *more)
        if layer.dtype_policy is DtypePolicy.SINGLE and x.is_floating_point():
            x = x.float()
        wide = {
            leaf: p.float() for leaf, p in module.named_parameters() if p.dtype is self.low_dtype
        }
        return functional_call(module, wide, (x, *more)) if wide else module(x, *more)

    def canonical(self) -> dict[str, nn.Parameter]:
        """Return the parameters by canonical name, in the order of the layers, shared ones once."""
        return {
            full: getattr(self.modules_by_name[name], leaf)
            for name, layer in self.layers
            for leaf, full in canonical_parameter_names(name, layer).items()
        }

    def statistics(self) -> dict[str, Tensor]:
        """Return the buffers (running statistics) by canonical name, in the order of the layers;
        empty without layers that have some."""
        return {
            f"{name}.{leaf}": getattr(self.modules_by_name[name], leaf)
            for name, layer in self.layers
            for leaf in layer.buffers()
        }

    def load(self, weights: Mapping[str, NDArray]) -> None:
        """Copy canonical weights into the parameters and buffers in place; ``weights`` needs all of
        their names, and others are ignored."""
        with torch.no_grad():
            for name, tensor in (self.canonical() | self.statistics()).items():
                tensor.copy_(torch.from_numpy(weights[name]))


class Network(ModelPart):
    """A whole model: the layers of ``spec`` in sequence.

    Example:
        >>> from dualml.algorithms.model import model
        >>> Network(model("softmax"))(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, spec: ModelSpec, precision: str = "fp32", recompute: Groups = ()) -> None:
        super().__init__(spec.layers, LOWER.get(precision), recompute=recompute)
        self.spec = spec

    def forward(self, x: Tensor, *masks: Tensor) -> Tensor:  # type: ignore[override]
        """Return the logits of the samples ``x`` in float32. ``masks`` are Dropout masks and
        initial states in the order of the layers, as in `ModelPart.forward`; without them nothing
        is dropped."""
        logits = self.forward_stack((x,), masks)[-1]
        return logits if self.low_dtype is None else logits.float()

    def forward_stack(self, values: Values, masks: Sequence[Tensor] = ()) -> Values:
        """Return the stack after all layers, the logits on top, in the type of the last layer; the
        top of ``values`` are the samples."""
        return super().forward(values, masks, self.padding_mask(values[-1]))

    def activations(self, x: Tensor) -> dict[str, Tensor]:
        """Return the output of each layer for the samples ``x`` by name, without Dropout, in
        float32, because NumPy has no bfloat16. Batch normalization follows the network's mode."""
        after = {name: stack[-1] for name, stack in self.walk((x,), (), self.padding_mask(x))}
        return after if self.low_dtype is None else {name: y.float() for name, y in after.items()}

    def padding_mask(self, x: Tensor) -> Tensor | None:
        """Return which positions of tokens ``x`` (B, T) hold a token, a boolean (B, T); None if no
        layer needs it."""
        return x != PADDING if self.spec.needs_padding_mask else None
