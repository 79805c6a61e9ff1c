"""The experiment file as a validated object: what users write, and nothing they did not mean."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from dualml.errors import UserError, nearest
from dualml.model.spec import LOSSES
from dualml.model.zoo import model as zoo_model
from dualml.optim import Rule, Schedule, rule_from

MOST_UPDATES = 10_000_000  # every one has a record; beyond, a file of gigabytes


class Strict(BaseModel):
    """No unknown keys, no silent conversions between text and numbers, nothing changes later."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Data(Strict):
    """``train``, ``test``: use at most so many samples, drawn once for every seed; 0 is all."""

    name: str
    train: Annotated[int, Field(ge=0)] = 0
    test: Annotated[int, Field(ge=0)] = 0


class Arm(Strict):
    """One variant.

    ``batch_size`` 0 is the whole training set (gradient descent); ``samples`` restricts the arm to
    a fixed random subset of at most so many, 0 is all; ``updates`` 0 means ``epochs`` passes;
    gradients of batches larger than ``chunk`` are accumulated.
    """

    optimizer: dict[str, Any]
    schedule: Annotated[dict[str, Any], Field(validate_default=True)] = {}
    batch_size: Annotated[int, Field(ge=0)] = 64
    epochs: Annotated[float, Field(gt=0, strict=False)] = 3.0
    updates: Annotated[int, Field(ge=0, le=MOST_UPDATES)] = 0
    samples: Annotated[int, Field(ge=0)] = 0
    chunk: Annotated[int, Field(ge=1)] = 256
    group: str = "main"

    @field_validator("optimizer")
    @classmethod
    def _rule_is_known(cls, value: dict[str, Any]) -> dict[str, Any]:
        return rule_from(value).hyperparameters()

    @field_validator("schedule")
    @classmethod
    def _schedule_is_known(cls, value: dict[str, Any]) -> dict[str, Any]:
        known = [field.name for field in fields(Schedule)]
        for key in value:
            if key not in known:
                raise UserError(f"a schedule has no key {key!r}{nearest(key, known)}")
        return Schedule(**value).describe()

    @property
    def rule(self) -> Rule:
        return rule_from(self.optimizer)

    @property
    def plan_schedule(self) -> Schedule:
        return Schedule(**self.schedule)


class Evaluation(Strict):
    """When to evaluate, and on how much: ``per_epoch`` times, and after ``early`` updates."""

    per_epoch: Annotated[int, Field(ge=1)] = 4
    early: list[Annotated[int, Field(ge=1)]] = [25, 50, 100, 200, 400]
    train_samples: Annotated[int, Field(ge=1)] = 5000


class Parity(Strict):
    """How equality is judged: ``draws`` perturbed trajectories of ``horizon`` updates each."""

    draws: Annotated[int, Field(ge=1)] = 3
    horizon: Annotated[int, Field(ge=1)] = 200
    margin: Annotated[float, Field(ge=1, strict=False)] = 10.0
    trace: list[Annotated[int, Field(ge=1)]] = [1, 2, 3, 5, 10, 20, 50, 100, 200]


class Limits(Strict):
    """Seconds a trial may take, and may stay without a sign of life."""

    trial: Annotated[float, Field(gt=0, strict=False)] = 7200.0
    silence: Annotated[float, Field(gt=0, strict=False)] = 300.0


class Experiment(Strict):
    """A protocol with its arms."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
    title: dict[str, str]
    question: dict[str, str] = {}
    data: Data
    model: str
    loss: str = "cross_entropy"
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = [0]
    arms: Annotated[dict[str, Arm], Field(min_length=1)]
    evaluation: Evaluation = Evaluation()
    parity: Parity = Parity()
    limits: Limits = Limits()
    quick: bool = False

    @field_validator("model")
    @classmethod
    def _model_is_known(cls, value: str) -> str:
        return zoo_model(value).name

    @field_validator("loss")
    @classmethod
    def _loss_is_known(cls, value: str) -> str:
        if value not in LOSSES:
            raise UserError(f"loss must be one of {', '.join(LOSSES)}; received {value!r}")
        return value

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, value: list[int]) -> list[int]:
        if len(set(value)) != len(value):
            raise UserError(f"seeds must differ; received {value}")
        return value

    @field_validator("arms")
    @classmethod
    def _arm_names(cls, value: dict[str, Arm]) -> dict[str, Arm]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
                raise UserError(f"arm name {name!r}: use letters, digits, '-' and '_'")
        for word in {"all", *(arm.group for arm in value.values())} & set(value):
            raise UserError(f"{word!r} names an arm and a group of arms; rename one of them")
        return value

    @model_validator(mode="after")
    def _gd_takes_the_full_batch(self) -> Experiment:
        for name, arm in self.arms.items():
            if arm.optimizer["name"] == "gd" and arm.batch_size != 0:
                raise UserError(
                    f"arms.{name}: gd is defined on the full batch; set batch_size = 0 "
                    f"(received {arm.batch_size}) or use the optimizer sgd"
                )
        return self

    def groups(self) -> list[str]:
        return list(dict.fromkeys(arm.group for arm in self.arms.values()))

    def describe(self) -> dict[str, Any]:
        return self.model_dump(mode="json")
