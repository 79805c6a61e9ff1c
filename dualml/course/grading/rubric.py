"""What a requirement is worth: a TOML file of the teaching assistant's.

lab = "lab1"
once = true               # a mistake costs points where it shows first in a class (see `works`)
[points]                  # of a requirement; of a class, function or file for each of its own
"GD" = 1
"sgd.nesterov" = 3
[partial]                 # the share of the points that is left with this mistake alone
"nesterov_ignored" = 0.5
[penalty]                 # points taken for what a file has (see `dualml.course.source`)
"ready_made" = 5
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from dualml.course.catalogue import plants
from dualml.course.check import Checked
from dualml.course.exercise import File, Lab
from dualml.course.judge import Judgement
from dualml.errors import UserError, nearest
from dualml.files import read_toml
from dualml.strict import Strict, explain

#: What a file may have that costs points.
PENALTIES = ("banned", "ready_made", "communication", "roundabout", "signature")
#: Mistakes of what does nothing, or gives nothing of which more could be judged: no slips.
NOTHING = frozenset({
    "nothing", "stage_both_frozen", "changes_gathered", "draw_no_integers",
    "order_stages", "order_incomplete", "order_twice", "order_impossible",
})  # fmt: skip


class Rubric(Strict):
    """See this module."""

    lab: str | None = None
    once: bool = False
    points: dict[str, float] = Field(default_factory=dict)
    partial: dict[str, float] = Field(default_factory=dict)
    penalty: dict[str, float] = Field(default_factory=dict)

    def worth(self, file: File, judgement: Judgement) -> float:
        """The points of a requirement: what is said of it, else of what it belongs to."""
        requirement = judgement.requirement
        names = (f"{file.task}:{requirement.name}", requirement.name, requirement.target, file.task)
        return next((self.points[n] for n in names if n in self.points), requirement.points)

    def earned(self, file: File, judgements: Sequence[Judgement]) -> list[tuple[float, str]]:
        """Return the points of each requirement, and why there are some for what is not met:
        ``once`` or ``partial``."""
        charged: dict[str, set[str]] = {}
        begun: dict[str, bool] = {}
        points = []
        for judgement in judgements:
            target = judgement.requirement.target
            before = charged.setdefault(target, set())
            known = works(judgement) and before >= set(judgement.mistakes)
            known = begun.setdefault(target, works(judgement)) and known
            worth = self.worth(file, judgement)
            if judgement.status == "met":
                points.append((worth, ""))
            elif self.once and known:
                points.append((worth, "once"))
            else:
                left = worth * self.left(judgement)
                points.append((left, "partial" if left else ""))
            before |= set(judgement.mistakes)
        return points

    def left(self, judgement: Judgement) -> float:
        """The share of the points that is left; of several mistakes each takes its part."""
        shares = [self.partial.get(mistake, 0.0) for mistake in judgement.mistakes]
        return max(0.0, 1.0 - sum(1 - share for share in shares)) if shares else 0.0

    def taken(self, checked: Checked) -> float:
        """Points that the problems of a file cost, each kind once."""
        kinds = {problem.kind for problem in checked.problems}
        return sum(self.penalty.get(kind, 0.0) for kind in kinds)


def works(judgement: Judgement) -> bool:
    """Return whether the code does what it should, or what it does is explained by a slip. What is
    not written, ends in an error, does nothing or anything has no mistake that could explain the
    rest."""
    if judgement.status == "met":
        return True
    judged = judgement.status == "not met" and judgement.trouble is None
    return judged and bool(judgement.mistakes) and not NOTHING & set(judgement.mistakes)


def read(path: Path | None, lab: Lab) -> Rubric:
    """The rubric in a file; without one every requirement is worth what it is by itself.

    Raises:
        UserError: an unknown key, requirement or mistake; a number that cannot be.
    """
    if path is None:
        return Rubric()
    try:
        rubric = Rubric.model_validate(numbers(read_toml(path)))
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error, Rubric)}") from None
    if rubric.lab not in (None, lab.name):
        raise UserError(f"{path} is a rubric of {rubric.lab}; these are submissions of {lab.name}")
    for table, known in (("points", set(requirements(lab))), ("partial", set(mistakes(lab))),
                         ("penalty", set(PENALTIES))):  # fmt: skip
        for key, value in getattr(rubric, table).items():
            if key not in known:
                raise UserError(f"{path}: {table}: unknown {key!r}{nearest(key, known)}")
            most = 1.0 if table == "partial" else 1e6
            if not 0 <= value <= most:
                raise UserError(f"{path}: {table}.{key} must be from 0 to {most:g}; "
                                f"received {value:g}")  # fmt: skip
    return rubric


def numbers(table: dict[str, object]) -> dict[str, object]:
    """TOML writes 1 for 1.0."""

    def number(value: object) -> object:
        return float(value) if type(value) is int else value

    return {
        name: {k: number(v) for k, v in inner.items()} if isinstance(inner, dict) else inner
        for name, inner in table.items()
    }


def requirements(lab: Lab) -> Iterator[str]:
    for file in lab.files:
        yield file.task
        for requirement in file.requirements:
            yield from (requirement.name, requirement.target, f"{file.task}:{requirement.name}")


def mistakes(lab: Lab) -> Iterator[str]:
    """Everything that can be named: by numbers, by errors, or as the catalogue's plants show."""
    yield from (plant.name for plant in plants(lab.name) if not plant.right)
    for file in lab.files:
        for requirement in file.requirements:
            yield from (flag.partition("#")[0] for flag in requirement.flags)
            yield from (mistake for _, mistake in requirement.errors)


def total(rubric: Rubric, checked: Sequence[Checked]) -> tuple[float, float]:
    """Points earned and points there are."""
    earned = sum(points for c in checked for points, _ in rubric.earned(c.file, c.judgements))
    most = sum(rubric.worth(c.file, j) for c in checked for j in c.judgements)
    return max(0.0, earned - sum(rubric.taken(c) for c in checked)), most
