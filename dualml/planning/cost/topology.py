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
TOPOLOGY_HINT = (
    "use flat, nodes:K (K ranks on each node, each with a port of its own), nodes:K:P (they share "
    "P ports) or shared:P (all ranks on P cores)"
)


@keep_former_members
@dataclass(frozen=True)
class Topology:
    """Connection of the ranks.

    Args:
        kind: ``flat``: a full-duplex link of its own for each rank. ``nodes``: ranks of one node
            use the link among themselves, and the node's full-duplex ports for messages to other
            nodes. ``shared``: all ranks on one machine, where moving and adding bytes costs
            processor time and there are ``count`` cores for it.
        count: ranks per node, or cores.
        inter: for ``nodes``, the link between nodes; None: the same constants as inside.
        ports: for ``nodes``, ports of a node; consecutive ranks share one. 0: one for each rank, as
            in servers of accelerators; 1: one for the whole node.

    Raises:
        UserError: an invalid kind or count.
    """

    kind: Literal["flat", "nodes", "shared"] = "flat"
    count: int = 1
    inter: Link | None = None
    ports: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("flat", "nodes", "shared") or self.count < 1:
            raise UserError(f"topology {self}: {TOPOLOGY_HINT}, K and P from 1")
        if not 0 <= self.ports <= self.count or (self.ports and self.kind != "nodes"):
            raise UserError(
                f"topology {self.kind}:{self.count} with {self.ports} ports: a node has from 1 "
                "port to one for each of its ranks"
            )

    @classmethod
    def parse(cls, text: str) -> Topology:
        """Parse ``flat``, ``nodes:8``, ``nodes:8:1`` or ``shared:2``.

        Raises:
            UserError: anything else.
        """
        if text == "flat":
            return cls()
        kind, *counts = text.split(":")
        known = {"nodes": (1, 2), "shared": (1,)}
        numbers = all(each.isdecimal() and int(each) >= 1 for each in counts)
        if len(counts) not in known.get(kind, ()) or not numbers:
            raise UserError(f"topology {text!r}: {TOPOLOGY_HINT}")
        if kind == "shared":
            return cls("shared", int(counts[0]))
        return cls("nodes", int(counts[0]), None, *map(int, counts[1:]))

    def __str__(self) -> str:
        if self.kind == "flat":
            return "flat"
        return f"{self.kind}:{self.count}" + (f":{self.ports}" if self.ports else "")

    @property
    def per_node(self) -> int:
        """Number of ranks per node; 0 for a topology other than ``nodes``."""
        return self.count if self.kind == "nodes" else 0

    def port(self, rank: int) -> tuple[int, int]:
        """Return the port by which a rank reaches other nodes, as (number of its node, number of
        the port on that node), both from 0."""
        node, place = divmod(rank, self.count)
        return node, place * (self.ports or self.count) // self.count

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
        """Return the link from rank ``a`` to ``b``: `inter` between nodes, if it is set, otherwise
        ``link``."""
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
            # Of the K ranks of a node, min(s, n − s, K, n − K) send to another one s ranks on; they
            # are consecutive, and so share a port.
            leave = np.minimum(np.minimum(s, n - s), max(0, min(self.count, n - self.count)))
            stay = np.where(leave < self.count, w_in, 0.0)
            leave = np.minimum(leave, -(-self.count // (self.ports or self.count)))
            return float(np.maximum(leave * w_out, stay).sum())
        ports = self.ports or self.count
        inside, between = port_loads(stage.kind, stage.distance, n, self.count, ports)
        return stage.times * max(inside * w_in, between * w_out)


#: Every rank with a full-duplex link of its own.
FLAT = Topology()


@lru_cache(maxsize=4096)
def port_loads(kind: str, distance: int, n: int, count: int, ports: int) -> tuple[int, int]:
    """Return the maximum number of messages of one step at a rank's port inside its node, and at a
    port to other nodes; ``count`` is the number of ranks per node, and of ports ``ports``."""
    import numpy as np

    def max_count(used: Any) -> int:
        return int(np.bincount(used).max()) if len(used) else 0

    a, b = transfer_pairs(kind, distance, n)
    leave = a // count != b // count
    inside = max(max_count(a[~leave]), max_count(b[~leave]))
    sent, received = (
        each // count * ports + each % count * ports // count for each in (a[leave], b[leave])
    )
    return inside, max(max_count(sent), max_count(received))


def spans_nodes(node: int, members: Any, stride: Any) -> Any:
    """Return whether some group of ``members`` ranks that are ``stride`` apart spans two nodes of
    ``node`` ranks: a bool array, one entry for each entry of ``members`` and ``stride``."""
    return (members > 1) & (node % (members * stride) != 0)


def ring_ports(node: int, members: Any, stride: Any) -> Any:
    """Return over how many ports of a node the rings of a group of ``members`` ranks that are
    ``stride`` apart leave it, if each rank of a node has a port: one for each member there, as a
    library lays one ring through each of them. `Topology` prices such a group as ``hierarchical``,
    whose ranks of a node send different parts through their own ports."""
    import numpy as np

    return np.clip(node // np.asarray(stride), 1, members)


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
