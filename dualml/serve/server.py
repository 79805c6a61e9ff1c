"""What listens: the standard library's server, a thread for each request.

Nothing here is worth a framework's dependencies: three pages, a log and a report, for one person.
Pages ask again by themselves and are told that nothing has changed by their fingerprint (ETag);
between two questions nothing runs.
"""

from __future__ import annotations

import errno
import hashlib
import io
import socket
import socketserver
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qs, urlsplit

from dualml.errors import UserError
from dualml.jobs.store import Jobs
from dualml.serve.gate import Gate
from dualml.serve.pages import Pages, chosen
from dualml.serve.shell import scripts, stylesheet
from dualml.words import LANGUAGES, Words

#: Seconds that a connection may say nothing, connections at a time, and values in an address.
QUIET_S, MOST, VALUES = 10.0, 64, 64
PIECE = 2**16
#: No page loads anything from elsewhere. Attributes of style are those of tables and figures.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: A report holds its own script and may come from another machine: it gets an origin of its own.
REPORT_POLICY = (
    "sandbox allow-scripts allow-popups; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LANG = "dualml-lang"


class Server(socketserver.ThreadingTCPServer):
    """Bound when it is made; `serve_forever` answers.

    Args:
        lang: of pages, until a reader chooses another.

    Raises:
        UserError: the port is taken, or there is no such address on this machine.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = MOST

    def __init__(self, root: Path, jobs: Jobs, host: str, port: int, lang: str) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), Handler)
        except OSError as error:
            raise UserError(refused(host, port, error)) from None
        self.gate = Gate(host, int(self.server_address[1]))
        self.pages, self.lang = Pages(root, jobs), lang
        self.room = threading.BoundedSemaphore(MOST)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser may leave before the answer; all else is a bug of ours."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def refused(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is taken, perhaps by another dualml serve; "
            "choose another --port, or 0 for any that is free"
        )
    if error.errno == errno.EACCES:
        return f"port {port} is the system's; choose a --port from 1024, or 0 for any that is free"
    return f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another --host"


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    server_version, sys_version = "dualml", ""
    protocol_version = "HTTP/1.1"
    timeout = QUIET_S

    def do_GET(self) -> None:
        gate = self.server.gate
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # what was sent along is not read as a second request
        address = urlsplit(self.path)
        try:
            query = parse_qs(address.query, max_num_fields=VALUES)
        except ValueError:
            query = {}
        lang = chosen(query, "lang") or gate.kept(self.headers["Cookie"], LANG)
        self.cookies: list[str] = []
        words = Words(lang if lang in LANGUAGES else self.server.lang)
        if not gate.knows(self.headers["Host"]):
            self.text(403, words("serve.another_name"))
            return
        if not gate.lets_in(chosen(query, "token"), self.headers["Cookie"]):
            self.text(403, words("serve.no_token"))
            return
        if "token" in query:
            # Not by leading on to another address: a browser that came by a link on somebody
            # else's page would not send this cookie there.
            self.cookies.append(f"{gate.cookie}={gate.token}; Path=/; HttpOnly; SameSite=Strict")
        if "lang" in query and lang in LANGUAGES:
            self.cookies.append(f"{LANG}={lang}; Path=/; HttpOnly; SameSite=Strict")
        try:
            self.answer(address.path, query, words)
        except UserError as error:
            self.text(404, str(error))
        except ConnectionError:
            raise
        except Exception:
            self.text(500, words("serve.bug"))
            raise

    def answer(self, path: str, query: Mapping[str, list[str]], words: Words) -> None:
        pages = self.server.pages
        match path:
            case "/":
                with pages.lock:
                    page = pages.home(words)
                self.page(page)
            case "/run":
                with pages.lock:
                    page = pages.runs(query, words, bare="live" in query)
                self.page(page)
            case "/log":
                with pages.lock:
                    piece = pages.piece(query)
                self.text(200, piece.text, {"X-Start": str(piece.start), "X-End": str(piece.end)})
            case "/report":
                with pages.lock:
                    report = pages.report(query)
                self.file(report)
            case "/style.css":
                self.fixed(stylesheet(), "text/css")
            case "/page.js":
                self.fixed(scripts(), "text/javascript")
            case _:
                self.text(404, words("serve.nothing"))

    def refuse(self) -> None:
        """Nothing can be changed from here."""
        self.close_connection = True  # a body that was sent along is not read
        self.text(405, "GET", {"Allow": "GET", "Connection": "close"})

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = refuse

    # --- answers ------------------------------------------------------------------------------

    def page(self, html: str) -> None:
        self.fixed(html, "text/html")

    def fixed(self, text: str, kind: str) -> None:
        """Told only that it is the same, whoever has it already."""
        content = text.encode(errors="backslashreplace")
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        if self.headers["If-None-Match"] == tag:
            self.start(304, {"ETag": tag})
        else:
            self.send(200, content, f"{kind}; charset=utf-8", {"ETag": tag})

    def text(self, code: int, text: str, more: Mapping[str, str] | None = None) -> None:
        self.send(code, text.encode(errors="backslashreplace"), "text/plain; charset=utf-8", more)

    def file(self, path: Path) -> None:
        with path.open("rb") as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            more = {"Content-Security-Policy": REPORT_POLICY, "Content-Length": str(size)}
            self.start(200, {"Content-Type": "text/html; charset=utf-8", **more})
            copy(file, self.wfile, size)

    def send(
        self, code: int, content: bytes, kind: str, more: Mapping[str, str] | None = None
    ) -> None:
        self.start(
            code, {"Content-Type": kind, "Content-Length": str(len(content)), **(more or {})}
        )
        if self.command != "HEAD":
            self.wfile.write(content)

    def start(self, code: int, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        for cookie in getattr(self, "cookies", ()):
            self.send_header("Set-Cookie", cookie)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """No word for each request: the terminal shows the address, with its token, once."""


def copy(source: BinaryIO, target: Any, size: int) -> None:
    """So many bytes, as was said, also of a file that grows meanwhile."""
    while size > 0 and (piece := source.read(min(size, PIECE))):
        target.write(piece)
        size -= len(piece)
