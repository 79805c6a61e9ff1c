"""Messages between the machines of a run: a JSON header and bytes, over TCP, between two parties
that know the run's token.

Each party proves that it knows the token, the caller first, by an HMAC-SHA-256 over nonces that
both have drawn; until then at most 4 kB are read. Every later message has a code of the same kind
over its number, its header and its bytes (`dualml.launch.seal`). Nothing is encrypted.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import math
import os
import re
import secrets
import socket
import struct
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from dualml.common.bounded_io import Header, decode_header, get_text, read_exactly
from dualml.common.errors import CommunicationError, UserError
from dualml.common.json_types import JsonMapping
from dualml.launch.seal import CODE, MessageSeal, derive

#: Variable with the token of a run; arguments of a command would be visible to all users.
TOKEN = "DUALML_TOKEN"
#: Minimum number of characters of a shared secret.
MIN_TOKEN_CHARS = 8
PROTOCOL = 2
#: Seconds within which both sides must authenticate.
HELLO_S = 10.0
#: Seconds until an answer must begin; rank 0 may be busy with other ranks.
ANSWER_S = 60.0
#: Seconds after which a machine that sends nothing, or acknowledges nothing, is lost.
SILENT_S = 15.0
#: Seconds that a message may take from its first byte, plus one second per MIN_BYTES_PER_S bytes.
MESSAGE_S, MIN_BYTES_PER_S = 60.0, 100_000
#: Seconds between two attempts of a caller that was disconnected before it could authenticate.
AGAIN_S = 0.3
#: Bytes of the pieces in which a file is sent.
CHUNK_BYTES = 2**24
#: Bytes of a body that are sent at a time.
STRIDE = 2**20
#: Largest header in bytes before and after authentication, and largest body.
STRANGE, HEADER, BODY = 4096, 2**22, CHUNK_BYTES
SIZES = struct.Struct(">IQ")
NONCE = re.compile("[0-9a-f]{64}")
#: Purposes for which keys are derived from the shared secret: a rank's proof, and rank 0's proof.
RANK_PROOF, HUB_PROOF = "proof of a rank", "proof of rank 0"
FROM_RANK, FROM_HUB = "messages of a rank", "messages of rank 0"


class Mismatch(CommunicationError):
    """The other side answers, but with another token or another protocol version, so retrying is
    useless."""


def parse_address(rendezvous: str) -> tuple[str, int]:
    """Return host and port of ``tcp://HOST:PORT``, which
    `dualml.algorithms.communicator.rendezvous` has checked."""
    url = urlsplit(rendezvous)
    return str(url.hostname), int(url.port or 0)


def is_loopback(host: str) -> bool:
    """Return whether all addresses of ``host`` can be reached from this machine only.

    Raises:
        UserError: the name cannot be resolved.
    """
    try:
        found = {str(item[4][0]) for item in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise UserError(f"host {host!r} is not known: {error.strerror or error}") from None
    return all(ipaddress.ip_address(text.partition("%")[0]).is_loopback for text in found)


def token_for(host: str, insecure: bool) -> bytes:
    """Return the token by which the machines of a run recognise one another, from the variable
    `TOKEN`; empty if that is not set and none is needed.

    Raises:
        UserError: it is too short; or there is none and ``host`` is not a loopback address, unless
            ``insecure`` is set.
    """
    token = os.environ.get(TOKEN, "")
    if token and len(token) < MIN_TOKEN_CHARS:
        raise UserError(
            f"{TOKEN} has {len(token)} characters; a secret needs {MIN_TOKEN_CHARS} or more"
        )
    if not token and not insecure and not is_loopback(host):
        raise UserError(
            f"{host} is open to the network: set {TOKEN} to one secret on all machines (python -c "
            "'import secrets; print(secrets.token_hex(16))' makes one), or say --insecure where "
            "you trust everybody in that network"
        )
    return token.encode()


class Connection:
    """A connection whose messages arrive completely or not at all.

    Args:
        door: a connected socket; it is closed with this object.

    Attributes:
        deadline: on the clock of `time.monotonic`; after it nothing is received or sent.
        idle_timeout: seconds until the next message begins, and between two of its bytes, at most;
            None for any time until it begins, and `SILENT_S` within it.
    """

    def __init__(self, door: socket.socket) -> None:
        self.sock, self.deadline = door, math.inf
        self.idle_timeout: float | None = HELLO_S
        self.sending: MessageSeal | None = None
        self.receiving: MessageSeal | None = None
        self.ask_lock = threading.Lock()
        door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: the system of a busy process confirms, too
            limit = int(SILENT_S * 1000)
            door.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)

    def use_seals(self, sending: MessageSeal, receiving: MessageSeal) -> None:
        """Send and expect authentication codes from now on, and lift the deadline."""
        self.sending, self.receiving = sending, receiving
        self.deadline = math.inf

    def send(self, header: JsonMapping, body: bytes = b"") -> None:
        """Send a message.

        Raises:
            OSError: the connection ended, or the other end does not take it in time.
        """
        text = json.dumps(header).encode()
        head, end = SIZES.pack(len(text), len(body)) + text, message_deadline(len(text) + len(body))
        code = self.sending.next_code() if self.sending else None
        if code:
            code.update(head)
        if body:
            self.send_bytes(head, end)
            head = b""
        for part in iter_pieces(body):
            if code:
                code.update(part)
            self.send_bytes(part, end)  # the other end computes its code meanwhile
        self.send_bytes(head + (code.digest() if code else b""), end)

    def send_bytes(self, data: bytes | memoryview, end: float) -> None:
        """Send all bytes before the monotonic time ``end`` and the connection's deadline.

        Raises:
            OSError: the connection ended, or the time did (`TimeoutError`).
        """
        left = min(self.deadline, end) - time.monotonic()
        self.sock.settimeout(max(left, 1e-3))
        self.sock.sendall(data)

    def receive(self) -> tuple[Header, bytes]:
        """Receive the next message, and return its header and its body.

        Raises:
            OSError: the connection ended, is silent for too long or too slow (`TimeoutError`).
            ValueError: what was received is not a message, or not the one that was sent.
        """
        wait = math.inf if self.idle_timeout is None else self.idle_timeout
        silence = SILENT_S if self.idle_timeout is None else self.idle_timeout
        begin = read_exactly(self.sock, 1, min(self.deadline, time.monotonic() + wait))
        end = min(self.deadline, message_deadline(0))
        sizes = begin + read_exactly(self.sock, SIZES.size - 1, end, silence)
        size, more = SIZES.unpack(sizes)
        known = self.receiving is not None
        if size > (HEADER if known else STRANGE) or more > (BODY if known else 0):
            raise ValueError(f"a message of {size + more:,} bytes")
        end = min(self.deadline, message_deadline(size + more))
        code = self.receiving.next_code() if self.receiving else None
        text, body = read_exactly(self.sock, size, end, silence), bytearray()
        if code:
            code.update(sizes + text)
        while len(body) < more:
            part = read_exactly(self.sock, min(STRIDE, more - len(body)), end, silence)
            body += part
            if code:
                code.update(part)
        if code and not hmac.compare_digest(
            code.digest(), read_exactly(self.sock, CODE, end, silence)
        ):
            raise ValueError("a message was altered, repeated, left out or moved on its way")
        return decode_header(text, HEADER), bytes(body)

    def ask(self, header: JsonMapping, body: bytes = b"") -> tuple[Header, bytes]:
        """Send a message and return the answer to it, a header and a body; threads take turns.

        An `OSError` or `ValueError` closes the connection and is passed on: another request would
        get the answer to this one.
        """
        with self.ask_lock:
            try:
                self.send(header, body)
                return self.receive()
            except (OSError, ValueError):
                self.close()
                raise

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


def iter_pieces(body: bytes) -> Iterator[memoryview]:
    """Yield a body in parts of at most `STRIDE` bytes, without copying it; none if it is empty."""
    whole = memoryview(body)
    return (whole[at : at + STRIDE] for at in range(0, len(whole), STRIDE))


def message_deadline(size: int) -> float:
    """Return when a message of ``size`` bytes that begins now must be complete, on the clock of
    `time.monotonic`."""
    return time.monotonic() + MESSAGE_S + size / MIN_BYTES_PER_S


def connect(host: str, port: int, token: bytes, seconds: float) -> Connection:
    """Connect to rank 0's machine, and authenticate both sides with the token.

    Retried, up to `HELLO_S` seconds, is only a connection that the other side closed during
    authentication: where nobody listens, it fails at once.

    Raises:
        Mismatch: the other side has another token or another version.
        CommunicationError: nothing answers there within ``seconds``, or something that is not
            dualml.
    """
    where, begin = f"{host}:{port}", time.monotonic()
    while True:
        try:
            door = socket.create_connection((host, port), timeout=min(HELLO_S, seconds))
        except OSError as error:
            raise CommunicationError(
                f"nobody answers at {where}: {describe_error(error)}"
            ) from None
        try:
            wire = Connection(door)
            wire.deadline, wire.idle_timeout = begin + seconds, seconds
            authenticate_to_server(wire, token, where)
            return wire
        except Mismatch:
            door.close()
            raise
        except (OSError, ValueError) as error:
            door.close()
            # Rank 0 disconnects the oldest of too many unauthenticated connections.
            refused = isinstance(error, ConnectionError)
            if not refused or time.monotonic() - begin > min(seconds, HELLO_S):
                text = f"{where} does not answer as dualml: {describe_error(error)}"
                raise CommunicationError(text) from None
        time.sleep(AGAIN_S)


def authenticate_to_server(wire: Connection, token: bytes, where: str) -> None:
    """Authenticate as the caller: prove that this rank knows the token, and check rank 0's proof;
    afterwards all messages of ``wire`` have authentication codes.

    Raises:
        Mismatch: rank 0 has another token or another version of the protocol; ``where`` names it.
        OSError, ValueError: the connection ended, or what answers is not dualml.
    """
    caller = secrets.token_hex(32)
    wire.send({"dualml": PROTOCOL, "nonce": caller})
    hello, _ = wire.receive()
    if (version := hello.get("dualml")) != PROTOCOL:
        other = f"version {version}" if type(version) is int else "no version"
        raise Mismatch(
            f"{where} speaks {other} of dualml's protocol, this rank version {PROTOCOL}: install "
            "the same dualml on all machines"
        )
    host = parse_nonce(hello)
    wire.send({"proof": derive(token, RANK_PROOF, caller, host).hex()})
    answer, _ = wire.receive()
    if not is_proof(answer, derive(token, HUB_PROOF, caller, host)):
        missing = "" if token else f", and this rank has none: set {TOKEN} to it"
        raise Mismatch(f"{where} has another {TOKEN}{missing}")
    sending, receiving = (derive(token, what, caller, host) for what in (FROM_RANK, FROM_HUB))
    wire.use_seals(MessageSeal(sending), MessageSeal(receiving))
    wire.idle_timeout = ANSWER_S


def authenticate_caller(door: socket.socket, token: bytes) -> Connection | None:
    """Authenticate a caller within `HELLO_S` seconds, as rank 0.

    Returns:
        The connection; None, with ``door`` closed, for a caller that does not know the token, uses
        another version of the protocol, or does not answer.
    """
    try:
        wire = Connection(door)
        wire.deadline = time.monotonic() + HELLO_S
        hello, _ = wire.receive()
        host = secrets.token_hex(32)
        wire.send({"dualml": PROTOCOL, "nonce": host})
        caller = parse_nonce(hello) if hello.get("dualml") == PROTOCOL else ""
        given, _ = wire.receive()
        if not caller or not is_proof(given, derive(token, RANK_PROOF, caller, host)):
            wire.send({})
            door.close()
            return None
        wire.send({"proof": derive(token, HUB_PROOF, caller, host).hex()})
    except (OSError, ValueError):
        door.close()
        return None
    sending, receiving = (derive(token, what, caller, host) for what in (FROM_HUB, FROM_RANK))
    wire.use_seals(MessageSeal(sending), MessageSeal(receiving))
    return wire


def parse_nonce(hello: Header) -> str:
    """Return the nonce, 64 hexadecimal digits, that the other end drew and sent in ``hello``.

    Raises:
        ValueError: it is not one.
    """
    text = get_text(hello, "nonce")
    if not NONCE.fullmatch(text):
        raise ValueError("a nonce that is not 32 bytes in hexadecimal digits")
    return text


def is_proof(message: Header, expected: bytes) -> bool:
    """Return whether a message holds the expected proof that its sender knows the token;
    `ValueError` if its proof is not text."""
    given = get_text(message, "proof", default="")
    return hmac.compare_digest(given.encode(), expected.hex().encode())


def describe_error(error: BaseException) -> str:
    """Describe a connection error in a few words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(getattr(error, "strerror", "") or error) or type(error).__name__
