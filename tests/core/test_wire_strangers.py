"""Clients without the token, and clients with it that violate the protocol: no other rank is kept
out, nothing is printed, and only the rank's own files are written."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_cases import cases, entries, no_tracebacks, try_cases
from hypothesis import strategies as st
from mutations import TEXTS, mutated, mutated_bytes

from dualml.common.errors import CommunicationError, UserError
from dualml.launch import connection
from dualml.launch.connection import Connection, connect
from dualml.launch.credentials import RankCredentials, connect_when_ready, versions
from dualml.launch.rank_server import RankServer
from dualml.launch.remote import RemoteRunFolder
from dualml.launch.route import free_port

pytestmark = pytest.mark.system
SECRET, HERE = b"a secret of some length", "127.0.0.1"
SIZES = struct.Struct(">IQ")
NONCE = "0" * 64


@pytest.fixture
def rank_server(tmp_path: Path) -> Iterator[RankServer]:
    """A server of rank 0 of four, with a run folder; none of its threads may end with a
    traceback."""
    run = tmp_path / "run"
    (run / "plan").mkdir(parents=True)
    (run / "plan/plan.json").write_text("{}")
    with no_tracebacks(), contextlib.closing(RankServer(HERE, free_port(), SECRET, 4)) as opened:
        opened.open(run, versions([]))
        yield opened
        for guest in opened.connected.values():
            guest.departed = True  # not waited for at the end


def message(text: bytes, body: int = 0) -> bytes:
    return SIZES.pack(len(text), body) + text


def send_raw(port: int, *parts: bytes) -> bytes:
    """Send parts, each after an answer to the one before if possible, and return what was received
    until the other end hung up. Raises `TimeoutError` if it does not."""
    received = b""
    stranger = socket.create_connection((HERE, port), timeout=10)
    with stranger, contextlib.suppress(ConnectionError):
        for number, part in enumerate(parts):
            stranger.settimeout(0.2)  # half a message has no answer
            with contextlib.suppress(TimeoutError):
                received += stranger.recv(4096) if number else b""
            stranger.settimeout(10)
            stranger.sendall(part)
        with contextlib.suppress(OSError):  # it has hung up
            stranger.shutdown(socket.SHUT_WR)
        while piece := stranger.recv(4096):
            received += piece
    return received


def enter(
    rank_server: RankServer, folder: Path, rank: int = 1, limit: float = 5
) -> RemoteRunFolder:
    seat = RankCredentials(HERE, rank_server.port, SECRET, rank, rank_server.size)
    folder.mkdir(exist_ok=True)
    return RemoteRunFolder(seat, seat.connect(worker=False, limit=limit), folder)


def wait_until(true: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- without the token ----------------------------------------------------------------------------

HELLO = json.dumps({"dualml": connection.PROTOCOL, "nonce": NONCE}).encode()


@pytest.mark.parametrize(
    "parts",
    [
        [message(b"[" * 4000)],
        [message(HELLO), message('{"proof": "é"}'.encode())],
        [message(HELLO), message(b'{"proof": 3}')],
        [message(HELLO), message(b'{"proof": "' + b"0" * 64 + b'"}')],
        [message(b'{"dualml": 1e999, "nonce": {}}')],
        [message(b'{"n": ' + b"9" * 4090)],
        [message(HELLO, body=1) + b"x"],
    ],
    ids=range(7),
)
def test_odd_messages_of_strangers_are_no_tracebacks(
    rank_server: RankServer, parts: list[bytes], tmp_path: Path
) -> None:
    send_raw(rank_server.port, *parts)
    assert not rank_server.connected
    enter(rank_server, tmp_path / "copy")


def test_another_version_of_the_protocol_is_told_which_one_this_is(rank_server: RankServer) -> None:
    answer = send_raw(rank_server.port, message(b'{"dualml": 1, "nonce": "x"}'))
    size, _ = SIZES.unpack(answer[: SIZES.size])
    assert json.loads(answer[SIZES.size :][:size])["dualml"] == connection.PROTOCOL


def test_a_rank_0_of_another_version_is_refused_in_a_sentence_and_at_once() -> None:
    with socket.create_server((HERE, 0)) as door:

        def old() -> None:
            other, _ = door.accept()
            with other:
                other.recv(4096)
                other.sendall(message(b'{"dualml": 1, "nonce": "x"}'))
                other.recv(4096)

        threading.Thread(target=old, daemon=True).start()
        seat = RankCredentials(HERE, door.getsockname()[1], SECRET, 1, 2)
        pattern = (
            rf"speaks version 1 of dualml's protocol, this rank version {connection.PROTOCOL}: inst"
        )
        with pytest.raises(UserError, match=pattern):
            connect_when_ready(seat, 60, lambda: None)


def test_who_sends_a_byte_now_and_then_is_hung_up_on(
    rank_server: RankServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HELLO_S", 1.0)
    begin = time.monotonic()
    stranger = socket.create_connection((HERE, rank_server.port), timeout=5)
    with stranger, contextlib.suppress(ConnectionError):
        for byte in message(HELLO):
            stranger.sendall(bytes([byte]))
            time.sleep(0.2)
            if time.monotonic() - begin > 8:
                break
    assert time.monotonic() - begin < 8


def test_silent_connections_keep_no_rank_out(rank_server: RankServer, tmp_path: Path) -> None:
    silent = [socket.create_connection((HERE, rank_server.port), timeout=5) for _ in range(60)]
    try:
        wait_until(lambda: sum(hung_up(door) for door in silent) >= 44)
        begin = time.monotonic()
        enter(rank_server, tmp_path / "copy")
        assert time.monotonic() - begin < 5
        assert sum(not hung_up(door) for door in silent) <= 16
    finally:
        for door in silent:
            door.close()


def hung_up(door: socket.socket) -> bool:
    door.settimeout(0)
    with contextlib.suppress(BlockingIOError, TimeoutError):
        try:
            return not door.recv(1)
        except ConnectionError:
            return True
    return False


#: Rank 0 in a process that may open few files, and more callers than that.
FLOOD = """
import resource, socket, sys, time
from pathlib import Path
from dualml.launch.rank_server import RankServer
from dualml.launch.credentials import RankCredentials, versions
hub = RankServer("127.0.0.1", 0, b"a secret of some length", 2)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
hub.open(Path(sys.argv[1]), versions([]))
print(hub.port, flush=True)
sys.stdin.readline()
seat = RankCredentials("127.0.0.1", hub.port, b"a secret of some length", 1, 2)
print(seat.connect(worker=False, limit=20).sock.fileno() > 0, flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_more_connections_than_rank_0_may_have_files(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FLOOD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as rank0:
        try:
            assert rank0.stdin is not None
            assert rank0.stdout is not None
            port = int(rank0.stdout.readline())
            flood = [socket.create_connection((HERE, port), timeout=5) for _ in range(120)]
            time.sleep(1)
            for door in flood:
                door.close()
            out, err = rank0.communicate("go\n", timeout=60)
        finally:
            rank0.kill()
    assert (out, err, rank0.returncode) == ("True\n", "", 0)


def test_a_listener_outlives_what_accept_raises() -> None:
    from dualml.launch.listener import accept_connections

    served, faults = list[object](), [errno.EMFILE, errno.ECONNABORTED, errno.ENFILE]

    class Door:
        def accept(self) -> tuple[object, object]:
            if faults:
                raise OSError(faults.pop(), "planted")
            if served:
                raise OSError(errno.EBADF, "closed")
            return "a connection", None

        def fileno(self) -> int:
            return 3

    thread = threading.Thread(target=accept_connections, args=[Door(), served.append], daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert served == ["a connection"]


# --- with the token -------------------------------------------------------------------------------

GREETING = {"rank": 1, "size": 4, "host": "h", "worker": False, "same": versions([]), "clock": 0.0}


def greet(rank_server: RankServer, **changed: Any) -> dict[str, Any]:
    with contextlib.closing(connect(HERE, rank_server.port, SECRET, 5)) as other:
        greeting = {**GREETING, "clock": time.time(), **changed}
        return other.ask(greeting)[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"clock": 10**400},
        {"clock": "noon"},
        {"clock": None},
        {"rank": True},
        {"rank": 1.0},
        {"size": "4"},
        {"host": 3},
        {"host": "h" * 5000},
        {"same": []},
        {"same": {"dualml": {}}},
        {"same": {str(n): "1" for n in range(2000)}},
        {"worker": 1},
        {"rank": 2**63},
    ],
    ids=str,
)
def test_odd_greetings_are_refused_in_a_sentence(
    rank_server: RankServer, changed: dict[str, Any]
) -> None:
    with contextlib.suppress(OSError):  # hung up on is as good
        assert len(greet(rank_server, **changed)["refused"]) < 500
    assert not rank_server.connected
    assert "size" in greet(rank_server)


def test_a_name_that_moves_the_cursor_is_shown_as_text(rank_server: RankServer) -> None:
    greet(rank_server, host="\x1b[2J\nrank 2 on evil", size=3)
    assert rank_server.refused[-1].isprintable()


def test_a_worker_belongs_to_a_rank_that_is_there_and_there_are_few(
    rank_server: RankServer,
) -> None:
    assert "a worker of rank 1, which is not there" in greet(rank_server, worker=True)["refused"]
    seat, open_ones = RankCredentials(HERE, rank_server.port, SECRET, 1, 4), list[Connection]()
    open_ones.append(seat.connect(worker=False, limit=5))
    with pytest.raises(UserError, match="8 workers of rank 1 are there already"):
        open_ones.extend(seat.connect(worker=True, limit=5) for _ in range(20))
    for other in open_ones:
        other.close()


@pytest.mark.parametrize(
    "path",
    [
        "trials/" + "a/" * 2000 + "rank1.x",
        "trials/a/rank1.x\n",
        "trials/a/.rank1.x",
        "trials/NUL",
        "trials/a/con.rank1",
        ".sessions/0.rankx.rank1.json",
        ".sessions/0.rank1.json.x",
        "trials/a/weights.rank1",
        "trials",
        ".sessions",
        "trials/a\u202e/rank1.x",
        "trials/-/aux.rank1",
        ".sessions/a/0.rank1.json",
        "trials/" + "漢" * 100 + "/rank1.x",
    ],
    ids=range(14),
)
def test_paths_that_no_rank_writes(rank_server: RankServer, tmp_path: Path, path: str) -> None:
    remote = enter(rank_server, tmp_path / "copy")
    before = sorted(tmp_path.rglob("*"))
    for op in ("put", "remove"):
        with pytest.raises(
            CommunicationError, match=r"is no path of a run|may not write|has 4,014 characters"
        ):
            remote.ask(op, path, b"x", last=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_comes_in_order_and_what_was_begun_goes(
    rank_server: RankServer, tmp_path: Path
) -> None:
    remote, trial = enter(rank_server, tmp_path / "copy"), tmp_path / "run/trials/a"
    for at in (5, 2**41, 2**50):
        with pytest.raises(CommunicationError, match=r"a piece from byte|at is"):
            remote.ask("put", "trials/a/rank1.x", b"x", at=at, last=True)
    remote.ask("put", "trials/a/rank1.x", b"be", last=False)
    remote.ask("put", "trials/a/rank1.x", b"gun", at=2, last=True)
    assert (trial / "rank1.x").read_bytes() == b"begun"
    for number in range(16):
        remote.ask("put", f"trials/a/rank1.{number}", b"x", last=False)
    with pytest.raises(CommunicationError, match="files were begun and not finished"):
        remote.ask("put", "trials/a/rank1.y", b"x", last=False)
    remote.wire.close()
    wait_until(lambda: [p.name for p in trial.iterdir()] == ["rank1.x"])


@pytest.mark.parametrize(
    "change",
    [
        lambda first, second: [first, first],
        lambda first, second: [second],
        lambda first, second: [first[:-1] + bytes([first[-1] ^ 1])],
        lambda first, second: [first.replace(b"plan.json", b"plan.jsom")],
        lambda first, second: [message(b'{"op": "list", "path": "plan"}')],
    ],
    ids=["repeated", "left out", "another code", "altered", "no code"],
)
def test_what_was_changed_on_the_way_ends_the_connection(
    rank_server: RankServer, tmp_path: Path, change: Callable[[bytes, bytes], list[bytes]]
) -> None:
    """Data changed in transit, as by an attacker in the middle without the token, ends the
    connection."""
    remote = enter(rank_server, tmp_path / "copy")
    assert remote.wire.ask({"op": "get", "path": "plan/plan.json"})[1] == b"{}"
    door, sent = remote.wire.sock, list[bytes]()

    class Noting:
        def __getattr__(self, name: str) -> Any:
            return sent.append if name == "sendall" else getattr(door, name)

    remote.wire.sock = Noting()  # type: ignore[assignment]
    for _ in range(2):
        remote.wire.send({"op": "get", "path": "plan/plan.json"})
    door.settimeout(10)
    for part in change(*sent):
        door.sendall(part)
    with contextlib.suppress(OSError):  # it has hung up
        door.shutdown(socket.SHUT_WR)
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := door.recv(4096):
            received += piece
    assert received.count(b'"there"') == (1 if change(*sent)[0] == sent[0] else 0)
    wait_until(lambda: 1 in rank_server.lost)
    if change(*sent)[-1] != message(b'{"op": "list", "path": "plan"}'):
        assert "was altered, repeated, left out or moved" in rank_server.lost[1]


def test_answers_that_were_changed_on_the_way_are_no_answers(
    rank_server: RankServer, tmp_path: Path
) -> None:
    remote = enter(rank_server, tmp_path / "copy")
    assert remote.wire.receiving is not None
    remote.wire.receiving.number += 1  # as if one had been left out
    with pytest.raises(CommunicationError, match="was altered, repeated, left out or moved"):
        remote.ask("list", "plan")


# --- drawn ----------------------------------------------------------------------------------------


@cases(100, 3000)
def test_whatever_a_stranger_sends(rank_server: RankServer, tmp_path: Path, count: int) -> None:
    before = entries(tmp_path)
    first = {"dualml": connection.PROTOCOL, "nonce": NONCE}

    def case(draw: Any) -> None:
        parts = list[bytes]()
        for known in (first, {"proof": NONCE})[: draw(st.sampled_from([1, 2, 2]))]:
            how = draw(st.sampled_from(["right", "value", "bytes", "raw", "sizes", "deep"]))
            value = mutated(draw, known) if how == "value" else known
            text = json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "replace")
            if how == "deep":
                text = draw(st.sampled_from([b"[", b'{"a":', b"9"])) * draw(
                    st.sampled_from([9, 800, 4000])
                )
            part = message(text)
            if how == "bytes":
                part = mutated_bytes(draw, part)
            elif how == "raw":
                part = draw(st.binary(max_size=5000))
            elif how == "sizes":
                size = draw(st.sampled_from([0, 1, 11, 4096, 4097, 2**32 - 1]))
                part = SIZES.pack(size, draw(st.sampled_from([0, 1, 2**64 - 1]))) + text
            parts.append(part)
        send_raw(rank_server.port, *parts)

    try_cases(count, case)
    assert not rank_server.connected
    assert entries(tmp_path) == before
    enter(rank_server, tmp_path / "copy")


@cases(100, 3000)
def test_whatever_a_rank_says(rank_server: RankServer, tmp_path: Path, count: int) -> None:
    """Whatever a rank sends (greeting, requests, writes), only its own files are written."""
    remote, seat = (
        enter(rank_server, tmp_path / "copy"),
        RankCredentials(HERE, rank_server.port, SECRET, 1, 4),
    )
    before = entries(tmp_path, tmp_path / "run/trials", tmp_path / "run/.sessions")
    parts = (
        "trials",
        "plan",
        ".sessions",
        "a",
        "rank1.x",
        "rank2.x",
        "0.rank1.json",
        "board",
        "key.1",
        "..",
        "run.json",
        *TEXTS,
    )

    def case(draw: Any) -> None:
        remote.ask("age", "plan")  # a sign of life
        if draw(st.integers(0, 3)) == 0:
            changed = mutated(draw, {**GREETING, "rank": 2, "clock": time.time()})
            other = connect(HERE, rank_server.port, SECRET, 10)
            with contextlib.closing(other), contextlib.suppress(OSError, ValueError):
                other.ask(changed)
            return
        path = "/".join(draw(st.lists(st.sampled_from(parts), min_size=1, max_size=5)))
        op = draw(st.sampled_from(["list", "get", "put", "remove", "age", "nothing"]))
        header = {"op": op, "path": path, "at": 0, "last": True}
        header = mutated(draw, header) if draw(st.booleans()) else header
        if header.get("op") in ("bye", "wait"):
            return
        body = draw(st.binary(max_size=40))
        other = seat.connect(worker=True, limit=10)
        with contextlib.closing(other), contextlib.suppress(OSError, ValueError):  # hung up on
            other.ask(header, body)
        wait_until(lambda: rank_server.connected[1].workers < 8)

    try_cases(count, case)
    assert entries(tmp_path, tmp_path / "run/trials", tmp_path / "run/.sessions") == before
    names = {p.name for p in (tmp_path / "run").rglob("*") if p.is_file()} - {"plan.json"}
    assert all("rank1" in name.split(".") or name.endswith(".1") for name in names), names
    assert remote.read("plan/plan.json") == b"{}"
