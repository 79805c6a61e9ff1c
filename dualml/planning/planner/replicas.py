"""Seconds of messages between replicas: sums of gradients, and with ZeRO gathers of weights, as far
as computation does not hide them.

Sources: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", section 7 (bytes); Zhao et al. 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded
Data Parallel", section 3.3 (units, prefetch, hybrid sharding).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.planning.planner.activations import Floats
from dualml.planning.planner.cluster import Cluster
from dualml.planning.planner.collectives import gather_seconds, sum_seconds
from dualml.planning.planner.engine import PrecisionBytes
from dualml.planning.planner.layer_seconds import LayerSeconds
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.stages import StageParameters


def replica_seconds(
    x: Layouts,
    cluster: Cluster,
    precision: PrecisionBytes,
    parameters: StageParameters,
    layers: Floats,
    layer: LayerSeconds,
    output: LayerSeconds,
) -> Floats:
    """Return the exposed seconds of messages between the replicas of a stage with ``layers`` layers
    and ``parameters`` on each device, before ZeRO shards them, in an update. Experts are summed and
    gathered among the devices that hold the same ones.

    Without ZeRO one all-reduce of the gradients; with ZeRO-1 a reduce-scatter and an all-gather of
    the weights; with ZeRO-2 a reduce-scatter after each micro-batch; with ZeRO-3 see
    `sharded_seconds`. Between the groups of hybrid sharding, shards of gradients are added up.
    """
    m, pieces = x.micro_batches, cluster.software.pieces
    forward, backward = layers * layer.forward, layers * layer.backward
    # ZeRO-3 sends a unit in pieces, the others everything at once.
    parts = np.where(x.zero == 3, (layers + 1) * pieces, 1)
    dense = _message_seconds(x, cluster, precision, parameters.dense / parts, x.zero_devices, x.tp)
    experts = _message_seconds(
        x, cluster, precision, parameters.experts / parts, x.expert_devices, x.ep * x.etp
    )
    summed, scattered, gathered = (a + b for a, b in zip(dense, experts, strict=True))
    plain = hide(cluster, summed, backward, layers)
    reduced = hide(cluster, scattered, backward, layers)
    collected = hide(cluster, gathered, forward, layers)
    sharded = m * sharded_seconds(
        cluster, x, pieces * scattered, pieces * gathered, layers, layer, output
    )
    each = [plain, reduced + collected, m * reduced + collected, sharded]
    return np.asarray(np.choose(x.zero, each))


def _message_seconds(
    x: Layouts, cluster: Cluster, precision: PrecisionBytes, parameters: Floats, n: Any, stride: Any
) -> tuple[Any, Any, Any]:
    """Return the seconds, while nothing is computed, of adding up the gradients of ``parameters``
    among n devices that are ``stride`` ranks apart and all groups of hybrid sharding, of reducing
    and scattering them, and of gathering the weights."""
    rings = cluster.software.rings
    gradients, weights = parameters * precision.gradients, parameters * precision.weights
    summed = sum_seconds(cluster, n * x.replicate, stride, gradients)
    between = sum_seconds(cluster, x.replicate, stride * n, gradients / n)
    reduced = gather_seconds(cluster, n, stride, gradients, rings) + between
    gathered = gather_seconds(cluster, n, stride, weights, rings)
    some = parameters > 0
    return summed * some, reduced * some, gathered * some


def hide(cluster: Cluster, messages: Any, computing: Any, pieces: Any) -> Any:
    """Return the exposed seconds of messages that are sent in ``pieces`` beside ``computing``
    seconds: what is longer than the computation, the last piece, and what hidden messages slow the
    computation down by."""
    most = np.minimum(messages * (1 - 1 / pieces), cluster.overlap * computing)
    return messages - most * (1 - cluster.reached.contention)


def sharded_seconds(
    cluster: Cluster,
    x: Layouts,
    reduce: Any,
    gather: Any,
    layers: Any,
    layer: LayerSeconds,
    output: LayerSeconds,
) -> Any:
    """Return the exposed seconds of ZeRO-3's messages for one micro-batch, unit by unit.

    A unit is a layer; embedding and output layer count as one more, of a layer's size. While a unit
    computes, the weights of the next one are gathered, and backward also the gradients of the
    previous one are reduced and scattered. Exposed are the first gathers, the last reductions, and
    of each unit what its computation does not hide. Without ``reshard`` nothing is gathered
    backward.

    Args:
        reduce, gather: seconds of the messages of one unit.
        layers: units that are layers.
        layer, output: seconds of a layer and of the output layer.
    """
    gather_back = np.where(x.reshard == 1, gather, 0.0)
    slowed = 1 - cluster.reached.contention

    def exposed(messages: Any, computing: Any) -> Any:
        return messages - slowed * np.minimum(messages, cluster.overlap * computing)

    ahead = 2 * gather + (layers - 1) * exposed(gather, layer.forward)
    turn = exposed(2 * gather_back, output.total)
    back = (layers - 1) * exposed(gather_back + reduce, layer.backward) + 2 * reduce
    return ahead + turn + back
