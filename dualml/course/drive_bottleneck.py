"""A node whose computing and sending take known, simulated times, for an exercise in measuring.

The ranks are real processes; only their clocks are simulated, so that a busy machine does not
change what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Arrays = Mapping[str, Any]


class SimulatedNode:
    """Clock, computation and link of one rank.

    Args:
        arrays: ``compute`` and ``transfer``, seconds of each round; ``offset``, what the clock is
            ahead; ``late``, seconds by which the rank begins late.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.offset = float(arrays["offset"])
        self.true_time = float(arrays["late"])
        self.seconds = {name: arrays[name].tolist() for name in ("compute", "transfer")}
        self.calls = dict.fromkeys(self.seconds, 0)

    def clock(self) -> float:
        """Return this node's time in seconds; another node's may be ahead or behind."""
        return self.true_time + self.offset

    def compute(self) -> None:
        """Simulate the computation of a batch's gradients: nothing is computed, the seconds of the
        next round pass on this node's clock."""
        self.advance("compute")

    def transfer(self) -> None:
        """Simulate sending the gradients over this node's link: nothing is sent, the seconds of the
        next round pass on this node's clock."""
        self.advance("transfer")

    def advance(self, name: str) -> None:
        """Let the seconds of the next round of one kind pass."""
        known = self.seconds[name]
        self.true_time += known[min(self.calls[name], len(known) - 1)]
        self.calls[name] += 1


class SimulatedCommunicator:
    """Communicator in whose collectives simulated nodes wait for the latest of them.

    Args:
        make: function that makes a float64 tensor of one number.
    """

    def __init__(self, comm: Any, node: SimulatedNode, make: Callable[[float], Any]) -> None:
        self._comm, self._node, self._make = comm, node, make
        self.rank, self.size = comm.rank, comm.size

    def barrier(self) -> None:
        """Return when every rank has called it; the simulated clock of this node then shows the
        time of the latest one."""
        self._meet()

    def all_gather(self, x: Any) -> list[Any]:
        """Return every rank's ``x``, in the order of the ranks."""
        self._meet()
        found: list[Any] = self._comm.all_gather(x)
        return found

    def all_reduce(self, x: Any, op: str = "sum") -> Any:
        """Return the reduction of ``x`` over all ranks."""
        self._meet()
        return self._comm.all_reduce(x, op)

    def _meet(self) -> None:
        """Let this node wait until the latest one has arrived."""
        times = self._comm.all_gather(self._make(self._node.true_time))
        self._node.true_time = max(float(time) for time in times)


def run_measurement(
    function: Any, options: Mapping[str, Any], arrays: Arrays, comm: Any, make: Any, to_array: Any
) -> Arrays:
    """Call a student's measurement, ``function(comm, clock, compute, transfer, rounds)``, on a
    simulated node; return its result as ``times``, float64.

    Args:
        arrays: see `SimulatedNode`.
        make: function that makes a float64 tensor of one number.
        to_array: function that converts the result to an array.
    """
    node = SimulatedNode(arrays)
    simulated = SimulatedCommunicator(comm, node, make)
    rounds = options["hyper"]["rounds"]
    found = function(simulated, node.clock, node.compute, node.transfer, rounds)
    return {"times": np.asarray(to_array(found), np.float64)}


#: Kinds of a diagnosis; the number of a kind is its place, −1 for anything else.
KINDS = ("none", "compute", "link")


def run_diagnoses(function: Any, options: Mapping[str, Any], arrays: Arrays) -> Arrays:
    """Call a student's diagnosis with each table ``0``, ``1``, … as a list; return float64 arrays
    over the tables, ``kinds`` (index in `KINDS`, −1 for anything else) and ``ranks``.

    Raises:
        TypeError: a diagnosis is no pair (kind, rank).
    """
    kinds, ranks = [], []
    for number in range(options["tables"]):
        found = function(arrays[str(number)].tolist())
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise TypeError(f"expected a pair (kind, rank), received {found!r}"[:200])
        kinds.append(KINDS.index(found[0]) if found[0] in KINDS else -1)
        ranks.append(int(found[1]))
    return {"kinds": np.array(kinds, np.float64), "ranks": np.array(ranks, np.float64)}


def run_splits(function: Any, options: Mapping[str, Any], arrays: Arrays) -> Arrays:
    """Call a student's division of a batch with each (n, seconds) of the option ``asks``; return
    the sizes of each call, ``0``, ``1``, …, as float64, and ``integers``, 1 if all of them are
    integers."""
    out: dict[str, Any] = {}
    integers = True
    for number, (n, seconds) in enumerate(options["asks"]):
        sizes = list(function(n, list(seconds)))
        integers &= all(isinstance(s, int | np.integer) for s in sizes)
        out[str(number)] = np.array([float(s) for s in sizes])
    return {**out, "integers": np.array(float(integers))}
