"""Checks of tagged messages, receiving from any rank, pending collectives, and bitwise
reductions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from conformance.contributions import SHAPES, Failures, altered, rank_inputs

from dualml.algorithms.communicator import BITWISE, Communicator, WorkHandle
from dualml.algorithms.communicator.parts import part_lengths
from dualml.algorithms.communicator.primitives import query_implementation
from dualml.common.errors import CommunicationError, Unsupported

BITS: dict[str, Any] = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}
WHOLE = ("int32", "int64")
#: Seconds that another rank's note, or a collective that all ranks have entered, may take.
SOON = 10.0


def int_tensor(comm: Communicator, *numbers: int) -> Any:
    """Return an int32 tensor of these numbers."""
    return comm.tensor(np.array(numbers, np.int32))


def check_tags(comm: Communicator) -> None:
    """Check that tags tell messages apart in any order, and that messages of one tag keep their
    order."""
    wrong, n, me = Failures(), comm.size, comm.rank
    right, left = (me + 1) % n, (me - 1) % n
    if query_implementation(comm, "tags").kind == "unsupported":
        expect_refusal(wrong, "a tag to send", partial(comm.isend, int_tensor(comm, 1), right, 3))
        expect_refusal(wrong, "a tag to receive", partial(comm.irecv, int_tensor(comm, 0), left, 3))
        wrong.assert_none()
        return
    numbers = [(7, 1), (0, 2), (2**31 - 1, 3), (7, 4)]  # tag 7 twice, and messages without one
    sent = [comm.isend(int_tensor(comm, me, value), right, tag) for tag, value in numbers]
    for tag, value in ((2**31 - 1, 3), (7, 1), (0, 2), (7, 4)):
        got, source = comm.recv(int_tensor(comm, 0, 0), left, tag)
        want = np.array([left, value], np.int32)
        wrong.expect_equal(comm.numpy(got), want, f"tag {tag}, message {value}")
        wrong.expect(source == left, f"tag {tag}: from {source} instead of {left}")
    for pending in sent:
        pending.wait()
    for tag in (-1, 2**31):
        try:
            comm.isend(int_tensor(comm, 1), right, tag)
        except CommunicationError:
            continue
        wrong.append(f"tag {tag} was not refused")
    wrong.assert_none()


def check_any_source(comm: Communicator) -> None:
    """Check receiving from any rank, with the sender's rank; also in a subgroup."""
    wrong = Failures()
    if query_implementation(comm, "any_source").kind == "unsupported":
        expect_refusal(wrong, "any rank", partial(comm.irecv, int_tensor(comm, 0)))
        wrong.assert_none()
        return
    tags = (0, 5) if query_implementation(comm, "tags").kind != "unsupported" else (0,)
    later = comm.subgroup(range(1, comm.size)) if comm.size > 2 else None
    for group in (comm, *([] if later is None else [later])):
        for tag in tags:
            collect(group, tag, wrong)
    wrong.assert_none()


def collect(comm: Communicator, tag: int, wrong: Failures) -> None:
    """Receive on rank 0 one message from every other rank; the last rank sends last."""
    board, key = comm.context.store, f"any.{'-'.join(map(str, comm.ranks))}.{tag}"
    if comm.rank:
        if comm.rank == comm.size - 1 and comm.size > 2:
            await_note(comm, f"{key}.others")
        comm.send(int_tensor(comm, comm.rank, 100 + comm.rank), 0, tag)
        return
    came = []
    for number in range(1, comm.size):
        got, source = comm.recv(int_tensor(comm, 0, 0), None, tag)
        want = np.array([source, 100 + source], np.int32)
        wrong.expect_equal(comm.numpy(got), want, f"tag {tag}, from {source}")
        came.append(source)
        if number == comm.size - 2:
            board.set(f"{key}.others", "")
    wrong.expect(sorted(came) == list(range(1, comm.size)), f"tag {tag}: from {came}")
    late = comm.size - 1
    wrong.expect(came[-1] == late, f"tag {tag}: rank {late} waited for the others, and came {came}")


def check_bitwise(comm: Communicator, dtype: str) -> None:
    """Compare bitwise reductions with NumPy's, in all shapes; those of floats are refused."""
    wrong, n = Failures(), comm.size
    for op in BITWISE:
        for seed, (shape, how) in enumerate(SHAPES):
            x, arrays = rank_inputs(comm, shape, dtype, how, seed)
            want = np.asarray(BITS[op].reduce(np.stack(arrays)), dtype)
            what = f"{op} {shape} {how}"
            wrong.expect_equal(comm.numpy(comm.all_reduce(x, op)), want, f"all_reduce {what}")
            found = comm.reduce(x, n - 1, op)
            if found is not None:
                wrong.expect_equal(comm.numpy(found), want, f"reduce {what}")
            wrong.expect_equal(comm.numpy(x), arrays[comm.rank], f"{what}: the argument")
        x, arrays = rank_inputs(comm, (2 * n + 1,), dtype, "", 1)
        want, sizes = BITS[op].reduce(np.stack(arrays)), part_lengths(2 * n + 1, n)
        start = sum(sizes[: comm.rank])
        part = comm.numpy(comm.reduce_scatter(x, op))
        wrong.expect_equal(part, want[start : start + sizes[comm.rank]], f"reduce_scatter {op}")
        try:
            comm.all_reduce(comm.tensor(np.ones(2, np.float32)), op)
        except CommunicationError:
            continue
        wrong.append(f"{op} of float32 was not refused")
    wrong.assert_none()


Begin = Callable[[bool], Any]


def collectives(comm: Communicator) -> dict[str, tuple[Begin, list[np.ndarray] | None]]:
    """Return name → function that starts (or runs) a collective, and this rank's expected result.
    Rank 0 needs every other rank in each."""
    n, me, last = comm.size, comm.rank, comm.size - 1
    arrays = [altered(np.arange(n, dtype=np.float32) + 10 * r, "") for r in range(n)]
    x, total = comm.tensor(arrays[me]), np.sum(arrays, axis=0, dtype=np.float32)
    parts = [comm.tensor(a) for a in arrays]
    return {
        "all_reduce": (lambda w: comm.all_reduce(x, wait=w), [total]),
        "reduce": (lambda w: comm.reduce(x, wait=w), None if me else [total]),
        "broadcast": (lambda w: comm.broadcast(x, last, wait=w), [arrays[last]]),
        "gather": (lambda w: comm.gather(x, wait=w), None if me else arrays),
        "all_gather": (lambda w: comm.all_gather(x, wait=w), arrays),
        "scatter": (lambda w: comm.scatter(parts, x, last, wait=w), [arrays[me]]),
        "reduce_scatter": (lambda w: comm.reduce_scatter(x, wait=w), [total[me : me + 1]]),
        "all_to_all": (lambda w: comm.all_to_all([x] * n, wait=w), arrays),
        "barrier": (lambda w: comm.barrier(wait=w), None),
    }


def check_async_op(comm: Communicator) -> None:
    """Check every collective with ``wait=False``: pending until all ranks have joined (where the
    engine is asynchronous), then complete by itself, with the same result however often it is
    waited for."""
    wrong, native = Failures(), query_implementation(comm, "asynchronous").kind == "native"
    board = comm.context.store
    for name, (begin, want) in collectives(comm).items():
        key = f"async.{name}.{comm.size}"
        if comm.rank and native:
            await_note(comm, key)
        pending: WorkHandle = begin(False)
        if comm.rank == 0 and native:
            wrong.expect(not pending.is_completed(), f"{name}: done before the others came")
            board.set(key, "")
        if native:
            end = time.monotonic() + SOON
            while not pending.is_completed() and time.monotonic() < end:
                time.sleep(0.001)
        wrong.expect(pending.is_completed(), f"{name}: not done, though all are there")
        for turn in range(2):
            expect_parts(comm, pending.wait(), want, f"{name}, wait {turn}", wrong)
        wrong.expect(pending.is_completed(), f"{name}: not done after the wait")
        expect_parts(comm, begin(True), want, f"{name} at once", wrong)
    wrong.assert_none()


def check_async_messages(comm: Communicator) -> None:
    """Check that a message is not reported as received before it was sent, unless the engine cannot
    tell."""
    wrong, peer = Failures(), comm.rank ^ 1
    if peer < comm.size:
        first = comm.irecv(int_tensor(comm, 0), peer)
        told: bool | None = None
        with contextlib.suppress(Unsupported):
            told = first.is_completed()
        wrong.expect(told is not True, "done before it was sent")
        comm.context.store.set(f"messages.{comm.rank}", "")
        await_note(comm, f"messages.{peer}")
        sent = comm.isend(int_tensor(comm, 40 + comm.rank), peer)
        wrong.expect_equal(comm.numpy(first.wait()), np.array([40 + peer], np.int32), "what came")
        sent.wait()
        wrong.expect(first.is_completed() and sent.is_completed(), "not done after the wait")
        wrong.expect(first.source == peer, f"from {first.source} instead of {peer}")
    wrong.assert_none()


def expect_parts(
    comm: Communicator, found: Any, want: list[np.ndarray] | None, what: str, wrong: Failures
) -> None:
    """Record a failure unless a collective's result equals the expected parts; ``want`` None: no
    result."""
    if want is None:
        wrong.expect(found is None, f"{what}: {found!r:.100} instead of None")
        return
    parts = found if isinstance(found, list) else [found]
    wrong.expect(len(parts) == len(want), f"{what}: {len(parts)} parts")
    for number, (part, expected) in enumerate(zip(parts, want, strict=False)):
        wrong.expect_equal(comm.numpy(part), expected, f"{what}: part {number}")


def expect_refusal(wrong: Failures, what: str, call: Callable[[], Any]) -> None:
    """Record a failure unless the call raises `Unsupported`."""
    try:
        call()
    except Unsupported:
        return
    wrong.append(f"{what} was not refused")


def await_note(comm: Communicator, key: str) -> None:
    """Wait until another rank has posted this key."""
    end = time.monotonic() + SOON
    while comm.context.store.get(key) is None:
        assert time.monotonic() < end, f"no note {key}"
        time.sleep(0.001)
