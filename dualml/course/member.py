"""One rank of a student, as the mediator sees it."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from dualml.course.collectives import Ask
from dualml.course.exercise import Trouble
from dualml.course.frames import Arrays, Stream


@dataclass
class Member:
    """State of one rank in the mediator.

    Attributes:
        ask: request that it waits for; None while it computes.
        arrays, trouble: result of the call, or its error.
        is_gone: whether its process has ended or sends invalid messages.
        is_confined: whether it is isolated, so that the student's code may run.
        is_behind: whether the mediator has ended the call for it, in which it may still compute or
            wait: it would take the next call's messages for replies of this one.
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
    is_behind: bool = False

    @property
    def has_finished(self) -> bool:
        """Whether the rank has a result or an error."""
        return self.arrays is not None or self.trouble is not None
