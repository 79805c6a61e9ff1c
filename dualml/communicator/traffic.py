"""Counting what a rank sends and receives."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Traffic:
    """Messages and bytes of one rank since the last `reset`.

    Point-to-point messages are counted as they are made. A native collective is one call whose
    messages the framework does not show: ``calls`` and ``payload`` (bytes handed to it) are
    counted, messages and bytes are not.

    Attributes:
        sent, received: messages.
        bytes_sent, bytes_received: their bytes.
        calls: native collectives.
        payload: bytes handed to native collectives by this rank.
        seconds: time inside all of them.
    """

    sent: int = 0
    received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    calls: int = 0
    payload: int = 0
    seconds: float = 0.0

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]

    def describe(self) -> dict[str, Any]:
        return asdict(self)
