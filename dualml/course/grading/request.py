"""What is graded, and how."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dualml.course.exercise import File, Lab
from dualml.course.grading.rubric import Rubric
from dualml.course.isolation.detect import WALLS, Isolation
from dualml.version import __version__

#: Of what a result file holds.
FORMAT = 4


@dataclass(frozen=True)
class Request:
    """What is graded, and how.

    Attributes:
        files: the exercises that everybody was to hand in.
        secret: of which everything that is drawn follows; nothing of it is written anywhere.
        isolation: what is around students' code, see `dualml.course.isolation.detect`.
        stop: set to end what is at work.
    """

    lab: Lab
    files: Sequence[File]
    secret: str = field(repr=False)
    rubric: Rubric
    lang: str
    out: Path
    isolation: Isolation = WALLS
    stop: threading.Event = field(default_factory=threading.Event)

    @cached_property
    def mark(self) -> str:
        """Changes when another grade could come out. It takes a while to make: students may see
        it, and a short secret could be found by trying."""
        slow = hashlib.pbkdf2_hmac("sha256", self.secret.encode(), b"dualml grade", 600_000)
        rubric, walls = self.rubric.model_dump_json(), self.isolation.kind
        parts = [slow.hex(), self.lab.name, *(file.name for file in self.files), self.lang, rubric,
                 __version__, str(FORMAT), walls]  # fmt: skip
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()
