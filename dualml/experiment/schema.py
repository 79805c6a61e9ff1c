"""The schema of experiment files: every key that users may write, validated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from dualml.algorithms.model.bert import bert
from dualml.algorithms.model.rnn import RECURRENT
from dualml.algorithms.model.spec import LOSSES
from dualml.algorithms.model.zoo import model as zoo_model
from dualml.common.errors import UserError, did_you_mean
from dualml.common.json_types import JsonObject
from dualml.common.strict_model import MAX_NAME_CHARS, StrictModel, clip_text
from dualml.experiment.arm import RARE, AnyArm, Arm, Seed
from dualml.experiment.check_models import SIZED, check_models
from dualml.experiment.data.text import LENGTH, SPECIAL, WORDS, Tokens
from dualml.experiment.models import DecoderSizes as DecoderSizes
from dualml.experiment.models import RecurrentSettings
from dualml.parallel.aggregation.settings import RARE_OF_AGGREGATION, Aggregation


class Data(StrictModel):
    """The dataset and its use: at most ``train``, ``test`` and, for labelled sentences,
    ``validation`` samples, drawn once for all seeds; 0 means all.

    For a text, ``words`` is the largest vocabulary size and ``length`` the tokens of a sample. With
    ``labels`` its sentences are classified, instead of one stream of words continued. ``tokens``
    may be ``characters`` instead of words.

    For images, ``normalise`` selects the mean and standard deviation of each channel: those
    ``published`` with the data, or those ``measured`` over the training samples.
    """

    name: str
    train: Annotated[int, Field(ge=0)] = 0
    validation: Annotated[int, Field(ge=0)] = 0
    test: Annotated[int, Field(ge=0)] = 0
    words: Annotated[int, Field(gt=len(SPECIAL))] = WORDS
    length: Annotated[int, Field(ge=1)] = LENGTH
    labels: bool = False
    tokens: Tokens = "words"
    normalise: Literal["published", "measured"] = "published"

    @model_validator(mode="after")
    def _sentences_have_words(self) -> Data:
        """Raise `UserError` for classified sentences in tokens other than words."""
        if self.labels and self.tokens != "words":
            raise UserError(
                f"tokens = {self.tokens} is for a text that a language model goes on with; leave "
                "it out, or labels"
            )
        return self


class Evaluation(StrictModel):
    """Evaluation schedule: ``per_epoch`` times and after ``early`` updates, on ``train_samples``
    samples for the training accuracy."""

    per_epoch: Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0)] = 4
    early: list[Annotated[int, Field(ge=1)]] = [25, 50, 100, 200, 400]
    train_samples: Annotated[int, Field(ge=1)] = 5000


class Parity(StrictModel):
    """Settings of the parity judgement: ``draws`` perturbed trajectories of ``horizon`` updates
    each, or of fewer, so that together they take at most ``share`` of the training time (0: no
    limit)."""

    draws: Annotated[int, Field(ge=1)] = 3
    horizon: Annotated[int, Field(ge=1)] = 150
    share: Annotated[float, Field(ge=0, strict=False)] = 1.0
    margin: Annotated[float, Field(ge=1, strict=False)] = 10.0
    trace: list[Annotated[int, Field(ge=1)]] = [1, 2, 3, 5, 10, 20, 50, 100, 150]


class Limits(StrictModel):
    """Time limits in seconds: of a trial, without a sign of life, and of a rank that waits for
    another."""

    trial: Annotated[float, Field(gt=0, strict=False)] = 7200.0
    silence: Annotated[float, Field(gt=0, strict=False)] = 300.0
    collective: Annotated[float, Field(gt=0, strict=False)] = 60.0


class Experiment(StrictModel):
    """A protocol with its arms.

    ``pretrained`` is a folder from which the model ``bert`` starts, see
    `dualml.experiment.pretrained`. ``initial`` is a file with the initial weights of ``model``, see
    `dualml.runner.checkpoint.initial`. ``sizes`` are those of its decoder models, ``recurrent`` the
    settings of its recurrent ones. For small data the ``epochs`` of an arm are ``epochs_times``
    those of the file.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=MAX_NAME_CHARS)]
    title: dict[str, str]
    question: dict[str, str] = {}
    data: Data
    model: str
    sizes: DecoderSizes = DecoderSizes()
    recurrent: RecurrentSettings = RecurrentSettings()
    pretrained: str = ""
    initial: str = ""
    loss: str = "cross_entropy"
    seeds: Annotated[list[Seed], Field(min_length=1)] = [0]
    arms: Annotated[dict[str, AnyArm], Field(min_length=1)]
    evaluation: Evaluation = Evaluation()
    parity: Parity = Parity()
    limits: Limits = Limits()
    quick: bool = False
    epochs_times: Annotated[float, Field(ge=1, strict=False)] = 1.0

    @field_validator("model")
    @classmethod
    def _model_is_known(cls, value: str) -> str:
        """Return the canonical name of a model of the zoo; raise `UserError` for an unknown one."""
        return zoo_model(value).name

    @field_validator("loss")
    @classmethod
    def _loss_is_known(cls, value: str) -> str:
        """Return the name of the loss; raise `UserError` for an unknown one."""
        if value not in LOSSES:
            hint = did_you_mean(value, LOSSES, fallback="")
            raise UserError(f"loss must be one of {', '.join(LOSSES)}; received {value!r}{hint}")
        return value

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, value: list[int]) -> list[int]:
        """Return the seeds; raise `UserError` if one is repeated."""
        if len(set(value)) != len(value):
            raise UserError(f"seeds must differ; received {value}")
        return value

    @field_validator("arms")
    @classmethod
    def _arm_names(cls, value: dict[str, Arm]) -> dict[str, Arm]:
        """Return the arms; raise `UserError` for a name that is no folder name, too long, or the
        name of a group."""
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
                raise UserError(
                    f"arm name {clip_text(repr(name))}: use letters, digits, '-' and '_'"
                )
            if len(name) > MAX_NAME_CHARS:
                raise UserError(
                    f"arm name {clip_text(repr(name))}: {len(name):,} characters; at "
                    f"most {MAX_NAME_CHARS}, because folders have this name"
                )
        for word in {"all", *(arm.group for arm in value.values())} & set(value):
            raise UserError(f"{word!r} names an arm and a group of arms; rename one of them")
        return value

    @model_validator(mode="after")
    def _gd_takes_the_full_batch(self) -> Experiment:
        """Raise `UserError` for an arm with gradient descent and a batch size other than 0."""
        for name, arm in self.arms.items():
            if arm.optimizer["name"] == "gd" and arm.batch_size != 0:
                raise UserError(
                    f"arms.{name}: gd is defined on the full batch; set batch_size = 0 "
                    f"(received {arm.batch_size}) or use the optimizer sgd"
                )
        return self

    @model_validator(mode="before")
    @classmethod
    def _settings_are_of_a_named_model(cls, values: Any) -> Any:
        """Return the values in which every arm with ``recurrent`` settings names its model, the
        experiment's if it names none, so that it is the same arm in any file."""
        arms = values.get("arms") if isinstance(values, dict) else None
        if not isinstance(arms, dict) or not isinstance(values.get("model"), str):
            return values
        said = {
            name: {"model": values["model"], **arm}
            for name, arm in arms.items()
            if isinstance(arm, dict) and arm.get("recurrent")
        }
        return {**values, "arms": {**arms, **said}} if said else values

    @model_validator(mode="after")
    def _settings_fit_the_models(self) -> Experiment:
        """Raise `UserError` for model settings that the experiment's or an arm's model does not
        take."""
        check_models(self.model, self.arms, self.sizes, self.recurrent)
        return self

    @model_validator(mode="after")
    def _pretrained_is_a_bert(self) -> Experiment:
        """Raise `UserError` for pretrained weights of a model other than BERT."""
        if self.pretrained and self.model != bert.__name__:
            raise UserError(
                f"pretrained = {self.pretrained!r} is for model = {bert.__name__!r}; received "
                f"model = {self.model!r}"
            )
        return self

    @model_validator(mode="after")
    def _weights_come_from_one_place(self) -> Experiment:
        """Raise `UserError` if both ``initial`` and ``pretrained`` name initial weights."""
        if self.initial and self.pretrained:
            raise UserError(
                f"initial = {self.initial!r} and pretrained = {self.pretrained!r} both say where "
                "the initial weights are: leave one of them out"
            )
        return self

    def model_sizes(self, model: str) -> dict[str, Any]:
        """Return the experiment's sizes that were set, by name, if the model named ``model`` has
        sizes; empty for a model whose size is fixed."""
        return self.sizes.explicit_values if model in SIZED else {}

    def model_settings(self, arm: Arm | None = None) -> JsonObject:
        """Return the settings of the experiment's model (``arm`` None), or of an arm's, as
        arguments of `dualml.algorithms.model.zoo.model`; the arm's own override the
        experiment's."""
        name = self.model if arm is None or not arm.model else arm.model
        own = {} if arm is None else arm.recurrent.explicit_values
        recurrent = {**self.recurrent.explicit_values, **own} if name in RECURRENT else {}
        return {"sizes": self.model_sizes(name), "recurrent": recurrent}

    def variants(self) -> dict[str, Arm]:
        """Return `Arm.variant` → the first arm that trains it, for arms whose model or recurrent
        settings are not the experiment's."""
        found: dict[str, Arm] = {}
        for arm in self.arms.values():
            if arm.variant not in ("", self.model):
                found.setdefault(arm.variant, arm)
        return found

    def seeds_of(self, arm: str) -> list[int]:
        """Return the seeds with which an arm runs: the first `Arm.seeds` of the experiment's, all
        if that is 0."""
        return self.seeds[: self.arms[arm].seeds or None]

    def backends_of(self, arm: str, backends: Sequence[str]) -> list[str]:
        """Return those of ``backends`` that run the arm; all if the arm names none."""
        own = self.arms[arm].backends
        return [name for name in backends if not own or name in own]

    def groups(self) -> list[str]:
        """Return the names of the arms' groups, each once, in the order of the arms."""
        return list(dict.fromkeys(arm.group for arm in self.arms.values()))

    def describe(self) -> JsonObject:
        """Return the experiment as JSON values, without rare settings that have their defaults."""
        table = self.model_dump(mode="json")
        # Written only if it was set, so that files of experiments with one rank stay as they were.
        for name, arm in self.arms.items():
            for key in RARE:
                if getattr(arm, key) == Arm.model_fields[key].default:
                    del table["arms"][name][key]
            if arm.recurrent.explicit_values:
                table["arms"][name]["recurrent"] = arm.recurrent.explicit_values
            if arm.split is not None:
                table["arms"][name]["split"] = arm.split.describe()
            for key in RARE_OF_AGGREGATION:
                if getattr(arm.aggregation, key) == Aggregation.model_fields[key].default:
                    table["arms"][name].get("aggregation", {}).pop(key, None)
        if self.limits.collective == Limits().collective:
            del table["limits"]["collective"]
        table |= {"sizes": self.sizes.explicit_values, "recurrent": self.recurrent.explicit_values}
        for key in ("pretrained", "initial", "sizes", "recurrent"):
            if not table[key]:
                del table[key]
        if self.epochs_times == 1:
            del table["epochs_times"]
        for key in ("validation", "words", "length", "labels", "tokens", "normalise"):
            if getattr(self.data, key) == Data.model_fields[key].default:
                del table["data"][key]
        return table
