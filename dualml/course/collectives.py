"""NumPy implementation of the collectives that all ranks of a student have requested consistently.

All communication between a student's ranks goes through it. So mismatched requests and deadlocks
are detected at once, without a timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from dualml.algorithms.communicator.parts import part_start
from dualml.algorithms.communicator.primitives import DTYPES, OPS
from dualml.common.bounded_io import Header, get_field, get_int, get_text

COLLECTIVES = (
    "all_reduce",
    "reduce",
    "broadcast",
    "gather",
    "all_gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "barrier",
)
EXCHANGE = "exchange"
COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "mean": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}


@dataclass
class Ask:
    """A collective or an exchange that one rank has requested and waits for.

    Attributes:
        name: name of the collective, or `EXCHANGE`.
        arrays: ``x``, or ``0``, ``1``, … for parts; ``send/PEER`` for an exchange.
        receive: peer → (dtype, shape) that an exchange expects; else empty.
    """

    name: str
    op: str = "sum"
    root: int = 0
    dtype: str = ""
    shape: tuple[int, ...] = ()
    arrays: Mapping[str, Any] = field(default_factory=dict)
    receive: Mapping[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def signature(self) -> str:
        """Name, dtype, shape, operation and root as text, on which all ranks must agree."""
        if self.name == "barrier":
            return "barrier"
        return f"{self.name} {self.dtype} {self.shape} op={self.op} root={self.root}"

    @property
    def elements(self) -> int:
        """Number of elements of ``shape``: of the tensor, for ``scatter`` and ``all_to_all`` of one
        part."""
        return prod(self.shape)

    @property
    def sends(self) -> dict[int, Any]:
        """Messages of an exchange: destination rank → array; only for an exchange."""
        return {int(key.partition("/")[2]): a for key, a in self.arrays.items()}


def read_ask(
    header: Header, arrays: Mapping[str, Any], rank: int, size: int, silent: bool = False
) -> Ask:
    """Parse the request of a rank.

    Args:
        silent: tensors stay with the ranks, since only the duration of a collective matters.

    Raises:
        ValueError: the request is invalid; the text is the student's mistake.
    """
    name = get_text(header, "op", 40)
    if name == EXCHANGE:
        return read_exchange(header, arrays, rank, size)
    if name not in COLLECTIVES:
        raise ValueError(f"no collective is called {name!r}")
    op, root = get_text(header, "reduce", 40, "sum"), get_int(header, "root", -(2**31), 2**31, 0)
    dtype, shape = get_text(header, "dtype", 20, ""), shape_of(header.get("shape", []))
    if op not in OPS:
        raise ValueError(f"{name}: op must be one of {OPS}; received {op!r}")
    if name != "barrier" and dtype not in DTYPES:
        raise ValueError(f"{name} takes {', '.join(DTYPES)}; received {dtype or 'nothing'}")
    if op == "mean" and dtype.startswith("int"):
        raise ValueError(f"{name}: the mean of {dtype} is not a {dtype}; use sum")
    if not 0 <= root < size:
        raise ValueError(f"{name}: root {root} is not one of {size} ranks")
    parts = name == "all_to_all" or (name == "scatter" and rank == root)
    if parts and len(arrays) != size:
        raise ValueError(f"{name} over {size} ranks needs as many parts; received {len(arrays)}")
    if name == "reduce_scatter" and len(shape) != 1:
        raise ValueError(f"reduce_scatter takes a tensor of one dimension; received {shape}")
    for a in arrays.values():
        if (a.dtype.name, a.shape) != (dtype, shape):
            raise ValueError(f"{name}: parts of different shapes or types")
    expected = {str(r) for r in range(size)} if parts else {"x"}
    if silent or name == "barrier" or (name == "scatter" and not parts):
        expected = set()
    if arrays.keys() != expected:
        raise ValueError(f"{name} without its tensors")
    return Ask(name, op, root, dtype, shape, arrays)


def read_exchange(header: Header, arrays: Mapping[str, Any], rank: int, size: int) -> Ask:
    """Parse a rank's request of an exchange; raise `ValueError` if it is invalid."""
    expected = get_field(header, "receive", list)
    receive: dict[int, tuple[str, tuple[int, ...]]] = {}
    for entry in expected:
        if not isinstance(entry, list) or len(entry) != 3 or not isinstance(entry[1], str):
            raise ValueError("exchange: a message that is not described")
        receive[peer_of(entry[0], rank, size)] = entry[1], shape_of(entry[2])
    for key in arrays:
        kind, _, peer = key.partition("/")
        if kind != "send" or not peer.lstrip("-").isdecimal():
            raise ValueError("exchange: a message without a rank")
        peer_of(int(peer), rank, size)
    return Ask(EXCHANGE, arrays=arrays, receive=receive)


def peer_of(value: Any, rank: int, size: int) -> int:
    """Return a peer's rank; raise `ValueError` if it is no other rank of the group."""
    if type(value) is not int or not 0 <= value < size or value == rank:
        raise ValueError(f"rank {rank} of {size} cannot exchange with rank {value}")
    return int(value)


def shape_of(value: Any) -> tuple[int, ...]:
    """Return a shape, a list of integers, as a tuple; raise `ValueError` if it is none."""
    if not isinstance(value, list) or len(value) > 16:
        raise ValueError("a shape that is none")
    if not all(type(n) is int and 0 <= n < 2**40 for n in value):
        raise ValueError("a shape that is none")
    return tuple(value)


def fold(parts: Sequence[Any], op: str) -> Any:
    """Return the reduction of arrays in the order of ranks, in their own dtype; ``mean`` divides
    the sum by their number. The arrays stay unchanged."""
    total = np.array(parts[0])
    for part in parts[1:]:
        total = COMBINE[op](total, part)
    return total * total.dtype.type(1 / len(parts)) if op == "mean" else total


def compute(asks: Sequence[Ask]) -> list[dict[str, Any]]:
    """Compute each rank's result of a collective: ``x``, or the parts ``0``, ``1``, …, or nothing.

    Args:
        asks: requests of all ranks, with equal signatures.
    """
    name, op, root, n = asks[0].name, asks[0].op, asks[0].root, len(asks)
    nothing: list[dict[str, Any]] = [{} for _ in asks]
    if name == "barrier":
        return nothing
    if name == "all_to_all":
        return [{str(i): asks[i].arrays[str(r)] for i in range(n)} for r in range(n)]
    if name == "scatter":
        return [{"x": asks[root].arrays[str(r)]} for r in range(n)]
    if name == "broadcast":
        return [{"x": asks[root].arrays["x"]} for _ in asks]
    own = [ask.arrays["x"] for ask in asks]
    if name in ("gather", "all_gather"):
        every = {str(r): x for r, x in enumerate(own)}
        return [every if name == "all_gather" or r == root else {} for r in range(n)]
    with np.errstate(all="ignore"):
        total = fold(own, op)
    if name == "reduce":
        return [{"x": total} if r == root else {} for r in range(n)]
    if name == "reduce_scatter":
        ends = [part_start(len(total), n, r) for r in range(n + 1)]
        return [{"x": total[ends[r] : ends[r + 1]]} for r in range(n)]
    return [{"x": total} for _ in asks]


def mismatch_text(rank: int, peer: int, x: Any, expected: tuple[str, tuple[int, ...]]) -> str:
    """Return what is wrong with a message that ``rank`` receives from ``peer``, its number of
    elements or its dtype; empty if both fit, whatever its shape."""
    dtype, shape = expected
    elements = prod(shape)
    if x.size != elements:
        return f"rank {rank} receives {x.size} elements from rank {peer} and expects {elements}"
    if x.dtype.name != dtype:
        return f"rank {rank} receives {x.dtype.name} from rank {peer} and expects {dtype}"
    return ""
