"""Rubrics: the points of each requirement, as a TOML file of the teaching assistant.

lab = "lab1"
once = true               # a mistake costs points only where it first shows (see `is_explained`)
[points]                  # points of a requirement, or of each one of a class, function or file
"GD" = 1
"sgd.nesterov" = 3
[partial]                 # fraction of the points that remains with this mistake alone
"nesterov_ignored" = 0.5
[penalty]                 # points that a problem of a file costs (see `dualml.course.source`)
"ready_made" = 5
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from dualml.common.errors import UserError, did_you_mean
from dualml.common.files import read_toml
from dualml.common.strict_model import StrictModel, describe_validation_error
from dualml.course.catalogue import load_plants
from dualml.course.check import CheckResult
from dualml.course.exercise import ExerciseFile, Lab
from dualml.course.judge import Judgement

#: Kinds of problems of a file that may cost points.
PENALTIES = ("banned", "ready_made", "communication", "roundabout", "signature")
#: Mistakes of code that does nothing, or whose result cannot be judged further; these are not
#: slips.
NO_ATTEMPT = frozenset(
    {
        "nothing",
        "update_nothing",
        "stage_loss_missing",
        "stage_both_frozen",
        "changes_gathered",
        "draw_no_integers",
        "order_stages",
        "order_incomplete",
        "order_twice",
        "order_impossible",
    }
)


class Rubric(StrictModel):
    """Content of a rubric file; see the module."""

    lab: str | None = None
    once: bool = False
    points: dict[str, float] = Field(default_factory=dict)
    partial: dict[str, float] = Field(default_factory=dict)
    penalty: dict[str, float] = Field(default_factory=dict)

    def requirement_points(self, file: ExerciseFile, judgement: Judgement) -> float:
        """Return the points that a requirement is worth: its own in this file, else its own, else
        those of its class or function, else of its file, else the default."""
        requirement = judgement.requirement
        names = (f"{file.task}:{requirement.name}", requirement.name, requirement.target, file.task)
        return next((self.points[n] for n in names if n in self.points), requirement.points)

    def earned_points(
        self, file: ExerciseFile, judgements: Sequence[Judgement]
    ) -> list[tuple[float, str]]:
        """Return for each requirement the points earned and a reason: all points if it is met
        (reason empty), or if ``once`` is set, its mistakes already occurred in the same target, and
        the target's first requirement is met or explained (``once``); else the fraction by
        `partial_credit` (``partial``; empty for 0)."""
        charged: dict[str, set[str]] = {}
        begun: dict[str, bool] = {}
        points = []
        for judgement in judgements:
            target = judgement.requirement.target
            before = charged.setdefault(target, set())
            known = is_explained(judgement) and before >= set(judgement.mistakes)
            known = begun.setdefault(target, is_explained(judgement)) and known
            worth = self.requirement_points(file, judgement)
            if judgement.status == "met":
                points.append((worth, ""))
            elif self.once and known:
                points.append((worth, "once"))
            else:
                left = worth * self.partial_credit(judgement)
                points.append((left, "partial" if left else ""))
            before |= set(judgement.mistakes)
        return points

    def partial_credit(self, judgement: Judgement) -> float:
        """Return the fraction of the points that remains with these mistakes: 1 minus what each one
        costs, the costs added up, but at least 0; 0 if no mistake is known. A mistake that
        ``partial`` does not name costs everything."""
        shares = [self.partial.get(mistake, 0.0) for mistake in judgement.mistakes]
        return max(0.0, 1.0 - sum(1 - share for share in shares)) if shares else 0.0

    def penalty_points(self, checked: CheckResult) -> float:
        """Return the points that a file's problems cost, each kind once."""
        kinds = {problem.kind for problem in checked.problems}
        return sum(self.penalty.get(kind, 0.0) for kind in kinds)


def is_explained(judgement: Judgement) -> bool:
    """Return whether a requirement is met, or its wrong numbers are explained by typical mistakes,
    none of them in `NO_ATTEMPT`. Code that is missing, raises an error, or does nothing or anything
    at random has no mistake that could explain the failure of other requirements."""
    if judgement.status == "met":
        return True
    judged = judgement.status == "not met" and judgement.trouble is None
    return judged and bool(judgement.mistakes) and not NO_ATTEMPT & set(judgement.mistakes)


def load_rubric(path: Path | None, lab: Lab) -> Rubric:
    """Read a rubric; without a file every requirement has its default points.

    Raises:
        UserError: the file cannot be read or is of another lab, a key, requirement or mistake is
            unknown, or a number is out of range.
    """
    if path is None:
        return Rubric()
    try:
        rubric = Rubric.model_validate(integers_to_floats(read_toml(path)))
    except ValidationError as error:
        raise UserError(f"{path}: {describe_validation_error(error, Rubric)}") from None
    if rubric.lab not in (None, lab.name):
        raise UserError(f"{path} is a rubric of {rubric.lab}; these are submissions of {lab.name}")
    for table, known in (
        ("points", set(known_requirements(lab))),
        ("partial", set(known_mistakes(lab))),
        ("penalty", set(PENALTIES)),
    ):
        for key, value in getattr(rubric, table).items():
            if key not in known:
                raise UserError(f"{path}: {table}: unknown {key!r}{did_you_mean(key, known)}")
            most = 1.0 if table == "partial" else 1e6
            if not 0 <= value <= most:
                raise UserError(
                    f"{path}: {table}.{key} must be from 0 to {most:g}; received {value:g}"
                )
    return rubric


def integers_to_floats(table: dict[str, object]) -> dict[str, object]:
    """Return a copy of the rubric's tables with integers as floats, because TOML allows 1 for 1.0;
    values outside of a table stay."""

    def to_float(value: object) -> object:
        """Return an integer as a float, and other values unchanged."""
        return float(value) if type(value) is int else value

    return {
        name: {k: to_float(v) for k, v in inner.items()} if isinstance(inner, dict) else inner
        for name, inner in table.items()
    }


def known_requirements(lab: Lab) -> Iterator[str]:
    """Yield all names that a rubric's ``points`` may have: tasks, requirements, targets, and
    ``TASK:REQUIREMENT``."""
    for file in lab.files:
        yield file.task
        for requirement in file.requirements:
            yield from (requirement.name, requirement.target, f"{file.task}:{requirement.name}")


def known_mistakes(lab: Lab) -> Iterator[str]:
    """Yield all mistakes that can be reported: by numbers, by errors, or by the catalogue's plants
    (solutions with a mistake made on purpose)."""
    yield from (plant.name for plant in load_plants(lab.name) if not plant.right)
    for file in lab.files:
        for requirement in file.requirements:
            yield from (flag.partition("#")[0] for flag in requirement.flags)
            yield from (mistake for _, mistake in requirement.errors)


def total_points(rubric: Rubric, checked: Sequence[CheckResult]) -> tuple[float, float]:
    """Return the points earned, at least 0 after penalties, and the points possible."""
    earned = sum(
        points for c in checked for points, _ in rubric.earned_points(c.file, c.judgements)
    )
    most = sum(rubric.requirement_points(c.file, j) for c in checked for j in c.judgements)
    return max(0.0, earned - sum(rubric.penalty_points(c) for c in checked)), most
