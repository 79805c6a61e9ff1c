"""Types of the settings of an arm."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from dualml.algorithms.model.recompute import validate_recompute
from dualml.algorithms.model.zoo import model as zoo_model
from dualml.algorithms.optim import LRSchedule, rule_from
from dualml.backend import backend_names, backends
from dualml.common.errors import UserError, did_you_mean
from dualml.common.parse import INTEGER_BOUND
from dualml.common.strict_model import StrictModel
from dualml.experiment.methods.config import read_config
from dualml.experiment.methods.registry import check_name
from dualml.parallel.aggregation import strategy
from dualml.parallel.partition import partition_from

MAX_UPDATES = 10_000_000  # every one has a record; beyond, a file of gigabytes
MAX_RANKS = 256  # of one machine; `dualml simulate` goes further


class StragglerSettings(StrictModel):
    """A straggler that slows one rank in the same way on every backend: see
    `dualml.parallel.aggregation.straggler`."""

    rank: Annotated[int, Field(ge=0)] = 0
    compute: Annotated[float, Field(ge=1, strict=False)] = 1.0
    latency_s: Annotated[float, Field(ge=0, le=60, strict=False)] = 0.0
    bandwidth_bytes_per_s: Annotated[float, Field(gt=0, strict=False)] | None = None
    jitter_s: Annotated[float, Field(ge=0, le=60, strict=False)] = 0.0
    since: Annotated[int, Field(ge=1)] = 1

    @property
    def delays_messages(self) -> bool:
        """Whether the rank's messages are late, not only its computation."""
        return bool(self.latency_s or self.bandwidth_bytes_per_s)


def _canonical_model(value: str) -> str:
    """Return the canonical name of a model of the zoo; an empty name stays empty. Raise `UserError`
    for an unknown one."""
    return zoo_model(value).name if value else ""


def _known_method(value: str) -> str:
    """Return the name of a training method, or an empty one; raise `UserError` if no backend has
    it."""
    if value:
        check_name(value)
    return value


def _read_method_config(value: Any) -> Any:
    """Return the engine's configuration as a table: the content of a JSON file if the value is its
    path, an empty table for an empty value, otherwise the value unchanged."""
    return read_config(Path(value)) if isinstance(value, str) and value else value or {}


def _known_launcher(value: str) -> str:
    """Return the name of a launcher, or an empty one; raise `UserError` if no backend has it."""
    if not value:
        return value
    known = [name for info in backends().values() for name in info.launchers]
    if value not in known:
        raise UserError(f"unknown launcher {value!r}{did_you_mean(value, known)}")
    return value


def _known_backend(value: str) -> str:
    """Return the name of a backend; raise `UserError` for an unknown one."""
    if value not in (known := backend_names()):
        raise UserError(f"unknown backend {value!r}{did_you_mean(value, known)}")
    return value


def _complete_rule(value: dict[str, Any]) -> dict[str, Any]:
    """Return name and all hyperparameters of the optimizer, with defaults filled in; raise
    `UserError` for a value that it does not take."""
    return rule_from(value).hyperparameters()


def _complete_partition(value: dict[str, Any]) -> dict[str, Any]:
    """Return name and all settings of the partition, with defaults filled in; an empty table stays
    empty. Raise `UserError` for a name or setting that is unknown."""
    return partition_from(value).describe() if value else {}


def _complete_schedule(value: dict[str, Any]) -> dict[str, Any]:
    """Return all fields of the learning rate schedule, with defaults filled in; raise `UserError`
    for an unknown key or a bad value."""
    known = [field.name for field in fields(LRSchedule)]
    for key in value:
        if key not in known:
            raise UserError(f"a schedule has no key {key!r}{did_you_mean(key, known)}")
    return LRSchedule(**value).describe()


def _known_recompute(value: str | list[str]) -> str | list[str]:
    """Return the recomputation setting; raise `UserError` if it is invalid for every model."""
    validate_recompute(value)
    return value


def _not_boolean(value: Any) -> Any:
    """Return the value unchanged, but raise `ValueError` for true and false, which would pass as 1
    and 0."""
    if isinstance(value, bool):  # which Python takes for 0 or 1
        raise ValueError("Input should be 0, 1, 2 or 3")
    return value


Seed = Annotated[int, Field(ge=0, lt=INTEGER_BOUND)]
Optimizer = Annotated[dict[str, Any], Field(validate_default=True), AfterValidator(_complete_rule)]
WorldSize = Annotated[int, Field(ge=1, le=MAX_RANKS)]
Partitioning = Annotated[
    dict[str, Any], Field(validate_default=True), AfterValidator(_complete_partition)
]
PartitionRanks = Annotated[int, Field(ge=0, le=MAX_RANKS)]
Sizes = list[Annotated[int, Field(ge=4, multiple_of=4)]]
Strategies = list[Annotated[str, AfterValidator(lambda value: strategy(value).name)]]
Schedule = Annotated[
    dict[str, Any], Field(validate_default=True), AfterValidator(_complete_schedule)
]
BatchSize = Annotated[int, Field(ge=0)]
Model = Annotated[str, AfterValidator(_canonical_model)]
Method = Annotated[str, AfterValidator(_known_method)]
MethodConfig = Annotated[dict[str, Any], BeforeValidator(_read_method_config)]
Launcher = Annotated[str, AfterValidator(_known_launcher)]
Backends = list[Annotated[str, AfterValidator(_known_backend)]]
LossScaling = Literal["dynamic"] | Annotated[float, Field(gt=0, strict=False)] | None
ZeroStage = Annotated[Literal[0, 1, 2, 3], BeforeValidator(_not_boolean)]
Recompute = Annotated[str | list[str], AfterValidator(_known_recompute)]
