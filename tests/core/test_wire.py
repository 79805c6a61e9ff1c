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

from dualml.backend import Adopted
from dualml.errors import CommunicationError, UserError
from dualml.launch import adopted, hub, shelf
from dualml.launch import remote as files
from dualml.launch.hub import Hub, Lost
from dualml.launch.mirror import Mirror
from dualml.launch.remote import Remote
from dualml.launch.route import ADDRESS, INTERFACE, free_port, near
from dualml.launch.seat import HUB, Seat, reach, versions
from dualml.launch.wire import TOKEN, call, token_for
from dualml.store.sessions import Announcement, Failure, announce, announce_end, failure, forget
from dualml.store.trial import JOB, Job
from dualml.worker.away import RemoteBoard

pytestmark = pytest.mark.system
SECRET = b"a secret of some length"
HERE = "127.0.0.1"
SAME = versions([])


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Hub]:
    """A server of rank 0 of three, with a run folder."""
    run = tmp_path / "run"
    (run / "plan").mkdir(parents=True)
    (run / "plan/plan.json").write_text("{}")
    with contextlib.closing(Hub(HERE, free_port(), SECRET, 3)) as opened:
        opened.open(run, SAME)
        yield opened
        for guest in opened.guests.values():
            guest.left = True  # not waited for at the end


def seat(there: Hub, rank: int = 1, **changed: Any) -> Seat:
    return Seat(**{"host": HERE, "port": there.port, "token": SECRET, "rank": rank, "size": 3,
                   **changed})  # fmt: skip


def came(there: Hub, copy: Path, rank: int = 1) -> Remote:
    copy.mkdir(exist_ok=True)
    return Remote(seat(there, rank), seat(there, rank).enter(worker=False, limit=5), copy)


def job(rendezvous: str = "tcp://127.0.0.1:1") -> Job:
    return Job(
        arm="a", backend="numpy", seed=0, device="cpu", threads=1, cores=0, rendezvous=rendezvous,
        key="0", check=False, plan_hash="", checkpoint_every=0,
    )  # fmt: skip


def refused(there: Hub, rank: int = 1, **changed: Any) -> str:
    with pytest.raises((UserError, CommunicationError)) as error:
        seat(there, rank, **changed).enter(worker=False, limit=5)
    return str(error.value)


# --- who is let in --------------------------------------------------------------------------------


def test_another_token_is_refused_by_both_sides(there: Hub) -> None:
    assert f"has another {TOKEN}" in refused(there, token=b"another secret")
    assert f"and this rank has none: set {TOKEN}" in refused(there, token=b"")
    assert not there.guests


def test_a_listener_that_does_not_know_the_token_learns_nothing(there: Hub) -> None:
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
            call(HERE, door.getsockname()[1], SECRET, 5)


@pytest.mark.parametrize("sent", [
    b"GET / HTTP/1.1\r\n\r\n", b"\0" * 12, b"\xff" * 64, b"\0\0\0\2\0\0\0\0\0\0\0\0[]", b"",
    b"\0\0\0\2\0\0\0\0\0\0\0\1{}x",
])  # fmt: skip
def test_strangers_are_hung_up_on(there: Hub, sent: bytes, tmp_path: Path) -> None:
    with socket.create_connection((HERE, there.port), timeout=5) as stranger:
        stranger.sendall(sent)
        with contextlib.suppress(OSError):
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4096):
                pass
    assert not there.guests
    remote = came(there, tmp_path / "copy")  # the others still get in
    assert there.guests.keys() == {remote.seat.rank}


@pytest.mark.parametrize(("rank", "changed", "message"), [
    (0, {}, "the other ranks are 1 to 2"),
    (3, {}, "the other ranks are 1 to 2"),
    (1, {"size": 4}, "says --world-size 4, rank 0 3"),
])  # fmt: skip
def test_who_does_not_fit_is_told_why(
    there: Hub, rank: int, changed: dict[str, Any], message: str
) -> None:
    assert message in refused(there, rank, **changed)
    assert message in there.refused[-1]


def test_one_rank_comes_once(there: Hub, tmp_path: Path) -> None:
    remote = came(there, tmp_path / "copy")
    assert "rank 1 is there already" in refused(there)
    remote.wire.close()


@pytest.mark.parametrize(("ahead", "words"), [(3600, "3600 s ahead of"), (-90, "90 s behind")])
def test_clocks_that_differ(
    there: Hub, monkeypatch: pytest.MonkeyPatch, ahead: int, words: str
) -> None:
    now, mine = time.time, threading.get_ident()
    monkeypatch.setattr(time, "time", lambda: now() + ahead * (threading.get_ident() == mine))
    assert f"has a clock {words} rank 0's: set the clocks" in refused(there)


def test_versions_that_differ(there: Hub) -> None:
    there.same = {"dualml": "9.9", "torch": "1.0"}
    assert f"has dualml {SAME['dualml']}, rank 0 has 9.9: install the same" in refused(there)
    there.same = {**SAME, "no-such-framework": "1.0"}
    assert "has no no-such-framework, rank 0 has 1.0" in refused(there)


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


def test_where_rank_0_cannot_listen(there: Hub) -> None:
    with pytest.raises(UserError, match=r"rank 0 cannot listen at .*in use"):
        Hub(HERE, there.port, SECRET, 2)
    with pytest.raises(UserError, match="HOST must be an address of rank 0's machine"):
        Hub("192.0.2.1", 29500, SECRET, 2)


# --- what they read and write ---------------------------------------------------------------------


def test_files_go_both_ways_in_pieces(
    there: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (shelf, files):
        monkeypatch.setattr(module, "PIECE", 100)
    remote, run = came(there, tmp_path / "copy"), tmp_path / "run"
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


@pytest.mark.parametrize("path", [
    "../outside/rank1.x", "/etc/rank1.x", "trials/../../rank1.x", "trials//rank1.x", "",
    "run.json", "plan/rank1.x", "trials/link/rank1.x", "trials/a\0/rank1.x", "trials/./rank1.x",
    "trials/a/rank2.jsonl", "trials/a/job.json", "trials/a/board/join.0.2", ".sessions/0.json",
    "trials/a/rank11.jsonl", "trials/" + "a" * 300 + "/rank1.x",
])  # fmt: skip
def test_a_rank_writes_nothing_else(there: Hub, tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "run/trials").mkdir()
    (tmp_path / "run/trials/link").symlink_to(outside)
    remote = came(there, tmp_path / "copy")
    before = sorted(tmp_path.rglob("*"))
    for op in ("put", "remove"):
        with pytest.raises(CommunicationError, match=r"is no path of a run folder|may not write"):
            remote.ask(op, path, b"x", last=True)
    assert sorted(tmp_path.rglob("*")) == before
    remote.write("trials/a/rank1.jsonl", b"mine")  # and the connection is still there


def test_what_is_not_understood_is_an_error_not_an_end(there: Hub, tmp_path: Path) -> None:
    remote = came(there, tmp_path / "copy")
    for asked in ({"op": "unknown"}, {"op": "get", "path": 3}, {"op": "put"},
                  {"op": "get", "path": "plan/plan.json", "at": "x"}):  # fmt: skip
        assert "error" in remote.wire.ask(asked)[0]
    assert remote.read("plan/plan.json") == b"{}"


def test_a_board_over_the_wire(there: Hub, tmp_path: Path) -> None:
    boards = [RemoteBoard(came(there, tmp_path / f"{r}", r), "trials/a/board") for r in (1, 2)]
    assert boards[0].read("join.0.2") is None
    boards[1].post("join.0.2", "here: ö")
    assert boards[0].read("join.0.2") == "here: ö"


def test_what_a_rank_wrote_is_sent_once_and_removed_with_it(there: Hub, tmp_path: Path) -> None:
    remote, run = came(there, tmp_path / "copy"), tmp_path / "run"
    place = tmp_path / "copy/trials/a"
    place.mkdir(parents=True)
    for name in ("rank1.jsonl", "rank1.checkpoint.safetensors", "rank2.jsonl", "job.json"):
        (place / name).write_text(name)
    remote.deliver(place)
    assert {p.name for p in (run / "trials/a").iterdir()} == {
        "rank1.jsonl", "rank1.checkpoint.safetensors"}  # fmt: skip
    (run / "trials/a/rank1.jsonl").unlink()
    (place / "rank1.checkpoint.safetensors").unlink()
    remote.deliver(place)
    assert not list((run / "trials/a").iterdir())
    (place / "rank1.jsonl").write_text("more of it")
    remote.deliver(place)
    assert (run / "trials/a/rank1.jsonl").read_text() == "more of it"


# --- sessions -------------------------------------------------------------------------------------


def test_sessions_are_heard_of_and_fail_with_the_machine(there: Hub, tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    place = run / "trials/a/numpy/seed0"
    place.mkdir(parents=True)
    JOB.write(place, job())
    for name in ("rank1.jsonl", "rank2.jsonl", "weights.safetensors"):
        (place / name).write_text(name)
    session = Mirror(came(there, copy), copy)
    later = threading.Timer(
        0.2, announce, [run, 0, Announcement(places=["trials/a/numpy/seed0"], backend="numpy")]
    )
    later.start()
    announced = session.awaited(0)
    (folder,) = session.folders(announced)
    assert folder == copy / "trials/a/numpy/seed0"
    assert {p.name for p in folder.iterdir()} == {"job.json", "rank1.jsonl"}
    assert (copy / "plan/plan.json").exists()
    assert session.environ(announced).keys() >= {HUB, INTERFACE, ADDRESS}
    for name in ("rank1.usage.jsonl", "rank1.checkpoint.safetensors"):
        (folder / name).write_text(name)
    assert not session.over(0)
    # Whoever looks on sees what it uses while it is at work.
    assert (place / "rank1.usage.jsonl").read_text() == "rank1.usage.jsonl"
    assert not (place / "rank1.checkpoint.safetensors").exists()
    result = {"status": "failed", "reason": "no data"}
    session.failed(0, Failure(code=1, reason=None, result=result))
    note = failure(0, 1).read(run)
    assert note.result == {"status": "failed", "reason": f"no data (on {socket.gethostname()})"}
    announce_end(run, "")
    assert session.awaited(1).places is None
    session.leave()
    assert there.guests[1].left
    assert not there.lost


def test_a_rank_that_leaves_before_the_end_is_missed(there: Hub, tmp_path: Path) -> None:
    announce(tmp_path / "run", 0, Announcement(places=["trials/a"], backend="numpy"))
    Mirror(came(there, tmp_path / "copy"), tmp_path / "copy").leave()
    with pytest.raises(Lost, match=r"^rank 1: it was ended \(on "):
        there.check()


def test_only_the_announcements_of_this_start_count(tmp_path: Path) -> None:
    announce(tmp_path, 0, Announcement(places=["trials/a"], backend="torch"))
    with pytest.raises(UserError, match="announced nothing"):
        adopted.awaited(tmp_path, 0, 0.2, "restart 1")
    announce(tmp_path, 0, Announcement(places=None, start="restart 1"))
    assert adopted.awaited(tmp_path, 0, 0.2, "restart 1").places is None
    forget(tmp_path)
    assert not any(tmp_path.iterdir())


def test_what_killed_ranks_left_is_forgotten(tmp_path: Path) -> None:
    place = tmp_path / "trials/a/torch/seed0"
    (place / "board").mkdir(parents=True)
    kept = (tmp_path / ".lock", place / "rank1.jsonl", place / ".notes")
    half = (tmp_path / ".run.json.4711", place / ".rank1.jsonl.part", place / "board/join.0.1")
    for path in (*kept, *half):
        path.write_text("")
    forget(tmp_path)
    assert {p for p in tmp_path.rglob("*") if p.is_file()} == set(kept)
    assert not (place / "board").exists()


# --- who is missing, and who is gone --------------------------------------------------------------


def test_rank_0_waits_and_names_who_is_missing(there: Hub, tmp_path: Path) -> None:
    told, ranks = list[list[int]](), list[Remote]()
    threading.Timer(0.2, lambda: ranks.append(came(there, tmp_path / "copy"))).start()
    with pytest.raises(UserError, match=r"ranks 2 of 3 did not come to tcp://.* within 1 s"):
        there.gather(1, told.append)
    assert told == [[1, 2], [2]]
    refused(there, 2, size=9)
    with pytest.raises(UserError, match=r"refused: rank 2 on .* says --world-size 9"):
        there.gather(0.1, told.append)
    ranks.append(came(there, tmp_path / "copy2", 2))
    there.gather(5, told.append)


def test_a_rank_that_is_gone_is_named(there: Hub, tmp_path: Path) -> None:
    run = tmp_path / "run"
    remote = came(there, tmp_path / "copy")
    there.check()
    announce(run, 0, Announcement(places=["trials/a"], backend="numpy"))
    remote.wire.close()
    deadline = time.monotonic() + 5
    while not there.lost and time.monotonic() < deadline:
        time.sleep(0.02)
    why = f"its connection to rank 0 ended (on {socket.gethostname()})"
    with pytest.raises(Lost, match=r"^rank 1: its connection to rank 0 ended"):
        there.check()
    deadline = time.monotonic() + 5
    while not (run / failure(0, 1).name).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert failure(0, 1).read(run).reason == why


def test_a_rank_that_says_nothing_is_lost(
    there: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "SILENT_S", 0.3)
    remote = came(there, tmp_path / "copy")
    deadline = time.monotonic() + 5
    while not there.lost and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "rank 0 heard nothing of it for 0.3 s" in there.lost[1]
    with contextlib.suppress(CommunicationError):
        remote.ask("list", "plan")  # the first one may still be sent
    with pytest.raises(CommunicationError, match=r"rank 0 at tcp://.* is gone"):
        remote.ask("list", "plan")


def test_a_rank_waits_for_rank_0(there: Hub) -> None:
    port, said = free_port(), list[bool]()
    missing = Seat(HERE, port, SECRET, 1, 3)
    with pytest.raises(UserError, match=r"nobody answers at .*: Connection refused; start rank 0"):
        reach(missing, 0.7, lambda: said.append(True))
    assert said == [True]
    wrong = Seat(HERE, there.port, b"another secret", 1, 3)
    begin = time.monotonic()
    with pytest.raises(UserError, match=f"has another {TOKEN}"):  # at once
        reach(wrong, 30, lambda: said.append(True))
    assert time.monotonic() - begin < 10


def test_the_interface_towards_a_machine() -> None:
    assert near(HERE)[ADDRESS] == HERE
    assert near(HERE)[INTERFACE].startswith("lo")
    assert near("no.such.host.invalid") == {}


@pytest.mark.parametrize(("rank", "size", "rendezvous", "message"), [
    (1, None, "tcp://h:1", "--rank 1 needs --world-size N and --rendezvous tcp://HOST:PORT"),
    (1, 2, None, "--rank 1 needs"), (1, 2, "file:///tmp/x", "--rank 1 needs"),
    (2, 2, "tcp://h:1", "--rank 2 of --world-size 2: ranks go from 0 to size - 1"),
    (0, 1, "tcp://h:1", "--rank 0 of --world-size 1"),
])  # fmt: skip
def test_ranks_by_hand(rank: int, size: int | None, rendezvous: str | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        adopted.by_hand(rank, size, rendezvous)
    assert adopted.by_hand(None, 2, None) is None
    assert adopted.by_hand(1, 2, "tcp://h:1") == Adopted("--rank", "", 1, 2)
