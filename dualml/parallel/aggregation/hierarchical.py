"""Two-level all-reduce: sum inside each node first, so that less data crosses the network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from dualml.algorithms.communicator.base import Communicator
from dualml.algorithms.communicator.parts import part_start
from dualml.common.former_members import keep_former_members
from dualml.parallel.aggregation.base import STRATEGIES, Strategy, Tensor, execute_schedule
from dualml.parallel.aggregation.ring import ring_pass
from dualml.parallel.aggregation.schedule import CollectiveSchedule, ReceiveOp, StepGroup, Transfer


@keep_former_members
@STRATEGIES.register("hierarchical", 85)
@dataclass(frozen=True)
class Hierarchical(Strategy):
    """Reduce-scatters inside nodes, all-reduces between nodes, all-gathers inside: three rings.

    There are K ranks on each of N nodes, rank r on node ⌊r / K⌋. Each node first sums its vectors,
    and each of its ranks then holds one K-th of the node's sum. Ranks that hold the same part, one
    per node, sum it around a ring between the nodes. 2 (N − 1) / N · S bytes leave a node, against
    2 (n − 1) / n · S in the ring over all n = K·N ranks; a rank sends as many bytes as in the ring,
    in fewer messages.

    Args:
        per_node: K; 0: the number of ranks on each machine, if all have equally many consecutive
            ranks. K must be above 1, below n and divide n; otherwise the largest divisor of n up to
            √n takes its place.

    Source: Jia et al. 2018, "Highly Scalable Deep Learning Training System with Mixed-Precision:
    Training ImageNet in Four Minutes", section 3.3; Mikami et al. 2018, "Massively Distributed SGD:
    ImageNet/ResNet-50 Training in a Flash", section 3.2 (two levels of reduce-scatter).
    """

    per_node: int = 0

    formulas: ClassVar = (
        r"m = 2 (K-1) + 2 (N-1)",
        r"b = 2 \frac{n-1}{n} S",
        r"T = ( 2 (K-1) + 2 (N-1) ) \alpha + 2 \frac{n-1}{n} S \beta",
    )

    def sum(self, comm: Communicator, x: Tensor) -> Tensor:
        """Sum ``x`` over the ranks and return it, with the number of ranks on each machine as K if
        ``per_node`` is 0. ``x`` may be overwritten."""
        way = self if self.per_node else self.for_nodes(comm.ranks_per_machine())
        return execute_schedule(way.schedule(comm.size), comm, x)

    def for_nodes(self, per_node: int) -> Hierarchical:
        """Return a copy with ``per_node`` ranks on each node."""
        return replace(self, per_node=per_node)

    def ranks_on_node(self, n: int) -> int:
        """Return the number K of ranks on each node: ``per_node`` if it is above 1, below n and
        divides n, else the largest divisor of n up to √n."""
        k = self.per_node
        if 1 < k < n and n % k == 0:
            return k
        return max(d for d in range(1, int(n**0.5) + 1) if n % d == 0)

    def schedule(self, n: int) -> CollectiveSchedule:
        """Return the steps of the four passes: reduce-scatter inside nodes, reduce-scatter and
        all-gather between nodes, all-gather inside nodes; the vector has n chunks."""
        k = self.ranks_on_node(n)
        nodes = n // k

        def intra_node_steps(first: int, then: ReceiveOp) -> list[tuple[Transfer, ...]]:
            """Return the steps of the rings inside the nodes, on parts of as many chunks as there
            are nodes."""
            return [
                tuple(
                    Transfer(
                        a * k + t.source,
                        a * k + t.target,
                        t.first * nodes,
                        t.first * nodes + nodes - 1,
                        then,
                    )
                    for a in range(nodes)
                    for t in step
                )
                for step in ring_pass(k, first, then)
            ]

        def inter_node_steps(first: int, then: ReceiveOp) -> list[tuple[Transfer, ...]]:
            """Return the steps of the rings between nodes: local rank l of each node holds part l +
            1."""
            return [
                tuple(
                    Transfer(t.source * k + r, t.target * k + r, chunk, chunk, then)
                    for r in range(k)
                    for t in step
                    for chunk in [(r + 1) % k * nodes + t.first]
                )
                for step in ring_pass(nodes, first, then)
            ]

        steps = [
            *intra_node_steps(0, "add"),
            *inter_node_steps(0, "add"),
            *inter_node_steps(1, "put"),
            *intra_node_steps(1, "put"),
        ]
        return CollectiveSchedule(n, n, tuple(steps))

    def step_groups(self, n: int, length: int) -> list[StepGroup]:
        """Return one group for each of the four passes, without passes among a single rank."""
        k = self.ranks_on_node(n)
        nodes = n // k
        part, chunk = part_start(length, n, nodes), -(-length // n)

        def intra_node_groups(added: int) -> list[StepGroup]:
            return [StepGroup("turn", k, 1, part, added, nodes * length, n, k - 1)] if k > 1 else []

        def inter_node_groups(added: int) -> list[StepGroup]:
            return (
                [StepGroup("shift", k, 1, chunk, added, length, n, nodes - 1)] if nodes > 1 else []
            )

        return [
            *intra_node_groups(part),
            *inter_node_groups(chunk),
            *inter_node_groups(0),
            *intra_node_groups(0),
        ]

    def max_rank_volume(self, n: int, length: int) -> tuple[int, int]:
        """Return 2 (K − 1) + 2 (N − 1) messages, with K ranks (`ranks_on_node`) on each of N nodes,
        and the elements that the busiest rank sends."""
        import numpy as np

        k = self.ranks_on_node(n)
        nodes = n // k
        # Row: part, column: its chunk. Each rank sends (and receives) all chunks but one, twice.
        chunks = np.diff([part_start(length, n, c) for c in range(n + 1)]).reshape(k, nodes)
        parts = chunks.sum(axis=1, keepdims=True)

        left_out = chunks + np.roll(chunks, -1, axis=1)
        sent = parts - np.roll(parts, -1, axis=0) - left_out
        received = parts - np.roll(parts, 1, axis=0) - left_out
        most = 2 * length + int(max(sent.max(), received.max()))
        return 2 * (k - 1) + 2 * (nodes - 1), most
