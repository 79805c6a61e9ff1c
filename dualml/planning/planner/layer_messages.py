"""Seconds of a layer's messages: between devices that share it, its sequences or its experts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.planning.planner.cluster import Cluster
from dualml.planning.planner.collectives import exchange_seconds, gather_seconds, sum_seconds
from dualml.planning.planner.engine import PrecisionBytes
from dualml.planning.planner.layouts import SCHEDULES, Layouts
from dualml.planning.planner.memory import RECOMPUTE_FULL
from dualml.planning.planner.shape import Shape


def message_seconds(
    shape: Shape,
    x: Layouts,
    tokens: Any,
    cluster: Cluster,
    precision: PrecisionBytes,
    matrices: Any,
    scores: Any,
) -> tuple[Any, Any]:
    """Return the exposed seconds of a layer's messages between devices that share it, its sequences
    or its experts (`expert_seconds`): those of all passes, and those of the forward pass alone.

    Two sums of the layer's width forward, two backward, two with full recomputation; sequence
    parallelism replaces each by a gather and a scatter. Keys and values of the whole sequence are
    gathered forward and backward, and their gradients scattered (Grattafiori et al. 2024, section
    3.3.2). Where the software sends them beside ``matrices`` and ``scores``, seconds of products
    and of attention, only a share of the first and what is longer than the second is exposed.
    """
    reached, software = cluster.reached, cluster.software
    sums = np.where(x.recompute == RECOMPUTE_FULL, 6, 4)
    width = tokens * shape.hidden * precision.element
    whole = sum_seconds(cluster, x.tp, 1, width)
    split = 2 * gather_seconds(cluster, x.tp, 1, width)
    # The experts' tokens are gathered by `expert_seconds` instead.
    routed_share = 0.0 if shape.shared_experts else shape.moe_layers / shape.layers / 2
    tensor = sums * (1 - routed_share) * np.where(x.sp == 1, split, whole)
    if software.tensor:
        tensor = np.maximum(reached.exposed * tensor, tensor - matrices)
    pairs = (
        x.cp
        * tokens
        * (shape.keys + shape.values)
        * precision.element
        / np.minimum(x.tp, shape.kv_heads)
    )
    context = 3 * gather_seconds(cluster, x.cp, x.tp, pairs)
    if software.context:
        hidden = np.minimum(context, scores)
        context = context - hidden * (1 - reached.contention)
    routed = expert_seconds(shape, x, tokens, cluster, precision, matrices)
    return tensor + context + routed, 2 * tensor / sums + context / 3 + routed / 3


def expert_seconds(
    shape: Shape,
    x: Layouts,
    tokens: Any,
    cluster: Cluster,
    precision: PrecisionBytes,
    matrices: Any,
) -> Any:
    """Return the exposed seconds in which a layer's tokens are sent to their experts and back, the
    mean over all layers: two exchanges forward, two backward, two with full recomputation, and as
    many gathers and scatters among the devices that share an expert.

    DualPipe sends them beside the ``matrices`` of another micro-batch (DeepSeek-AI 2024, section
    3.2.1), as long as these take.
    """
    if not shape.experts:
        return np.zeros(len(x))
    sent = tokens / x.tp * shape.experts_per_token * shape.hidden * precision.element
    exchanges = np.where(x.recompute == RECOMPUTE_FULL, 6, 4)
    routed = exchange_seconds(cluster, x.ep, x.etp, sent, shape.experts_per_token)
    routed = routed + gather_seconds(cluster, x.etp, 1, sent * x.etp)
    routed = exchanges * routed * shape.moe_layers / shape.layers
    hidden = np.where(x.schedule == SCHEDULES.index("dualpipe"), np.minimum(routed, matrices), 0.0)
    return routed - hidden * (1 - cluster.reached.contention)
