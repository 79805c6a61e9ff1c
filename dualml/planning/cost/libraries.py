"""All-reduces of libraries and switches that dualml can price but not run.

They are priced only if requested by name, and by closed forms alone, even for a few ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from dualml.parallel.aggregation import StepGroup, Strategy
from dualml.parallel.aggregation.tree import Tree


@dataclass(frozen=True)
class DoubleTree(Strategy):
    """Two binary trees, each with half of the vector in small pipelined pieces.

    A rank is a leaf of one tree and an inner node of the other, so that each port moves S upward
    and S downward: the bytes are those of a ring with many ranks, the messages on the path of the
    first piece those of a tree. Filling and draining the trees is neglected. The bytes are
    attributed to the widest level of `tree`, the one that crosses nodes if any does.

    Source: Sanders, Speck & Träff 2009, "Two-tree algorithms for full bandwidth broadcast,
    reduction and scan", Parallel Computing 35(12). NCCL prices its trees similarly: latency by the
    logarithm of the nodes, and half the bandwidth (NVIDIA/nccl, src/graph/tuning.cc).
    """

    name: ClassVar = "double_tree"

    def step_groups(self, n: int, length: int) -> list[StepGroup]:
        """Return the steps of `Tree` for n ranks and ``length`` elements, with the pipelined
        traffic attributed to the widest level and none to the others."""
        widest = 1 << ((n - 1).bit_length() - 1)

        def piped(level: StepGroup) -> StepGroup:
            if level.distance != widest:
                return replace(level, bytes=0, added=0, total=0)
            added = length if level.kind == "up" else 0
            return replace(level, bytes=length, added=added, total=(n - 1) * length)

        return [piped(level) for level in Tree().step_groups(n, length)]

    def max_rank_volume(self, n: int, length: int) -> tuple[int, int]:
        """Return 2 ⌈log₂ n⌉ messages and 2 · ``length`` elements for n ranks."""
        return 2 * (n - 1).bit_length(), 2 * length


@dataclass(frozen=True)
class InNetwork(Strategy):
    """Reduction inside the network switch: NVLink SHARP (NCCL's NVLS).

    A rank sends its vector to the switch once, as n parts of S/n, and receives the part that it is
    responsible for; then it sends that sum once and the switch copies it to all. In each direction
    that is (n + 1)/n · S, compared with 2 (n − 1)/n · S for a ring, in two messages.

    Source: Klenk et al. 2020, "An In-Network Architecture for Accelerating Shared-Memory
    Multiprocessor Collectives", ISCA (the method); n + 1 transfers against 2n as NVIDIA counts them
    are quoted in stas00/ml-engineering, network/README.md, "SHARP".
    """

    name: ClassVar = "in_network"

    def step_groups(self, n: int, length: int) -> list[StepGroup]:
        """Return two steps in which every rank moves half of ``length`` · (n + 1)/n elements
        each."""
        moved = length + -(-length // n)
        half = -(-moved // 2)
        return [StepGroup("shift", 1, 1, part, 0, n * part, n) for part in (half, moved - half)]

    def max_rank_volume(self, n: int, length: int) -> tuple[int, int]:
        """Return two messages and ``length`` · (n + 1)/n elements, rounded up."""
        return 2, length + -(-length // n)


#: Name → strategy class that prices it.
LIBRARIES: dict[str, type[Strategy]] = {kind.name: kind for kind in (DoubleTree, InNetwork)}
