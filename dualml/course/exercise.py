"""Data model of an exercise: calls with random inputs, answers, and requirements on them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.differences import Array as Array
from dualml.course.differences import Arrays as Arrays
from dualml.course.differences import Difference as Difference
from dualml.course.differences import first_difference

#: Names of the typical mistakes in a mutated rule; empty for the right rule.
Flags = frozenset[str]
RIGHT: Flags = frozenset()
#: Backend of an exercise, empty if it needs none → package with our solutions.
SOLUTIONS = {
    "": "dualml.course.solutions",
    "torch": "dualml_torch.course",
    "mindspore": "dualml_ms.course",
}


@dataclass(frozen=True)
class ExerciseCall:
    """One computation that a student's code is asked for.

    Attributes:
        kind: kind of the call: a function of the backend's ``course.drive``.
        target: class or function of the student's file.
        options: options of the kind, as JSON values.
        arrays: one set of input arrays per rank.
    """

    kind: str
    target: str
    options: Mapping[str, Any]
    arrays: Sequence[Arrays]

    @property
    def ranks(self) -> int:
        """Number of ranks of the call."""
        return len(self.arrays)


@dataclass(frozen=True)
class Trouble:
    """An exception in a student's code, or the abnormal end of its process.

    Attributes:
        kind: name of the exception; ``timeout``, ``died``, ``forbidden``, ``unwritten``,
            ``unfinished`` (code above a `NotImplementedError` left over), or ``returned`` (a value
            of another type).
        message: text of the exception.
        line: line number in the student's file, 0 if unknown; ``text`` is that line.
        rank: rank on which it happened.
    """

    kind: str
    message: str = ""
    file: str = ""
    line: int = 0
    text: str = ""
    rank: int = 0


@dataclass(frozen=True)
class Answer:
    """Result of a call: arrays of each rank, or the trouble that ended it."""

    arrays: Sequence[Arrays] = ()
    trouble: Trouble | None = None
    seconds: float = 0.0


class MachineFault(Exception):
    """Error: the machine failed, not the student, as with a full disk, a killed server, or no
    memory left.

    The text names the fault. Grading marks the submission as not graded, and tries again later.
    """


class Requirement:
    """One property that a student's file must have.

    Attributes:
        name: name such as ``sgd.nesterov``; its message is ``requirement.NAME`` in
            ``words/LANG/course.toml``.
        target: class or function that it concerns.
        flags: typical mistakes that this requirement can reveal.
        places: places at which each of them may act alone (`dualml.course.places`).
        placed: mistakes that are tried at these places; empty: ``flags``.
        errors: (pattern, mistake) of errors that a mistake causes, matched with ``KIND: MESSAGE``.
        points: default number of points.
        otherwise: mistake to report if the class meets everything else and none of ``only_there``
            is found.
        only_there: mistakes that no other requirement of the class can show.
        follows: whether a mistake found earlier in the class also explains measured numbers that
            look like another mistake.
        tries: largest number of attempts until it is met; more than one if time is measured.
        same_scale: whether mistakes give numbers of the size of right ones, so that what is far
            from a prediction needs no tolerance; not where a unit may be wrong.
    """

    name: str
    target: str
    flags: Sequence[str] = ()
    places: Sequence[str] = ()
    placed: Sequence[str] = ()
    errors: Sequence[tuple[str, str]] = ()
    points: float = 1.0
    otherwise: str = ""
    only_there: Flags = RIGHT
    follows: bool = False
    tries: int = 1
    same_scale: bool = True

    def calls(self, draw: np.random.Generator) -> list[ExerciseCall]:
        """Make the calls that test this requirement, with inputs drawn by ``draw``."""
        raise NotImplementedError

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Compute the arrays that each rank returns by the rule, or by a rule with the typical
        mistakes named in ``flags``, in float64."""
        raise NotImplementedError

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return the largest allowed differences from `expected` with these ``flags``: for each
        rank, one number or array per array of the answer."""
        raise NotImplementedError

    def rules_out(self, call: ExerciseCall, answer: Answer, flags: Flags) -> bool:
        """Return whether a cheap test shows that these mistakes do not explain an answer, which
        holds for most candidates; False unless a class has such a test."""
        return False

    def further_candidates(
        self, calls: Sequence[ExerciseCall], answers: Sequence[Answer]
    ) -> Iterator[Flags]:
        """Yield sets of mistakes that are tried last, as pairs at different places that the answers
        do not rule out; none unless a class has some."""
        yield from ()

    def adopt_choices(self, call: ExerciseCall, answer: Answer) -> Sequence[ExerciseCall]:
        """Return the call with choices in its options that the task leaves open and an answer
        shows, such as the borders of chunks, once for each way to read them; the call itself unless
        a class knows some."""
        return [call]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first difference in an answer without trouble, and the mistakes that it shows
        by itself, if need be with their places; None if the answer is right."""
        wrong = first_difference(answer.arrays, self.expected(call), self.tolerance(call))
        return None if wrong is None else (wrong, ())

    def mistakes_of(self, trouble: Trouble) -> tuple[str, ...]:
        """Return the typical mistake that the first matching pattern of ``errors`` names for this
        error, in a tuple; empty if none matches."""
        said = f"{trouble.kind}: {trouble.message}"
        return tuple(mistake for pattern, mistake in self.errors if re.search(pattern, said))[:1]

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the numbers from which the differing one is computed, by label; empty unless a
        class knows them."""
        return {}


@dataclass(frozen=True)
class ExerciseFile:
    """A file that a student writes.

    Attributes:
        name: ``optim_torch.py``.
        backend: backend of its framework; empty if it needs none.
        requirements: requirements in the order in which a student works on them.
        starts_groups: whether the exercise is about the framework's own communication.
        uses_files: whether the exercise is about files, so that ``open`` belongs into it.
    """

    name: str
    backend: str
    requirements: Sequence[Requirement]
    starts_groups: bool = False
    uses_files: bool = False

    @property
    def solution(self) -> str:
        """Our solution, as ``package:file``."""
        return f"{SOLUTIONS[self.backend]}:{self.name}"

    @property
    def task(self) -> str:
        """Name of the file without ``.py``."""
        return self.name.removesuffix(".py")

    @property
    def targets(self) -> list[str]:
        """Classes and functions with requirements, in their order."""
        return list(dict.fromkeys(r.target for r in self.requirements))


@dataclass(frozen=True)
class Lab:
    """The exercises of one lab."""

    name: str
    files: Sequence[ExerciseFile]
