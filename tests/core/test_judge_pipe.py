"""The judge's pipe: whatever a student's process sends, the call ends in time and the result blames
only that student."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from hostile_cases import cases, try_cases
from hypothesis import strategies as st

from dualml.course.frames import LENGTHS
from dualml.course.mediator import Mediator
from dualml.course.member import Member

WORDS = st.sampled_from(
    ["event", "call", "op", "answer", "ask", "mark", "trouble", "kind", "line", "message", "x",
     "seconds", "arrays", "name", "exchange", "all_reduce", "receive", "root", "reduce", "dtype",
     "float32", "send/1", "shape"]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    WORDS,
    st.text(max_size=8),
    st.sampled_from([0, 1, 7, -1, 10**400, "\ud800", "a" * 5000]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6) | WORDS, inner, max_size=4)
    ),
    max_leaves=12,
)
ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["x", "send/1", "send/0", "0", "1/../2"]) | st.text(max_size=4),
        st.sampled_from(["float32", "int8", "object", "<f4", "bool", "datetime64"]),
        st.lists(st.integers(-2, 6) | st.just(2**62), max_size=4),
    ),
    max_size=3,
)
OPTIONAL = (
    "op",
    "kind",
    "line",
    "message",
    "seconds",
    "name",
    "root",
    "reduce",
    "dtype",
    "shape",
    "receive",
    "silent",
)
KNOWN = st.fixed_dictionaries(
    {
        "event": st.sampled_from(["answer", "ask", "mark", "trouble"]),
        "call": st.just(0),
        "arrays": ENTRIES,
    },
    optional=dict.fromkeys(OPTIONAL, VALUES),
)


def encoded(draw: Callable[..., Any]) -> bytes:
    """Return one encoded message, or a substitute for it."""
    kind = draw(st.sampled_from(["bytes", "lengths", "json", "known", "known", "known"]))
    if kind == "bytes":
        return bytes(draw(st.binary(max_size=200)))
    text = json.dumps(draw(KNOWN if kind == "known" else VALUES)).encode()
    body = bytes(draw(st.binary(max_size=64)))
    if kind == "lengths":
        return LENGTHS.pack(draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 2**32 - 1))) + text
    return LENGTHS.pack(len(text), len(body)) + text + body


@pytest.mark.timeout(600)
@cases(200, 4_000)
def test_whatever_a_rank_sends_the_call_ends(count: int) -> None:
    def case(draw: Callable[..., Any]) -> None:
        pairs = [socket.socketpair() for _ in range(2)]
        mediator = Mediator([ours for ours, _ in pairs], lambda rank: "has ended")
        for _, theirs in pairs:
            theirs.setblocking(False)
            for _ in range(draw(st.integers(0, 3))):
                theirs.sendall(encoded(draw))
            if draw(st.booleans()):
                theirs.shutdown(socket.SHUT_WR)
        message = {
            "number": 0,
            "kind": draw(st.sampled_from(["x", "ring", "layer", "measured"])),
            "options": draw(st.sampled_from([{}, CLOCK])),
        }
        members = mediator.run(0, message, [{}, {}], 0.02)
        assert all(member.has_finished for member in members)
        for member in members:
            check_outcome(member)
            mediator.tally.arrays(member.rank)
            mediator.tally.arrays(member.rank)
        for member in mediator.members:
            member.door.close()
        for _, theirs in pairs:
            theirs.close()

    try_cases(count, case)


CLOCK = {"alpha": 0.001, "beta": 0.0, "first": 0.0, "disturbed": 0.0, "late": 0.001}


def check_outcome(member: Member) -> None:
    """Assert that the description of a rank can be written to any file."""
    if member.trouble is not None:
        f"{member.trouble.kind}: {member.trouble.message}".encode()
        assert len(member.trouble.message) <= 600
        assert len(member.trouble.kind) <= 200
        assert 0 <= member.trouble.line <= 10**7
    for array in (member.arrays or {}).values():
        assert array.dtype.kind in "biuf"
    assert 0 <= member.seconds <= 1e6
