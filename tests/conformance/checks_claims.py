"""Checks of a communicator's claims and refusals, and of the aggregation strategies built on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from conformance.contributions import Failures, reduced, values

from dualml.algorithms.communicator import DTYPES, Communicator
from dualml.common.errors import CommunicationError
from dualml.parallel.aggregation import STRATEGIES

LENGTHS = (0, 1, 5, 16, 1001)
#: Strategies in which one rank or one order of addition decides: all ranks get the same bits.
SAME_BITS = ("all_gather", "parameter_server", "reduce_broadcast")


def check_how(comm: Communicator) -> None:
    """Check that primitives called native only call the framework; those that send messages are
    composed."""
    wrong = Failures()
    for dtype in DTYPES:
        x = comm.tensor(values(comm.rank, (8,), dtype))
        parts = [x] * comm.size
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": partial(comm.all_reduce, x),
            "reduce": partial(comm.reduce, x),
            "broadcast": partial(comm.broadcast, x),
            "gather": partial(comm.gather, x),
            "all_gather": partial(comm.all_gather, x),
            "scatter": partial(comm.scatter, parts, x),
            "reduce_scatter": partial(comm.reduce_scatter, x),
            "all_to_all": partial(comm.all_to_all, parts),
        }
        for name, call in calls.items():
            how = comm.implementation_of(name, dtype)
            comm.traffic.reset()
            call()
            t = comm.traffic
            messages = t.sent + t.received
            fits = {"native": t.calls and not messages, "composed": t.calls or messages}[how.kind]
            wrong.expect(bool(fits), f"{name} {dtype}: {how}, but {t}")
            wrong.expect(bool(how.detail), f"{name} {dtype}: no detail")
    wrong.assert_none()


def check_arithmetic(comm: Communicator) -> None:
    """Check tensor operations: conversion to NumPy and back, views, casts, and overwriting."""
    wrong = Failures()
    for dtype in DTYPES:
        a, b = values(0, (6,), dtype, 1), values(1, (6,), dtype, 1)
        x, y = comm.tensor(a), comm.tensor(b)
        wrong.expect(comm.dtype(x) == dtype, f"{comm.dtype(x)} instead of {dtype}")
        wrong.expect(comm.nbytes(x) == a.nbytes, f"{dtype}: {comm.nbytes(x)} bytes")
        for op in ("sum", "max", "min", "prod"):
            want, bound = reduced([a, b], op)
            wrong.expect_equal(comm.numpy(comm.combine(comm.copy(x), y, op)), want, op, bound)
            wrong.expect_equal(comm.numpy(y), b, f"{op}: the second argument")
        wrong.expect_equal(comm.numpy(comm.slice(x, 1, 4)), a[1:4], "slice")
        z = comm.write(comm.copy(x), 2, comm.slice(y, 0, 3), "put")
        wrong.expect_equal(comm.numpy(z), np.concatenate([a[:2], b[:3], a[5:]]), "put")
        z = comm.write(comm.copy(x), 2, comm.slice(y, 0, 3), "add")
        wrong.expect_equal(comm.numpy(z), np.concatenate([a[:2], a[2:5] + b[:3], a[5:]]), "add")
        for other in DTYPES:
            wrong.expect_equal(
                comm.numpy(comm.cast(x, other)), a.astype(other), f"{dtype} to {other}"
            )
        if dtype.startswith("float"):
            wrong.expect_equal(
                comm.numpy(comm.scale(comm.copy(x), 0.5)), a * np.asarray(0.5, dtype), "½"
            )
        wrong.expect_equal(comm.numpy(x), a, "the argument")
        kept = comm.numpy(x)
        kept[...] = 9
        wrong.expect_equal(comm.numpy(x), a, "a copy taken out")
    wrong.assert_none()


def check_refusals(comm: Communicator) -> None:
    """Check that invalid arguments are refused on every rank before any rank waits."""
    x = comm.tensor(np.ones(3, np.float32))
    whole = comm.tensor(np.ones(3, np.int32))
    refused: dict[str, Callable[[], Any]] = {
        "mean of int32": partial(comm.all_reduce, whole, "mean"),
        "op 'median'": partial(comm.all_reduce, x, "median"),
        "root n": partial(comm.broadcast, x, comm.size),
        "a type": partial(comm.all_reduce, comm.tensor(np.ones(3, np.uint8))),
        "parts": partial(comm.all_to_all, [x]),
        "itself": partial(comm.exchange, {comm.rank: x}, {}),
        "a group of a stranger": partial(comm.subgroup, [0, comm.size]),
        "a group of twice one": partial(comm.subgroup, [0, 0]),
    }
    wrong = Failures()
    for what, call in refused.items():
        try:
            call()
        except CommunicationError:
            continue
        wrong.append(f"{what} was not refused")
    wrong.assert_none()


def check_strategy(comm: Communicator, name: str, dtype: str) -> None:
    """Check a strategy's sum, that all ranks agree, and its message count against the schedule."""
    wrong, n, strategy = Failures(), comm.size, STRATEGIES[name]()
    for length in LENGTHS:
        arrays = [values(r, (length,), dtype, length) for r in range(n)]
        comm.traffic.reset()
        total = strategy.sum(comm, comm.tensor(arrays[comm.rank]))
        traffic = comm.traffic.describe()
        want, bound = reduced(arrays, "sum")
        if not strategy.exact:  # n times the mean of the neighbours
            near = sorted({(comm.rank + shift) % n for shift in (-1, 0, 1)})
            want, bound = reduced([arrays[r] for r in near], "mean")
            want, bound = want * np.asarray(n, dtype), 2 * n * bound
        wrong.expect_equal(comm.numpy(total), want, f"length {length}", bound)
        if name in SAME_BITS:
            for r, other in enumerate(comm.all_gather(total)):
                wrong.expect_equal(
                    comm.numpy(other), comm.numpy(total), f"length {length}: rank {r}"
                )
        if strategy.is_point_to_point:
            schedule, width = strategy.schedule(n), np.dtype(dtype).itemsize
            for way, moved in (
                ("sent", schedule.sent_volume),
                ("received", schedule.received_volume),
            ):
                messages, elements = moved(comm.rank, length)
                told = traffic[way], traffic[f"bytes_{way}"]
                wrong.expect(
                    told == (messages, elements * width),
                    f"length {length}: {way} {told}, schedule {messages, elements * width}",
                )
    wrong.assert_none()


def disagreements(comm: Communicator, argument: Any) -> dict[str, str]:
    """Return, in checking mode, this rank's error when rank 1 calls something else. The engine is
    never called, so the group survives from one case to the next."""
    x, odd = comm.tensor(np.ones(4, np.float32)), comm.rank == 1
    comm.all_reduce(x)  # all agree: no false alarm
    sub = comm.subgroup([0, 1])
    if sub is not None:
        sub.broadcast(x, 1)
    comm.all_gather(x)
    cases: dict[str, Callable[[], Any]] = {
        "shapes": partial(comm.all_reduce, comm.slice(x, 0, 2) if odd else x),
        "types": partial(comm.all_reduce, comm.cast(x, "float64") if odd else x),
        "operations": partial(comm.all_reduce, x, "max" if odd else "sum"),
        "roots": partial(comm.broadcast, x, 1 if odd else 0),
        "order": partial(comm.broadcast, x) if odd else partial(comm.all_reduce, x),
        "groups": partial(comm.subgroup, [1] if odd else [0]),
        "absence": (lambda: None) if odd else partial(comm.all_reduce, x),
    }
    told = {}
    for name, call in cases.items():
        if name == "absence":  # the last: from here on the ranks count differently
            place, comm.context = comm.context, replace(comm.context, timeout=0.5)
        try:
            call()
            told[name] = ""
        except CommunicationError as error:
            told[name] = str(error)
    comm.context = place
    return told
