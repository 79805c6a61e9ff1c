"""Topologies: how ranks are connected, and which links their messages share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.parallel.aggregation import StepGroup
from dualml.planning.cost.link import Link

#: Hint of an error about an invalid topology.
TOPOLOGY_HINT = "use flat, nodes:K (K ranks on each node) or shared:P (all ranks on P cores)"


@keep_former_members
@dataclass(frozen=True)
class Topology:
    """Connection of the ranks.

    Args:
        kind: ``flat``: a full-duplex link of its own for each rank. ``nodes``: ranks of one node
            use the link among themselves, and share the node's one full-duplex port for messages to
            other nodes. ``shared``: all ranks on one machine, where moving and adding bytes costs
            processor time and there are ``count`` cores for it.
        count: ranks per node, or cores.
        inter: for ``nodes``, the link between nodes; None: the same constants as inside.

    Raises:
        UserError: an invalid kind or count.
    """

    kind: Literal["flat", "nodes", "shared"] = "flat"
    count: int = 1
    inter: Link | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("flat", "nodes", "shared") or self.count < 1:
            raise UserError(f"topology {self}: {TOPOLOGY_HINT}, K and P from 1")

    @classmethod
    def parse(cls, text: str) -> Topology:
        """Parse ``flat``, ``nodes:8`` or ``shared:2``.

        Raises:
            UserError: anything else.
        """
        kind, colon, count = text.partition(":")
        if text == "flat":
            return cls()
        if kind not in ("nodes", "shared") or not colon or not count.isdecimal() or int(count) < 1:
            raise UserError(f"topology {text!r}: {TOPOLOGY_HINT}")
        return cls("nodes" if kind == "nodes" else "shared", int(count))

    def __str__(self) -> str:
        return "flat" if self.kind == "flat" else f"{self.kind}:{self.count}"

    @property
    def per_node(self) -> int:
        """Number of ranks per node; 0 for a topology other than ``nodes``."""
        return self.count if self.kind == "nodes" else 0

    def slowdown(self, n: int) -> float:
        """Return the factor on computation and latencies: on a shared machine n ranks take turns on
        its cores, and a message waits until its receiver has its turn. 1 for other topologies."""
        return max(1.0, n / self.count) if self.kind == "shared" else 1.0

    def crowding(self, busiest: float, total: float) -> float:
        """Return the factor on a step's bytes on a shared machine, whose cores limit how fast the
        bytes of all ranks, ``total``, are moved; the rank with most bytes has ``busiest``. 1 for
        other topologies."""
        if self.kind != "shared" or not busiest:
            return 1.0
        return max(1.0, total / (self.count * busiest))

    def crosses_nodes(self, a: int, b: int) -> bool:
        """Return whether ranks ``a`` and ``b`` are on different nodes."""
        return self.kind == "nodes" and a // self.count != b // self.count

    def link(self, a: int, b: int, link: Link) -> Link:
        """Return the link from rank ``a`` to ``b``; inside a node it is ``link``."""
        return self.inter if self.inter is not None and self.crosses_nodes(a, b) else link

    def seconds(self, stage: StepGroup, n: int, link: Link) -> float:
        """Return the closed-form seconds of one ``stage`` of ``n`` ranks with all its repetitions,
        if all ranks start it together; inside a node they use ``link``."""
        added = link.gamma_s_per_byte * stage.added
        if self.kind == "nodes":
            return self._nodes(stage, n, link) + stage.times * added
        moved = link.beta_s_per_byte * stage.bytes * self.crowding(stage.bytes, stage.total)
        everywhere = stage.total if stage.added else 0
        added *= self.crowding(stage.added, everywhere)
        waiting = link.alpha_s * stage.messages * self.slowdown(n)
        return stage.times * (waiting + moved + added)

    def _nodes(self, stage: StepGroup, n: int, link: Link) -> float:
        """Return the seconds of moving data, without additions, in a stage on several nodes, all
        repetitions included, by its busiest port."""
        import numpy as np

        inter = self.inter or link
        b = stage.bytes / stage.messages
        w_in, w_out = (x.alpha_s + x.beta_s_per_byte * b for x in (link, inter))
        if stage.kind == "shift" and stage.distance == 0:  # one step per distance
            s = np.arange(1, n)
            # Of the K ranks of a node, min(s, n − s, K, n − K) send to another one s ranks on.
            leave = np.minimum(np.minimum(s, n - s), max(0, min(self.count, n - self.count)))
            stay = np.where(leave < self.count, w_in, 0.0)
            return float(np.maximum(leave * w_out, stay).sum())
        inside, between = port_loads(stage.kind, stage.distance, n, self.count)
        return stage.times * max(inside * w_in, between * w_out)


#: Every rank with a full-duplex link of its own.
FLAT = Topology()


@lru_cache(maxsize=4096)
def port_loads(kind: str, distance: int, n: int, count: int) -> tuple[int, int]:
    """Return the maximum number of messages of one step at a rank's port inside its node, and at a
    node's port; ``count`` is the number of ranks per node."""
    import numpy as np

    def max_count(ports: Any) -> int:
        return int(np.bincount(ports).max()) if len(ports) else 0

    a, b = transfer_pairs(kind, distance, n)
    leave = a // count != b // count
    inside = max(max_count(a[~leave]), max_count(b[~leave]))
    return inside, max(max_count(a[leave] // count), max_count(b[leave] // count))


def transfer_pairs(kind: str, d: int, n: int) -> tuple[Any, Any]:
    """Return the sources and targets of one step (`StepGroup.kind`, distance d), as two arrays."""
    import numpy as np

    every = np.arange(n)
    if kind == "shift":
        return every, (every + d) % n
    if kind == "turn":
        return every, every - every % d + (every % d + 1) % d
    if kind == "swap":
        among = every[: 1 << (n.bit_length() - 1)]
        return among, among ^ d
    if kind == "both":
        right = (every + 1) % n
        return (every, right) if n == 2 else (np.r_[every, right], np.r_[right, every])
    if kind in ("push", "pull"):
        upper, lower = every[1:], np.zeros(n - 1, int)
    elif kind in ("up", "down"):
        upper = np.arange(d, n, 2 * d)
        lower = upper - d
    else:
        upper = np.arange(d, n)
        lower = upper - d
    return (upper, lower) if kind in ("push", "up", "in") else (lower, upper)
