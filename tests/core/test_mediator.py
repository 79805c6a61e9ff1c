"""The judge's communicator: what a student's ranks receive, and its message when they diverge."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dualml.common.errors import CommunicationError
from dualml.course.communicator import StudentCommunicator
from dualml.course.frames import LENGTHS, receive, send
from dualml.course.isolation.warden import send_outcome
from dualml.course.mediator import Mediator, NotConfined
from dualml.course.member import Member

Work = Callable[[StudentCommunicator], dict[str, Any]]


class Group:
    """Ranks as threads, each with a socket to the mediator."""

    def __init__(self, size: int) -> None:
        pairs = [socket.socketpair() for _ in range(size)]
        self.doors = [theirs for _, theirs in pairs]
        self.mediator = Mediator([ours for ours, _ in pairs], lambda rank: "was ended by SIGKILL")
        self.size = size

    def rank(self, rank: int, work: Work) -> None:
        with contextlib.suppress(OSError):  # the test is over
            self.answer(rank, work)

    def answer(self, rank: int, work: Work) -> None:
        comm = StudentCommunicator(self.doors[rank], rank, self.size, np.asarray, lambda a, like: a)
        header, _ = receive(self.doors[rank], 5.0)
        comm.number, comm.silent = header["number"], header["silent"]
        try:
            out = work(comm)
        except Exception as error:
            said = {"kind": type(error).__name__, "message": str(error), "line": 1}
            send(self.doors[rank], {"event": "trouble", "call": comm.number, **said})
        else:
            send(self.doors[rank], {"event": "answer", "call": comm.number, "seconds": 0.0}, out)

    def run(self, *works: Work, seconds: float = 5.0, **header: Any) -> list[Member]:
        """Make one call, in which each rank runs its own function or all run the same."""
        each = works if len(works) > 1 else works * self.size
        threads = [
            threading.Thread(target=self.rank, args=(rank, work), daemon=True)
            for rank, work in enumerate(each)
        ]
        for thread in threads:
            thread.start()
        message = {"number": 0, "kind": "x", "options": {}, **header}
        members = self.mediator.run(0, message, [{}] * self.size, seconds)
        for thread in threads:
            thread.join(2.0)
        return members

    def close(self) -> None:
        for door in (*self.doors, *(m.door for m in self.mediator.members)):
            door.close()


@pytest.fixture
def group() -> Iterator[Callable[[int], Group]]:
    made: list[Group] = []

    def make_group(size: int) -> Group:
        made.append(Group(size))
        return made[-1]

    yield make_group
    for one in made:
        one.close()


def tensor(comm: StudentCommunicator, length: int = 5) -> Any:
    return np.arange(length, dtype=np.float32) + 10 * comm.rank


CASES: dict[str, tuple[Work, Callable[[int, int], Any]]] = {
    "all_reduce": (lambda c: {"y": c.all_reduce(tensor(c))}, lambda r, n: total(n)),
    "mean": (lambda c: {"y": c.all_reduce(tensor(c), "mean")}, lambda r, n: total(n) / n),
    "max": (lambda c: {"y": c.all_reduce(tensor(c), op="max")}, lambda r, n: rows(n).max(0)),
    "prod": (lambda c: {"y": c.all_reduce(tensor(c), op="prod")}, lambda r, n: rows(n).prod(0)),
    "reduce": (
        lambda c: {"y": stack_or_empty(c, c.reduce(tensor(c), root=1))},
        lambda r, n: total(n) if r == 1 else np.zeros(0),
    ),
    "broadcast": (lambda c: {"y": c.broadcast(tensor(c), root=1)}, lambda r, n: rows(n)[1]),
    "gather": (
        lambda c: {"y": stack_or_empty(c, c.gather(tensor(c)))},
        lambda r, n: rows(n) if r == 0 else np.zeros(0),
    ),
    "all_gather": (lambda c: {"y": np.stack(c.all_gather(tensor(c)))}, lambda r, n: rows(n)),
    "scatter": (
        lambda c: {
            "y": c.scatter(
                [tensor(c) + p for p in range(c.size)] if c.rank == 0 else None, tensor(c)
            )
        },
        lambda r, n: rows(n)[0] + r,
    ),
    "reduce_scatter": (
        lambda c: {"y": c.reduce_scatter(tensor(c))},
        lambda r, n: np.array_split(total(n), n)[r],
    ),
    "all_to_all": (
        lambda c: {"y": np.stack(c.all_to_all([tensor(c) + p for p in range(c.size)]))},
        lambda r, n: rows(n) + r,
    ),
    "exchange": (lambda c: {"y": shifted(c)}, lambda r, n: rows(n)[(r - 1) % n]),
}


def shifted(comm: StudentCommunicator) -> Any:
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    return comm.exchange({right: tensor(comm)}, {left: tensor(comm)})[left]


def rows(n: int) -> Any:
    return np.arange(5, dtype=np.float32) + 10 * np.arange(n, dtype=np.float32)[:, None]


def total(n: int) -> Any:
    return rows(n).sum(0)


def stack_or_empty(comm: StudentCommunicator, value: Any) -> Any:
    return np.zeros(0, np.float32) if value is None else np.stack(value)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", CASES)
def test_a_collective_gives_every_rank_its_part(name: str, size: int, group: Any) -> None:
    work, expected = CASES[name]
    for rank, member in enumerate(group(size).run(work)):
        assert member.trouble is None
        assert member.arrays is not None
        np.testing.assert_allclose(member.arrays["y"], expected(rank, size), rtol=1e-6)


def send_nothing(comm: StudentCommunicator) -> dict[str, Any]:
    return {}


def fails(comm: StudentCommunicator) -> dict[str, Any]:
    raise KeyError("x")


def sums(comm: StudentCommunicator) -> dict[str, Any]:
    return {"y": comm.all_reduce(tensor(comm))}


def waits(comm: StudentCommunicator) -> dict[str, Any]:
    return {"y": comm.exchange({}, {1 - comm.rank: tensor(comm)})[1 - comm.rank]}


PARTED: list[tuple[tuple[Work, Work], str, str]] = [
    ((sums, send_nothing), "CommunicationError",
     r"rank 0 waited for all_reduce float32 \(5,\) op=sum root=0; missing: rank 1 of 2"),
    ((sums, fails), "CommunicationError", "rank 0 waited for all_reduce.*missing: rank 1"),
    ((sums, lambda c: {"y": c.all_reduce(tensor(c, 6))}), "CommunicationError",
     r"disagree on collective number 1: rank 0: all_reduce float32 \(5,\).*rank 1: .*\(6,\)"),
    ((sums, lambda c: {"y": c.broadcast(tensor(c))}), "CommunicationError", "disagree.*broadcast"),
    ((sums, waits), "CommunicationError", r"disagree.*rank 1: exchange to \[\] from \[0\]"),
    ((waits, waits), "CommunicationError", r"rank 0 waited for exchange.*missing: rank 1 of 2"),
    ((waits, lambda c: c.exchange({0: tensor(c, 4)}, {}) and {}), "ValueError",
     "rank 0 receives 4 elements from rank 1 and expects 5"),
    ((lambda c: {"y": c.all_reduce(tensor(c), op="median")}, send_nothing), "CommunicationError",
     "op must be one of"),
    ((lambda c: {"y": c.broadcast(tensor(c), root=7)}, send_nothing), "CommunicationError",
     "root 7 is not one of 2 ranks"),
    ((lambda c: {"y": c.all_reduce(tensor(c).astype(np.uint8))}, send_nothing),
     "CommunicationError", "received uint8"),
    ((lambda c: c.exchange({0: tensor(c)}, {}) and {}, send_nothing), "CommunicationError",
     "rank 0 of 2 cannot exchange with rank 0"),
]  # fmt: skip


@pytest.mark.parametrize(("works", "kind", "message"), PARTED, ids=[m[:30] for _, _, m in PARTED])
def test_ranks_that_part_are_told_at_once(
    works: tuple[Work, Work], kind: str, message: str, group: Any
) -> None:
    began = time.monotonic()
    first = group(2).run(*works)[0].trouble
    assert time.monotonic() - began < 4.5  # not the call's own limit
    assert first is not None
    assert first.kind == kind
    assert re.search(message, first.message), first


def test_a_group_goes_on_after_an_error(group: Any) -> None:
    ranks = group(2)
    ranks.run(sums, fails)
    members = ranks.run(sums)
    assert [m.trouble for m in members] == [None, None]


def test_a_rank_that_still_computes_ends_the_group(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dualml.course.mediator.PEERS_S", 0.1)
    ranks = group(2)
    ours, theirs = socket.socketpair()
    members = ranks.run(fails, lambda c: time.sleep(0.6) or {})
    assert [m.is_behind for m in members] == [False, True]
    assert send_outcome(ours, members, ranks.mediator)
    assert receive(theirs, 5.0)[0]["last"]  # its next request would belong to the call before
    ranks = group(2)
    assert not send_outcome(ours, ranks.run(sums, fails), ranks.mediator)
    ours.close()
    theirs.close()


def test_the_rank_that_never_comes_is_the_late_one(group: Any) -> None:
    members = group(2).run(sums, lambda c: time.sleep(1.5) or {}, seconds=0.5)
    assert [m.trouble.kind for m in members] == ["CommunicationError", "timeout"]


def test_what_is_sent_is_counted_where_students_cannot_reach(group: Any) -> None:
    ranks = group(2)

    def ring(comm: StudentCommunicator) -> dict[str, Any]:
        peer = 1 - comm.rank
        comm.exchange({peer: tensor(comm)}, {peer: tensor(comm)})
        comm.exchange({peer: tensor(comm, 3)}, {peer: tensor(comm, 3)})
        return {"messages": np.array(99)}

    ranks.run(ring, kind="ring")
    made = ranks.mediator.tally.arrays(0)
    assert {k: a.tolist() for k, a in made.items()} == {
        "messages": 2,
        "elements": 8,
        "peers": [1, 1],
        "sizes": [5, 3],
        "first": [0, 1, 2, 3, 4],
    }

    def layer(comm: StudentCommunicator) -> dict[str, Any]:
        comm.all_reduce(tensor(comm))
        comm.mark()
        comm.all_reduce(tensor(comm, 2))
        return {}

    ranks.run(layer, kind="layer")
    made = ranks.mediator.tally.arrays(1)
    assert {k: a.tolist() for k, a in made.items()} == {"forward": [5], "backward": [2]}

    def measure(comm: StudentCommunicator) -> dict[str, Any]:
        comm.all_reduce(tensor(comm))
        comm.barrier()
        comm.all_reduce(tensor(comm, 2))
        return {}

    ranks.run(measure, kind="measured")
    assert ranks.mediator.tally.arrays(1)["calls"].tolist() == [5, 0, 2]


def test_a_part_that_nobody_counts_cannot_be_opened(group: Any) -> None:
    def mark_twice(comm: StudentCommunicator) -> dict[str, Any]:
        comm.mark()
        comm.mark()
        return {}

    for kind, options, most in (("layer", {}, 1), ("zero", {"steps": 1}, 1), ("x", {}, 0)):
        members = group(2).run(mark_twice, kind=kind, options=options)
        assert f"of a call that has {most}" in members[0].trouble.message


def test_of_updates_the_one_that_hands_over_most_counts(group: Any) -> None:
    ranks = group(2)

    def update(comm: StudentCommunicator) -> dict[str, Any]:
        comm.mark()
        comm.all_reduce(tensor(comm, 7))
        comm.mark()
        comm.all_reduce(tensor(comm, 2))
        return {}

    ranks.run(update, kind="zero", options={"steps": 2})
    assert ranks.mediator.tally.arrays(0)["sent/all_reduce"].tolist() == [7]


def test_bytes_count_and_empty_messages_do_not(group: Any) -> None:
    ranks = group(2)

    def ring(comm: StudentCommunicator) -> dict[str, Any]:
        peer, wide = 1 - comm.rank, tensor(comm, 4).astype(np.float64)
        comm.exchange({peer: wide}, {peer: wide})
        comm.exchange({peer: tensor(comm, 0)}, {peer: tensor(comm, 0)})
        return {}

    ranks.run(ring, kind="ring")
    made = ranks.mediator.tally.arrays(0)
    counts = {k: int(made[k]) for k in ("messages", "elements")}
    assert counts == {"messages": 1, "elements": 8}
    assert made["sizes"].tolist() == [4, 0]


def test_what_has_to_be_measured_is_told_to_no_rank(group: Any) -> None:
    ranks = group(1)
    options = {"alpha": 0.1, "beta": 1e-9, "first": 1, "disturbed": 2, "late": 3, "sizes": [4]}
    message = {"number": 0, "kind": "measured", "options": options}
    ranks.mediator.run(0, message, [{}], 0.01)
    header, _ = receive(ranks.doors[0], 5.0)
    assert header["options"] == {"sizes": [4]}
    assert header["silent"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"x" * 199: np.zeros(1)}, "a name of 199 characters"),
        ({str(n): np.zeros(0) for n in range(3000)}, "3,000 arrays; at most 2,048"),
        ({"x": np.zeros(3 << 20)}, "25,165,824 bytes; at most 16,777,216"),
    ],
)
def test_an_answer_that_is_too_large_is_the_rank_s_own_fault(
    answer: dict[str, Any], message: str, group: Any
) -> None:
    members = group(2).run(lambda comm: answer)
    assert all(message in m.trouble.message for m in members), members[0].trouble


def test_what_is_gathered_may_be_too_large_for_a_message(group: Any) -> None:
    def gather(comm: StudentCommunicator) -> dict[str, Any]:
        comm.all_gather(np.zeros(9 << 20, np.float32))
        return {}

    members = group(2).run(gather)
    assert all("at most 67,108,864 are sent" in m.trouble.message for m in members)


def test_a_rank_that_cannot_be_confined_is_the_machine_s_fault(group: Any) -> None:
    ranks = group(2)
    send(ranks.doors[0], {"event": "broken", "call": -1, "why": "no memory"})
    with pytest.raises(NotConfined, match="no memory"):
        ranks.mediator.run(-1, {}, [{}, {}], 1.0)
    later = group(1)
    for event in ("confined", "broken"):  # too late: the student's code runs already
        send(later.doors[0], {"event": event, "call": -1, "why": "mine"})
    (member,) = later.mediator.run(-1, {}, [{}], 1.0)
    assert "sent what is no message" in member.trouble.message


def test_a_collective_that_the_exercise_lacks_is_refused(group: Any) -> None:
    members = group(2).run(sums, kind="ring")
    assert all("no 'all_reduce' in this exercise" in m.trouble.message for m in members)


def test_the_clock_lets_the_ranks_wait(group: Any) -> None:
    options = {"alpha": 0.05, "beta": 0.0, "first": 0.0, "disturbed": 0.0, "late": 0.1}

    def measure(comm: StudentCommunicator) -> dict[str, Any]:
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            comm.all_reduce(tensor(comm))
            seconds.append(time.perf_counter() - began)
        return {"seconds": np.array(seconds)}

    members = group(2).run(measure, kind="measured", options=options)
    first, second = members[0].arrays["seconds"]
    assert first > 0.045
    assert second > 0.14  # rank 1 comes late


# --- ranks that do not keep to the rules -----------------------------------------------------


def frame(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


HOSTILE: dict[str, bytes] = {
    "lengths": LENGTHS.pack(2**32 - 1, 2**32 - 1) + b"x",
    "deep": frame(b"[" * 60_000),
    "other call": frame({"event": "answer", "call": 99, "arrays": []}),
    "no call": frame({"event": "answer", "arrays": []}),
    "list": frame([]),
    "text": frame({"event": "trouble", "call": 0, "kind": 7, "arrays": []}),
    "line": frame({"event": "trouble", "call": 0, "kind": "x", "line": 10**400, "arrays": []}),
    "time": frame({"event": "answer", "call": 0, "seconds": "x", "arrays": []}),
    "event": frame({"event": "walls", "call": 0, "arrays": []}),
    "object": frame({"event": "answer", "call": 0, "arrays": [["a", "object", [1]]]}, b"12345678"),
    "short": frame({"event": "answer", "call": 0, "arrays": [["a", "float64", [9]]]}, b"1234"),
    "rest": frame({"event": "answer", "call": 0, "arrays": []}, b"1234"),
    "minus": frame({"event": "answer", "call": 0, "arrays": [["a", "int8", [-1]]]}),
    "huge": frame({"event": "answer", "call": 0, "arrays": [["a", "int8", [2**40, 2**40]]]}),
    "twice": frame({"event": "answer", "call": 0, "arrays": []}) * 2,
    "ask": frame({"event": "ask", "call": 0, "op": "all_reduce", "arrays": []}) * 2,
    "peer": frame({"event": "ask", "call": 0, "op": "exchange", "receive": [[None]], "arrays": []}),
    "marks": frame({"event": "mark", "call": 0, "name": "x", "arrays": []}) * 100,
    "silent": frame(
        {
            "event": "ask",
            "call": 0,
            "op": "all_reduce",
            "dtype": "float32",
            "shape": [5],
            "silent": True,
            "arrays": [],
        }
    )
    * 2,
    "parts": frame(
        {
            "event": "ask",
            "call": 0,
            "op": "all_to_all",
            "dtype": "int32",
            "shape": [1],
            "arrays": [["0", "int32", [1]], ["7", "int32", [1]]],
        },
        bytes(8),
    )
    * 2,
    "overflow": frame(
        {
            "event": "ask",
            "call": 0,
            "op": "exchange",
            "arrays": [],
            "receive": [[0, "float32", [2**39] * 16]],
        }
    )
    * 2,
    "bytes": b"\0" * 4096,
    "closed": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_message_is_the_rank_s_own_fault(name: str, group: Any) -> None:
    ranks = group(2)

    def misbehave() -> None:
        receive(ranks.doors[1], 5.0)
        ranks.doors[1].sendall(HOSTILE[name])
        if name == "closed":
            ranks.doors[1].close()

    threading.Thread(target=misbehave, daemon=True).start()
    threading.Thread(target=ranks.rank, args=(0, sums), daemon=True).start()
    began = time.monotonic()
    message = {"number": 0, "kind": "x", "options": {}}
    first, second = ranks.mediator.run(0, message, [{}, {}], 1.0)
    assert time.monotonic() - began < 4.0
    assert first.trouble.kind == "CommunicationError"
    if name not in ("twice", "other call"):
        assert second.trouble is not None


def test_a_communicator_wants_as_many_parts_as_ranks(group: Any) -> None:
    with pytest.raises(CommunicationError, match="needs as many parts; received 1"):
        StudentCommunicator(group(2).doors[0], 0, 2, np.asarray, lambda a, like: a).all_to_all([1])
