"""Segments of a split model in PyTorch: forward and backward passes of parts, by autograd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dualml.backend import (
    Array,
    Arrays,
    Attending,
    Carrying,
    Memory,
    MixedStage,
    Recipe,
    Recomputing,
    Regathering,
    Segment,
    Weighable,
)
from dualml.communicator import How
from dualml.data.partial import is_left_out
from dualml.model.decoder import GroupedAttention
from dualml_torch.memory import keeping, memory_of, nbytes, state_bytes
from dualml_torch.model import LOSSES
from dualml_torch.model.network import LOWER, Network, Part
from dualml_torch.optim import load_state, optimizer, state
from dualml_torch.ring import TorchBlockAttention
from dualml_torch.scaled import finite, unscale
from dualml_torch.shard import TorchShardable

Values = tuple[torch.Tensor, ...]


class TorchStage(
    Weighable, MixedStage, TorchShardable, Recomputing, Attending, Regathering, Carrying
):
    """PyTorch implementation of `dualml.backend.stage.Stage`.

    Args:
        segments: the layers of this rank, stage by stage.
        first: whether segment 0 takes the samples.
        devices: device of each segment, if they differ.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        recipe: Recipe,
        device: torch.device,
        *,
        first: bool,
        devices: Sequence[torch.device] = (),
    ) -> None:
        self.recipe, self.device, self.first = recipe, device, first
        self.criterion = LOSSES[recipe.loss]
        self.lower, kind = recipe.precision.lower, LOWER.get(recipe.precision.type)
        self.type = kind or torch.float32
        self.parts, self.parameters = list[Part](), dict[str, torch.nn.Parameter]()
        self.places = list(devices) or [device] * len(segments)
        for segment, place in zip(segments, self.places, strict=True):
            if segment.layers == recipe.spec.layers:
                part: Part = Network(recipe.spec, recipe.precision.type, recipe.recompute)
            else:
                part = Part(segment.layers, kind, self.parameters, recipe.recompute)
            self.parts.append(part.to(place))
            self.parameters |= part.canonical()
        parameters = list(self.parameters.values())
        self.optimizer = optimizer(recipe.rule, parameters) if parameters else None
        if not is_left_out(recipe.x):
            self.x = torch.from_numpy(recipe.x).to(device)
        if not is_left_out(recipe.y):
            self.y = torch.from_numpy(recipe.y).to(self.places[-1])
        self.kept: dict[tuple[int, int], tuple[Values, Values]] = {}
        self.measuring, self.bytes = False, dict[tuple[int, int], dict[int, int]]()
        self.infers = 0
        self.ended = dict[int, dict[str, torch.Tensor]]()

    # --- data -------------------------------------------------------------------------------------

    def samples(self, index: Array) -> torch.Tensor:
        return self.x.index_select(0, torch.from_numpy(index).to(self.device))

    def labels(self, index: Array) -> torch.Tensor:
        return self.y.index_select(0, torch.from_numpy(index).to(self.device))

    def inputs(self, x: Array) -> torch.Tensor:
        return torch.from_numpy(x).to(self.device)

    def targets(self, y: Array) -> torch.Tensor:
        return torch.from_numpy(y).to(self.device)

    def empty(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.empty(shape, device=self.device)

    def concat(self, parts: Sequence[torch.Tensor], axis: int) -> torch.Tensor:
        return torch.cat(list(parts), axis)

    def cut(self, x: torch.Tensor, axis: int, part: int, parts: int) -> torch.Tensor:
        return x.chunk(parts, axis)[part].contiguous()

    def attention(self, layer: GroupedAttention, places: Array) -> TorchBlockAttention:
        return TorchBlockAttention(layer, places, self.device)

    # --- one micro-batch --------------------------------------------------------------------------

    def forward(
        self, segment: int, micro: int, values: Values, masks: Sequence[Array] = ()
    ) -> Values:
        inputs, outputs = self._through(segment, micro, values, masks)
        self.kept[segment, micro] = (inputs, outputs)
        return tuple(output.detach().contiguous() for output in outputs)

    def loss(
        self,
        micro: int,
        values: Values,
        labels: torch.Tensor,
        masks: Sequence[Array] = (),
    ) -> torch.Tensor | None:
        if self.recorded is not None and not self.measuring:
            self.waiting[micro] = ((*values, *self._masks(masks)), labels)
            return None
        segment = len(self.parts) - 1
        inputs, outputs = self._through(segment, micro, values, masks, labels)
        self.kept[segment, micro] = (inputs, outputs)
        return outputs[0].detach()

    def _through(
        self,
        segment: int,
        micro: int,
        values: Values,
        masks: Sequence[Array],
        labels: torch.Tensor | None = None,
    ) -> tuple[Values, Values]:
        """Run a segment's forward pass; return the leaves of its graph and its outputs, or the
        loss."""
        if not (self.first and segment == 0):
            values = tuple(value.detach().requires_grad_() for value in values)
        part, own = self.parts[segment], self._masks(masks, segment)
        if not self.measuring:
            outputs = self.compute(segment, micro, values, own)
        else:
            sizes = self.bytes.setdefault((segment, micro), {})
            there = (*self.parameters.values(), *part.buffers())
            with keeping(sizes, {memory_of(t) for t in there}):
                outputs = self.compute(segment, micro, values, own)
        if part.ended:
            self.ended.setdefault(micro, {}).update(part.ended)
        if labels is not None:
            outputs = (self.criterion(outputs[-1].float(), labels),)
        return values, outputs

    def states(self) -> dict[int, Arrays]:
        every, self.ended = self.ended, {}
        return {
            micro: {name: _numpy(state) for name, state in states.items()}
            for micro, states in every.items()
        }

    def compute(
        self, segment: int, micro: int, values: Values, masks: Sequence[torch.Tensor]
    ) -> Values:
        """Return the stack after a segment's layers, with its graph."""
        part = self.parts[segment]
        call = part if not isinstance(part, Network) else part.stack
        outputs: Values = call(values, masks)
        return outputs

    def _masks(self, masks: Sequence[Array], segment: int = -1) -> list[torch.Tensor]:
        return [torch.from_numpy(mask).to(self.places[segment]) for mask in masks]

    def backward(self, segment: int, micro: int, gradients: Values) -> Values | None:
        inputs, outputs = self.kept.pop((segment, micro))
        self.bytes.pop((segment, micro), None)
        reached = [i for i, output in enumerate(outputs) if output.requires_grad]
        if reached:
            torch.autograd.backward([outputs[i] for i in reached], [gradients[i] for i in reached])
        if self.first and segment == 0:
            return None
        return tuple(_gradient(value) for value in inputs)

    def forget(self, segment: int, micro: int) -> None:
        """Free the segment's saved input: autograd keeps the tensor without its memory."""
        x = self.kept[segment, micro][0][-1]
        self.bytes.get((segment, micro), {}).pop(memory_of(x), None)
        x.untyped_storage().resize_(0)

    def remember(self, segment: int, micro: int, x: torch.Tensor) -> None:
        place = self.kept[segment, micro][0][-1].data
        place.untyped_storage().resize_(place.nbytes)
        place.copy_(x)

    def loss_backward(self, micro: int, share: float) -> tuple[torch.Tensor | None, Values | None]:
        if self.recorded is not None and micro in self.waiting:
            inputs, labels = self.waiting.pop(micro)
            return self.recorded(inputs, labels, share), None
        segment = len(self.parts) - 1
        loss = self.kept[segment, micro][1][0]
        return None, self.backward(segment, micro, (loss.new_tensor(share),))

    def lazy(self, losses: Sequence[tuple[torch.Tensor, float]]) -> list[Any]:
        return list(losses)

    # --- low precision ----------------------------------------------------------------------------

    @property
    def how(self) -> How:
        return How("native", str(self.type))

    def packed(self, x: torch.Tensor) -> torch.Tensor:
        """View a bfloat16 tensor as float16: engines know no bfloat16, so its bits are sent under
        another type of 16 bits."""
        return x.contiguous().view(torch.float16)

    def unpacked(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(self.type)

    def to_receive(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float16, device=self.device)

    def widened(self, x: torch.Tensor) -> torch.Tensor:
        return x.float()

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.type)

    def finite(self) -> bool:
        return finite(self.parameters.values())

    def update_scaled(self, step: int, made: int, scale: float) -> None:
        """Unscale the gradients and update; ``made`` is ignored, because the optimizer counts its
        own steps."""
        unscale(self.parameters.values(), scale)
        self.update(step)

    # --- memory -----------------------------------------------------------------------------------

    def held(self) -> int:
        together: dict[int, int] = {}
        for sizes in self.bytes.values():
            together |= sizes
        return sum(together.values())

    def memory(self, batch: Any = None) -> Memory:
        own = list(self.parameters.values())
        return Memory(nbytes(own), nbytes(p.grad for p in own), state_bytes(self.optimizer))

    # --- evaluation -------------------------------------------------------------------------------

    @torch.no_grad()
    def infer(self, segment: int, values: Values) -> tuple[Values, list[torch.Tensor]]:
        after, outputs, part = values, [], self.parts[segment]
        here = part.here(values[-1]) if isinstance(part, Network) else None
        for _, after in part.walk(values, (), here):
            outputs.append(after[-1])
        return tuple(value.contiguous() for value in after), outputs

    @torch.no_grad()
    def score(self, logits: torch.Tensor, labels: torch.Tensor) -> tuple[float, Array]:
        return float(self.criterion(logits.float(), labels)), logits.argmax(dim=-1).cpu().numpy()

    # --- gradients and parameters -----------------------------------------------------------------

    def zero(self) -> None:
        for parameter in self.parameters.values():
            if self.flattened and parameter.grad is not None:
                parameter.grad.zero_()
            else:
                parameter.grad = None
        self.drop()

    def flat(self) -> torch.Tensor:
        if not self.parameters:
            return torch.zeros(0, device=self.device)
        return torch.cat([_gradient(p).flatten() for p in self.parameters.values()])

    def assign_flat(self, flat: torch.Tensor) -> None:
        sizes = [p.numel() for p in self.parameters.values()]
        parts = flat.split(sizes)  # type: ignore[no-untyped-call]
        for parameter, part in zip(self.parameters.values(), parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def gradients(self) -> Arrays:
        return {name: _numpy(_gradient(p)) for name, p in self.parameters.items()}

    def update(self, step: int) -> None:
        if self.optimizer is None:
            return
        for parameter in self.parameters.values():
            if parameter.grad is None:  # a rank without samples
                parameter.grad = torch.zeros_like(parameter)
        if not self.recipe.schedule.constant:
            for group in self.optimizer.param_groups:
                group["lr"] = self.recipe.rate(step)
        self.optimizer.step()

    def weights(self) -> Arrays:
        return {name: _numpy(p) for name, p in self.parameters.items()}

    def state(self) -> dict[str, Arrays]:
        return state(self.optimizer, list(self.parameters)) if self.optimizer else {}

    @torch.no_grad()
    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(torch.from_numpy(weights[name]))
        if self.optimizer is not None:
            load_state(self.optimizer, state, step, list(self.parameters))


def _gradient(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's gradient, zeros if the loss did not reach it."""
    gradient = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
    return gradient.contiguous()


def _numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().copy()
