"""Codes by which two that share a token recognize each other and each other's messages."""

from __future__ import annotations

import hmac

#: Bytes of a code.
CODE = 32


def derive(token: bytes, purpose: str, caller: str, host: str) -> bytes:
    """Return what only those who know the token can compute, another one for each purpose.

    Args:
        caller, host: numbers that the two ends drew for this connection alone.
    """
    return hmac.digest(token, f"{purpose} {caller} {host}".encode(), "sha256")


class Seal:
    """HMAC-SHA-256 codes of the messages that go one way through a connection.

    Each counts the messages before it, so that one that is repeated, left out or moved has another
    code than the receiver expects.
    """

    def __init__(self, key: bytes) -> None:
        self.key, self.number = key, 0

    def begin(self) -> hmac.HMAC:
        """Return the code of the next message, to be updated with what the message has."""
        code = hmac.new(self.key, self.number.to_bytes(8, "big"), "sha256")
        self.number += 1
        return code
