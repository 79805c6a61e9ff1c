"""The ranks' side of probing: every primitive, dtype and operation is run and compared with
NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dualml.algorithms.communicator import DTYPES, PRIMITIVES, Communicator
from dualml.algorithms.communicator.parts import part_lengths
from dualml.algorithms.communicator.primitives import operations_of, query_implementation
from dualml.algorithms.communicator.rendezvous import all_gather_via_store
from dualml.common.errors import CommunicationError, Unsupported
from dualml.common.json_types import JsonObject

Pairs = list[tuple[Any, Any]]
LENGTH = 7
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "asynchronous")
#: Primitives without a dtype, which are run once.
TYPELESS = ("barrier", "subgroup")
MESSAGES = ("exchange", "tags", "any_source")
BITS: dict[str, Any] = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}


def probe(comm: Communicator, argument: Any = None) -> JsonObject:
    """Run all primitives, dtypes and operations on this rank, and compare each with NumPy.

    All ranks call it; ``argument`` is ignored. After an exception the group may be unusable, and
    the remaining ones count as failed.

    Returns:
        ``device``, and ``entries``: rows of (primitive, dtype, operation, kind, detail), with kind
        ``failed`` where the result or the declared kind is wrong.
    """
    entries: list[tuple[str, str, str, str, str]] = []
    lost = ""
    for primitive in PRIMITIVES:
        for dtype in DTYPES[1:2] if primitive in TYPELESS else DTYPES:
            broken = ""
            for op in list_operations(primitive, dtype):
                how = query_implementation(comm, primitive, dtype, op or "sum")
                kind, detail, wrong = str(how.kind), how.detail, ""
                if kind != "unsupported" and not (lost or broken):
                    try:
                        wrong = run_primitive(comm, primitive, dtype, op, kind)
                    except Unsupported as error:  # a backend of before there was such a primitive
                        kind, detail = "unsupported", str(error)
                    except Exception as error:  # whatever a framework raises is the answer
                        first = (str(error).strip().splitlines() or [""])[0]
                        wrong = broken = f"{type(error).__name__}: {first}"[:300]
                elif kind != "unsupported":
                    wrong = f"not tried after {lost or primitive} failed"
                if wrong:
                    kind, detail = "failed", wrong
                entries.append((primitive, dtype, op, kind, detail))
            lost = lost or _agree_on_failure(comm, f"{primitive}.{dtype}", broken)
    return {"device": comm.device, "entries": entries}


def list_operations(primitive: str, dtype: str) -> list[str]:
    """Return the reduction operations, such as ``sum``, of a primitive for a dtype; ``[""]`` for a
    primitive without a reduction."""
    if primitive not in REDUCTIONS:
        return [""]
    return operations_of(dtype)


def run_primitive(comm: Communicator, primitive: str, dtype: str, op: str, kind: str) -> str:
    """Run one primitive on known inputs of every rank; return what is wrong with its result, or
    with a ``kind`` that says native, else an empty text."""
    arrays = [make_input(rank, dtype) for rank in range(comm.size)]
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
    collective = primitive not in (*TYPELESS, *MESSAGES, "asynchronous")
    if collective and kind == "native" and traffic.sent + traffic.received:
        return f"declared native, but made of messages: {traffic.sent} sent"
    return ""


def make_input(rank: int, dtype: str) -> Any:
    """Return a rank's input, a vector of `LENGTH` integers from 1 to 3, negative on odd ranks: sums
    and products over a few ranks are exact in every dtype."""
    numbers = np.random.default_rng(rank).integers(1, 4, LENGTH) * (-1) ** rank
    return numbers.astype(dtype)


def expected_reduction(arrays: Sequence[Any], op: str) -> Any:
    """Return the expected result of reducing all ranks' ``arrays``, in their dtype; computed by
    NumPy in float64, bit operations in their dtype."""
    if op in BITS:
        return BITS[op].reduce(np.stack(arrays))
    folds: dict[str, Any] = {"max": np.maximum, "min": np.minimum, "prod": np.multiply}
    total = folds.get(op, np.add).reduce(np.stack(arrays).astype(np.float64))
    return (total / len(arrays) if op == "mean" else total).astype(arrays[0].dtype)


def _agree_on_failure(comm: Communicator, key: str, broken: str) -> str:
    """Let the ranks agree on whether any of them raised an exception (a ``broken`` that is not
    empty); return ``key`` if one did, or did not answer, else an empty text. All ranks call it."""
    place = comm.context
    everyone = range(place.size)
    try:
        notes = all_gather_via_store(
            place.store, f"tried.{key}", place.rank, everyone, broken, 2 * place.timeout, key
        )
    except CommunicationError:
        return key
    return key if any(notes.values()) else ""


def _reduce_scatter(comm: Communicator, x: Any, arrays: Sequence[Any], op: str) -> Pairs:
    """Run reduce_scatter on ``x``; return this rank's part and its expected value."""
    sizes = part_lengths(LENGTH, comm.size)
    start = sum(sizes[: comm.rank])
    want = expected_reduction(arrays, op)[start : start + sizes[comm.rank]]
    return [(comm.reduce_scatter(x, op), want)]


def _reduce(comm: Communicator, x: Any, arrays: Sequence[Any], op: str) -> Pairs:
    """Run reduce with the last rank as root; return the result and its expected value there, an
    empty list elsewhere."""
    total = comm.reduce(x, comm.size - 1, op)
    return [] if total is None else [(total, expected_reduction(arrays, op))]


def _exchange(comm: Communicator, x: Any, arrays: Sequence[Any], op: str) -> Pairs:
    """Send ``x`` to the right neighbour and receive from the left one; return the message and the
    left rank's array."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    return [(comm.exchange({right: x}, {left: comm.empty_like(x)})[left], arrays[left])]


def _tags(comm: Communicator, x: Any, arrays: Sequence[Any], op: str) -> Pairs:
    """Send ``x`` and 2·``x`` to the right neighbour, and receive the left one's in the opposite
    order; return both messages with their expected values."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    sent = [comm.isend(x, right, 1), comm.isend(comm.combine(comm.copy(x), x, "sum"), right, 2)]
    twice, _ = comm.recv(comm.empty_like(x), left, 2)
    once, _ = comm.recv(comm.empty_like(x), left, 1)
    for pending in sent:
        pending.wait()
    return [(twice, arrays[left] + arrays[left]), (once, arrays[left])]


def _any_source(comm: Communicator, x: Any, arrays: Sequence[Any], op: str) -> Pairs:
    """Let rank 0 receive a message of every other rank from any source; return each message with
    its sender's array there, an empty list elsewhere. `CommunicationError` for a wrong sender."""
    if comm.rank:
        comm.send(x, 0)
        return []
    came = [comm.recv(comm.empty_like(x)) for _ in range(comm.size - 1)]
    if sorted(rank for _, rank in came) != list(range(1, comm.size)):
        raise CommunicationError(f"messages of ranks {[rank for _, rank in came]}")
    return [(got, arrays[rank]) for got, rank in came]


def _asynchronous(comm: Communicator, x: Any, arrays: Sequence[Any], op: str) -> Pairs:
    """Start the reductions (and with the sum all other collectives) without waiting, then wait for
    them; return the results with their expected values."""
    last = comm.size - 1
    total, own = expected_reduction(arrays, op), comm.rank == last
    begun: list[tuple[Any, list[Any] | None]] = [(comm.all_reduce(x, op, wait=False), [total])]
    begun.append((comm.reduce(x, last, op, wait=False), [total] if own else None))
    if op == "sum":
        parts = [comm.tensor(array) for array in arrays]
        begun.append((comm.broadcast(x, last, wait=False), [arrays[last]]))
        begun.append((comm.gather(x, last, wait=False), list(arrays) if own else None))
        begun.append((comm.all_gather(x, wait=False), list(arrays)))
        begun.append((comm.scatter(parts, x, last, wait=False), [arrays[comm.rank]]))
        begun.append((comm.all_to_all([x] * comm.size, wait=False), list(arrays)))
        begun.append((comm.barrier(wait=False), None))
    pairs: Pairs = []
    for pending, want in begun:
        found = pending.wait()
        if not pending.is_completed():
            raise CommunicationError("what was waited for is not done")
        if want is not None:
            pairs += zip(found if isinstance(found, list) else [found], want, strict=True)
    return pairs


def _barrier(comm: Communicator, x: Any, arrays: Sequence[Any], op: str) -> Pairs:
    """Raise `CommunicationError` if this rank leaves the barrier before all have entered it, the
    last rank 0.1 s late; else return an empty list."""
    board = comm.context.store
    if comm.rank == comm.size - 1:
        time.sleep(0.1)
    board.set(f"came.{comm.rank}", "")
    comm.barrier()
    absent = [rank for rank in range(comm.size) if board.get(f"came.{rank}") is None]
    if absent:
        raise CommunicationError(f"rank {comm.rank} left before {absent} came")
    return []


def _subgroup(comm: Communicator, x: Any, arrays: Sequence[Any], op: str) -> Pairs:
    """Sum ``x`` over two subgroups, the first and last rank and rank 0 alone; return this rank's
    sums with their expected values."""
    pairs: Pairs = []
    for ranks in ([0, comm.size - 1], [0]):
        sub = comm.subgroup(ranks)
        if (sub is None) != (comm.rank not in ranks):
            raise CommunicationError(f"rank {comm.rank} and the group of {ranks} do not fit")
        if sub is not None:
            pairs.append((sub.all_reduce(x), expected_reduction([arrays[r] for r in ranks], "sum")))
    return pairs


#: Primitive → function that runs it and returns pairs of result and expected result.
RUNS: dict[str, Callable[[Communicator, Any, Sequence[Any], str], Pairs]] = {
    "all_reduce": lambda c, x, a, op: [(c.all_reduce(x, op), expected_reduction(a, op))],
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
    "asynchronous": _asynchronous,
    "tags": _tags,
    "any_source": _any_source,
}
