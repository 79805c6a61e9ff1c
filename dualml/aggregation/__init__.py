"""Ways to add up gradients or parameters over ranks: one file each, found by itself."""

from __future__ import annotations

from dualml.aggregation.all_gather import AllGather
from dualml.aggregation.all_reduce import AllReduce
from dualml.aggregation.base import STRATEGIES, Strategy, execute
from dualml.aggregation.halving_doubling import HalvingDoubling
from dualml.aggregation.neighbour import Neighbour
from dualml.aggregation.parameter_server import ParameterServer
from dualml.aggregation.reduce_broadcast import ReduceBroadcast
from dualml.aggregation.reduce_scatter import ReduceScatterAllGather
from dualml.aggregation.ring import Ring
from dualml.aggregation.schedule import Schedule, Transfer
from dualml.aggregation.stages import Stage
from dualml.aggregation.tree import Tree

__all__ = [
    "ASYNCHRONOUS",
    "NATIVE",
    "REPLICAS",
    "SCHEMES",
    "STRATEGIES",
    "AllGather",
    "AllReduce",
    "HalvingDoubling",
    "Neighbour",
    "ParameterServer",
    "ReduceBroadcast",
    "ReduceScatterAllGather",
    "Ring",
    "Schedule",
    "Stage",
    "Strategy",
    "Transfer",
    "Tree",
    "execute",
    "strategy",
]

#: The server that nobody waits for: no way of adding up, see `dualml.aggregation.asynchronous`.
ASYNCHRONOUS = "parameter_server_async"
#: The framework's own data parallel training: see `dualml.aggregation.native`.
NATIVE = "native"
#: One process that splits each batch over the devices of its machine, as `torch.nn.DataParallel`.
REPLICAS = "replicas"
#: Names an arm may give as its strategy that are more than a way of adding up.
SCHEMES = (ASYNCHRONOUS, NATIVE, REPLICAS)


def strategy(name: str) -> Strategy:
    """The strategy of that name.

    Raises:
        UserError: an unknown name, with the nearest known one.
    """
    return STRATEGIES.find(name)()
