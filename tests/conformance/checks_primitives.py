"""One check per primitive: all shapes, operations and roots of one dtype against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from conformance.contributions import (
    SHAPES,
    Failures,
    altered,
    ops_of,
    rank_inputs,
    reduced,
    values,
)

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.communicator.parts import part_lengths


def roots(comm: Communicator) -> tuple[int, int]:
    return 0, comm.size - 1


def check_all_reduce(comm: Communicator, dtype: str) -> None:
    wrong = Failures()
    for seed, (shape, how) in enumerate(SHAPES):
        for op in ops_of(dtype):
            x, arrays = rank_inputs(comm, shape, dtype, how, seed)
            want, bound = reduced(arrays, op)
            what = f"{op} {shape} {how}"
            wrong.expect_equal(comm.numpy(comm.all_reduce(x, op)), want, what, bound)
            wrong.expect_equal(comm.numpy(x), arrays[comm.rank], f"{what}: the argument")
            wrong.expect_equal(comm.numpy(comm.all_reduce(x, op, inplace=True)), want, what, bound)
    wrong.assert_none()


def check_reduce(comm: Communicator, dtype: str) -> None:
    wrong = Failures()
    for seed, (shape, how) in enumerate(SHAPES):
        for op in ops_of(dtype):
            for root in roots(comm):
                x, arrays = rank_inputs(comm, shape, dtype, how, seed)
                want, bound = reduced(arrays, op)
                what = f"{op} {shape} {how} to {root}"
                found = comm.reduce(x, root, op)
                if comm.rank == root:
                    wrong.expect_equal(comm.numpy(found), want, what, bound)
                wrong.expect((found is None) == (comm.rank != root), f"{what}: None elsewhere")
                wrong.expect_equal(comm.numpy(x), arrays[comm.rank], f"{what}: the argument")
    wrong.assert_none()


def check_broadcast(comm: Communicator, dtype: str) -> None:
    wrong = Failures()
    for seed, (shape, how) in enumerate(SHAPES):
        for root in roots(comm):
            for inplace in (False, True):
                x, arrays = rank_inputs(comm, shape, dtype, how, seed)
                what = f"{shape} {how} from {root}, inplace={inplace}"
                found = comm.broadcast(x, root, inplace=inplace)
                wrong.expect_equal(comm.numpy(found), arrays[root], what)
                if not inplace:
                    wrong.expect_equal(comm.numpy(x), arrays[comm.rank], f"{what}: the argument")
    wrong.assert_none()


def check_gather(comm: Communicator, dtype: str) -> None:
    wrong = Failures()
    for seed, (shape, how) in enumerate(SHAPES):
        for root in roots(comm):
            x, arrays = rank_inputs(comm, shape, dtype, how, seed)
            found, what = comm.gather(x, root), f"{shape} {how} to {root}"
            wrong.expect((found is None) == (comm.rank != root), f"{what}: None elsewhere")
            for r, part in enumerate(found or ()):
                wrong.expect_equal(comm.numpy(part), arrays[r], f"{what}: part {r}")
            wrong.expect_equal(comm.numpy(x), arrays[comm.rank], f"{what}: the argument")
    wrong.assert_none()


def check_all_gather(comm: Communicator, dtype: str) -> None:
    wrong = Failures()
    for seed, (shape, how) in enumerate(SHAPES):
        x, arrays = rank_inputs(comm, shape, dtype, how, seed)
        found = comm.all_gather(x)
        wrong.expect(len(found) == comm.size, f"{len(found)} parts")
        for r, part in enumerate(found):
            wrong.expect_equal(comm.numpy(part), arrays[r], f"{shape} {how}: part {r}")
        wrong.expect_equal(comm.numpy(x), arrays[comm.rank], f"{shape} {how}: the argument")
    wrong.assert_none()


def check_scatter(comm: Communicator, dtype: str) -> None:
    wrong = Failures()
    for seed, (shape, how) in enumerate(SHAPES):
        for root in roots(comm):
            like, arrays = rank_inputs(comm, shape, dtype, how, seed)
            parts = [
                altered(comm.tensor(values(r, shape, dtype, seed)), how) for r in range(comm.size)
            ]
            found, what = (
                comm.scatter(parts if comm.rank == root else None, like, root),
                f"{shape} {how} from {root}",
            )
            wrong.expect_equal(comm.numpy(found), arrays[comm.rank], what)
            for r, part in enumerate(parts):
                wrong.expect_equal(comm.numpy(part), arrays[r], f"{what}: argument {r}")
    wrong.assert_none()


def check_reduce_scatter(comm: Communicator, dtype: str) -> None:
    """Check reduce-scatter, also with unequal and empty parts."""
    wrong, n = Failures(), comm.size
    cases = [((length,), "") for length in (0, 1, n - 1, n, 2 * n + 1, 16)] + [((14,), "strided")]
    for seed, (shape, how) in enumerate(cases):
        for op in ops_of(dtype):
            x, arrays = rank_inputs(comm, shape, dtype, how, seed)
            want, bound = reduced(arrays, op)
            sizes = part_lengths(len(want), n)
            start = sum(sizes[: comm.rank])
            what = f"{op} {shape} {how}"
            found = comm.numpy(comm.reduce_scatter(x, op))
            wrong.expect_equal(found, want[start : start + sizes[comm.rank]], what, bound)
            wrong.expect_equal(comm.numpy(x), arrays[comm.rank], f"{what}: the argument")
    wrong.assert_none()


def check_all_to_all(comm: Communicator, dtype: str) -> None:
    wrong, n = Failures(), comm.size
    for seed, (shape, how) in enumerate(SHAPES):

        def array(source: int, target: int, shape: Any = shape, seed: int = seed) -> np.ndarray:
            return values(10 * source + target, shape, dtype, seed)

        parts = [altered(comm.tensor(array(comm.rank, r)), how) for r in range(n)]
        found = comm.all_to_all(parts)
        for r in range(n):
            want = altered(array(r, comm.rank), how)
            wrong.expect_equal(comm.numpy(found[r]), want, f"{shape} {how}: from {r}")
            want = altered(array(comm.rank, r), how)
            wrong.expect_equal(comm.numpy(parts[r]), want, f"{shape} {how}: argument {r}")
    wrong.assert_none()


def check_exchange(comm: Communicator, dtype: str) -> None:
    """Check exchange: around a ring, between all pairs, in one direction, and with a shape per
    pair."""
    wrong, n, me = Failures(), comm.size, comm.rank

    def swap(pairs: list[tuple[int, int]], shape: Callable[[int, int], Any], what: str) -> None:
        def array(a: int, b: int) -> np.ndarray:
            return values(10 * a + b, shape(a, b), dtype)

        send = {b: comm.tensor(array(a, b)) for a, b in pairs if a == me}
        buffers = {a: comm.empty_like(comm.tensor(array(a, b))) for a, b in pairs if b == me}
        found = comm.exchange(send, buffers)
        wrong.expect(sorted(found) == sorted(buffers), f"{what}: from {sorted(found)}")
        for a, x in found.items():
            wrong.expect_equal(comm.numpy(x), array(a, me), f"{what}: from {a}")
        for b, x in send.items():
            wrong.expect_equal(comm.numpy(x), array(me, b), f"{what}: argument for {b}")

    every = [(a, b) for a in range(n) for b in range(n) if a != b]
    for shape in ((), (0,), (7,), (2, 0, 3), (3, 5)):
        swap([(r, (r + 1) % n) for r in range(n)], lambda a, b, s=shape: s, f"ring {shape}")
    swap(every, lambda a, b: (7,), "all pairs")
    swap([(0, n - 1)], lambda a, b: (3, 5), "one way")
    swap([(n - 1, 0)], lambda a, b: (3, 5), "the other way")
    swap(every, lambda a, b: (a + 1, 2 * b + 1), "a shape for each pair")
    swap([], lambda a, b: (), "nobody")
    wrong.assert_none()
