"""Authentication codes by which two parties that share a token recognise each other's messages."""

from __future__ import annotations

import hmac

#: Bytes of an authentication code.
CODE = 32


def derive(token: bytes, purpose: str, caller: str, host: str) -> bytes:
    """Derive a key that only those who know the token can compute, a different one for each
    purpose.

    Args:
        token: of the run.
        purpose: of the key.
        caller, host: nonces that the two ends drew for this connection alone.
    """
    return hmac.digest(token, f"{purpose} {caller} {host}".encode(), "sha256")


class MessageSeal:
    """HMAC-SHA-256 codes of the messages in one direction of a connection.

    Each code covers the number of the message, so that a message that is repeated, dropped or moved
    has another code than the receiver expects.
    """

    def __init__(self, key: bytes) -> None:
        self.key, self.number = key, 0

    def next_code(self) -> hmac.HMAC:
        """Return the HMAC of the next message, to be updated with the message's content; each call
        counts as one message."""
        code = hmac.new(self.key, self.number.to_bytes(8, "big"), "sha256")
        self.number += 1
        return code
