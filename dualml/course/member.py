"""One rank of a student as the mediator sees it."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from dualml.course.collectives import Ask
from dualml.course.exercise import Trouble
from dualml.course.frames import Arrays, Stream


@dataclass
class Member:
    """One rank as the mediator sees it.

    Attributes:
        ask: what it waits for; None while it computes.
        arrays, trouble: what came of the call.
        is_gone: its process has ended, or cannot be understood any more.
        is_confined: it is behind the walls, and the student's code may run there.
    """

    rank: int
    door: socket.socket
    stream: Stream = field(default_factory=Stream)
    ask: Ask | None = None
    asks: int = 0
    number: int = -1
    arrays: Arrays | None = None
    trouble: Trouble | None = None
    seconds: float = 0.0
    is_gone: bool = False
    is_confined: bool = False

    @property
    def is_done(self) -> bool:
        return self.arrays is not None or self.trouble is not None
