"""Seconds of an update, as a sum of parts.

Sources: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", sections 2 and 3 (bubble, messages), equation 3 (operations); Rajbhandari et al. 2020,
section 7 (ZeRO's messages). All messages are priced by α and β as in `dualml.planning.cost`: a ring
over n devices gathers or scatters S bytes in (n−1)·α + (n−1)/n·S·β, and an all-reduce takes twice
that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.planning.planner.cluster import Cluster
from dualml.planning.planner.engine import MEGATRON, PrecisionBytes, TrainingEngine
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.memory import (
    RECOMPUTE_FULL,
    Floats,
    fullest_parameters,
    layer_activations,
    stage_layers,
)
from dualml.planning.planner.shape import Shape


@dataclass(frozen=True)
class UpdateSeconds:
    """Seconds of one update; every part is exposed (not overlapped) time.

    Attributes:
        products: matrix products.
        traffic: all other work of the layers, at the speed of device memory.
        recompute: recomputation of both.
        tensor: sums and gathers between devices that share layers or sequences.
        pipeline: messages between stages.
        bubble: stages that wait for their first and after their last micro-batch.
        replicas: sums of gradients and gathers of weights between replicas.
        update: the optimizer, at the speed of device memory.
    """

    products: Floats
    traffic: Floats
    recompute: Floats
    tensor: Floats
    pipeline: Floats
    bubble: Floats
    replicas: Floats
    update: Floats

    @property
    def total(self) -> Floats:
        """Sum over all parts for each layout, in seconds."""
        return np.asarray(sum(vars(self).values()))

    def describe(self, row: int) -> dict[str, float]:
        """Return part → seconds of the layout in ``row``, from 0."""
        return {key: float(values[row]) for key, values in vars(self).items()}


@dataclass(frozen=True)
class _Work:
    """Seconds of one micro-batch in a layer or in the output layer."""

    products: Any
    traffic: Any
    recompute: Any
    tensor: Any

    @property
    def total(self) -> Any:
        """Sum over all parts, in seconds."""
        return self.products + self.traffic + self.recompute + self.tensor


def ring_seconds(n: Any, nbytes: Any, alpha: Any, beta: Any) -> Any:
    """Return the seconds of a ring all-gather or reduce-scatter of ``nbytes`` in total over n
    devices."""
    return (n - 1) * alpha + (n - 1) / n * nbytes * beta


def seconds(
    shape: Shape,
    x: Layouts,
    cluster: Cluster,
    precision: PrecisionBytes,
    fused: bool = False,
    engine: TrainingEngine = MEGATRON,
) -> UpdateSeconds:
    """Return the seconds of an update of every layout."""
    layer = _layer_work(shape, x, cluster, precision, fused, engine)
    output = _output_work(shape, x, cluster, engine)
    first, second, last = stage_layers(shape, x)
    m = x.micro_batches
    # The longest stage sets the pace; the others are what the first micro-batch waits for.
    ends = np.where(x.pp > 1, last * layer.total + output.total, 0.0)
    body = np.maximum(first, second)
    longest = np.maximum(body * layer.total + np.where(x.pp == 1, output.total, 0.0), ends)
    is_last = ends >= longest
    layers = np.where(is_last, last, body)
    outputs = np.where(is_last | (x.pp == 1), 1.0, 0.0)
    once = {
        key: m * (layers * vars(layer)[key] + outputs * vars(output)[key]) for key in vars(layer)
    }
    everything = shape.layers * layer.total + output.total
    bubble = np.maximum(everything - longest, 0.0) / x.chunks
    passes = _message_seconds(shape, x, cluster, precision)
    replicas = _replica_seconds(shape, x, cluster, precision, longest, engine)
    return UpdateSeconds(
        **once,
        bubble=bubble + np.where(x.pp > 1, 2 * (x.pp - 1) * passes, 0.0),
        pipeline=np.where(x.pp > 1, 2 * m * x.chunks * passes, 0.0),
        replicas=replicas,
        update=_optimizer_seconds(shape, x, cluster, precision, engine),
    )


def _layer_work(
    shape: Shape,
    x: Layouts,
    cluster: Cluster,
    precision: PrecisionBytes,
    fused: bool,
    engine: TrainingEngine,
) -> _Work:
    """Return the seconds of one micro-batch in a layer: the forward pass, a backward pass of twice
    the work, recomputation, and messages inside the layer."""
    tokens = x.micro * (shape.sequence / x.cp)
    speed = cluster.peak * cluster.reached.products
    products, scores = (flops * tokens / x.tp / speed for flops in shape.layer_flops(fused))
    everything, _ = layer_activations(shape, x, precision, fused, engine)
    moved = cluster.reached.traffic / cluster.bandwidth
    bare, _ = layer_activations(shape, x, precision, True, engine)
    again = np.choose(
        x.recompute,
        [
            np.zeros(len(x)),
            scores + (everything - bare) * moved,
            products + scores + everything * moved,
        ],
    )
    # Two sums of the layer's width forward, two backward, two with full recomputation.
    sums = np.where(x.recompute == RECOMPUTE_FULL, 6, 4)
    width = tokens * shape.hidden * precision.element
    messages = sums * 2 * ring_seconds(x.tp, width, *cluster.link(x.tp, 1))
    # Keys and values of the whole sequence: gathered forward and backward, their gradients
    # scattered (Grattafiori et al. 2024, section 3.3.2).
    pairs = x.cp * tokens * 2 * shape.keys * precision.element / x.tp
    messages = messages + 3 * ring_seconds(x.cp, pairs, *cluster.link(x.cp, x.tp))
    return _Work(3 * (products + scores), 3 * everything * moved, again, messages)


def _output_work(shape: Shape, x: Layouts, cluster: Cluster, engine: TrainingEngine) -> _Work:
    """Return the seconds of one micro-batch in the output layer, forward and backward: products,
    and the logits in float32."""
    tokens = x.micro * (shape.sequence / x.cp) / np.where(engine.splits_embedding, x.tp, 1)
    products = 6.0 * shape.hidden * shape.vocabulary * tokens
    logits = 3 * 4.0 * shape.vocabulary * tokens
    zero = np.zeros(len(x))
    speed = cluster.peak * cluster.reached.products
    return _Work(products / speed, logits * cluster.reached.traffic / cluster.bandwidth, zero, zero)


def _message_seconds(shape: Shape, x: Layouts, cluster: Cluster, precision: PrecisionBytes) -> Any:
    """Return the seconds of one message of a micro-batch between two stages, in one direction, of
    which each of tp devices sends its share (scatter-gather, Narayanan et al. 2021, section
    4.1)."""
    tokens = x.micro * (shape.sequence / x.cp)
    alpha, beta = cluster.link(x.pp, x.tp * x.cp * x.dp, ring=False)
    return alpha + beta * tokens * shape.hidden * precision.element / x.tp


def _replica_seconds(
    shape: Shape,
    x: Layouts,
    cluster: Cluster,
    precision: PrecisionBytes,
    longest: Floats,
    engine: TrainingEngine,
) -> Floats:
    """Return the exposed seconds of gradient sums, and with ZeRO of weight gathers, in the fullest
    stage.

    Without ZeRO one all-reduce of the gradients; with ZeRO-1 a reduce-scatter and an all-gather of
    the weights; with ZeRO-2 a reduce-scatter after each micro-batch; with ZeRO-3 also two
    all-gathers of the weights per micro-batch, layer by layer.
    """
    n, m = x.zero_devices, x.micro_batches
    parameters = fullest_parameters(shape, x, engine)
    alpha, beta = cluster.link(n, x.tp)
    summed = ring_seconds(n, parameters * precision.gradients, alpha, beta)
    gathered = ring_seconds(n, parameters * precision.weights, alpha, beta)
    # ZeRO-3: a message per layer and end, which reaches less of the bandwidth.
    pieces = ring_seconds(n, parameters * (precision.gradients + 2 * precision.weights), 0.0, beta)
    units = -(-shape.layers // x.pp) + 1
    by_layer = 3 * units * (n - 1) * alpha + pieces / cluster.reached.gathers
    each = np.choose(
        x.zero,
        [
            2 * summed,
            summed + gathered,
            m * summed + gathered,
            m * by_layer,
        ],
    )
    behind = cluster.overlap * longest * 2 / 3 * np.where(x.zero >= 2, m, 1)
    return np.asarray(each - np.minimum(each, behind))


def _optimizer_seconds(
    shape: Shape, x: Layouts, cluster: Cluster, precision: PrecisionBytes, engine: TrainingEngine
) -> Floats:
    """Return the seconds of the optimizer on a device of the fullest stage, which reads gradients
    and state and writes state and weights."""
    own = fullest_parameters(shape, x, engine) / np.where(x.zero >= 1, x.zero_devices, 1)
    nbytes = precision.gradients + 2 * precision.state + precision.weights
    return np.asarray(own * nbytes / cluster.bandwidth)
