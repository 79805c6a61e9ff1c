"""Seconds of an update, as a sum of parts.

Sources: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", sections 2 and 3 (bubble, messages), equation 3 (operations); Qi et al. 2023, "Zero
Bubble Pipeline Parallelism", table 1; DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", table 2
(DualPipe). A layer is priced in `layer_seconds`, messages between replicas in `replicas`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.planning.planner.activations import Floats
from dualml.planning.planner.cluster import Cluster
from dualml.planning.planner.engine import MEGATRON, PrecisionBytes, TrainingEngine
from dualml.planning.planner.layer_seconds import LayerSeconds, layer_seconds, output_seconds
from dualml.planning.planner.layouts import SCHEDULES, Layouts
from dualml.planning.planner.replicas import replica_seconds
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.stages import fullest_stage, stage_layers


@dataclass(frozen=True)
class UpdateSeconds:
    """Seconds of one update; every part is exposed (not overlapped) time.

    Attributes:
        products: matrix products and attention.
        traffic: all other work of the layers, at the speed of device memory.
        recompute: recomputation of both.
        tensor: messages between devices that share layers, sequences or experts.
        launches: devices that wait for their host to launch kernels.
        pipeline: messages between stages.
        bubble: stages that wait for their first and after their last micro-batch.
        replicas: sums of gradients and gathers of weights between replicas.
        update: the optimizer, at the speed of device memory.
    """

    products: Floats
    traffic: Floats
    recompute: Floats
    tensor: Floats
    launches: Floats
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


def seconds(
    shape: Shape,
    x: Layouts,
    cluster: Cluster,
    precision: PrecisionBytes,
    fused: bool = False,
    engine: TrainingEngine = MEGATRON,
) -> UpdateSeconds:
    """Return the seconds of an update for each layout in ``x``, by parts. ``fused``: attention
    saves no scores."""
    layer = layer_seconds(shape, x, cluster, precision, fused, engine)
    output = output_seconds(shape, x, cluster, precision, engine)
    first, second, last = stage_layers(shape, x)
    parameters = fullest_stage(shape, x, engine)
    m = x.micro_batches
    # The longest stage sets the pace; the others are what the first micro-batch waits for.
    ends = np.where(x.pp > 1, last * layer.total + output.total, 0.0)
    body = np.maximum(first, second)
    longest = np.maximum(body * layer.total + np.where(x.pp == 1, output.total, 0.0), ends)
    is_last = ends >= longest
    layers = np.where(is_last, last, body)
    outputs = np.where(is_last | (x.pp == 1), 1.0, 0.0)
    once = {
        key: m * (layers * value + outputs * output.parts[key])
        for key, value in layer.parts.items()
    }
    everything = shape.layers * layer.total + output.total
    waited = np.maximum(everything - longest, 0.0) * waiting_share(x, layer) / x.chunks
    message = _message_seconds(shape, x, cluster, precision)
    hidden = cluster.software.pipeline & (x.chunks > 1)
    sent = np.where(hidden, 0.0, 2 * m * x.chunks * message)
    return UpdateSeconds(
        **once,
        bubble=waited + np.where(x.pp > 1, 2 * (x.pp - 1) * message, 0.0),
        pipeline=np.where(x.pp > 1, sent, 0.0),
        replicas=replica_seconds(
            x, cluster, precision, parameters, np.maximum(body, 1), layer, output
        ),
        update=_optimizer_seconds(x, cluster, precision, parameters.total),
    )


def waiting_share(x: Layouts, layer: LayerSeconds) -> Any:
    """Return the bubble of each layout's schedule as a share of that of 1F1B.

    With F, B and W the seconds of a stage forward, backward without gradients of weights, and of
    these, p − 1 times F + B + W for 1F1B, F + B − W for ZB-H1, F + B − 2W for ZB-H2, and p/2 − 1
    times F + 2B − W for DualPipe, where forward and backward of two micro-batches overlap.
    """
    forward, weights = layer.forward, layer.weights
    inputs = layer.backward - weights
    p = np.maximum(x.pp, 2)
    half = np.maximum(p / 2 - 1, 0.0) / (p - 1)
    named = {
        "1f1b": layer.total,
        "zb-h1": forward + inputs - weights,
        "zb-h2": forward + inputs - 2 * weights,
        "dualpipe": half * (forward + 2 * inputs - weights),
    }
    chosen = np.choose(x.schedule, [named[name] + 0 * x.pp for name in SCHEDULES])
    return np.maximum(chosen, 0.0) / np.maximum(layer.total, np.finfo(float).tiny)


def _message_seconds(shape: Shape, x: Layouts, cluster: Cluster, precision: PrecisionBytes) -> Any:
    """Return the seconds of one message of a micro-batch between two stages, in one direction, of
    which each of tp devices sends its share (scatter-gather, Narayanan et al. 2021, section
    4.1)."""
    tokens = x.micro * (shape.sequence / x.cp)
    alpha, beta = cluster.link(x.pp, x.tp * x.cp * x.dp, ring=False)
    return alpha + beta * tokens * shape.hidden * precision.element / x.tp


def _optimizer_seconds(
    x: Layouts, cluster: Cluster, precision: PrecisionBytes, parameters: Floats
) -> Floats:
    """Return the seconds of the optimizer on a device with ``parameters`` before ZeRO shards them,
    which reads gradients and state and writes state and weights."""
    own = parameters / np.where(x.zero >= 1, x.zero_devices, 1)
    nbytes = precision.gradients + 2 * precision.state + precision.weights
    return np.asarray(own * nbytes / cluster.bandwidth)
