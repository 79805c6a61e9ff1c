"""The HTTP server: the standard library's, with one thread per request.

Three pages, a log and a report for one user do not justify the dependencies of a web framework.
Pages poll; an ETag tells them that nothing has changed. Between requests nothing runs.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import socket
import socketserver
import sys
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qs, urlsplit

from dualml.common.errors import UserError
from dualml.common.files import open_to_read
from dualml.common.words import LANGUAGES, Messages
from dualml.interface.serve.connections import Connections, HeadTooLong, RequestStream
from dualml.interface.serve.gate import Gate
from dualml.interface.serve.headers import HEADERS, REPORT_POLICY
from dualml.interface.serve.pages import Pages, query_value
from dualml.interface.serve.shell import script_text, stylesheet
from dualml.runner.jobs.store import Jobs

#: Seconds until the next request's headers must be complete, and that a response may wait for its
#: reader; length of the accept queue; maximum number of values in a query.
QUIET_S, BACKLOG, VALUES = 10.0, 64, 64
#: Seconds to wait if the system has no descriptors or memory for a connection.
PAUSE_S = 0.1
SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
#: Bytes of a file that are sent at a time.
SEND_CHUNK_BYTES = 2**16
LANG = "dualml-lang"


class PageServer(socketserver.ThreadingTCPServer):
    """The server; its socket is bound on construction, and `serve_forever` answers requests.

    Args:
        root: the folder whose runs are shown.
        jobs: the jobs that are shown.
        host, port: the address to listen on; port 0 for any that is free.
        lang: language of pages until the user chooses another.
        make_pages: makes the pages about the runs in a folder and the jobs.

    Raises:
        UserError: the port is in use, or this machine has no such address.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(
        self,
        root: Path,
        jobs: Jobs,
        host: str,
        port: int,
        lang: str,
        make_pages: Callable[[Path, Jobs], Pages] = Pages,
    ) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), PageHandler)
        except OSError as error:
            raise UserError(bind_error_text(host, port, error)) from None
        self.gate = Gate(host, int(self.server_address[1]))
        self.pages, self.lang = make_pages(root, jobs), lang
        self.connections = Connections()

    def get_request(self) -> Any:
        """Accept a connection. If the system has no file descriptor left, close the oldest
        connection that has not shown the token, pause, and raise the error as ever: the client
        stays in the queue."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in SCARCE:  # waiting clients keep waiting; do not retry at once
                self.connections.drop_oldest()
                time.sleep(PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a slot, and start its thread, or close it if no thread can be
        started."""
        self.connections.admit(request)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Free the slot of the connection, and close it."""
        self.connections.release(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect early; report everything else, which is a bug."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def bind_error_text(host: str, port: int, error: OSError) -> str:
    """Return the error message, with a remedy, for an address that cannot be bound."""
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is taken, perhaps by another dualml serve; "
            "choose another --port, or 0 for any that is free"
        )
    if error.errno == errno.EACCES:
        return f"port {port} is the system's; choose a --port from 1024, or 0 for any that is free"
    return f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another --host"


class PageHandler(BaseHTTPRequestHandler):
    """Request handler of one connection."""

    server: PageServer
    server_version, sys_version = "dualml", ""
    protocol_version = "HTTP/1.1"
    timeout = QUIET_S
    #: Values until a request has been parsed.
    command = requestline = request_version = ""

    def setup(self) -> None:
        """Replace the input stream by one with limits on time and size."""
        super().setup()
        self.rfile.close()
        self.stream = RequestStream(self.connection)
        self.rfile = io.BufferedReader(self.stream)

    def handle_one_request(self) -> None:
        """Handle one request within the limits of its headers."""
        self.cookies: list[str] = []
        self.stream.start_request(self.timeout)
        try:
            super().handle_one_request()
        except HeadTooLong:
            self.send_error(431)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Respond to a malformed request with the code and its usual name, and close the
        connection; ``message`` and ``explain`` are ignored."""
        self.close_connection = True
        self.request_version = self.protocol_version  # otherwise there would be no headers
        with contextlib.suppress(OSError):
            self.send_text(code, f"{int(code)}: {self.responses[code][0]}", {"Connection": "close"})

    def do_GET(self) -> None:
        """Respond to a GET request: 403 for a wrong Host header or without the token, 503 without a
        free slot, else what its path asks for."""
        gate = self.server.gate
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a request body must not be read as the next request
        try:
            address = urlsplit(self.path)
            query = parse_qs(address.query, max_num_fields=VALUES)
        except ValueError:
            self.send_error(400)
            return
        lang = query_value(query, "lang") or gate.cookie_value(self.headers["Cookie"], LANG)
        words = Messages(lang if lang in LANGUAGES else self.server.lang)
        if not gate.accepts_host(self.headers["Host"]):
            self.reject(403, words("serve.another_name"))
            return
        if not gate.is_authorized(query_value(query, "token"), self.headers["Cookie"]):
            self.reject(403, words("serve.no_token"))
            return
        if not self.server.connections.authenticate(self.connection):
            self.reject(503, words("serve.full"))
            return
        if "token" in query:
            # No redirect: a browser that followed a link on another site would not send the cookie
            # with the redirected request.
            self.cookies.append(f"{gate.cookie}={gate.token}; Path=/; HttpOnly; SameSite=Strict")
        if "lang" in query and lang in LANGUAGES:
            self.cookies.append(f"{LANG}={lang}; Path=/; HttpOnly; SameSite=Strict")
        try:
            self.route(address.path, query, words)
        except UserError as error:
            self.send_text(404, str(error))
        except (ConnectionError, TimeoutError):
            raise
        except OSError as error:  # no descriptors left, a disk that fails
            self.reject(503, f"503: {error.strerror or error}")
        except Exception:
            self.send_text(500, words("serve.bug"))
            raise

    def route(self, path: str, query: Mapping[str, list[str]], words: Messages) -> None:
        """Send the page or file that an authorized request for ``path`` asks for, 404 for an
        unknown path. A `UserError` of a page passes: the caller responds to it."""
        pages = self.server.pages
        match path:
            case "/":
                self.send_page(pages.home_page(words))
            case "/run":
                self.send_page(pages.runs_page(query, words, without_log="live" in query))
            case "/log":
                piece = pages.log_chunk(query)
                self.send_text(
                    200, piece.text, {"X-Start": str(piece.start), "X-End": str(piece.end)}
                )
            case "/report":
                self.send_file(pages.report_file(query, words.lang))
            case "/style.css":
                self.send_cacheable(stylesheet(), "text/css")
            case "/page.js":
                self.send_cacheable(script_text(), "text/javascript")
            case _:
                self.send_text(404, words("serve.nothing"))

    def refuse_method(self) -> None:
        """Respond 405 to every method but GET, because nothing can be changed here."""
        self.reject(405, "GET", {"Allow": "GET"})  # a request body is not read

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = refuse_method

    def reject(self, code: int, text: str, more: Mapping[str, str] | None = None) -> None:
        """Send an error with the status ``code``, its ``text`` and the headers ``more``, and close
        the connection to free its slot."""
        self.close_connection = True
        self.send_text(code, text, {"Connection": "close", **(more or {})})

    # --- answers ------------------------------------------------------------------------------

    def send_page(self, html: str) -> None:
        """Send an HTML page."""
        self.send_cacheable(html, "text/html")

    def send_cacheable(self, text: str, kind: str) -> None:
        """Send text of the media type ``kind`` with an ETag, or 304 without it if the client has it
        already."""
        content = text.encode(errors="backslashreplace")
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        if self.headers["If-None-Match"] == tag:
            self.send_headers(304, {"ETag": tag})
        else:
            self.send_content(200, content, f"{kind}; charset=utf-8", {"ETag": tag})

    def send_text(self, code: int, text: str, more: Mapping[str, str] | None = None) -> None:
        """Send a text as plain text."""
        self.send_content(
            code, text.encode(errors="backslashreplace"), "text/plain; charset=utf-8", more
        )

    def send_file(self, path: Path) -> None:
        """Send a report from its file, under a policy that isolates its scripts."""
        with open_to_read(path) as file:
            size = os.fstat(file.fileno()).st_size
            more = {"Content-Security-Policy": REPORT_POLICY, "Content-Length": str(size)}
            self.send_headers(200, {"Content-Type": "text/html; charset=utf-8", **more})
            copy_bytes(file, self.wfile, size)

    def send_content(
        self, code: int, content: bytes, kind: str, more: Mapping[str, str] | None = None
    ) -> None:
        """Send headers and, unless the method is HEAD, ``content``; ``kind`` is its media type, and
        ``more`` are further headers."""
        self.send_headers(
            code, {"Content-Type": kind, "Content-Length": str(len(content)), **(more or {})}
        )
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_headers(self, code: int, headers: Mapping[str, str]) -> None:
        """Send the status line, headers and cookies."""
        self.connection.settimeout(QUIET_S)
        self.send_response(code)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        for cookie in self.cookies:
            self.send_header("Set-Cookie", cookie)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal shows the URL, with its token, once."""


def copy_bytes(source: BinaryIO, target: Any, size: int) -> None:
    """Copy at most ``size`` bytes, the announced length, even if the file grows meanwhile; fewer if
    it ends before."""
    while size > 0 and (piece := source.read(min(size, SEND_CHUNK_BYTES))):
        target.write(piece)
        size -= len(piece)
