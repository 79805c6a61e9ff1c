"""The experiment as a run folder has it, whatever version wrote it.

A page is made of what it says, also where a name in it (a rule, a strategy, a layer's partition) is
of a newer version, so only the types of its values are checked when it is read. Who computes with
it asks for the `Experiment`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationError

from dualml.errors import UserError
from dualml.experiment.schema import Experiment
from dualml.optim import RULES, Schedule
from dualml.partition import PARTITIONS
from dualml.strict import explain

#: Kinds of problems that another version of dualml would not have.
OF_VERSION = ("missing", "extra_forbidden", "literal_error")
#: Tables of an arm that are open to new names: what is known, and the key of the name.
OPEN: Mapping[str, tuple[Container[str], str]] = {
    "optimizer": (RULES, "name"),
    "partition": (PARTITIONS, "name"),
    "schedule": (("constant", "step", "cosine"), "kind"),
}


def _types_are_right(value: dict[str, Any]) -> dict[str, Any]:
    try:
        Experiment.model_validate(value)
    except ValidationError as error:
        for problem in error.errors():
            if not _of_version(problem):
                raise UserError(explain(error, Experiment, problem)) from None
    return value


def _of_version(problem: Mapping[str, Any]) -> bool:
    """Whether another version may have written this."""
    place, value = problem["loc"], problem["input"]
    if place in (("title",), ("question",)):
        return isinstance(value, str)
    if problem["type"] != "value_error":
        return problem["type"] in OF_VERSION
    if not place or place[-1] not in OPEN:
        return True
    known, key = OPEN[place[-1]]
    name = value.get(key, Schedule.kind if place[-1] == "schedule" else None)
    return isinstance(name, str) and name not in known


Protocol = Annotated[dict[str, Any], AfterValidator(_types_are_right)]


def experiment_of(protocol: Mapping[str, Any], path: Path) -> Experiment:
    """What this version makes of an experiment.

    Args:
        path: the file that has it.

    Raises:
        UserError: it is of another version, or damaged.
    """
    try:
        return Experiment.model_validate(protocol)
    except ValidationError as error:
        raise UserError(f"{path}: experiment.{explain(error, Experiment)}") from None
