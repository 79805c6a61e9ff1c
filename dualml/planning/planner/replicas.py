"""Seconds of messages between replicas: sums of gradients, and with ZeRO gathers of weights, as far
as computation does not hide them.

Sources: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", section 7 (bytes); Zhao et al. 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded
Data Parallel", section 3.3 (units, prefetch, hybrid sharding).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.planning.planner.cluster import Cluster
from dualml.planning.planner.collectives import gather_seconds, sum_seconds
from dualml.planning.planner.engine import PrecisionBytes
from dualml.planning.planner.layer_seconds import LayerSeconds
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.memory import Floats


def replica_seconds(
    x: Layouts,
    cluster: Cluster,
    precision: PrecisionBytes,
    parameters: Floats,
    layers: Floats,
    layer: LayerSeconds,
    output: LayerSeconds,
) -> Floats:
    """Return the exposed seconds of messages between the replicas of a stage with ``layers`` layers
    and ``parameters`` on each device, before ZeRO shards them, in an update.

    Without ZeRO one all-reduce of the gradients; with ZeRO-1 a reduce-scatter and an all-gather of
    the weights; with ZeRO-2 a reduce-scatter after each micro-batch; with ZeRO-3 see
    `sharded_seconds`. Between the groups of hybrid sharding, shards of gradients are added up.
    """
    gradients, weights = parameters * precision.gradients, parameters * precision.weights
    n, m = x.zero_devices, x.micro_batches
    forward, backward = layers * layer.forward, layers * layer.backward
    plain = hide(cluster, sum_seconds(cluster, n * x.replicate, x.tp, gradients), backward, layers)
    reduced = hide(cluster, reduce_seconds(cluster, x, gradients), backward, layers)
    gathered = hide(cluster, gather_seconds(cluster, n, x.tp, weights), forward, layers)
    sharded = m * sharded_seconds(cluster, x, gradients, weights, layers, layer, output)
    each = [plain, reduced + gathered, m * reduced + gathered, sharded]
    return np.asarray(np.choose(x.zero, each))


def reduce_seconds(cluster: Cluster, x: Layouts, nbytes: Any) -> Any:
    """Return the seconds of reducing and scattering ``nbytes`` of gradients over the devices that
    ZeRO shards over, and of adding up the shards of all groups of hybrid sharding."""
    n = x.zero_devices
    between = sum_seconds(cluster, x.replicate, x.tp * n, nbytes / n)
    return gather_seconds(cluster, n, x.tp, nbytes, cluster.software.rings) + between


def hide(cluster: Cluster, messages: Any, computing: Any, pieces: Any) -> Any:
    """Return the exposed seconds of messages that are sent in ``pieces`` beside ``computing``
    seconds: what is longer than the computation, the last piece, and what hidden messages slow the
    computation down by."""
    most = np.minimum(messages * (1 - 1 / pieces), cluster.overlap * computing)
    return messages - most * (1 - cluster.reached.contention)


def sharded_seconds(
    cluster: Cluster,
    x: Layouts,
    gradients: Any,
    weights: Any,
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
        gradients, weights: bytes of all units together.
        layers: units that are layers.
        layer, output: seconds of a layer and of the output layer.
    """
    n, pieces = x.zero_devices, cluster.software.pieces
    units = layers + 1
    unit = weights / units / pieces
    gather = pieces * gather_seconds(cluster, n, x.tp, unit, cluster.software.rings)
    reduce = pieces * reduce_seconds(cluster, x, gradients / units / pieces)
    gather_back = np.where(x.reshard == 1, gather, 0.0)
    slowed = 1 - cluster.reached.contention

    def exposed(messages: Any, computing: Any) -> Any:
        return messages - slowed * np.minimum(messages, cluster.overlap * computing)

    ahead = 2 * gather + (layers - 1) * exposed(gather, layer.forward)
    turn = exposed(2 * gather_back, output.total)
    back = (layers - 1) * exposed(gather_back + reduce, layer.backward) + 2 * reduce
    return ahead + turn + back
