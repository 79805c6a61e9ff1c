"""A grading request: what is graded, and how."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dualml.common.version import __version__
from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.grading.rubric import Rubric
from dualml.course.isolation.detect import WALLS, Isolation

#: Version of the content of a result file.
FORMAT = 4


@dataclass(frozen=True)
class GradingRequest:
    """A request to grade the submissions of a class.

    Attributes:
        files: the exercises that all students must hand in.
        secret: seed of all random draws; it is never written.
        isolation: isolation of students' code, see `dualml.course.isolation.detect`.
        stop: event that ends all running work.
    """

    lab: Lab
    files: Sequence[ExerciseFile]
    secret: str = field(repr=False)
    rubric: Rubric
    lang: str
    out: Path
    isolation: Isolation = WALLS
    stop: threading.Event = field(default_factory=threading.Event)

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint, hexadecimal, that changes whenever a grade could change, except by the
        submission itself. It is slow to compute on purpose: students may see it, and a short secret
        could be found by trying."""
        slow = hashlib.pbkdf2_hmac("sha256", self.secret.encode(), b"dualml grade", 600_000)
        rubric, walls = self.rubric.model_dump_json(), self.isolation.kind
        parts = [
            slow.hex(),
            self.lab.name,
            *(file.name for file in self.files),
            self.lang,
            rubric,
            __version__,
            str(FORMAT),
            walls,
        ]
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()
