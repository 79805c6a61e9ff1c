"""The live page against strangers, odd requests, and run folders with arbitrary contents."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_run
import pytest
from command import start
from hostile_cases import cases, entries, resident, try_cases
from hypothesis import strategies as st
from mutations import ODD, mutated, mutated_bytes
from serve_cases import KEY, ask, serving

from dualml.common.errors import Unsupported, UserError
from dualml.common.words import Messages
from dualml.experiment.store.folder import RunFolder
from dualml.experiment.store.load import load
from dualml.experiment.store.run_operand import read_run_operand
from dualml.experiment.store.trial import log_path, trial_folder
from dualml.interface.housekeeping.listing import list_runs
from dualml.interface.serve import connections, server
from dualml.interface.serve.cache import Cache
from dualml.interface.serve.pages import Pages
from dualml.interface.serve.server import PageServer
from dualml.report import render
from dualml.report.live_usage import active_ranks
from dualml.runner.jobs.store import Jobs

pytestmark = pytest.mark.system
RUN = "/run?run=one"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served") / "runs"
    fake_run.make_run(root / "one", seeds=[0])
    fake_run.make_run(root / "two", seeds=[0])
    return root


@pytest.fixture
def live(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageServer]:
    """A server whose errors fail the test."""
    found = list[str]()

    def note(*_: object) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            found.append(repr(error))

    monkeypatch.setattr(socketserver.BaseServer, "handle_error", note)
    with serving(root) as one:
        yield one
    assert not found


def connect(live: PageServer, seconds: float = 10) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.gate.port), timeout=seconds)


def answer(live: PageServer, content: bytes, *, end: bool = True) -> bytes:
    """Return the complete answer of the server to these bytes, until it closes the connection."""
    said = b""
    with connect(live) as door, contextlib.suppress(ConnectionError):
        door.sendall(content)
        if end:
            with contextlib.suppress(OSError):  # it has ended the connection already
                door.shutdown(socket.SHUT_WR)
        while piece := door.recv(2**16):
            said += piece
    return said


def in_time(live: PageServer, path: str = "/", seconds: float = 5) -> int:
    """Return the status of a page that a client with the token requests."""
    begin = time.monotonic()
    status = ask(live, path)[0]
    assert time.monotonic() - begin < seconds
    return status


# --- strangers ----------------------------------------------------------------------------------


def test_a_hundred_strangers_keep_nobody_out_who_holds_the_token(live: PageServer) -> None:
    strangers = [connect(live) for _ in range(100)]
    try:
        for _ in range(5):
            assert in_time(live) == 200
        time.sleep(0.2)
        assert threading.active_count() < connections.MAX_STRANGERS + 20
    finally:
        for door in strangers:
            door.close()


def test_a_guest_keeps_its_connection_whoever_comes(live: PageServer) -> None:
    gate = live.gate
    guest = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=20)
    headers = {"Cookie": f"{gate.cookie}={gate.token}"}

    def request_style() -> int:
        guest.request("GET", "/style.css", headers=headers)
        reply = guest.getresponse()
        reply.read()
        return reply.status

    assert request_style() == 200
    door = guest.sock
    strangers = [connect(live) for _ in range(2 * connections.MAX_STRANGERS)]
    assert request_style() == 200
    assert guest.sock is door  # the same connection
    for each in (*strangers, guest):
        each.close()


def test_the_oldest_stranger_makes_room(live: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_STRANGERS", 2)
    first, second = connect(live), connect(live)
    third = connect(live)
    assert first.recv(1) == b""
    for door in (second, third):
        door.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert door.recv(12) == b"HTTP/1.1 403"
    for door in (first, second, third):
        door.close()


def test_guests_are_so_many_at_a_time(live: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_GUESTS", 0)
    status, headers, text = ask(live, "/")
    assert (status, headers["Connection"]) == (503, "close")
    assert "too many pages" in text
    monkeypatch.undo()
    assert in_time(live) == 200


def test_a_head_that_never_ends_is_given_up(
    live: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.PageHandler, "timeout", 1.0)
    begin = time.monotonic()
    with connect(live) as door, contextlib.suppress(ConnectionError):
        door.sendall(b"GET / HTTP/1.1\r\nX: ")
        while time.monotonic() - begin < 8:
            door.sendall(b"x")
            time.sleep(0.2)
    assert time.monotonic() - begin < 6


@pytest.mark.parametrize(
    "content",
    [
        b"x" * 10**6,
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 10**5,
        b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"b" * 10**6,
    ],
)
def test_a_head_of_any_size_is_answered(live: PageServer, content: bytes) -> None:
    before = resident()
    assert re.match(rb"HTTP/1.1 4(00|14|31) |$", answer(live, content))
    assert resident() - before < 64 * 2**20
    assert in_time(live) == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET http://[::1/ HTTP/1.1", 400),
        (b"GET //[ HTTP/1.1", 403),
        (b"GET /?" + b"a=1&" * 100 + b" HTTP/1.1", 400),
        (b"GET /%zz%\0%ff HTTP/1.1", 403),
        (b"GET /?token=%00%ff HTTP/1.1", 403),
        (b"GET / HTTP/9", 400),
        (b"GET / HTTP/9.9", 505),
        (b"\0\1\2 / HTTP/1.1", 501),
        (b"BREW / HTTP/1.1", 501),
        (b"TRACE / HTTP/1.1", 501),
        (b"GET", 400),
        (b"a b c d", 400),
        (b"\xff\xfe", 400),
        (b"POST / HTTP/1.1", 405),
        (b"GET / HTTP/1.1\r\nHost: [::1", 403),
        (b"GET / HTTP/1.1\r\nHost:\0", 403),
        (b"GET / HTTP/1.1\r\n: x\r\n x\r\n\r", 403),
        (b"PUT / HTTP/1.1\r\nContent-Length: -1", 405),
    ],
)
def test_odd_requests_get_an_answer(live: PageServer, request_: bytes, status: int) -> None:
    said = answer(live, request_ + b"\r\n\r\n", end=False)
    assert re.match(rb"HTTP/1.1 (\d+)", said), said
    assert int(said[9:12]) == status
    assert b"Content-Security-Policy" in said
    assert b"Set-Cookie" not in said


@pytest.mark.parametrize("head", ["Content-Length: 1000000000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_body_without_end_is_not_read(live: PageServer, head: str, method: str) -> None:
    gate, sent = live.gate, 0
    with connect(live) as door, contextlib.suppress(ConnectionError):
        door.sendall(
            f"{method} / HTTP/1.1\r\nHost: 127.0.0.1:{gate.port}\r\n{head}\r\n"
            f"Cookie: {gate.cookie}={gate.token}\r\n\r\n".encode()
        )
        while sent < 2**28:
            door.sendall(b"x" * 2**16)
            sent += 2**16
    assert sent < 2**25


# --- a machine without descriptors --------------------------------------------------------------


def test_a_connection_that_cannot_be_accepted_is_waited_for(
    live: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, asked = socketserver.TCPServer.get_request, list[float]()

    def scarce(self: Any) -> Any:
        asked.append(time.monotonic())
        if len(asked) < 4:
            raise OSError(errno.EMFILE, "Too many open files")
        return usual(self)

    monkeypatch.setattr(socketserver.TCPServer, "get_request", scarce)
    assert in_time(live) == 200
    assert asked[3] - asked[0] >= 3 * server.PAUSE_S * 0.9  # it does not spin


def test_few_descriptors_keep_nobody_out_who_holds_the_token(root: Path) -> None:
    line = f'ulimit -n 30; exec "{sys.executable}" -m dualml serve "{root}" --port 0'
    with subprocess.Popen(
        ["sh", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            match = re.search(r":(\d+)/\?token=(\S+)", process.stdout.readline())
            assert match
            port, token = int(match[1]), match[2]
            strangers = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(60)]
            for _ in range(3):
                page = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                page.request("GET", "/", headers={"Cookie": f"dualml-{port}={token}"})
                assert page.getresponse().status == 200
                page.close()
            for door in strangers:
                door.close()
        finally:
            process.terminate()
        assert process.communicate(timeout=20)[1] == ""


def test_a_file_that_cannot_be_opened_is_no_traceback(
    live: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(live.pages, "home_page", full)
    status, headers, text = ask(live, "/")
    assert (status, text) == (503, "503: Too many open files")
    assert headers["Connection"] == "close"


# --- pages beside one another -------------------------------------------------------------------


def test_a_page_that_takes_long_holds_up_no_other(live: PageServer) -> None:
    begun, go_on = threading.Event(), threading.Event()
    usual = live.pages.home_page

    def slow(words: Messages) -> str:
        begun.set()
        assert go_on.wait(30)
        return usual(words)

    live.pages.home_page = slow  # type: ignore[method-assign]
    waiting = threading.Thread(target=lambda: status.append(ask(live, "/")[0]), daemon=True)
    status: list[int] = []
    waiting.start()
    assert begun.wait(10)
    assert in_time(live, RUN) == 200
    go_on.set()
    waiting.join(20)
    assert status == [200]


def test_a_value_that_takes_long_holds_up_no_other_and_is_made_once() -> None:
    cache, begun, go_on = Cache(), threading.Event(), threading.Event()
    made: list[int] = []

    def slow() -> int:
        begun.set()
        assert go_on.wait(30)
        made.append(1)
        return 7

    found: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(cache.get_or_create("a", 1, slow)), daemon=True
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    assert cache.get_or_create("b", 1, lambda: 8) == 8
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert (found, made) == ([7, 7, 7], [1])


def test_an_error_that_is_told_again_does_not_grow() -> None:
    cache = Cache()

    def wrong() -> None:
        raise UserError("no")

    depths = []
    for _ in range(3):
        with pytest.raises(UserError) as refused:
            cache.get_or_create("a", 1, wrong)
        depths.append(len(refused.traceback))
    assert depths[1] == depths[2]


def test_many_pages_at_once(live: PageServer) -> None:
    paths = ["/", RUN, "/run?run=two", f"{RUN}&run=two", "/log?run=one&log=x", "/style.css"] * 4
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda path=path: found.append(ask(live, path)[0]), daemon=True)
        for path in paths
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [200] * 20 + [404] * 4


# --- run folders --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rank0.log", "rank0.jsonl", "rank0.usage.jsonl", "job.json"])
def test_a_pipe_in_one_run_holds_up_no_page(tmp_path: Path, name: str) -> None:
    for run in ("one", "two"):
        fake_run.make_run(tmp_path / f"runs/{run}", seeds=[0])
    path = trial_folder(tmp_path / "runs/one", KEY) / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with serving(tmp_path / "runs") as live:
        for page in (RUN, f"{RUN}&log=adam/torch/seed0/rank0", "/", "/run?run=two"):
            assert in_time(live, page) == 200
        assert in_time(live, "/log?run=one&log=adam/torch/seed0/rank0") in (200, 404)


def put_instead(draw: Any, path: Path, content: bytes) -> None:
    """Put something else in place of a file."""
    kind = draw(
        st.sampled_from(
            [
                "pipe",
                "socket",
                "device",
                "loop",
                "outside",
                "folder",
                "deep",
                "bytes",
                "bytes",
                "value",
                "value",
                "nothing",
            ]
        )
    )
    path.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as door, contextlib.chdir(path.parent):
                door.bind(path.name)
        case "device":
            path.symlink_to(draw(st.sampled_from(["/dev/zero", "/dev/full", "/dev/tty"])))
        case "loop":
            path.symlink_to(path.name)
        case "outside":
            path.symlink_to(draw(st.sampled_from(["/etc/passwd", "../../../../../secret", "/"])))
        case "folder":
            path.mkdir()
        case "deep":
            path.symlink_to(".", target_is_directory=True)
        case "bytes":
            path.write_bytes(mutated_bytes(draw, content))
        case "value" if path.suffix == ".json" and content:
            value = mutated(draw, json.loads(content)) if draw(st.booleans()) else draw(ODD)
            path.write_text(json.dumps(value))
        case _:
            return


@cases(50, 3000)
def test_whatever_a_run_folder_holds_ends_in_a_page_or_in_one_line(
    tmp_path: Path, count: int
) -> None:
    arms = {name: fake_run.MAIN[name] for name in ("sgd", "adam")}
    good = fake_run.make_run(tmp_path / "good", arms=arms, seeds=[0], failed=None)
    log_path(trial_folder(good, KEY), 0).write_text("a log\n")
    (good / "report.html").write_text("<title>report</title>")
    files = {p.relative_to(good): p.read_bytes() for p in sorted(good.rglob("*")) if p.is_file()}
    place = trial_folder(good, KEY).relative_to(good)
    extra = [place / name for name in ("rank0.usage.jsonl", "rank0.times.npz", "best.safetensors")]
    names = [*files, *extra, Path(".lock"), Path("hosts/rank0.log"), Path("plan/plan.json")]
    (tmp_path / "secret").write_text("secret")
    runs, words = tmp_path / "runs", Messages("en")
    run, log = runs / "one", "adam/torch/seed0/rank0"
    query = {"run": ["one"], "log": [log]}

    def case(draw: Any) -> None:
        shutil.rmtree(runs, ignore_errors=True)
        shutil.copytree(good, run)
        for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)):
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            if not (run / name).is_dir():
                put_instead(draw, run / name, files.get(name, b""))
        before = entries(tmp_path, runs)
        pages = Pages(runs, Jobs(tmp_path / "jobs"))
        texts = []
        others: list[Callable[[], object]] = [
            lambda: list_runs(runs, None),
            lambda: active_ranks(run),
            lambda: load([run], force=True),
            lambda: RunFolder.open(run),
            lambda: read_run_operand(run),
            lambda: render([run], runs / "out", force=True),
        ]
        for use in (
            lambda: pages.home_page(words),
            lambda: pages.runs_page(query, words),
            lambda: pages.log_chunk(query).text,
            lambda: pages.report_file(query).read_bytes(),
            draw(st.sampled_from(others)),
        ):
            try:
                texts.append(str(use()))
            except (UserError, Unsupported, OSError) as error:
                texts.append(str(error))
        assert entries(tmp_path, runs) == before
        assert not any("root:x:0" in text or text == "secret" for text in texts)

    try_cases(count, case)


# --- bytes --------------------------------------------------------------------------------------

WORDS = [b"GET", b"HEAD", b"POST", b" ", b"  ", b"\t", b"/", b"//", b"?", b"&", b"=", b"%", b"%00",
         b"%ff", b"%u0041", b"token", b"run", b"one", b"lang", b"log", b"after", b"live",
         b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2", b"\r\n", b"\n", b"\r",
         b"\r\n\r\n", b"\0", b"\xff",
         b"Host: ", b"Cookie: ", b"Content-Length: ", b"Transfer-Encoding: chunked", b"Expect: ",
         b"100-continue", b"If-None-Match: ", b"Connection: keep-alive", b"Connection: close", b"[",
         b"]", b":", b"@", b"..", b"http://", b"127.0.0.1", b"\\", b'"', b";", b"9" * 30,
         b"x" * 5000, "学".encode(), b"#", b"run=one&" * 40]  # fmt: skip


@cases(170, 4000)
def test_whatever_is_sent_is_answered_in_time(
    live: PageServer, root: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(server.PageHandler, "timeout", 2.0)
    gate = live.gate
    parts = st.one_of(st.sampled_from(WORDS), st.binary(max_size=12))
    right = (f"Host: 127.0.0.1:{gate.port}\r\nCookie: {gate.cookie}={gate.token}\r\n\r\n").encode()
    before = entries(root)

    def case(draw: Any) -> None:
        pieces = draw(st.lists(parts, max_size=25))
        content = b"".join(pieces)
        how = draw(st.integers(0, 3))
        if how == 1:  # a request line of somebody who has the token
            content = b"GET /" + content.replace(b"\n", b"").replace(b"\r", b"") + b" HTTP/1.1\r\n"
            content += right
        elif how == 2:  # odd headers of the same
            content = b"GET /run?run=one HTTP/1.1\r\n" + content + b"\r\n" + right
        elif how == 3:
            content = b"GET / HTTP/1.1\r\n" + right + content
        said = answer(live, content)
        if said and not said.startswith((b"HTTP/1.1 ", b"<", b"4", b"5")):  # of HTTP/0.9 the text
            raise AssertionError(said[:200])
        assert b"Traceback" not in said

    try_cases(count, case)
    assert entries(root) == before
    assert in_time(live) == 200


def test_the_command_prints_nothing_of_what_strangers_send(root: Path) -> None:
    process = start("serve", root, "--port", "0", stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        match = re.search(r":(\d+)/", process.stdout.readline())
        assert match
        for content in (b"GET http://[::1/ HTTP/1.1\r\n\r\n", b"\0" * 10**5, b"x" * 10**5, b"\r\n"):
            with (
                socket.create_connection(("127.0.0.1", int(match[1])), timeout=10) as door,
                contextlib.suppress(OSError),  # it may have ended the connection already
            ):
                door.sendall(content)
                door.shutdown(socket.SHUT_WR)
                while door.recv(2**16):
                    pass
        process.terminate()
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
    assert said == ""
