"""A trial's model, optimizer and data in PyTorch: the fast step, traces and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from dualml.algorithms.communicator import Implementation
from dualml.algorithms.model.streams import extra_inputs
from dualml.backend import (
    ActivationCapture,
    ActivationRecomputation,
    Array,
    Arrays,
    BatchTrace,
    MemoryReport,
    MemoryUsage,
    MixedPrecision,
    StateCarryover,
    Training,
    TrainingSpec,
    batch_digest,
    split_into_chunks,
)
from dualml_torch.algorithms.kernel_choice import KernelChoice, choose_kernels
from dualml_torch.algorithms.loss_scaling import all_gradients_finite, unscale_gradients
from dualml_torch.algorithms.memory import (
    nbytes,
    record_saved_tensors,
    state_bytes,
    storage_address,
)
from dualml_torch.algorithms.model import LOSSES, Network
from dualml_torch.algorithms.optim import load_state, optimizer, state
from dualml_torch.algorithms.recorded_gradient import RecordedGradient


class TorchTraining(
    Training,
    ActivationCapture,
    MixedPrecision,
    MemoryReport,
    ActivationRecomputation,
    StateCarryover,
):
    """PyTorch implementation of `dualml.backend.Training`."""

    def __init__(self, recipe: TrainingSpec, device: torch.device) -> None:
        self.recipe, self.device, self.step_count = recipe, device, 0
        self.scaler, self.hidden = recipe.precision.make_scaler(), recipe.make_hidden_states()
        #: Parts of a batch after their backward pass, and their final states.
        self.final_states = list[tuple[Array, dict[str, torch.Tensor]]]()
        self.network = Network(recipe.spec, recipe.precision.type, recipe.recompute).to(device)
        self.network.load(recipe.weights)
        self.network.train()
        self.loss = LOSSES[recipe.loss]
        self.x = torch.from_numpy(recipe.x).to(device)
        self.y = torch.from_numpy(recipe.y).to(device)
        self.choice: KernelChoice | None = None
        self.recorded: RecordedGradient | None = None
        # A recorded graph would neither return states nor update running statistics.
        if device.type == "cpu" and self.hidden is None and not recipe.spec.buffers:
            size = min(recipe.batch, recipe.chunk, len(recipe.y))
            batch = self.batch_tensors(np.arange(size)) if size else None
            self.choice = choose_kernels(recipe, self.network, self.loss, batch)
            self.network.to(memory_format=getattr(torch, self.choice.memory_format))
            self.recorded = RecordedGradient(self.network, self.loss, size * self.choice.compiled)
        self.parameters = self.network.canonical()
        together = self.choice is not None and self.choice.compiled
        self.optimizer = optimizer(recipe.rule, list(self.parameters.values()), compiled=together)

    @property
    def precision_policy(self) -> Implementation:
        """Native arithmetic in the network's low-precision type, which the detail names; ``None``
        there in float32."""
        return Implementation("native", str(self.network.low_dtype))

    def step(self, batch: Array, step: int) -> list[tuple[torch.Tensor, float]]:
        """Make update ``step`` with the gradients of all chunks of ``batch``, unless a loss scaler
        skips it; return each chunk's mean loss before it, 0-dim on the device, and its share of the
        batch."""
        self.zero_grad()
        losses = []
        for part, share in split_into_chunks(batch, self.recipe.chunk):
            losses.append((self.backward(part, share), share))
        self.update(step)
        return losses

    def zero_grad(self) -> None:
        """Set all gradients to None and forget the hidden states of the last batch; unlike
        `Optimizer.zero_grad`, without the profiler's mark."""
        for parameter in self.parameters.values():
            parameter.grad = None
        self.final_states.clear()

    def carry_states(self) -> None:
        """Store the final hidden states of the batch for the next one; do nothing for a model
        without."""
        for part, states in self.final_states if self.hidden is not None else ():
            arrays = {name: state.cpu().numpy() for name, state in states.items()}
            self.hidden.store_final_states(part, arrays)

    def update(self, step: int) -> None:
        """Make update ``step`` at its learning rate with the current gradients, unscaled in place
        if there is a loss scaler; carry hidden states over. Where the scaler skips the update, the
        weights stay, and ``step`` counts all the same."""
        if not self.recipe.schedule.constant:
            for group in self.optimizer.param_groups:
                group["lr"] = self.recipe.learning_rate(step)
        self.carry_states()
        own, scale = self.parameters.values(), self.loss_scale
        if self.should_step(self.scaler is None or all_gradients_finite(own)):
            if self.scaler is not None:
                unscale_gradients(own, scale)
            self.optimizer.advance()
        self.step_count = step

    def backward(self, part: Array, share: float) -> torch.Tensor:
        """Add ``share`` times the gradient of this part's mean loss, times the loss scale, to the
        parameters' ``grad``; return the mean loss itself, detached."""
        inputs, labels = self.batch_tensors(part)
        share = share * self.loss_scale
        if self.recorded is not None:
            return self.recorded(inputs, labels, share)
        loss = self.loss(self.network(*inputs), labels)
        if self.hidden is not None:
            self.final_states.append((part, dict(self.network.final_states)))
        loss.backward(None if share == 1 else loss.new_tensor(share))  # type: ignore[no-untyped-call]
        return loss.detach()

    def batch_tensors(self, part: Array) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the network's inputs for these samples in the next update, the samples, then
        Dropout masks and initial states in the order of the layers; and the labels."""
        index = torch.from_numpy(part).to(self.device)
        spec, seed = self.recipe.spec, self.recipe.seed
        drawn = extra_inputs(spec, seed, self.step_count + 1, part, self.hidden).values()
        given = (torch.from_numpy(mask).to(self.device) for mask in drawn)
        return (self.x.index_select(0, index), *given), self.y.index_select(0, index)

    def measure_memory(self, batch: Array | None = None) -> MemoryUsage:
        """Count bytes of weights, gradients and optimizer state, and those that a forward pass of
        the first chunk of ``batch`` saves; nothing is updated. Without a batch, or for an empty
        one, gradients count as much as weights, and activations are None, or 0; None also with
        `Replicas`, whose threads are not seen."""
        own = list(self.parameters.values())
        weights, state = nbytes(own), state_bytes(self.optimizer)
        if batch is None or not len(batch):
            return MemoryUsage(weights, weights, state, None if batch is None else 0)
        inputs, labels = self.batch_tensors(batch[: self.recipe.chunk])
        sizes: dict[int, int] = {}
        # Masks are drawn anew for every update, so they count as saved activations.
        there = (*own, *self.network.buffers(), inputs[0], labels)
        with (
            record_saved_tensors(sizes, {storage_address(t) for t in there}),
            self.preserving_statistics(),
        ):
            loss = self.loss(self.network(*inputs), labels)
        # Not backward, which would write into ``grad`` and call hooks that send messages.
        gradients = torch.autograd.grad(loss, own, allow_unused=True)
        # A model on several GPUs runs in threads, which the hook of this thread does not see.
        seen = sum(sizes.values()) if isinstance(self.network, Network) else None
        return MemoryUsage(weights, nbytes(gradients), state, seen)

    def trace(self, batch: Array, probe: Array) -> BatchTrace:
        """Compute loss and unscaled gradients of ``batch``, and activations of the samples
        ``probe``, without an update; running statistics stay, and all ``grad`` are None afterwards.
        A parameter that the loss does not reach has zeros."""
        self.zero_grad()
        with self.preserving_statistics():
            losses = [
                (self.backward(part, share), share)
                for part, share in split_into_chunks(batch, self.recipe.chunk)
            ]
        # A parameter that the loss does not reach has no gradient here, and zeros in MindSpore.
        gradients = {
            name: to_numpy(torch.zeros_like(p) if p.grad is None else p.grad)
            for name, p in self.parameters.items()
        }
        self.zero_grad()
        loss = sum(float(loss) * share for loss, share in losses)
        return BatchTrace(
            *self.capture_forward(batch, probe),
            loss=loss,
            gradients=self.unscale_gradients(gradients),
        )

    @torch.no_grad()
    def capture_forward(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        """Return the digest of ``batch``, which is not run, and host copies of the layers' outputs
        for the samples ``probe``, in evaluation mode."""
        self.network.eval()
        activations = self.network.activations(self.x[torch.from_numpy(probe).to(self.device)])
        self.network.train()
        return batch_digest(*self.fetch_batch(batch)), {
            n: to_numpy(value) for n, value in activations.items()
        }

    def fetch_batch(self, batch: Array) -> tuple[Array, Array]:
        """Return host copies of the samples and labels of a batch, without masks and hidden
        states."""
        (x, *_), y = self.batch_tensors(batch)
        return to_numpy(x), to_numpy(y)

    @torch.no_grad()
    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Return the mean loss and the classes of the largest logits in evaluation mode, all
        samples in one forward pass."""
        self.network.eval()
        logits = self.network(torch.from_numpy(x).to(self.device))
        loss = float(self.loss(logits, torch.from_numpy(y).to(self.device)))
        self.network.train()
        return loss, logits.argmax(dim=-1).cpu().numpy()

    def weights(self) -> Arrays:
        """Return host copies of parameters and running statistics by canonical name."""
        both = {**self.parameters, **self.network.statistics()}
        return {name: to_numpy(both[name]) for name in self.recipe.spec.tensors()}

    def running_statistics(self) -> Arrays:
        """Return host copies of the network's running statistics by canonical name."""
        return {name: to_numpy(tensor) for name, tensor in self.network.statistics().items()}

    def load_running_statistics(self, statistics: Mapping[str, Array]) -> None:
        """Copy ``statistics``, which names all of them, into the network's running statistics in
        place."""
        for name, tensor in self.network.statistics().items():
            tensor.copy_(torch.from_numpy(statistics[name]))

    def state(self) -> dict[str, Arrays]:
        """Return host copies of optimizer state, loss scaler and hidden states, as far as there are
        any: state name → parameter or other name → array."""
        own = state(self.optimizer, list(self.parameters)) | self.scaler_state()
        return own if self.hidden is None else own | self.hidden.state()

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Copy ``weights`` into the network in place and restore optimizer, loss scaler and hidden
        states as after update ``step``; 0 is a fresh optimizer."""
        self.network.load(weights)
        state = self.pop_scaler_state(state if self.hidden is None else self.hidden.load(state))
        load_state(self.optimizer, state, self.applied_steps(step), list(self.parameters))
        self.step_count = step

    def transform_weights(self, fn: Callable[[Arrays], Mapping[str, Array]]) -> None:
        """Replace the network's weights by ``fn`` of their host copies, running statistics
        included; everything else stays."""
        self.network.load(fn(self.weights()))


def to_numpy(tensor: torch.Tensor) -> Array:
    """Return a detached host copy of a tensor as an array of its shape and type; bfloat16, which
    NumPy lacks, raises TypeError."""
    return tensor.detach().cpu().numpy().copy()
