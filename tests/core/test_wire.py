"""Ranks on other machines: access, what they may read and write, and missing ranks."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dualml.backend import ExternalLaunch
from dualml.common.errors import CommunicationError, UserError
from dualml.experiment.store.sessions import (
    Announcement,
    RankFailure,
    announce,
    announce_end,
    clear_sessions,
    failure_file,
)
from dualml.experiment.store.trial import JOB, TrialJob
from dualml.launch import external, file_service
from dualml.launch import remote as files
from dualml.launch.connection import TOKEN, connect, token_for
from dualml.launch.credentials import HUB, RankCredentials, connect_when_ready, versions
from dualml.launch.rank_server import RankLost, RankServer
from dualml.launch.remote import RemoteRunFolder
from dualml.launch.remote_client import RemoteFolderClient
from dualml.launch.route import ADDRESS, INTERFACE, free_port, interface_variables
from dualml.runner.worker.remote import RemoteStore

pytestmark = pytest.mark.system
SECRET = b"a secret of some length"
HERE = "127.0.0.1"
SAME = versions([])


@pytest.fixture
def rank_server(tmp_path: Path) -> Iterator[RankServer]:
    """A server of rank 0 of three, with a run folder."""
    run = tmp_path / "run"
    (run / "plan").mkdir(parents=True)
    (run / "plan/plan.json").write_text("{}")
    with contextlib.closing(RankServer(HERE, free_port(), SECRET, 3)) as opened:
        opened.open(run, SAME)
        yield opened
        for guest in opened.connected.values():
            guest.departed = True  # not waited for at the end


def seat(rank_server: RankServer, rank: int = 1, **changed: Any) -> RankCredentials:
    return RankCredentials(
        **{
            "host": HERE,
            "port": rank_server.port,
            "token": SECRET,
            "rank": rank,
            "size": 3,
            **changed,
        }
    )


def join_rank(rank_server: RankServer, copy: Path, rank: int = 1) -> RemoteRunFolder:
    copy.mkdir(exist_ok=True)
    return RemoteRunFolder(
        seat(rank_server, rank), seat(rank_server, rank).connect(worker=False, limit=5), copy
    )


def job(rendezvous: str = "tcp://127.0.0.1:1") -> TrialJob:
    return TrialJob(
        arm="a",
        backend="numpy",
        seed=0,
        device="cpu",
        threads=1,
        cores=0,
        rendezvous=rendezvous,
        key="0",
        check=False,
        plan_hash="",
        checkpoint_every=0,
    )


def entry_refusal(rank_server: RankServer, rank: int = 1, **changed: Any) -> str:
    with pytest.raises((UserError, CommunicationError)) as error:
        seat(rank_server, rank, **changed).connect(worker=False, limit=5)
    return str(error.value)


# --- who is let in --------------------------------------------------------------------------------


def test_another_token_is_refused_by_both_sides(rank_server: RankServer) -> None:
    assert f"has another {TOKEN}" in entry_refusal(rank_server, token=b"another secret")
    assert f"and this rank has none: set {TOKEN}" in entry_refusal(rank_server, token=b"")
    assert not rank_server.connected


def test_a_listener_that_does_not_know_the_token_learns_nothing(rank_server: RankServer) -> None:
    """Another program at that port learns nothing and is not mistaken for rank 0, whatever it
    answers."""
    with socket.create_server((HERE, 0)) as door:

        def echo() -> None:
            other, _ = door.accept()
            with other:
                while data := other.recv(4096):
                    other.sendall(data)  # our own nonce, our own proof

        threading.Thread(target=echo, daemon=True).start()
        with pytest.raises(CommunicationError, match=f"has another {TOKEN}"):
            connect(HERE, door.getsockname()[1], SECRET, 5)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0" * 12,
        b"\xff" * 64,
        b"\0\0\0\2\0\0\0\0\0\0\0\0[]",
        b"",
        b"\0\0\0\2\0\0\0\0\0\0\0\1{}x",
    ],
)
def test_strangers_are_hung_up_on(rank_server: RankServer, sent: bytes, tmp_path: Path) -> None:
    with socket.create_connection((HERE, rank_server.port), timeout=5) as stranger:
        stranger.sendall(sent)
        with contextlib.suppress(OSError):
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4096):
                pass
    assert not rank_server.connected
    remote = join_rank(rank_server, tmp_path / "copy")  # the others still get in
    assert rank_server.connected.keys() == {remote.seat.rank}


@pytest.mark.parametrize(
    ("rank", "changed", "message"),
    [
        (0, {}, "the other ranks are 1 to 2"),
        (3, {}, "the other ranks are 1 to 2"),
        (1, {"size": 4}, "says --world-size 4, rank 0 3"),
    ],
)
def test_who_does_not_fit_is_told_why(
    rank_server: RankServer, rank: int, changed: dict[str, Any], message: str
) -> None:
    assert message in entry_refusal(rank_server, rank, **changed)
    assert message in rank_server.refused[-1]


def test_one_rank_comes_once(rank_server: RankServer, tmp_path: Path) -> None:
    remote = join_rank(rank_server, tmp_path / "copy")
    assert "rank 1 is there already" in entry_refusal(rank_server)
    remote.wire.close()


@pytest.mark.parametrize(("ahead", "words"), [(3600, "3600 s ahead of"), (-90, "90 s behind")])
def test_clocks_that_differ(
    rank_server: RankServer, monkeypatch: pytest.MonkeyPatch, ahead: int, words: str
) -> None:
    now, mine = time.time, threading.get_ident()
    monkeypatch.setattr(time, "time", lambda: now() + ahead * (threading.get_ident() == mine))
    assert f"has a clock {words} rank 0's: set the clocks" in entry_refusal(rank_server)


def test_versions_that_differ(rank_server: RankServer) -> None:
    rank_server.required_versions = {"dualml": "9.9", "torch": "1.0"}
    assert f"has dualml {SAME['dualml']}, rank 0 has 9.9: install the same" in entry_refusal(
        rank_server
    )
    rank_server.required_versions = {**SAME, "no-such-framework": "1.0"}
    assert "has no no-such-framework, rank 0 has 1.0" in entry_refusal(rank_server)


def test_a_token_is_needed_where_others_can_knock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    assert token_for("localhost", insecure=False) == b""
    with pytest.raises(UserError, match=rf"open to the network: set {TOKEN} .* or say --insecure"):
        token_for("192.0.2.1", insecure=False)
    assert token_for("192.0.2.1", insecure=True) == b""
    with pytest.raises(UserError, match=r"host 'no.such.host.invalid' is not known"):
        token_for("no.such.host.invalid", insecure=False)
    monkeypatch.setenv(TOKEN, "short")
    with pytest.raises(UserError, match="has 5 characters; a secret needs 8 or more"):
        token_for("localhost", insecure=False)


def test_where_rank_0_cannot_listen(rank_server: RankServer) -> None:
    with pytest.raises(UserError, match=r"rank 0 cannot listen at .*in use"):
        RankServer(HERE, rank_server.port, SECRET, 2)
    with pytest.raises(UserError, match="HOST must be an address of rank 0's machine"):
        RankServer("192.0.2.1", 29500, SECRET, 2)


# --- what they read and write ---------------------------------------------------------------------


def test_files_go_both_ways_in_pieces(
    rank_server: RankServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (file_service, files):
        monkeypatch.setattr(module, "CHUNK_BYTES", 100)
    remote, run = join_rank(rank_server, tmp_path / "copy"), tmp_path / "run"
    for size in (0, 1, 99, 100, 101, 1000):
        content = bytes(range(256)) * 4
        remote.write("trials/a/rank1.bin", content[:size])
        assert (run / "trials/a/rank1.bin").read_bytes() == content[:size]
        assert remote.read("trials/a/rank1.bin") == content[:size]
    assert remote.read("trials/a/nothing") is None
    assert remote.read("trials/a/rank1.bin/below") is None
    remote.fetch("plan")
    assert (tmp_path / "copy/plan/plan.json").read_text() == "{}"
    assert [p.name for p in (run / "trials/a").iterdir()] == ["rank1.bin"]


@pytest.mark.parametrize(
    "path",
    [
        "../outside/rank1.x",
        "/etc/rank1.x",
        "trials/../../rank1.x",
        "trials//rank1.x",
        "",
        "run.json",
        "plan/rank1.x",
        "trials/link/rank1.x",
        "trials/a\0/rank1.x",
        "trials/./rank1.x",
        "trials/a/rank2.jsonl",
        "trials/a/job.json",
        "trials/a/board/join.0.2",
        ".sessions/0.json",
        "trials/a/rank11.jsonl",
        "trials/" + "a" * 300 + "/rank1.x",
    ],
)
def test_a_rank_writes_nothing_else(rank_server: RankServer, tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "run/trials").mkdir()
    (tmp_path / "run/trials/link").symlink_to(outside)
    remote = join_rank(rank_server, tmp_path / "copy")
    before = sorted(tmp_path.rglob("*"))
    for op in ("put", "remove"):
        with pytest.raises(CommunicationError, match=r"is no path of a run folder|may not write"):
            remote.ask(op, path, b"x", last=True)
    assert sorted(tmp_path.rglob("*")) == before
    remote.write("trials/a/rank1.jsonl", b"mine")  # and the connection is still there


def test_what_is_not_understood_is_an_error_not_an_end(
    rank_server: RankServer, tmp_path: Path
) -> None:
    remote = join_rank(rank_server, tmp_path / "copy")
    for asked in (
        {"op": "unknown"},
        {"op": "get", "path": 3},
        {"op": "put"},
        {"op": "get", "path": "plan/plan.json", "at": "x"},
    ):
        assert "error" in remote.wire.ask(asked)[0]
    assert remote.read("plan/plan.json") == b"{}"


def test_a_board_over_the_wire(rank_server: RankServer, tmp_path: Path) -> None:
    boards = [
        RemoteStore(join_rank(rank_server, tmp_path / f"{r}", r), "trials/a/board") for r in (1, 2)
    ]
    assert boards[0].get("join.0.2") is None
    boards[1].set("join.0.2", "here: ö")
    assert boards[0].get("join.0.2") == "here: ö"


def test_what_a_rank_wrote_is_sent_once_and_removed_with_it(
    rank_server: RankServer, tmp_path: Path
) -> None:
    remote, run = join_rank(rank_server, tmp_path / "copy"), tmp_path / "run"
    place = tmp_path / "copy/trials/a"
    place.mkdir(parents=True)
    for name in ("rank1.jsonl", "rank1.checkpoint.safetensors", "rank2.jsonl", "job.json"):
        (place / name).write_text(name)
    remote.upload(place)
    assert {p.name for p in (run / "trials/a").iterdir()} == {
        "rank1.jsonl",
        "rank1.checkpoint.safetensors",
    }
    (run / "trials/a/rank1.jsonl").unlink()
    (place / "rank1.checkpoint.safetensors").unlink()
    remote.upload(place)
    assert not list((run / "trials/a").iterdir())
    (place / "rank1.jsonl").write_text("more of it")
    remote.upload(place)
    assert (run / "trials/a/rank1.jsonl").read_text() == "more of it"


# --- sessions -------------------------------------------------------------------------------------


def test_sessions_are_heard_of_and_fail_with_the_machine(
    rank_server: RankServer, tmp_path: Path
) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    place = run / "trials/a/numpy/seed0"
    place.mkdir(parents=True)
    JOB.write(place, job())
    for name in ("rank1.jsonl", "rank2.jsonl", "weights.safetensors"):
        (place / name).write_text(name)
    session = RemoteFolderClient(join_rank(rank_server, copy), copy)
    later = threading.Timer(
        0.2, announce, [run, 0, Announcement(places=["trials/a/numpy/seed0"], backend="numpy")]
    )
    later.start()
    announced = session.next_announcement(0)
    (folder,) = session.trial_folders(announced)
    assert folder == copy / "trials/a/numpy/seed0"
    assert {p.name for p in folder.iterdir()} == {"job.json", "rank1.jsonl"}
    assert (copy / "plan/plan.json").exists()
    assert session.worker_environ(announced).keys() >= {HUB, INTERFACE, ADDRESS}
    for name in ("rank1.usage.jsonl", "rank1.checkpoint.safetensors"):
        (folder / name).write_text(name)
    assert not session.is_superseded(0)
    # Whoever looks on sees what it uses while it is at work.
    assert (place / "rank1.usage.jsonl").read_text() == "rank1.usage.jsonl"
    assert not (place / "rank1.checkpoint.safetensors").exists()
    result = {"status": "failed", "reason": "no data"}
    session.report_failure(0, RankFailure(code=1, reason=None, result=result))
    note = failure_file(0, 1).read(run)
    assert note.result == {"status": "failed", "reason": f"no data (on {socket.gethostname()})"}
    announce_end(run, "")
    assert session.next_announcement(1).places is None
    session.leave()
    assert rank_server.connected[1].departed
    assert not rank_server.lost


def test_a_rank_that_leaves_before_the_end_is_missed(
    rank_server: RankServer, tmp_path: Path
) -> None:
    announce(tmp_path / "run", 0, Announcement(places=["trials/a"], backend="numpy"))
    RemoteFolderClient(join_rank(rank_server, tmp_path / "copy"), tmp_path / "copy").leave()
    with pytest.raises(RankLost, match=r"^rank 1: it was ended \(on "):
        rank_server.check_lost()


def test_only_the_announcements_of_this_start_count(tmp_path: Path) -> None:
    announce(tmp_path, 0, Announcement(places=["trials/a"], backend="torch"))
    with pytest.raises(UserError, match="announced nothing"):
        external.wait_for_announcement(tmp_path, 0, 0.2, "restart 1")
    announce(tmp_path, 0, Announcement(places=None, start="restart 1"))
    assert external.wait_for_announcement(tmp_path, 0, 0.2, "restart 1").places is None
    clear_sessions(tmp_path)
    assert not any(tmp_path.iterdir())


def test_what_killed_ranks_left_is_forgotten(tmp_path: Path) -> None:
    place = tmp_path / "trials/a/torch/seed0"
    (place / "board").mkdir(parents=True)
    kept = (tmp_path / ".lock", place / "rank1.jsonl", place / ".notes")
    half = (tmp_path / ".run.json.4711", place / ".rank1.jsonl.part", place / "board/join.0.1")
    for path in (*kept, *half):
        path.write_text("")
    clear_sessions(tmp_path)
    assert {p for p in tmp_path.rglob("*") if p.is_file()} == set(kept)
    assert not (place / "board").exists()


# --- who is missing, and who is gone --------------------------------------------------------------


def test_rank_0_waits_and_names_who_is_missing(rank_server: RankServer, tmp_path: Path) -> None:
    told, ranks = list[list[int]](), list[RemoteRunFolder]()
    threading.Timer(0.2, lambda: ranks.append(join_rank(rank_server, tmp_path / "copy"))).start()
    with pytest.raises(UserError, match=r"ranks 2 of 3 did not come to tcp://.* within 1 s"):
        rank_server.wait_for_ranks(1, told.append)
    assert told == [[1, 2], [2]]
    entry_refusal(rank_server, 2, size=9)
    with pytest.raises(UserError, match=r"refused: rank 2 on .* says --world-size 9"):
        rank_server.wait_for_ranks(0.1, told.append)
    ranks.append(join_rank(rank_server, tmp_path / "copy2", 2))
    rank_server.wait_for_ranks(5, told.append)


def test_a_rank_that_is_gone_is_named(rank_server: RankServer, tmp_path: Path) -> None:
    run = tmp_path / "run"
    remote = join_rank(rank_server, tmp_path / "copy")
    rank_server.check_lost()
    announce(run, 0, Announcement(places=["trials/a"], backend="numpy"))
    remote.wire.close()
    deadline = time.monotonic() + 5
    while not rank_server.lost and time.monotonic() < deadline:
        time.sleep(0.02)
    why = f"its connection to rank 0 ended (on {socket.gethostname()})"
    with pytest.raises(RankLost, match=r"^rank 1: its connection to rank 0 ended"):
        rank_server.check_lost()
    deadline = time.monotonic() + 5
    while not (run / failure_file(0, 1).name).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert failure_file(0, 1).read(run).reason == why


def test_a_rank_that_says_nothing_is_lost(
    rank_server: RankServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dualml.launch.rank_server.SILENT_S", 0.3)
    remote = join_rank(rank_server, tmp_path / "copy")
    deadline = time.monotonic() + 5
    while not rank_server.lost and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "rank 0 heard nothing of it for 0.3 s" in rank_server.lost[1]
    with contextlib.suppress(CommunicationError):
        remote.ask("list", "plan")  # the first one may still be sent
    with pytest.raises(CommunicationError, match=r"rank 0 at tcp://.* is gone"):
        remote.ask("list", "plan")


def test_a_rank_waits_for_rank_0(rank_server: RankServer) -> None:
    port, said = free_port(), list[bool]()
    missing = RankCredentials(HERE, port, SECRET, 1, 3)
    with pytest.raises(UserError, match=r"nobody answers at .*: Connection refused; start rank 0"):
        connect_when_ready(missing, 0.7, lambda: said.append(True))
    assert said == [True]
    wrong = RankCredentials(HERE, rank_server.port, b"another secret", 1, 3)
    begin = time.monotonic()
    with pytest.raises(UserError, match=f"has another {TOKEN}"):  # at once
        connect_when_ready(wrong, 30, lambda: said.append(True))
    assert time.monotonic() - begin < 10


def test_the_interface_towards_a_machine() -> None:
    assert interface_variables(HERE)[ADDRESS] == HERE
    assert interface_variables(HERE)[INTERFACE].startswith("lo")
    assert interface_variables("no.such.host.invalid") == {}


@pytest.mark.parametrize(
    ("rank", "size", "rendezvous", "message"),
    [
        (1, None, "tcp://h:1", "--rank 1 needs --world-size N and --rendezvous tcp://HOST:PORT"),
        (1, 2, None, "--rank 1 needs"),
        (1, 2, "file:///tmp/x", "--rank 1 needs"),
        (2, 2, "tcp://h:1", "--rank 2 of --world-size 2: ranks go from 0 to size - 1"),
        (0, 1, "tcp://h:1", "--rank 0 of --world-size 1"),
    ],
)
def test_ranks_by_hand(rank: int, size: int | None, rendezvous: str | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        external.manual_launch(rank, size, rendezvous)
    assert external.manual_launch(None, 2, None) is None
    assert external.manual_launch(1, 2, "tcp://h:1") == ExternalLaunch("--rank", "", 1, 2)
