"""What is asked of a student's file: calls with drawn inputs, and what each has to give."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.differences import Array as Array
from dualml.course.differences import Arrays as Arrays
from dualml.course.differences import Difference as Difference
from dualml.course.differences import first_difference

#: Names of the typical mistakes that an altered rule makes; of the right rule none.
Flags = frozenset[str]
RIGHT: Flags = frozenset()


@dataclass(frozen=True)
class Call:
    """One thing that a student's code is asked to compute.

    Attributes:
        kind: how it is called: a function of the backend's ``course.drive``.
        target: class or function of the student's file.
        options: of the kind, as JSON.
        arrays: one set of inputs for each rank.
    """

    kind: str
    target: str
    options: Mapping[str, Any]
    arrays: Sequence[Arrays]

    @property
    def ranks(self) -> int:
        return len(self.arrays)


@dataclass(frozen=True)
class Trouble:
    """An exception in a student's code, or how its process ended.

    Attributes:
        kind: name of the exception; ``timeout``, ``died``, ``forbidden`` or ``unwritten``.
        message: its text.
        line: number of the line in the student's file, 0 where unknown; ``text`` is that line.
        rank: where it happened.
    """

    kind: str
    message: str = ""
    file: str = ""
    line: int = 0
    text: str = ""
    rank: int = 0


@dataclass(frozen=True)
class Answer:
    """What came of a call: arrays of each rank, or the trouble that ended it."""

    arrays: Sequence[Arrays] = ()
    trouble: Trouble | None = None
    seconds: float = 0.0


class NotJudged(Exception):
    """The machine failed, not the student: a full disk, a killed server, no memory left.

    Its text says what; whoever grades marks the submission as not graded and tries again later.
    """


class Requirement:
    """One thing that a file has to do right.

    Attributes:
        name: ``sgd.nesterov``; its words are ``requirement.NAME`` in ``words/LANG/course.toml``.
        target: class or function that it is about.
        flags: typical mistakes that can show here.
        errors: (pattern, mistake) of errors that a mistake ends in; ``KIND: MESSAGE`` is matched.
        points: that it is worth where nobody says otherwise.
        otherwise: the mistake that it is where no numbers of its own tell and the class meets
            everything else.
        follows: what was found wrong with the class before explains it, too, where measured
            numbers look like another mistake.
        tries: so many times it is asked until it is met: more than once where time is measured.
    """

    name: str
    target: str
    flags: Sequence[str] = ()
    errors: Sequence[tuple[str, str]] = ()
    points: float = 1.0
    otherwise: str = ""
    follows: bool = False
    tries: int = 1

    def calls(self, draw: np.random.Generator) -> list[Call]:
        """Calls with drawn values."""
        raise NotImplementedError

    def expected(self, call: Call, flags: Flags = RIGHT) -> list[Arrays]:
        """What each rank returns by the rule, or by one with these mistakes; float64."""
        raise NotImplementedError

    def tolerance(self, call: Call, flags: Flags = RIGHT) -> list[Arrays]:
        """How far an answer may be from it: one number or an array for each of its arrays."""
        raise NotImplementedError

    def rules_out(self, call: Call, answer: Answer, flags: Flags) -> bool:
        """Whether a cheap look tells that these mistakes do not explain an answer; most that are
        tried do not."""
        return False

    def problem(self, call: Call, answer: Answer) -> tuple[Difference, tuple[str, ...]] | None:
        """What is wrong with an answer, and the mistakes that it shows where no other numbers are
        needed to see them; None where it is right."""
        wrong = first_difference(answer.arrays, self.expected(call), self.tolerance(call))
        return None if wrong is None else (wrong, ())

    def mistakes_of(self, trouble: Trouble) -> tuple[str, ...]:
        """The typical mistakes that end in this error."""
        said = f"{trouble.kind}: {trouble.message}"
        return tuple(mistake for pattern, mistake in self.errors if re.search(pattern, said))[:1]

    def inputs(self, call: Call, difference: Difference) -> dict[str, Any]:
        """The numbers that the one that differs is computed from."""
        return {}


@dataclass(frozen=True)
class File:
    """A file that a student writes.

    Attributes:
        name: ``optim_torch.py``.
        backend: whose; empty for one that needs no framework.
        solution: ``package:file`` of ours.
        requirements: in the order in which a student goes about them.
        starts_groups: whether the framework's own communication is what it is about.
    """

    name: str
    backend: str
    solution: str
    requirements: Sequence[Requirement]
    starts_groups: bool = False

    @property
    def task(self) -> str:
        return self.name.removesuffix(".py")

    @property
    def targets(self) -> list[str]:
        return list(dict.fromkeys(r.target for r in self.requirements))


@dataclass(frozen=True)
class Lab:
    """The exercises of one lab."""

    name: str
    files: Sequence[File]
