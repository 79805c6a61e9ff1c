"""Measurement of each layer's forward and backward time on a backend, used to balance stages."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.model.layers import Branch, Merge, Swap
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.optim import SGD
from dualml.backend import Backend, PipelineStages, Segment, TrainingSpec, backends

REPEATS = 7


def layer_times(backend: Backend, spec: ModelSpec, batch: int) -> dict[str, float]:
    """Return the median seconds of a forward plus a backward pass of each layer, by name, on
    ``batch`` samples, over seven runs after one that does not count.

    Every layer is a segment of its own; the first one computes no gradient of the samples. Branch,
    Merge and Swap only move tensors and count as 0.
    """
    draw = np.random.default_rng(0)
    shape: tuple[int, ...] = (batch, *spec.input_shape)
    x: Any = draw.normal(size=shape).astype(np.float32)
    if spec.takes_tokens:
        x = draw.integers(0, 2, shape).astype(np.int32)
    layers = [
        (n, layer) for n, layer in spec.layers if not isinstance(layer, Branch | Merge | Swap)
    ]
    weights, y = initial_weights(spec, 0), np.zeros(batch, np.int64)
    recipe = TrainingSpec(spec=spec, weights=weights, rule=SGD(lr=1.0), x=x, y=y, updates=1)
    segments = [Segment(((name, layer),), 1, {}) for name, layer in layers]
    stage = backend.require_capability(PipelineStages).stage(
        segments, recipe, first=True, last=False
    )
    stage.load(dict(recipe.weights), {}, 0)
    index, zeros = np.arange(batch), dict.fromkeys((name for name, _ in spec.layers), 0.0)
    spent: dict[str, list[float]] = {name: [] for name, _ in layers}
    for repeat in range(REPEATS + 1):
        values: Any = (stage.samples(index),)
        for number, (name, _) in enumerate(layers):
            backend.synchronize()
            begin = time.perf_counter()
            after = stage.forward(number, 0, values)
            stage.backward(number, 0, after)  # any gradient of that shape takes the same time
            backend.synchronize()
            if repeat:
                spent[name].append(time.perf_counter() - begin)
            values = after
    return zeros | {name: float(np.median(seconds)) for name, seconds in spent.items()}


def measure(comm: Any, argument: dict[str, Any]) -> dict[str, float]:
    """Run `layer_times` on the backend of a rank, on a CPU with one thread; started by
    `dualml.launch.ranks`. ``argument`` has ``model`` (its name), ``batch`` and, for texts,
    ``words`` and ``length``."""
    backend = backends()[comm.backend].create("cpu", 1)
    sizes = {key: argument[key] for key in ("words", "length") if argument.get(key)}
    return layer_times(backend, model(argument["model"], **sizes), argument["batch"])
