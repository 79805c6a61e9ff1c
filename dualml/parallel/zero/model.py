"""A model with sharded parameters, gradients and optimizer state, as a `Training`.

Weights, gradients and state go in and come out whole, under their canonical names, so that
checkpoints do not depend on the ranks. Every rank calls the same methods in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import (
    ActivationCapture,
    Array,
    Arrays,
    Backend,
    BatchTrace,
    MemoryReport,
    MemoryUsage,
    Training,
    TrainingSpec,
    batch_digest,
)
from dualml.backend.capability import Tensor
from dualml.backend.shard import Slots, slot_lengths
from dualml.common.errors import Unsupported
from dualml.parallel.zero.settings import Sharding
from dualml.parallel.zero.whole_arrays import WholeArrays

#: Error if one rank alone uses a sharded model.
COLLECTIVE_ONLY = (
    "the ranks of a sharded model work on it together: see dualml.parallel.zero.parallel"
)


class ShardedModel(WholeArrays, Training, ActivationCapture, MemoryReport):
    """A ZeRO model; `dualml.parallel.zero.parallel.ZeroDataParallel` drives the updates of several
    ranks."""

    def __init__(
        self, backend: Backend, recipe: TrainingSpec, comm: Communicator, sharding: Sharding
    ) -> None:
        super().__init__(backend, recipe, comm, sharding)
        self.step_count, self.scaler = 0, recipe.precision.make_scaler()

    # --- one update -------------------------------------------------------------------------------

    def step(self, batch: Array, step: int) -> Any:
        """Make one whole update as the only rank; return the lazy mean loss of the batch before it.
        Several ranks are driven by `ZeroDataParallel`.

        Raises:
            Unsupported: there are other ranks.
        """
        self.step_count = step - 1
        loss = self.reduced_gradient(batch)
        self.update(step)
        return loss

    def trace(self, batch: Array, probe: Array) -> BatchTrace:
        """Return loss and unscaled gradients of ``batch`` and activations of the samples ``probe``,
        as the only rank and without an update.

        Raises:
            Unsupported: there are other ranks.
        """
        loss = self.reduced_gradient(batch)
        gradients = self.unscale_gradients(self.gradients())
        mean = float(np.sum(self.backend.materialize_losses([loss])))
        return BatchTrace(*self.capture_forward(batch, probe), mean, gradients)

    def reduced_gradient(self, batch: Array) -> Any:
        """Compute the gradient of the whole batch on the only rank and leave it in the buffers;
        return the lazy loss. Raise `Unsupported` if there are other ranks."""
        if self.comm.size > 1:
            raise Unsupported(COLLECTIVE_ONLY)
        loss = self.gradient(batch, 1.0)
        self.reduce_gradients()
        return loss

    def gradient(self, part: Array, factor: float) -> Any:
        """Compute ``factor`` times the gradient of the loss of this rank's samples ``part``, times
        the loss scale, for the next update, into the buffers that `run` names; return the lazy
        loss, None without samples. In stages 2 and 3 the gradient is reduced, and all ranks call
        it."""
        return self.run(part, self.step_count + 1, factor * self.loss_scale)

    def update(self, step: int) -> None:
        """Apply update ``step`` to this rank's part of the weights from the reduced gradients and,
        except in stage 3, all-gather the weights; with a loss scaler all ranks apply or skip it
        together. All ranks call it."""
        scale, made, sums = self.loss_scale, True, self.master_grads()
        if self.scaler is None:
            self.shard.update(sums, step, step, 1.0)
        elif made := self.should_step(self.all_finite(sums)):
            self.shard.update(sums, step, self.applied_steps(step), scale)
        if made:
            self.cast_master_weights()
            self.all_gather_params()
        self.step_count = step

    def all_finite(self, sums: Sequence[Tensor]) -> bool:
        """Return whether the gradients ``sums`` of all ranks are finite; a collective call."""
        own = self.comm.tensor(np.array([self.shard.finite(sums)], np.float32))
        return bool(self.comm.numpy(self.comm.all_reduce(own, "min"))[0])

    # --- looking ----------------------------------------------------------------------------------

    def capture_forward(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        """Evaluate the samples ``probe``; return the SHA-256 of ``batch`` and layer name → output
        on the host. In stage 3 all ranks must call this together."""
        filled = np.resize(probe, max(len(probe), self.stage.min_eval_batch))
        _, outputs = self.infer((self.stage.samples(filled),))
        seen = {name: self.tensor_to_host(output)[: len(probe)] for name, output in outputs.items()}
        return batch_digest(*self.fetch_batch(batch)), seen

    def fetch_batch(self, batch: Array) -> tuple[Array, Array]:
        """Return the samples and labels of the training set with the indices ``batch``."""
        return self.recipe.x[batch], self.recipe.y[batch]

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Return the mean loss over ``x``, ``y`` and the predicted classes; in stage 3 all ranks
        must call this together."""
        filled = np.resize(x, (max(len(x), self.stage.min_eval_batch), *x.shape[1:]))
        logits, _ = self.infer((self.stage.inputs(filled),))
        return self.stage.evaluate(logits, self.stage.targets(y))

    def measure_memory(self, batch: Array | None = None) -> MemoryUsage:
        """Measure in bytes what `dualml.parallel.memory.estimate_sharded_memory` predicts; gathered
        units count as buckets.

        Activations are the bytes saved for the backward pass of a chunk of ``batch``, samples
        included; None without a batch, or if a compiled graph computes the loss together with its
        gradients.
        """
        nbytes, stage = self.comm.nbytes, self.sharding.stage
        gathered = [self.unit_gradients] * (stage > 1) + [self.unit_weights] * (stage > 2)
        kept = None
        if batch is not None:
            self.stage.counts_saved_bytes = True
            loss = self.forward(batch[: self.recipe.chunk], self.step_count + 1, fetch=False)
            kept, self.stage.counts_saved_bytes = (
                None if loss is None else self.stage.saved_activation_bytes(),
                False,
            )
            self.shardable.drop_saved_activations()
        return MemoryUsage(
            weights=sum(map(nbytes, self.weight_shards if stage == 3 else self.unit_weights)),
            gradients=sum(map(nbytes, self.unit_gradients if stage == 1 else self.gradient_shards)),
            state=self.shard.state_bytes()
            + self.sharding.lower * sum(map(nbytes, self.master_weights)),
            activations=kept,
            buckets=sum(
                sum(slot_lengths([nbytes(v) for v in vectors], self.sharding.buffer_slots))
                for vectors in gathered
            ),
        )

    # --- checkpoints ------------------------------------------------------------------------------

    def state(self) -> dict[str, Arrays]:
        """Return state key → parameter name → whole array, gathered from all ranks, with the loss
        scaler's state; a collective call."""
        slots = self.shard.state().items()
        own = {
            slot: self.unflatten_all(map(self.collectives.gather_to_host, parts))
            for slot, parts in slots
        }
        return own | self.scaler_state()

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Restore the weights and this rank's part of the optimizer state, as after update
        ``step``, from whole arrays; no rank communicates."""
        self.set_weights(weights)
        slots: Slots = {
            slot: [self.local_part(unit.flatten(named, np.float64)) for unit in self.units]
            for slot, named in self.pop_scaler_state(state).items()
        }
        self.shard.load(slots, self.applied_steps(step))
        self.step_count = step
