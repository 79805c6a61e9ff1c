"""The experiment as it stands in a run folder, whatever version wrote it.

A report must be possible even if a name in the experiment (a rule, a strategy, a layer's partition)
comes from a newer version, so only the types of the values are checked on reading. To compute with
an experiment, parse it into an `Experiment`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationError

from dualml.algorithms.optim import RULES, LRSchedule
from dualml.common.errors import UserError
from dualml.common.strict_model import RESTRICTED, describe_validation_error
from dualml.experiment.schema import Experiment
from dualml.parallel.partition import PARTITIONS

#: Kinds of validation errors that another version of dualml may not have.
VERSION_ERRORS = ("missing", "extra_forbidden", "literal_error", RESTRICTED)
#: Tables of an arm in which new names may occur: the known names, and the key of the name.
OPEN: Mapping[str, tuple[Container[str], str]] = {
    "optimizer": (RULES, "name"),
    "partition": (PARTITIONS, "name"),
    "schedule": (("constant", "step", "cosine"), "kind"),
}


def _types_are_right(value: dict[str, Any]) -> dict[str, Any]:
    """Return an experiment unchanged; raise `UserError` for values of a wrong type, but accept
    names of other versions."""
    try:
        Experiment.model_validate(value)
    except ValidationError as error:
        for problem in error.errors():
            if not _is_version_problem(problem):
                raise UserError(describe_validation_error(error, Experiment, problem)) from None
    return value


def _is_version_problem(problem: Mapping[str, Any]) -> bool:
    """Return whether a validation error may come from another version's experiment."""
    place, value = problem["loc"], problem["input"]
    if place in (("title",), ("question",)):
        return isinstance(value, str)
    if problem["type"] != "value_error":
        return problem["type"] in VERSION_ERRORS
    if not place or place[-1] not in OPEN:
        return True
    known, key = OPEN[place[-1]]
    name = value.get(key, LRSchedule.kind if place[-1] == "schedule" else None)
    return isinstance(name, str) and name not in known


Protocol = Annotated[dict[str, Any], AfterValidator(_types_are_right)]


def parse_experiment(protocol: Mapping[str, Any], path: Path) -> Experiment:
    """Return the experiment that a run folder holds, as this version understands it.

    Args:
        path: file that holds the experiment, for error messages.

    Raises:
        UserError: the experiment is of another version, or damaged.
    """
    try:
        return Experiment.model_validate(protocol)
    except ValidationError as error:
        raise UserError(
            f"{path}: experiment.{describe_validation_error(error, Experiment)}"
        ) from None
