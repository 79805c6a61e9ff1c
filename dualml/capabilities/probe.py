"""The side of the ranks: every primitive, type and operation, run and compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dualml.communicator import DTYPES, OPS, PRIMITIVES, Communicator
from dualml.communicator.parts import parts_of
from dualml.communicator.place import exchange_notes
from dualml.errors import CommunicationError

Pairs = list[tuple[Any, Any]]
LENGTH = 7
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "asynchronous")
#: Of no type: tried with one only.
TYPELESS = ("barrier", "subgroup")


def probe(comm: Communicator, argument: Any = None) -> dict[str, Any]:
    """Runs on every rank: all primitives, types and operations, each against NumPy.

    Where one raised, the group may be beyond use, and the rest counts as failed, untried.
    """
    entries: list[tuple[str, str, str, str, str]] = []
    lost = ""
    for primitive in PRIMITIVES:
        for dtype in DTYPES[1:2] if primitive in TYPELESS else DTYPES:
            broken = ""
            for op in operations(primitive, dtype):
                how = comm.how(primitive, dtype, op or "sum")
                kind, detail, wrong = str(how.kind), how.detail, ""
                if kind != "unsupported" and not (lost or broken):
                    try:
                        wrong = attempt(comm, primitive, dtype, op, kind)
                    except Exception as error:  # whatever a framework raises is the answer
                        first = (str(error).strip().splitlines() or [""])[0]
                        wrong = broken = f"{type(error).__name__}: {first}"[:300]
                elif kind != "unsupported":
                    wrong = f"not tried after {lost or primitive} failed"
                if wrong:
                    kind, detail = "failed", wrong
                entries.append((primitive, dtype, op, kind, detail))
            lost = lost or _lost(comm, f"{primitive}.{dtype}", broken)
    return {"device": comm.device, "entries": entries}


def operations(primitive: str, dtype: str) -> list[str]:
    if primitive not in REDUCTIONS:
        return [""]
    return [op for op in OPS if op != "mean" or dtype.startswith("float")]


def attempt(comm: Communicator, primitive: str, dtype: str, op: str, kind: str) -> str:
    """Run one; what is wrong with it, or nothing."""
    arrays = [contribution(rank, dtype) for rank in range(comm.size)]
    comm.traffic.reset()
    pairs = RUNS[primitive](comm, comm.tensor(arrays[comm.rank]), arrays, op)
    traffic = comm.traffic
    for tensor, want in pairs:
        array = comm.numpy(tensor)
        bound = 4 * float(np.finfo(want.dtype).eps) if want.dtype.kind == "f" else 0.0
        if array.shape != want.shape or array.dtype != want.dtype:
            return f"{array.dtype}{array.shape} instead of {want.dtype}{want.shape}"
        if not np.allclose(array, want, rtol=bound, atol=0):
            return f"wrong result: {array.tolist()} instead of {want.tolist()}"[:200]
    collective = primitive not in (*TYPELESS, "exchange", "asynchronous")
    if collective and kind == "native" and traffic.sent + traffic.received:
        return f"said to be native, but made of messages: {traffic.sent} sent"
    return ""


def contribution(rank: int, dtype: str) -> Any:
    """Small whole numbers: sums and products of a few ranks are exact in every type."""
    numbers = np.random.default_rng(rank).integers(1, 4, LENGTH) * (-1) ** rank
    return numbers.astype(dtype)


def reduced(arrays: Sequence[Any], op: str) -> Any:
    folds: dict[str, Any] = {"max": np.maximum, "min": np.minimum, "prod": np.multiply}
    total = folds.get(op, np.add).reduce(np.stack(arrays).astype(np.float64))
    return (total / len(arrays) if op == "mean" else total).astype(arrays[0].dtype)


def _lost(comm: Communicator, key: str, broken: str) -> str:
    """Whether any rank raised: then all stop together."""
    place = comm.place
    everyone = range(place.size)
    try:
        notes = exchange_notes(
            place.board, f"tried.{key}", place.rank, everyone, broken, 2 * place.timeout, key
        )
    except CommunicationError:
        return key
    return key if any(notes.values()) else ""


def _reduce_scatter(comm: Communicator, x: Any, arrays: Sequence[Any], op: str) -> Pairs:
    sizes = parts_of(LENGTH, comm.size)
    start = sum(sizes[: comm.rank])
    want = reduced(arrays, op)[start : start + sizes[comm.rank]]
    return [(comm.reduce_scatter(x, op), want)]


def _reduce(comm: Communicator, x: Any, arrays: Sequence[Any], op: str) -> Pairs:
    total = comm.reduce(x, comm.size - 1, op)
    return [] if total is None else [(total, reduced(arrays, op))]


def _exchange(comm: Communicator, x: Any, arrays: Sequence[Any], op: str) -> Pairs:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    return [(comm.exchange({right: x}, {left: comm.empty_like(x)})[left], arrays[left])]


def _barrier(comm: Communicator, x: Any, arrays: Sequence[Any], op: str) -> Pairs:
    board = comm.place.board
    if comm.rank == comm.size - 1:
        time.sleep(0.1)
    board.post(f"came.{comm.rank}", "")
    comm.barrier()
    absent = [rank for rank in range(comm.size) if board.read(f"came.{rank}") is None]
    if absent:
        raise CommunicationError(f"rank {comm.rank} left before {absent} came")
    return []


def _subgroup(comm: Communicator, x: Any, arrays: Sequence[Any], op: str) -> Pairs:
    pairs: Pairs = []
    for ranks in ([0, comm.size - 1], [0]):
        sub = comm.subgroup(ranks)
        if (sub is None) != (comm.rank not in ranks):
            raise CommunicationError(f"rank {comm.rank} and the group of {ranks} do not fit")
        if sub is not None:
            pairs.append((sub.all_reduce(x), reduced([arrays[r] for r in ranks], "sum")))
    return pairs


#: Primitive → runs it, and pairs what came with what should have come.
RUNS: dict[str, Callable[[Communicator, Any, Sequence[Any], str], Pairs]] = {
    "all_reduce": lambda c, x, a, op: [(c.all_reduce(x, op), reduced(a, op))],
    "reduce": _reduce,
    "broadcast": lambda c, x, a, op: [(c.broadcast(x, c.size - 1), a[-1])],
    "gather": lambda c, x, a, op: list(zip(c.gather(x, c.size - 1) or (), a, strict=False)),
    "all_gather": lambda c, x, a, op: list(zip(c.all_gather(x), a, strict=True)),
    "scatter": lambda c, x, a, op: [
        (c.scatter([c.tensor(one) for one in a], x, c.size - 1), a[c.rank])
    ],
    "reduce_scatter": _reduce_scatter,
    "all_to_all": lambda c, x, a, op: list(zip(c.all_to_all([x] * c.size), a, strict=True)),
    "exchange": _exchange,
    "barrier": _barrier,
    "subgroup": _subgroup,
    "asynchronous": lambda c, x, a, op: [(c.all_reduce(x, op, wait=False).wait(), reduced(a, op))],
}
