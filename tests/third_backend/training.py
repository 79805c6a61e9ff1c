"""The training of one model: weights, optimizer state and data of a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.algorithms.model.dropout import dropout_masks
from dualml.backend import (
    ActivationCapture,
    BatchTrace,
    GradientAccess,
    Training,
    TrainingSpec,
    batch_digest,
    split_into_chunks,
)
from third_backend.network import LOSSES, forward
from third_backend.optim import Optimizer
from third_backend.values import Array, Value, backward

Arrays = dict[str, Array]


def single(named: Mapping[str, Any]) -> Arrays:
    """Return float32 copies of named arrays."""
    return {name: np.array(a, np.float32) for name, a in named.items()}


class SingleTraining(Training, ActivationCapture, GradientAccess):
    """A training in float32 NumPy that implements `dualml.backend.Training`, activation capture and
    gradient access."""

    def __init__(self, recipe: TrainingSpec) -> None:
        self.recipe, self.step_count, spec = recipe, 0, recipe.spec
        self.own = single({name: recipe.weights[name] for name in spec.parameters()})
        self.statistics = single({name: recipe.weights[name] for name in spec.buffers})
        self.optimizer, self.loss = Optimizer(recipe.rule, self.own), LOSSES[recipe.loss]

    def inputs(self, x: Array) -> Any:
        return x if self.recipe.spec.takes_tokens else Value(x)

    def gradient(self, batch: Array) -> tuple[float, Arrays]:
        """Return the mean loss and mean gradient of a batch, accumulated over its chunks."""
        loss, total = 0.0, {name: np.zeros_like(w) for name, w in self.own.items()}
        for part, share in split_into_chunks(batch, self.recipe.chunk):
            own = {name: Value(w) for name, w in self.own.items()}
            drawn = dropout_masks(self.recipe.spec, self.recipe.seed, self.step_count + 1, part)
            x, y = self.fetch_batch(part)
            (logits,), _ = forward(
                self.recipe.spec.layers,
                own | self.buffers(),
                [self.inputs(x)],
                [*drawn.values()],
                learning=True,
            )
            value = self.loss(logits, y)
            loss += share * float(value.data)
            found = backward([(value, np.float32(share))], list(own.values()))
            for name, g in zip(own, found, strict=True):
                total[name] += g
        return loss, total

    def step(self, batch: Array, step: int) -> float:
        loss, gradients = self.gradient(batch)
        self.update(gradients, step)
        return loss

    def update(self, gradients: Mapping[str, Array], step: int) -> None:
        self.optimizer.update(gradients, step, self.recipe.learning_rate(step))
        self.step_count = step

    def trace(self, batch: Array, probe: Array) -> BatchTrace:
        with self.preserving_statistics():
            return BatchTrace(*self.capture_forward(batch, probe), *self.gradient(batch))

    def capture_forward(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        _, outputs = self.infer(self.fetch_batch(probe)[0])
        return batch_digest(*self.fetch_batch(batch)), {n: y.data for n, y in outputs.items()}

    def fetch_batch(self, batch: Array) -> tuple[Array, Array]:
        return self.recipe.x[batch], self.recipe.y[batch]

    def infer(self, x: Array) -> tuple[Value, dict[str, Any]]:
        """Return the logits, and the output of every layer, without moving the running
        statistics."""
        own = {name: Value(w) for name, w in self.own.items()} | self.buffers()
        (logits,), outputs = forward(self.recipe.spec.layers, own, [self.inputs(x)])
        return logits, outputs

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        logits, _ = self.infer(x)
        return float(self.loss(logits, y).data), logits.data.argmax(axis=-1)

    def weights(self) -> Arrays:
        both = {name: w.copy() for name, w in self.own.items()} | self.running_statistics()
        return {name: both[name] for name in self.recipe.spec.tensors()}

    def buffers(self) -> dict[str, Value]:
        """Return the running statistics as values that share memory with them: batch normalisation
        updates them in place."""
        return {name: Value(a) for name, a in self.statistics.items()}

    def running_statistics(self) -> Arrays:
        return {name: a.copy() for name, a in self.statistics.items()}

    def load_running_statistics(self, statistics: Mapping[str, Array]) -> None:
        for name, a in self.statistics.items():
            a[...] = statistics[name]

    def state(self) -> dict[str, Arrays]:
        return self.optimizer.state()

    def load(self, weights: Mapping[str, Any], state: Mapping[str, Any], step: int) -> None:
        for name, w in self.own.items():
            w[...] = weights[name]
        self.load_running_statistics(weights)
        self.optimizer.load(state, step)
        self.step_count = step

    def make_buckets(self, layout: Sequence[Sequence[str]]) -> SingleBuckets:
        return SingleBuckets(self, layout)


class SingleBuckets:
    """Gradient buckets that implement `dualml.backend.GradientBuckets`; ``layout`` lists the names
    of each bucket."""

    def __init__(self, training: SingleTraining, layout: Sequence[Sequence[str]]) -> None:
        self.training, self.layout = training, layout

    def gradient(self, batch: Array, factor: float) -> tuple[float | None, list[Array]]:
        if not len(batch):
            return None, [np.zeros_like(bucket) for bucket in self.parameters()]
        loss, gradients = self.training.gradient(batch)
        return loss, [np.float32(factor) * bucket for bucket in self.flat(gradients)]

    def update(self, gradients: Sequence[Array], step: int) -> None:
        self.training.update(self.unflatten(gradients), step)

    def parameters(self) -> list[Array]:
        return self.flat(self.training.own)

    def assign(self, parameters: Sequence[Array]) -> None:
        for name, w in self.unflatten(parameters).items():
            self.training.own[name][...] = w

    def flat(self, named: Mapping[str, Array]) -> list[Array]:
        return [np.concatenate([named[n].ravel() for n in names]) for names in self.layout]

    def unflatten(self, tensors: Sequence[Array]) -> Arrays:
        found, own = {}, self.training.own
        for names, tensor in zip(self.layout, tensors, strict=True):
            ends = np.cumsum([own[n].size for n in names])
            for name, part in zip(names, np.split(tensor, ends[:-1]), strict=True):
                found[name] = part.reshape(own[name].shape).copy()
        return {name: found[name] for name in own}
