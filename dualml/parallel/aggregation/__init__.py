"""Aggregation strategies, which sum gradients or parameters over ranks: one file each, discovered
automatically."""

from __future__ import annotations

from dualml.common.former_members import former_names
from dualml.parallel.aggregation.all_gather import AllGather as AllGather
from dualml.parallel.aggregation.all_reduce import AllReduce as AllReduce
from dualml.parallel.aggregation.base import STRATEGIES as STRATEGIES
from dualml.parallel.aggregation.base import Strategy as Strategy
from dualml.parallel.aggregation.halving_doubling import HalvingDoubling as HalvingDoubling
from dualml.parallel.aggregation.hierarchical import Hierarchical as Hierarchical
from dualml.parallel.aggregation.neighbour import Neighbour as Neighbour
from dualml.parallel.aggregation.parameter_server import ParameterServer as ParameterServer
from dualml.parallel.aggregation.reduce_broadcast import ReduceBroadcast as ReduceBroadcast
from dualml.parallel.aggregation.reduce_scatter import (
    ReduceScatterAllGather as ReduceScatterAllGather,
)
from dualml.parallel.aggregation.ring import Ring as Ring
from dualml.parallel.aggregation.schedule import CollectiveSchedule as CollectiveSchedule
from dualml.parallel.aggregation.schedule import StepGroup as StepGroup
from dualml.parallel.aggregation.schedule import Transfer as Transfer
from dualml.parallel.aggregation.tree import Tree as Tree

#: Asynchronous server, which is no all-reduce strategy: see
#: `dualml.parallel.aggregation.asynchronous`.
ASYNCHRONOUS = "parameter_server_async"
#: The framework's own data parallel training: see `dualml.parallel.aggregation.native`.
NATIVE = "native"
#: One process that splits each batch over the devices of its machine, as `torch.nn.DataParallel`.
REPLICAS = "replicas"
#: Values of an arm's ``strategy`` that select a training scheme, not only an all-reduce.
SCHEMES = (ASYNCHRONOUS, NATIVE, REPLICAS)


def strategy(name: str) -> Strategy:
    """Return a new instance, with default settings, of the aggregation strategy that is registered
    as ``name``, such as ``ring``; `SCHEMES` are no strategies.

    Raises:
        UserError: an unknown name; the message suggests the nearest known one.
    """
    return STRATEGIES.find(name)()


__getattr__ = former_names(__name__, {"Schedule": "CollectiveSchedule", "Stage": "StepGroup"})
