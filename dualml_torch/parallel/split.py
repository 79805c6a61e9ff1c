"""Segments of a split model in PyTorch: forward and backward passes of parts, by autograd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dualml.algorithms.communicator import Implementation
from dualml.algorithms.model.decoder import GroupedAttention
from dualml.backend import (
    ActivationRecomputation,
    ActivationResharding,
    Array,
    Arrays,
    BlockwiseAttention,
    MemoryReport,
    MemoryUsage,
    MixedPrecisionStage,
    Segment,
    StateCarryover,
    TrainingSpec,
)
from dualml.experiment.data.partial import is_placeholder
from dualml_torch.algorithms.loss_scaling import all_gradients_finite, unscale_gradients
from dualml_torch.algorithms.memory import (
    nbytes,
    record_saved_tensors,
    state_bytes,
    storage_address,
)
from dualml_torch.algorithms.model import LOSSES
from dualml_torch.algorithms.model.network import LOWER, ModelPart, Network
from dualml_torch.algorithms.optim import load_state, optimizer, state
from dualml_torch.parallel.ring import TorchBlockAttention
from dualml_torch.parallel.shard import TorchShardable

Values = tuple[torch.Tensor, ...]


class TorchStage(
    MemoryReport,
    MixedPrecisionStage,
    TorchShardable,
    ActivationRecomputation,
    BlockwiseAttention,
    ActivationResharding,
    StateCarryover,
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
        recipe: TrainingSpec,
        device: torch.device,
        *,
        first: bool,
        devices: Sequence[torch.device] = (),
    ) -> None:
        self.recipe, self.device, self.first = recipe, device, first
        self.criterion = LOSSES[recipe.loss]
        self.is_low_precision, kind = recipe.precision.is_low, LOWER.get(recipe.precision.type)
        self.type = kind or torch.float32
        self.parts, self.parameters = list[ModelPart](), dict[str, torch.nn.Parameter]()
        self.places = list(devices) or [device] * len(segments)
        for segment, place in zip(segments, self.places, strict=True):
            if segment.layers == recipe.spec.layers:
                part: ModelPart = Network(recipe.spec, recipe.precision.type, recipe.recompute)
            else:
                part = ModelPart(segment.layers, kind, self.parameters, recipe.recompute)
            self.parts.append(part.to(place))
            self.parameters |= part.canonical()
        parameters = list(self.parameters.values())
        self.optimizer = optimizer(recipe.rule, parameters) if parameters else None
        if not is_placeholder(recipe.x):
            self.x = torch.from_numpy(recipe.x).to(device)
        if not is_placeholder(recipe.y):
            self.y = torch.from_numpy(recipe.y).to(self.places[-1])
        self.kept: dict[tuple[int, int], tuple[Values, Values]] = {}
        self.counts_saved_bytes, self.saved_sizes = False, dict[tuple[int, int], dict[int, int]]()
        self.min_eval_batch = 0
        self.final_states = dict[int, dict[str, torch.Tensor]]()

    # --- data -------------------------------------------------------------------------------------

    def samples(self, index: Array) -> torch.Tensor:
        """Return the training samples of these indices, (B,) int64, on the stage's device."""
        return self.x.index_select(0, torch.from_numpy(index).to(self.device))

    def labels(self, index: Array) -> torch.Tensor:
        """Return the labels of these training samples on the stage's device: int64 (B,), for texts
        (B, T)."""
        return self.y.index_select(0, torch.from_numpy(index).to(self.device))

    def inputs(self, x: Array) -> torch.Tensor:
        """Copy samples from outside the training set to the stage's device."""
        return torch.from_numpy(x).to(self.device)

    def targets(self, y: Array) -> torch.Tensor:
        """Copy labels from outside the training set to the stage's device."""
        return torch.from_numpy(y).to(self.device)

    def empty(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return an uninitialised float32 tensor of a shape on the stage's device."""
        return torch.empty(shape, device=self.device)

    def concat(self, parts: Sequence[torch.Tensor], axis: int) -> torch.Tensor:
        """Concatenate tensors along ``axis`` into a new one."""
        return torch.cat(list(parts), axis)

    def take_chunk(self, x: torch.Tensor, axis: int, part: int, parts: int) -> torch.Tensor:
        """Return part number ``part``, from 0, of ``parts`` equal ones of ``x`` along ``axis``,
        contiguous."""
        return x.chunk(parts, axis)[part].contiguous()

    def attention(self, layer: GroupedAttention, positions: Array) -> TorchBlockAttention:
        """Return a layer's block attention for these sequence positions, on the stage's device."""
        return TorchBlockAttention(layer, positions, self.device)

    # --- one micro-batch --------------------------------------------------------------------------

    def forward(
        self, segment: int, micro: int, values: Values, masks: Sequence[Array] = ()
    ) -> Values:
        """Run a segment on the stack ``values``, save its graph for `backward` and return the
        detached stack after it."""
        inputs, outputs = self._run_segment(segment, micro, values, masks)
        self.kept[segment, micro] = (inputs, outputs)
        return tuple(output.detach().contiguous() for output in outputs)

    def loss(
        self,
        micro: int,
        values: Values,
        labels: torch.Tensor,
        masks: Sequence[Array] = (),
    ) -> torch.Tensor | None:
        """Run the last segment, save its graph for `loss_backward` and return the detached mean
        loss; None if a recorded graph computes the loss there."""
        if self.recorded is not None and not self.counts_saved_bytes:
            self.pending_inputs[micro] = ((*values, *self._to_tensors(masks)), labels)
            return None
        segment = len(self.parts) - 1
        inputs, outputs = self._run_segment(segment, micro, values, masks, labels)
        self.kept[segment, micro] = (inputs, outputs)
        return outputs[0].detach()

    def _run_segment(
        self,
        segment: int,
        micro: int,
        values: Values,
        masks: Sequence[Array],
        labels: torch.Tensor | None = None,
    ) -> tuple[Values, Values]:
        """Run a segment's forward pass; return its inputs, leaves of the graph unless they are the
        samples, and its outputs, or with ``labels`` the mean loss as the only output."""
        if not (self.first and segment == 0):
            values = tuple(value.detach().requires_grad_() for value in values)
        part, own = self.parts[segment], self._to_tensors(masks, segment)
        if not self.counts_saved_bytes:
            outputs = self.run_layers(segment, micro, values, own)
        else:
            sizes = self.saved_sizes.setdefault((segment, micro), {})
            there = (*self.parameters.values(), *part.buffers())
            with record_saved_tensors(sizes, {storage_address(t) for t in there}):
                outputs = self.run_layers(segment, micro, values, own)
        if part.final_states:
            self.final_states.setdefault(micro, {}).update(part.final_states)
        if labels is not None:
            outputs = (self.criterion(outputs[-1].float(), labels),)
        return values, outputs

    def pop_states(self) -> dict[int, Arrays]:
        """Return host copies of the final hidden states, micro-batch → layer → array, and forget
        them."""
        every, self.final_states = self.final_states, {}
        return {
            micro: {name: _numpy(state) for name, state in states.items()}
            for micro, states in every.items()
        }

    def run_layers(
        self, segment: int, micro: int, values: Values, masks: Sequence[torch.Tensor]
    ) -> Values:
        """Return the stack after a segment's layers, with its graph; ``micro``, the number of the
        micro-batch, is ignored here."""
        part = self.parts[segment]
        call = part if not isinstance(part, Network) else part.forward_stack
        outputs: Values = call(values, masks)
        return outputs

    def _to_tensors(self, masks: Sequence[Array], segment: int = -1) -> list[torch.Tensor]:
        """Copy masks to tensors on the device of a segment, the last by default."""
        return [torch.from_numpy(mask).to(self.places[segment]) for mask in masks]

    def backward(self, segment: int, micro: int, gradients: Values) -> Values | None:
        """Run autograd through the saved graph, which is freed; add to the parameters' ``grad`` and
        return the inputs' gradients, None for the segment whose inputs are the samples."""
        inputs, outputs = self.kept.pop((segment, micro))
        self.saved_sizes.pop((segment, micro), None)
        reached = [i for i, output in enumerate(outputs) if output.requires_grad]
        if reached:
            torch.autograd.backward([outputs[i] for i in reached], [gradients[i] for i in reached])
        if self.first and segment == 0:
            return None
        return tuple(_gradient(value) for value in inputs)

    def free_activation(self, segment: int, micro: int) -> None:
        """Free the segment's saved input, the top of its stack: autograd keeps the tensor without
        its memory until `restore_activation`, which must come before `backward`."""
        x = self.kept[segment, micro][0][-1]
        self.saved_sizes.get((segment, micro), {}).pop(storage_address(x), None)
        x.untyped_storage().resize_(0)

    def restore_activation(self, segment: int, micro: int, x: torch.Tensor) -> None:
        """Allocate the memory of the freed input again and copy ``x`` into it."""
        place = self.kept[segment, micro][0][-1].data
        place.untyped_storage().resize_(place.nbytes)
        place.copy_(x)

    def loss_backward(self, micro: int, share: float) -> tuple[torch.Tensor | None, Values | None]:
        """Backpropagate ``share`` times the loss of a micro-batch; return the loss, None unless a
        recorded graph computed it only now, and the inputs' gradients."""
        if self.recorded is not None and micro in self.pending_inputs:
            inputs, labels = self.pending_inputs.pop(micro)
            return self.recorded(inputs, labels, share), None
        segment = len(self.parts) - 1
        loss = self.kept[segment, micro][1][0]
        return None, self.backward(segment, micro, (loss.new_tensor(share),))

    def combine_losses(self, losses: Sequence[tuple[torch.Tensor, float]]) -> list[Any]:
        """Return the pairs of a micro-batch's mean loss, a tensor, and its share as a list,
        uncombined, as `materialize_losses` expects them."""
        return list(losses)

    # --- low precision ----------------------------------------------------------------------------

    @property
    def precision_policy(self) -> Implementation:
        """Native arithmetic in the stage's type, which the detail names."""
        return Implementation("native", str(self.type))

    def to_wire(self, x: torch.Tensor) -> torch.Tensor:
        """View a low-precision tensor as float16, made contiguous: engines know no bfloat16, so its
        bits are sent under another type of 16 bits."""
        return x.contiguous().view(torch.float16)

    def from_wire(self, x: torch.Tensor) -> torch.Tensor:
        """View a received 16-bit tensor as the stage's low-precision type; no bit changes."""
        return x.view(self.type)

    def recv_buffer(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return an uninitialised float16 tensor, the type in which `to_wire` sends."""
        return torch.empty(shape, dtype=torch.float16, device=self.device)

    def upcast(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` converted to float32."""
        return x.float()

    def downcast(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` rounded to the stage's type."""
        return x.to(self.type)

    def has_finite_gradients(self) -> bool:
        """Return whether all gradients are finite; a missing one counts as finite."""
        return all_gradients_finite(self.parameters.values())

    def update_scaled(self, step: int, made: int, scale: float) -> None:
        """Divide the gradients by ``scale`` in place and make update ``step``; ``made`` is ignored,
        because the optimizer counts its own steps."""
        unscale_gradients(self.parameters.values(), scale)
        self.update(step)

    # --- memory -----------------------------------------------------------------------------------

    def saved_activation_bytes(self) -> int:
        """Return the bytes of all storages saved for backward passes at this moment, each counted
        once; 0 unless ``counts_saved_bytes``."""
        together: dict[int, int] = {}
        for sizes in self.saved_sizes.values():
            together |= sizes
        return sum(together.values())

    def measure_memory(self, batch: Any = None) -> MemoryUsage:
        """Count bytes of parameters, gradients (0 where there is none now) and optimizer state, no
        activations; ``batch`` is ignored."""
        own = list(self.parameters.values())
        return MemoryUsage(nbytes(own), nbytes(p.grad for p in own), state_bytes(self.optimizer))

    # --- evaluation -------------------------------------------------------------------------------

    @torch.no_grad()
    def infer(self, segment: int, values: Values) -> tuple[Values, list[torch.Tensor]]:
        """Run a segment in evaluation mode, without a graph; return the stack after it, and the top
        of the stack after each of its layers."""
        after, outputs, part = values, [], self.parts[segment]
        here = part.padding_mask(values[-1]) if isinstance(part, Network) else None
        for _, after in part.walk(values, (), here):
            outputs.append(after[-1])
        return tuple(value.contiguous() for value in after), outputs

    @torch.no_grad()
    def evaluate(self, logits: torch.Tensor, labels: torch.Tensor) -> tuple[float, Array]:
        """Return the mean loss of the logits in float32 and the classes of the largest ones."""
        return float(self.criterion(logits.float(), labels)), logits.argmax(dim=-1).cpu().numpy()

    # --- gradients and parameters -----------------------------------------------------------------

    def zero_grad(self) -> None:
        """Set gradients to zeros in place if they are views of flat vectors, else to None; free all
        saved activations."""
        for parameter in self.parameters.values():
            if self.flattened and parameter.grad is not None:
                parameter.grad.zero_()
            else:
                parameter.grad = None
        self.drop_saved_activations()

    def flatten_gradients(self) -> torch.Tensor:
        """Return copies of all gradients as one 1-D tensor, zeros for missing ones."""
        if not self.parameters:
            return torch.zeros(0, device=self.device)
        return torch.cat([_gradient(p).flatten() for p in self.parameters.values()])

    def assign_flat_gradients(self, flat: torch.Tensor) -> None:
        """Replace each gradient by a view of its part of ``flat``, which is in the order of
        `flatten_gradients`."""
        sizes = [p.numel() for p in self.parameters.values()]
        parts = flat.split(sizes)  # type: ignore[no-untyped-call]
        for parameter, part in zip(self.parameters.values(), parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def gradients(self) -> Arrays:
        """Return host copies of the gradients by canonical name, zeros for missing ones."""
        return {name: _numpy(_gradient(p)) for name, p in self.parameters.items()}

    def update(self, step: int) -> None:
        """Make update ``step`` at its learning rate with the gradients as they are; missing ones
        count as zeros. Do nothing without parameters or after `flatten`."""
        if self.optimizer is None:
            return
        for parameter in self.parameters.values():
            if parameter.grad is None:  # a rank without samples
                parameter.grad = torch.zeros_like(parameter)
        if not self.recipe.schedule.constant:
            for group in self.optimizer.param_groups:
                group["lr"] = self.recipe.learning_rate(step)
        self.optimizer.step()

    def weights(self) -> Arrays:
        """Return host copies of the stage's parameters by canonical name."""
        return {name: _numpy(p) for name, p in self.parameters.items()}

    def state(self) -> dict[str, Arrays]:
        """Return host copies of the optimizer state; empty for a stage without parameters or after
        `flatten`."""
        return state(self.optimizer, list(self.parameters)) if self.optimizer else {}

    @torch.no_grad()
    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        """Copy weights into the parameters in place and restore the state of the stage's own
        optimizer, if it has one, after update ``step``; 0 is a fresh one."""
        for name, parameter in self.parameters.items():
            parameter.copy_(torch.from_numpy(weights[name]))
        if self.optimizer is not None:
            load_state(self.optimizer, state, step, list(self.parameters))


def _gradient(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's ``grad``, made contiguous, or new zeros if it is None."""
    gradient = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
    return gradient.contiguous()


def _numpy(tensor: torch.Tensor) -> Array:
    """Return a detached host copy of a tensor as an array."""
    return tensor.detach().cpu().numpy().copy()
