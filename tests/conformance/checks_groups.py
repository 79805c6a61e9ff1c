"""Checks of synchronisation: barriers, pending messages, and groups inside groups."""

from __future__ import annotations

import time

import numpy as np
from conformance.contributions import Failures, rank_inputs, reduced, values

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.communicator.parts import part_lengths


def check_large_messages(comm: Communicator) -> None:
    """Check that two ranks can send 8 MB to each other at once: sending must not wait for the
    receiver."""
    wrong, n = Failures(), comm.size
    right, left = (comm.rank + 1) % n, (comm.rank - 1) % n
    x = comm.tensor(np.full(2**21, comm.rank, np.float32))
    peers = {right, left}
    found = comm.exchange(dict.fromkeys(peers, x), {p: comm.empty_like(x) for p in peers})
    for peer in peers:
        wrong.expect_equal(
            comm.numpy(found[peer]), np.full(2**21, peer, np.float32), f"from {peer}"
        )
    total = comm.numpy(comm.all_reduce(x))
    wrong.expect_equal(total, np.full(2**21, n * (n - 1) / 2, np.float32), "all_reduce")
    wrong.assert_none()


def check_order_of_messages(comm: Communicator) -> None:
    """Check that messages between two ranks arrive in the order they were sent."""
    wrong, n = Failures(), comm.size
    right, left = (comm.rank + 1) % n, (comm.rank - 1) % n
    for number in range(20):
        x = comm.tensor(np.full(3, 100 * comm.rank + number, np.int32))
        found = comm.exchange({right: x}, {left: comm.empty_like(x)})[left]
        wrong.expect_equal(
            comm.numpy(found), np.full(3, 100 * left + number, np.int32), f"{number}"
        )
    wrong.assert_none()


def check_barrier(comm: Communicator) -> None:
    """Check that no rank leaves a barrier before the last one has entered it."""
    board, wrong = comm.context.store, Failures()
    for turn, late in enumerate((0, comm.size - 1)):
        if comm.rank == late:
            time.sleep(0.2)
        board.set(f"came{turn}.{comm.rank}", "")
        comm.barrier()
        absent = [r for r in range(comm.size) if board.get(f"came{turn}.{r}") is None]
        wrong.expect(not absent, f"rank {comm.rank} left before {absent} came")
    wrong.assert_none()


def check_asynchronous(comm: Communicator) -> None:
    """Check that several operations can be pending while the rank computes."""
    wrong = Failures()
    told = [rank_inputs(comm, (1000,), "float32", "", seed) for seed in range(3)]
    ops = ("sum", "mean", "max")
    sums = [comm.all_reduce(told[i][0], op, wait=False) for i, op in enumerate(ops)]
    parts = comm.all_gather(told[0][0], wait=False)
    mine = comm.combine(comm.copy(told[1][0]), told[2][0], "sum")
    before = comm.traffic.seconds
    for (x, arrays), op, pending in zip(told, ops, sums, strict=True):
        want, bound = reduced(arrays, op)
        wrong.expect_equal(comm.numpy(pending.wait()), want, op, bound)
        wrong.expect_equal(comm.numpy(x), arrays[comm.rank], f"{op}: the argument")
    for r, part in enumerate(parts.wait()):
        wrong.expect_equal(comm.numpy(part), told[0][1][r], f"part {r}")
    under_way = comm.implementation_of("asynchronous").kind == "native"
    wrong.expect(comm.traffic.seconds > before or not under_way, "waiting is not on the clock")
    here = comm.rank
    wrong.expect_equal(
        comm.numpy(mine), told[1][1][here] + told[2][1][here], "work meanwhile", 1e-6
    )
    wrong.assert_none()


def subgroups(n: int) -> list[list[int]]:
    """Return subgroups to test: overlapping ones, with gaps, of one rank, and of all ranks."""
    return [[0, n - 1], [0], list(range(n)), list(range(1, n)), list(range(0, n, 2))]


def check_subgroup(comm: Communicator) -> None:
    """Check collectives and messages inside each subgroup, addressed by the group's own ranks."""
    wrong, n = Failures(), comm.size
    made = [comm.subgroup(ranks) for ranks in subgroups(n)]
    for turn in range(2):  # all of them are used again after all of them were
        for ranks, sub in zip(subgroups(n), made, strict=True):
            what = f"{ranks} turn {turn}"
            wrong.expect((sub is None) == (comm.rank not in ranks), f"{what}: only its members")
            if sub is None:
                continue
            wrong.expect((sub.rank, sub.size) == (ranks.index(comm.rank), len(ranks)), what)
            check_inside(sub, ranks, what, wrong)
    inner = comm.subgroup(range(n - 1))
    nested = inner.subgroup([inner.size - 1]) if inner is not None else None
    wrong.expect((nested is not None) == (comm.rank == n - 2), "a group made of part of a group")
    wrong.assert_none()


def check_inside(sub: Communicator, ranks: list[int], what: str, wrong: Failures) -> None:
    """Check collectives and messages inside one subgroup."""
    arrays = [values(r, (6,), "float32") for r in ranks]
    x = sub.tensor(arrays[sub.rank])
    want, bound = reduced(arrays, "sum")
    wrong.expect_equal(sub.numpy(sub.all_reduce(x)), want, f"{what}: all_reduce", bound)
    last = sub.size - 1
    wrong.expect_equal(sub.numpy(sub.broadcast(x, last)), arrays[last], f"{what}: broadcast")
    for r, part in enumerate(sub.all_gather(x)):
        wrong.expect_equal(sub.numpy(part), arrays[r], f"{what}: all_gather {r}")
    found = sub.reduce(x, last)
    if found is not None:
        wrong.expect_equal(sub.numpy(found), want, f"{what}: reduce", bound)
    for r, part in enumerate(sub.gather(x, last) or ()):
        wrong.expect_equal(sub.numpy(part), arrays[r], f"{what}: gather {r}")
    parts = [sub.tensor(a) for a in arrays] if sub.rank == last else None
    wrong.expect_equal(sub.numpy(sub.scatter(parts, x, last)), arrays[sub.rank], f"{what}: scatter")
    for r, part in enumerate(sub.all_to_all([x] * sub.size)):
        wrong.expect_equal(sub.numpy(part), arrays[r], f"{what}: all_to_all {r}")
    start, size = sum(part_lengths(6, sub.size)[: sub.rank]), part_lengths(6, sub.size)[sub.rank]
    part = sub.numpy(sub.reduce_scatter(x))
    wrong.expect_equal(part, want[start : start + size], f"{what}: reduce_scatter", bound)
    if sub.size > 1:
        right, left = (sub.rank + 1) % sub.size, (sub.rank - 1) % sub.size
        got = sub.exchange({right: x}, {left: sub.empty_like(x)})
        wrong.expect_equal(sub.numpy(got[left]), arrays[left], f"{what}: exchange")
    sub.barrier()
