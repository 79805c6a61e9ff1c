"""A hostile rank 0 that knows the token: whatever it names and sends stays in the copy of the run
folder, or ends with a one-line error."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_cases import cases, entries, no_tracebacks, try_cases
from hypothesis import strategies as st
from mutations import TEXTS, mutated

from dualml.common.errors import CommunicationError, UserError
from dualml.experiment.store.sessions import RankFailure, iter_failures
from dualml.launch.connection import Connection, authenticate_caller
from dualml.launch.credentials import RankCredentials
from dualml.launch.external import follow_leader
from dualml.launch.remote import RemoteRunFolder
from dualml.launch.remote_client import RemoteFolderClient

pytestmark = pytest.mark.system
SECRET, HERE = b"a secret of some length", "127.0.0.1"
PLACE = "trials/a/numpy/seed0"
ANNOUNCED = {"places": [PLACE], "backend": "numpy", "threads": 1, "start": "", "why": ""}
JOB = {
    "arm": "a",
    "backend": "numpy",
    "seed": 0,
    "device": "cpu",
    "threads": 1,
    "cores": 0,
    "rendezvous": "tcp://127.0.0.1:1",
    "key": "0",
    "check": False,
    "plan_hash": "",
    "checkpoint_every": 0,
}
Answer = tuple[Any, bytes]
Replies = Callable[[str, str], Answer]


def usual(op: str, path: str) -> Answer:
    """Return the replies of a well-behaved rank 0."""
    if op == "list":
        return {"files": {"plan": ["plan.json"], PLACE: ["job.json"]}.get(path, [])}, b""
    if op == "get":
        known = {".sessions/0.json": ANNOUNCED, f"{PLACE}/job.json": JOB}.get(path, {})
        content = json.dumps(known).encode()
        return {"there": True, "size": len(content)}, content
    return {"wait": {"there": True}, "age": {"age": None}}.get(op, {}), b""


@contextlib.contextmanager
def rank0(replies: Replies) -> Iterator[int]:
    """Serve ``replies`` as rank 0 to one rank after the other; yield its port."""

    def serve(wire: Connection) -> None:
        with contextlib.closing(wire), contextlib.suppress(OSError, ValueError):
            wire.receive()
            wire.send({"size": 2})
            while True:
                header, _ = wire.receive()
                wire.send(*replies(str(header["op"]), str(header.get("path"))))

    def listen() -> None:
        with contextlib.suppress(OSError):
            while True:
                if (wire := authenticate_caller(door.accept()[0], SECRET)) is not None:
                    serve(wire)

    with socket.create_server((HERE, 0)) as door:
        threading.Thread(target=listen, daemon=True).start()
        yield door.getsockname()[1]
        with contextlib.suppress(OSError):
            door.shutdown(socket.SHUT_RDWR)


def part(port: int, copy: Path) -> None:
    """Do everything once that a rank does before its worker starts."""
    copy.mkdir(parents=True, exist_ok=True)
    seat = RankCredentials(HERE, port, SECRET, 1, 2)
    mirror = RemoteFolderClient(
        RemoteRunFolder(seat, seat.connect(worker=False, limit=10), copy), copy
    )
    with contextlib.closing(mirror.remote.wire):
        mirror.trial_folders(mirror.next_announcement(0))
        mirror.is_superseded(0)
        mirror.report_failure(0, RankFailure(code=1, reason=None, result=None))
        mirror.finish_session(mirror.places)


def end_reason(tmp_path: Path, replies: Replies) -> str:
    """Return the error that ends a rank, and assert that nothing was written outside of its
    copy."""
    copy = tmp_path / "below/copy"
    (tmp_path / "precious").write_text("mine")
    before = entries(tmp_path, copy)
    with rank0(replies) as port, pytest.raises((CommunicationError, UserError)) as error:
        part(port, copy)
    assert entries(tmp_path, copy) == before
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_rank_0_that_means_well_is_followed(tmp_path: Path) -> None:
    with rank0(usual) as port:
        part(port, tmp_path / "copy")
    assert json.loads((tmp_path / "copy" / PLACE / "job.json").read_text()) == JOB
    assert (tmp_path / "copy/plan/plan.json").exists()


@pytest.mark.parametrize(
    "name",
    [
        "../../precious",
        "/tmp/precious",
        "..",
        ".",
        "",
        "a/b",
        "plan.json\n",
        "a\0b",
        ".hidden",
        3,
        None,
        "x" * 300,
        "NUL.json",
        "\x1b[2J",
    ],
)
def test_it_names_files_of_the_copy_only(tmp_path: Path, name: object) -> None:
    def replies(op: str, path: str) -> Answer:
        return ({"files": [name]}, b"") if (op, path) == ("list", "plan") else usual(op, path)

    assert "is no name of a file" in end_reason(tmp_path, replies)


@pytest.mark.parametrize(
    "changed",
    [
        {"places": ["../../precious"]},
        {"places": ["/tmp"]},
        {"places": ["trials/../../x"]},
        {"places": ["plan"]},
        {"places": ["trials/a\n"]},
        {"places": [3]},
        {"places": "trials/a"},
        {"places": []},
        {"places": ["trials/a"] * 20_000},
        {"places": ["trials/" + "a/" * 2000]},
        {"backend": 3},
        {"threads": -1},
        {"threads": "2"},
        {"threads": 10**9},
        {"start": []},
        {"why": {}},
    ],
    ids=lambda changed: str(changed)[:40],
)
def test_its_announcements_are_checked(tmp_path: Path, changed: dict[str, Any]) -> None:
    content = json.dumps({**ANNOUNCED, **changed}).encode()

    def replies(op: str, path: str) -> Answer:
        told = (op, path) == ("get", ".sessions/0.json")
        return ({"there": True, "size": len(content)}, content) if told else usual(op, path)

    assert next(iter(changed)) in end_reason(tmp_path, replies)


def test_a_backend_that_this_machine_lacks_is_named(tmp_path: Path) -> None:
    content = json.dumps({**ANNOUNCED, "backend": "nonesuch"}).encode()

    def replies(op: str, path: str) -> Answer:
        told = (op, path) == ("get", ".sessions/0.json")
        return ({"there": True, "size": len(content)}, content) if told else usual(op, path)

    seat = RankCredentials(HERE, 0, SECRET, 1, 2)
    with rank0(replies) as seat.port:
        mirror = RemoteFolderClient(
            RemoteRunFolder(seat, seat.connect(worker=False, limit=10), tmp_path), tmp_path
        )
        with pytest.raises(UserError, match=r"announces backend 'nonesuch', which this machine"):
            follow_leader(1, mirror, 10)
        mirror.remote.wire.close()


@pytest.mark.parametrize("rendezvous", ["file:///tmp/precious", "auto", "\x1b[2J"])
def test_ranks_do_not_meet_in_a_file_that_it_names(tmp_path: Path, rendezvous: str) -> None:
    content = json.dumps({**JOB, "rendezvous": rendezvous}).encode()

    def replies(op: str, path: str) -> Answer:
        told = (op, path) == ("get", f"{PLACE}/job.json")
        return ({"there": True, "size": len(content)}, content) if told else usual(op, path)

    assert "ranks on several machines meet at tcp://" in end_reason(tmp_path, replies)


@pytest.mark.parametrize(
    ("size", "piece", "message"),
    [
        (2**60, b"x", "size is"),
        (2**41, b"x", r"bytes, and .* left: free some space"),
        (10, b"", "ends after 0 of 10 bytes"),
        (-1, b"x", "size is"),
        ("x", b"", "size is str"),
    ],
)
def test_a_file_is_as_long_as_it_says(
    tmp_path: Path, size: object, piece: bytes, message: str
) -> None:
    def replies(op: str, path: str) -> Answer:
        told = (op, path) == ("get", "plan/plan.json")
        return ({"there": True, "size": size}, piece) if told else usual(op, path)

    assert re.search(message, end_reason(tmp_path, replies))
    assert not list((tmp_path / "below/copy/plan").iterdir())


def test_a_note_without_an_end_is_not_read(tmp_path: Path) -> None:
    def replies(op: str, path: str) -> Answer:
        told = path.startswith(".sessions") and op == "get"
        return ({"there": True, "size": 2**40}, bytes(2**20)) if told else usual(op, path)

    begin = time.monotonic()
    assert "bytes; at most" in end_reason(tmp_path, replies)
    assert time.monotonic() - begin < 10


@cases(100, 3000)
def test_whatever_rank_0_says(tmp_path: Path, count: int) -> None:
    copy, case_answers = tmp_path / "copy", list[Replies]()
    (tmp_path / "precious").write_text("mine")
    before = entries(tmp_path, copy)

    def case(draw: Any) -> None:
        wrong = draw(st.integers(0, 6))  # of the answers that come, this one
        came, turn = iter(range(1000)), threading.Lock()

        def replies(op: str, path: str) -> Answer:
            header, body = usual(op, path)
            with turn:
                if next(came) != wrong:
                    return header, body
            return next(planned)(op, header, body)

        how = draw(st.sampled_from(["header", "header", "names", "body", "none"]))
        names = draw(st.lists(st.sampled_from([*TEXTS, "job.json", "../../precious"]), max_size=3))
        changes: list[Any] = []

        def changed(op: str, header: Any, body: bytes) -> Answer:
            if how == "header":
                return changes[0] if op in ("get", "wait") else changes[1], body
            if how == "names":
                return {"files": names}, body
            return header, changes[2] if how == "body" else body

        changes.append(mutated(draw, {"there": True, "size": 2, "age": None}))
        changes.append(mutated(draw, {"files": ["plan.json", "rank1.jsonl"], "age": 1.0}))
        changes.append(json.dumps(mutated(draw, {**ANNOUNCED, **JOB})).encode())
        planned = iter([changed])
        case_answers[:] = [replies]
        with contextlib.suppress(CommunicationError, UserError):
            part(port, copy)

    with no_tracebacks(), rank0(lambda op, path: case_answers[0](op, path)) as port:
        try_cases(count, case)
    assert entries(tmp_path, copy) == before


# --- what a rank leaves in the run folder ---------------------------------------------------------


@pytest.mark.parametrize(
    "note",
    [
        "[" * 60_000,
        "3",
        "{}",
        '{"code": "x", "reason": null, "result": null}',
        '{"code": 1, "reason": null, "result": {"status": 3}}',
        '{"code": 1, "reason": null, "result": {"status": "failed"}}',
        '{"code": 1, "reason": null, "result": {"status": "failed", "reason": [1]}}',
    ],
    ids=range(7),
)
def test_a_damaged_note_is_a_failure_of_that_rank(tmp_path: Path, note: str) -> None:
    (tmp_path / ".sessions").mkdir()
    (tmp_path / ".sessions/0.rank1.json").write_text(note)
    (tmp_path / ".sessions/0.rankfoo.rank1.json").write_text("{}")
    ((rank, _, failure),) = iter_failures(tmp_path, 0)
    assert (rank, failure.code, failure.result) == (1, -1, None)
    assert "cannot be read" in str(failure.reason)
