"""Seconds of collectives and of all-to-all messages, by the algorithm that is fastest.

All messages are priced by α and β as in `dualml.planning.cost`. Sources: Thakur, Rabenseifner &
Gropp 2005, section 4 (ring); Sanders, Speck & Träff 2009, "Two-tree algorithms for full bandwidth
broadcast, reduction and scan" (tree); Klenk et al. 2020, "An In-Network Architecture for
Accelerating Shared-Memory Multiprocessor Collectives" (sums by the switch).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.planning.cost.topology import ring_ports
from dualml.planning.planner.cluster import Cluster

#: Bytes whose sum by a node's switch reaches half of its bandwidth: what nccl-tests measured among
#: 8 H100s for 4 to 32 MiB (kvcache-ai/Mooncake, pull request 3484).
SWITCH_HALF = 15e6


def ring_seconds(n: Any, nbytes: Any, alpha: Any, beta: Any) -> Any:
    """Return the seconds of a ring all-gather or reduce-scatter of ``nbytes`` in total over n
    devices."""
    return (n - 1) * alpha + (n - 1) / n * nbytes * beta


def tree_seconds(n: Any, nbytes: Any, alpha: Any, beta: Any) -> Any:
    """Return the seconds of an all-reduce of ``nbytes`` by two trees over n devices: up and down,
    each byte sent twice by every device."""
    return np.where(n > 1, 2 * np.ceil(np.log2(n)) * alpha + 2 * nbytes * beta, 0.0)


def gather_seconds(cluster: Cluster, n: Any, stride: Any, nbytes: Any, rings: bool = True) -> Any:
    """Return the seconds in which n devices that are ``stride`` ranks apart gather, or reduce and
    scatter, ``nbytes`` in total; without ``rings`` each through its own port."""
    alpha, beta = cluster.link(n, stride)
    if not rings:
        _, beta = cluster.link(n, stride, ring=False)
    return ring_seconds(n, nbytes, alpha, beta)


def sum_seconds(cluster: Cluster, n: Any, stride: Any, nbytes: Any) -> Any:
    """Return the seconds in which n devices that are ``stride`` ranks apart add up ``nbytes``: by a
    ring, a tree, or inside a node by its switch, whichever is fastest."""
    alpha, beta = cluster.link(n, stride)
    fastest = np.minimum(
        2 * ring_seconds(n, nbytes, alpha, beta), tree_seconds(n, nbytes, alpha, beta)
    )
    if not cluster.switch_sums:
        return fastest
    share = cluster.reached.links
    switched = (nbytes + SWITCH_HALF) / (cluster.switch_sums * share)
    alone = (n == 1) | cluster.spans_nodes(n, stride)
    return np.where(alone, fastest, np.minimum(fastest, switched))


def exchange_seconds(cluster: Cluster, n: Any, stride: Any, nbytes: Any, copies: int = 1) -> Any:
    """Return the seconds in which each of n devices sends ``nbytes`` in equal parts to all of them
    (all-to-all). What leaves the node uses the sender's own port.

    If the bytes are ``copies`` of tokens for different devices, a node receives a token once and
    forwards it inside (DeepSeek-AI 2024, section 3.2.2): of N nodes, N(1 − (1 − 1/N)^copies)
    receive it, if all are equally likely.
    """
    n = np.asarray(n)
    away = cluster.spans_nodes(n, stride)
    near = np.where(away, ring_ports(cluster.node, n, stride), n)
    inside = (near - 1) / n * nbytes * cluster.inside.beta_s_per_byte / cluster.reached.links
    nodes = n / near
    reached = nodes * (1 - (1 - 1 / nodes) ** copies) / copies
    outside = (
        reached * (n - near) / n * nbytes * cluster.between.beta_s_per_byte / cluster.reached.ports
    )
    alpha = np.where(away, cluster.between.alpha_s, cluster.inside.alpha_s)
    return np.where(n > 1, alpha + np.maximum(inside, outside), 0.0)
