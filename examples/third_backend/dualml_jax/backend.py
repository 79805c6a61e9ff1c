"""The required part of a backend, `Backend` and `Training`, without optional capabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dualml.algorithms.model.dropout import dropout_masks
from dualml.backend import (
    Backend,
    BatchTrace,
    Training,
    TrainingSpec,
    batch_digest,
    split_into_chunks,
)
from dualml.common.errors import Unsupported, UserError
from dualml_jax.network import LOSSES, infer, loss_and_gradient
from dualml_jax.optim import UPDATES, update

Arrays = dict[str, np.ndarray]


class JaxBackend(Backend):
    """A CPU backend in JAX that implements `dualml.backend.Backend`."""

    name = "jax"
    dtype = "float32"

    def __init__(self, device: str = "auto", threads: int = 0) -> None:
        if device not in ("auto", "cpu"):
            raise UserError(f"backend jax runs on the CPU only; received --device {device}")

    def environment(self) -> dict[str, str]:
        return {"jax": jax.__version__, "numpy": np.__version__, "device": "cpu"}

    def training(self, recipe: TrainingSpec) -> JaxTraining:
        return JaxTraining(recipe)

    def materialize_losses(self, losses: Sequence[Any]) -> np.ndarray:
        return np.array(losses, np.float64)

    def synchronize(self) -> None:
        """Wait for JAX's asynchronous dispatch; losses and weights that are read already wait by
        themselves."""
        jax.block_until_ready(jnp.zeros(1))


class JaxTraining(Training):
    """A training in JAX that implements `dualml.backend.Training`."""

    def __init__(self, recipe: TrainingSpec) -> None:
        if recipe.rule.name not in UPDATES:
            raise Unsupported(f"jax does not implement the update rule {recipe.rule.name!r}")
        self.recipe = recipe
        self.load(recipe.weights, recipe.initial_state(), 0)

    def load(self, weights: Mapping[str, Any], state: Mapping[str, Any], step: int) -> None:
        """Load weights and state after update ``step``; the only copy, because JAX arrays are
        immutable."""
        self.step_count, self.own = step, single(weights)
        self.slots = {slot: single(state[slot]) for slot in self.recipe.rule.state_keys}

    def gradient(self, batch: np.ndarray) -> tuple[Any, dict[str, Any]]:
        """Return the mean loss and mean gradient of a batch, accumulated over its chunks."""
        loss, total = 0.0, dict.fromkeys(self.own, 0.0)
        for part, share in split_into_chunks(batch, self.recipe.chunk):
            drawn = dropout_masks(self.recipe.spec, self.recipe.seed, self.step_count + 1, part)
            value, gradient = loss_and_gradient(
                self.own,
                self.recipe.x[part],
                self.recipe.y[part],
                tuple(drawn.values()),
                model=self.recipe.spec,
                loss=self.recipe.loss,
            )
            loss = loss + share * value
            total = {name: total[name] + share * gradient[name] for name in total}
        return loss, total

    def step(self, batch: np.ndarray, step: int) -> Any:
        loss, gradients = self.gradient(batch)
        rule, rate = self.recipe.rule, self.recipe.learning_rate(step)
        update(rule, self.own, self.slots, gradients, step, rate)
        self.step_count = step
        return loss

    def trace(self, batch: np.ndarray, probe: np.ndarray) -> BatchTrace:
        loss, gradients = self.gradient(batch)
        _, outputs = infer(self.own, self.recipe.x[probe], model=self.recipe.spec)
        layers = {name: outputs[name] for name, _ in self.recipe.spec.layers}
        given = batch_digest(self.recipe.x[batch], self.recipe.y[batch])
        return BatchTrace(given, copies(layers), float(loss), copies(gradients))

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
        logits, _ = infer(self.own, x, model=self.recipe.spec)
        return float(LOSSES[self.recipe.loss](logits, y)), np.asarray(logits.argmax(-1))

    def weights(self) -> Arrays:
        return copies(self.own)

    def state(self) -> dict[str, Arrays]:
        return {slot: copies(named) for slot, named in self.slots.items()}


def single(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return named arrays as float32 JAX arrays."""
    return {name: jnp.array(a, jnp.float32) for name, a in named.items()}


def copies(named: Mapping[str, Any]) -> Arrays:
    """Return NumPy copies of named arrays."""
    return {name: np.array(a) for name, a in named.items()}
