"""Ways to add up gradients or parameters over ranks: one file each, found by itself."""

from __future__ import annotations

from dualml.aggregation.all_gather import AllGather as AllGather
from dualml.aggregation.all_reduce import AllReduce as AllReduce
from dualml.aggregation.base import STRATEGIES as STRATEGIES
from dualml.aggregation.base import Strategy as Strategy
from dualml.aggregation.halving_doubling import HalvingDoubling as HalvingDoubling
from dualml.aggregation.hierarchical import Hierarchical as Hierarchical
from dualml.aggregation.neighbour import Neighbour as Neighbour
from dualml.aggregation.parameter_server import ParameterServer as ParameterServer
from dualml.aggregation.reduce_broadcast import ReduceBroadcast as ReduceBroadcast
from dualml.aggregation.reduce_scatter import ReduceScatterAllGather as ReduceScatterAllGather
from dualml.aggregation.ring import Ring as Ring
from dualml.aggregation.schedule import Schedule as Schedule
from dualml.aggregation.schedule import Stage as Stage
from dualml.aggregation.schedule import Transfer as Transfer
from dualml.aggregation.tree import Tree as Tree

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
