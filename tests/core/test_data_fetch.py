"""Downloads from mirrors that are dead, busy, slow or wrong; the servers run on loopback."""

import contextlib
import gzip
import http.server
import socket
import threading
import time
from collections import Counter

import data_files
import pytest

from dualml.common.errors import UserError
from dualml.experiment.data import DATASETS, fetch, idx, load
from dualml.experiment.data.fetch import Unreachable
from dualml.experiment.data.registry import FILE_NAMES, RecordInfo

PARTS = data_files.arrays()


def packed(parts):
    """Return path on the server → file."""
    pairs = zip(FILE_NAMES, parts, strict=True)
    return {f"/{name}.gz": gzip.compress(idx.encode(part)) for name, part in pairs}


FILES = packed(PARTS)
OTHER = packed(data_files.arrays(seed=9))


class Mirror:
    """An HTTP server; ``answer(path, count)`` returns the status and body of each GET.

    ``whole=False`` announces the good file's length even if the body is shorter.
    """

    def __init__(self, answer=lambda path, count: (200, FILES[path]), whole=True):
        self.gets = Counter()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.send_response(200)
                self.end_headers()

            def do_GET(self):
                outer.gets[self.path] += 1
                status, body = answer(self.path, outer.gets[self.path])
                self.send_response(status)
                length = len(body) if whole else len(FILES[self.path])
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *args: None  # a client that hung up
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def mirror():
    made = []

    def make_mirror(*args, **options):
        made.append(Mirror(*args, **options))
        return made[-1]

    yield make_mirror
    for one in made:
        one.close()


@pytest.fixture
def use(tmp_path, monkeypatch):
    """Return ``use(url, …)``, which sets up an empty cache and a registry with these mirrors."""
    monkeypatch.setenv("DUALML_CACHE", str(tmp_path / "cache"))
    for name in ("DUALML_DATA", "DUALML_OFFLINE", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(fetch, "PAUSE_S", 0.01)

    def set_mirrors(*urls):
        monkeypatch.setitem(DATASETS, "mnist", data_files.info_for(PARTS, urls))

    return set_mirrors


@pytest.fixture
def dead():
    """A URL that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return f"http://127.0.0.1:{port}/"


def test_download_then_cache(use, mirror, tmp_path, capfd):
    server = mirror()
    use(server.url)
    data = load("mnist", explicit=True)
    assert data.source == "download"
    assert (data.train_y == PARTS[1]).all()
    assert load("mnist", explicit=True).source == "cache"
    assert server.gets == dict.fromkeys(FILES, 1)
    names = sorted(p.name for p in (tmp_path / "cache" / "mnist").iterdir())
    assert names == sorted(FILE_NAMES), "uncompressed, and no partial file left behind"
    out, err = capfd.readouterr()
    assert out == "", "stdout belongs to results"
    assert all(f"{name}.gz" in err for name in FILE_NAMES)


def test_first_mirror_dead_second_alive(use, mirror, dead):
    server = mirror()
    use(dead, server.url)
    assert load("mnist", explicit=True).source == "download"


def test_a_busy_server_is_asked_again(use, mirror):
    server = mirror(lambda path, count: (200, FILES[path]) if count == 3 else (503, b""))
    use(server.url)
    assert load("mnist", explicit=True).source == "download"
    assert set(server.gets.values()) == {3}


def test_a_broken_transfer_is_repeated(use, mirror):
    half = {path: body[: len(body) // 2] for path, body in FILES.items()}
    server = mirror(lambda path, count: (200, (half if count == 1 else FILES)[path]), whole=False)
    use(server.url)
    assert load("mnist", explicit=True).source == "download"
    assert set(server.gets.values()) == {2}


def test_what_is_not_there_is_not_asked_for_again(use, mirror):
    server = mirror(lambda path, count: (404, b""))
    use(server.url)
    with pytest.raises(Unreachable, match="HTTP status 404"):
        load("mnist", explicit=True)
    assert server.gets == {f"/{FILE_NAMES[0]}.gz": 1}


def test_wrong_checksum_is_rejected_and_the_next_mirror_asked(use, mirror):
    liar = mirror(lambda path, count: (200, OTHER[path]))
    honest = mirror()
    use(liar.url, honest.url)
    data = load("mnist", explicit=True)
    assert (data.train_x == PARTS[0]).all()
    assert liar.gets == {f"/{FILE_NAMES[0]}.gz": 1}


def test_only_wrong_checksums_leave_nothing_in_the_cache(use, mirror, tmp_path):
    server = mirror(lambda path, count: (200, OTHER[path]))
    use(server.url)
    pattern = r"\(127.0.0.1:\d+: train-images-idx3-ubyte.gz has the right size but other contents"
    with pytest.raises(Unreachable, match=pattern):
        load("mnist", explicit=True)
    assert not list((tmp_path / "cache").rglob("*-ubyte*"))


def test_a_web_page_instead_of_the_file(use, mirror):
    server = mirror(lambda path, count: (200, b"<html>log in</html>"))
    use(server.url)
    with pytest.raises(Unreachable, match="is not gzip"):
        load("mnist", explicit=True)


def test_download_resumes_after_the_files_it_has(use, mirror, dead, tmp_path):
    last = f"/{FILE_NAMES[3]}.gz"
    first = mirror(lambda path, count: (404, b"") if path == last else (200, FILES[path]))
    use(first.url)
    with pytest.raises(Unreachable):
        load("mnist", explicit=True)
    second = mirror()
    use(dead, second.url)
    assert load("mnist", explicit=True).source == "download"
    assert second.gets == {last: 1}


def test_a_damaged_file_in_the_cache_is_fetched_anew(use, mirror, tmp_path):
    server = mirror()
    use(server.url)
    load("mnist", explicit=True)
    (tmp_path / "cache" / "mnist" / FILE_NAMES[1]).write_bytes(b"\0\0\x08")
    with pytest.raises(UserError, match="dualml data get mnist"):
        load("mnist", explicit=True)
    fetch.download(DATASETS["mnist"])
    assert load("mnist", explicit=True).source == "cache"
    assert server.gets[f"/{FILE_NAMES[1]}.gz"] == 2
    assert server.gets[f"/{FILE_NAMES[0]}.gz"] == 1


def test_no_mirror_falls_back_only_if_not_explicit(use, dead):
    use(dead)
    with pytest.raises(UserError, match=r"connection refused.*dualml data get mnist"):
        load("mnist", explicit=True)
    data = load("mnist", explicit=False)
    assert data.source == "embedded"
    assert "connection refused" in data.notice["en"]


def test_mirrors_that_swallow_packets_cost_a_bounded_time(use, monkeypatch):
    monkeypatch.setattr(fetch, "PROBE_S", 1.0)
    with socket.socket() as one, socket.socket() as two:
        for silent in (one, two):  # the kernel accepts, nobody ever answers
            silent.bind(("127.0.0.1", 0))
            silent.listen()
        use(*(f"http://127.0.0.1:{s.getsockname()[1]}/" for s in (one, two)))
        start = time.monotonic()
        with pytest.raises(Unreachable, match="no answer within 1 s"):
            load("mnist", explicit=True)
        assert 0.9 < time.monotonic() - start < 5


def test_a_mirror_that_stalls_is_not_asked_again(use, mirror, monkeypatch):
    monkeypatch.setattr(fetch, "READ_S", 0.3)
    wake = threading.Event()

    def stall(path, count):
        wake.wait(5)
        return 200, FILES[path]

    slow = mirror(stall)
    quick = mirror()
    use(slow.url, quick.url)
    assert load("mnist", explicit=True).source == "download"
    wake.set()
    assert slow.gets == {f"/{FILE_NAMES[0]}.gz": 1}


def test_the_registrys_own_bounds_keep_the_promise():
    assert fetch.PROBE_S <= 10, "without a network a run must go on within 20 s"


@pytest.mark.parametrize("value", ["1", "yes"])
def test_offline_asks_nobody(use, mirror, monkeypatch, value):
    server = mirror()
    use(server.url)
    monkeypatch.setenv("DUALML_OFFLINE", value)
    with pytest.raises(Unreachable, match="DUALML_OFFLINE is set"):
        load("mnist", explicit=True)
    assert not server.gets


def test_a_cache_that_cannot_be_written(use, mirror, monkeypatch, tmp_path):
    server = mirror()
    use(server.url)
    (tmp_path / "file").touch()
    monkeypatch.setenv("DUALML_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match=r"cannot be written: .*DUALML_CACHE"):
        load("mnist", explicit=True)


def test_mirrors_of_the_registry_end_in_a_slash():
    for info in DATASETS.values():
        assert all(url.endswith("/") for url in info.mirrors)
        assert info.embedded or isinstance(info, RecordInfo) or len(info.mirrors) >= 2


class Endless:
    """A server whose body or headers never end: it sends ``piece`` again every ``pause``
    seconds."""

    def __init__(self, head, piece, pause=0.0):
        self.head, self.piece, self.pause, self.sent = head, piece, pause, 0
        self.door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.door.getsockname()[1]}/"
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.door.accept()
                threading.Thread(target=self.serve, args=[connection], daemon=True).start()

    def serve(self, connection):
        with connection, contextlib.suppress(OSError):
            if connection.recv(4096).startswith(b"HEAD"):
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                return
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + self.head)
            end = time.monotonic() + 30
            while time.monotonic() < end:
                connection.sendall(self.piece)
                self.sent += len(self.piece)
                time.sleep(self.pause)

    def close(self):
        self.door.close()


@pytest.fixture
def endless():
    made = []

    def make_endless(*words):
        made.append(Endless(*words))
        return made[-1]

    yield make_endless
    for one in made:
        one.close()


@pytest.mark.parametrize(
    "head", [b"", b"Content-Length: 99999999999\r\n", b"Content-Encoding: gzip, gzip\r\n"]
)
def test_a_body_without_an_end_is_given_up_at_the_size_of_the_file(use, endless, tmp_path, head):
    server = endless(head + b"\r\n", bytes(1 << 16))
    use(server.url)
    with pytest.raises(
        Unreachable, match=r"more than the [0-9,]+ bytes that are read.* --from DIR"
    ):
        load("mnist", explicit=True)
    assert server.sent < 20 << 20  # what buffers of the system hold
    assert not list((tmp_path / "cache").rglob("*-ubyte*"))


@pytest.mark.parametrize("head", [b"\r\n", b"X-Slow: "])
def test_a_mirror_that_sends_a_byte_now_and_then_is_given_up(use, endless, monkeypatch, head):
    monkeypatch.setattr(fetch, "FILE_S", 1.0)
    use(endless(head, b"x", 0.2).url)
    begin = time.monotonic()
    with pytest.raises(Unreachable, match=r"was not complete after 1 s.* --from DIR"):
        load("mnist", explicit=True)
    assert time.monotonic() - begin < 8
