"""One arm of an experiment file: one configuration to train or to measure."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from dualml.algorithms.model.recompute import validate_recompute as check_recompute
from dualml.algorithms.model.zoo import model as zoo_model
from dualml.algorithms.optim import LRSchedule, OptimizerSpec, rule_from
from dualml.algorithms.precision import LossScale, Precision
from dualml.backend import backends
from dualml.common.errors import UserError, did_you_mean
from dualml.common.parse import INTEGER_BOUND
from dualml.common.strict_model import StrictModel
from dualml.experiment.methods.config import check_config, read_config
from dualml.experiment.methods.registry import check_name, check_ranks
from dualml.experiment.models import RecurrentSettings
from dualml.experiment.offload_checks import check_offload, with_default_units, zero_stage
from dualml.experiment.split import Split
from dualml.experiment.zero_checks import check_zero, sharding_of
from dualml.parallel.aggregation import ASYNCHRONOUS, NATIVE, REPLICAS, strategy
from dualml.parallel.aggregation.coordinates import COORDINATEWISE
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.offload.settings import Offload
from dualml.parallel.partition import Partition, partition_from
from dualml.parallel.zero.settings import Sharding

MAX_UPDATES = 10_000_000  # every one has a record; beyond, a file of gigabytes
MAX_RANKS = 256  # of one machine; `dualml simulate` goes further
Seed = Annotated[int, Field(ge=0, lt=INTEGER_BOUND)]
#: Rarely used keys of an arm.
RARE = (
    "kind", "world_size", "aggregation", "slow", "sizes", "strategies", "seconds", "partition",
    "dealt_to", "cores", "seeds", "model", "split", "method", "method_config", "launcher",
    "backends", "precision", "loss_scale", "zero", "zero_reduce", "zero_lower", "recompute",
    "offload", "recurrent",
)  # fmt: skip


class StragglerSettings(StrictModel):
    """A straggler that slows one rank in the same way on every backend: see
    `dualml.parallel.aggregation.straggler`."""

    rank: Annotated[int, Field(ge=0)] = 0
    compute: Annotated[float, Field(ge=1, strict=False)] = 1.0
    latency_s: Annotated[float, Field(ge=0, le=60, strict=False)] = 0.0
    bandwidth_bytes_per_s: Annotated[float, Field(gt=0, strict=False)] | None = None
    jitter_s: Annotated[float, Field(ge=0, le=60, strict=False)] = 0.0
    since: Annotated[int, Field(ge=1)] = 1


class Arm(StrictModel):
    """One configuration of an experiment.

    ``batch_size`` 0 is the whole training set (gradient descent). ``samples`` restricts the arm to
    a fixed random subset of at most that size, 0 means all. ``updates`` 0 means ``epochs`` passes.
    Gradients of batches larger than ``chunk`` are accumulated. ``seeds`` is the number of the
    experiment's seeds to use, 0 means all.

    ``kind`` ``collectives`` times ``strategies`` on vectors of ``sizes`` bytes among ``world_size``
    ranks, each for about ``seconds``, and trains nothing.

    ``partition`` assigns samples to ranks (see `dualml.parallel.partition`); in each update a rank
    takes its share of ``batch_size`` from its own samples. Without a partition the ranks split the
    batches of one order. One rank with ``dealt_to`` n trains on all samples that n ranks would
    have. Each rank has ``cores`` cores of its own; 0: the ranks share the cores that one rank would
    have.

    ``model`` replaces the experiment's model; ``recurrent`` overrides the experiment's settings of
    a recurrent model. With ``split`` the model is split over the ranks, not the batch.

    ``method`` names an engine whose own loop makes the updates (see `dualml.experiment.methods`),
    instead of ``aggregation``. ``method_config`` is the engine's own configuration, a table or the
    path of a JSON file (see `dualml.experiment.methods.config`). ``launcher`` starts the ranks
    instead of dualml. ``backends`` lists the backends that run the arm; empty: all.

    ``precision`` is the dtype of matrix products (see `dualml.algorithms.precision`).
    ``loss_scale``
    multiplies the loss before the backward pass: a number, or ``dynamic``; the default is
    ``dynamic`` with ``fp16``, else no scaling.

    ``zero`` 1, 2 or 3 shards the optimizer state, also the gradients, and also the weights (see
    `dualml.parallel.zero`). ``zero_reduce`` ``all_reduce`` needs more communication than the
    default. With ``zero_lower`` full weights and gradients are held in ``precision``, and the
    float32 weights are sharded.

    ``offload`` says what is kept in host memory or on disk (see `dualml.parallel.offload`).

    ``recompute`` selects the activations to recompute in the backward pass: ``none``,
    ``selective``, ``full``, or those of a list of layers (see `dualml.algorithms.model.recompute`).
    """

    kind: Literal["train", "collectives"] = "train"
    optimizer: Annotated[dict[str, Any], Field(validate_default=True)] = {"name": "sgd", "lr": 0.01}
    world_size: Annotated[int, Field(ge=1, le=MAX_RANKS)] = 1
    aggregation: Aggregation = Aggregation()
    slow: StragglerSettings | None = None
    partition: Annotated[dict[str, Any], Field(validate_default=True)] = {}
    dealt_to: Annotated[int, Field(ge=0, le=MAX_RANKS)] = 0
    cores: Annotated[int, Field(ge=0)] = 0
    sizes: list[Annotated[int, Field(ge=4, multiple_of=4)]] = []
    strategies: list[str] = []
    seconds: Annotated[float, Field(gt=0, strict=False)] = 0.5
    schedule: Annotated[dict[str, Any], Field(validate_default=True)] = {}
    batch_size: Annotated[int, Field(ge=0)] = 64
    epochs: Annotated[float, Field(gt=0, strict=False)] = 3.0
    updates: Annotated[int, Field(ge=0, le=MAX_UPDATES)] = 0
    samples: Annotated[int, Field(ge=0)] = 0
    chunk: Annotated[int, Field(ge=1)] = 256
    seeds: Annotated[int, Field(ge=0)] = 0
    group: str = "main"
    model: str = ""
    split: Split | None = None
    method: str = ""
    method_config: dict[str, Any] = {}
    launcher: str = ""
    backends: list[str] = []
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    loss_scale: Literal["dynamic"] | Annotated[float, Field(gt=0, strict=False)] | None = None
    zero: Literal[0, 1, 2, 3] = 0
    zero_reduce: Literal["reduce_scatter", "all_reduce"] = "reduce_scatter"
    zero_lower: bool = False
    recompute: str | list[str] = "none"
    offload: Offload | None = None
    recurrent: RecurrentSettings = RecurrentSettings()

    @field_validator("model")
    @classmethod
    def _model_is_known(cls, value: str) -> str:
        """Return the canonical name of a model of the zoo; an empty name stays empty. Raise
        `UserError` for an unknown one."""
        return zoo_model(value).name if value else ""

    @field_validator("method")
    @classmethod
    def _method_is_known(cls, value: str) -> str:
        """Return the name of a training method, or an empty one; raise `UserError` if no backend
        has it."""
        if value:
            check_name(value)
        return value

    @field_validator("method_config", mode="before")
    @classmethod
    def _method_config_is_read(cls, value: Any) -> Any:
        """Return the engine's configuration as a table: read from a JSON file if the value is its
        path, empty for an empty value; a table is returned unchanged."""
        return read_config(Path(value)) if isinstance(value, str) and value else value or {}

    @field_validator("launcher")
    @classmethod
    def _launcher_is_known(cls, value: str) -> str:
        """Return the name of a launcher, or an empty one; raise `UserError` if no backend has
        it."""
        known = [name for info in backends().values() for name in info.launchers]
        if value and value not in known:
            raise UserError(f"unknown launcher {value!r}{did_you_mean(value, known)}")
        return value

    @field_validator("backends")
    @classmethod
    def _backends_are_known(cls, value: list[str]) -> list[str]:
        """Return the names of backends; raise `UserError` for an unknown one."""
        for name in value:
            if name not in backends():
                raise UserError(f"unknown backend {name!r}{did_you_mean(name, backends())}")
        return value

    @field_validator("optimizer")
    @classmethod
    def _rule_is_known(cls, value: dict[str, Any]) -> dict[str, Any]:
        """Return name and all hyperparameters of the optimizer, with defaults filled in; raise
        `UserError` for a value that it does not take."""
        return rule_from(value).hyperparameters()

    @field_validator("partition")
    @classmethod
    def _partition_is_known(cls, value: dict[str, Any]) -> dict[str, Any]:
        """Return name and all settings of the partition, with defaults filled in; an empty table
        stays empty. Raise `UserError` for a name or setting that is unknown."""
        return partition_from(value).describe() if value else {}

    @field_validator("strategies")
    @classmethod
    def _strategies_are_known(cls, value: list[str]) -> list[str]:
        """Return the canonical names of all-reduce strategies; raise `UserError` for an unknown
        one."""
        return [strategy(name).name for name in value]

    @model_validator(mode="after")
    def _ranks_fit(self) -> Arm:
        """Return the arm unchanged; raise `UserError` for a straggler, strategy, schedule or number
        of ranks that exclude each other, for training without an optimizer, or for ``collectives``
        without sizes or strategies."""
        if self.slow is not None and self.slow.rank >= self.world_size:
            raise UserError(
                f"straggler.rank = {self.slow.rank}, but world_size is {self.world_size}: "
                f"ranks go from 0 to {self.world_size - 1}"
            )
        late = self.slow and (self.slow.latency_s or self.slow.bandwidth_bytes_per_s)
        if late and (self.aggregation.strategy in (NATIVE, REPLICAS) or self.aggregation.overlap):
            raise UserError(
                "the framework sends these messages itself: straggler can only make the "
                "computation late there (compute, jitter_s)"
            )
        if self.kind == "train" and "optimizer" not in self.model_fields_set:
            raise UserError("optimizer is missing")
        constant = self.plan_schedule.kind == "constant" and not self.plan_schedule.warmup
        if self.aggregation.strategy == ASYNCHRONOUS and not constant:
            raise UserError(
                f"{ASYNCHRONOUS} makes an update of every rank's gradient; a schedule "
                "by global batches has no meaning there"
            )
        if self.kind == "collectives" and not (self.sizes and self.strategies):
            raise UserError("kind = collectives needs sizes (bytes) and strategies")
        if self.aggregation.strategy == REPLICAS and self.world_size > 1:
            raise UserError(
                f"{REPLICAS} is one process with several devices; world_size is {self.world_size}"
            )
        return self

    @model_validator(mode="after")
    def _split_fits(self) -> Arm:
        """Check the settings that a split model excludes or needs; raise `UserError` for the first
        that does not fit. An arm without a split passes."""
        if self.split is None:
            return self
        if self.world_size == 1 and self.split.engine != "devices":
            raise UserError(
                "split needs world_size >= 2: one rank has the whole model; several "
                'devices of one process are engine = "devices"'
            )
        if self.kind != "train" or self.partition or self.aggregation != Aggregation():
            raise UserError(
                "split is for training, and combines the ranks itself; leave out kind, "
                "partition and aggregation"
            )
        constant = self.plan_schedule.kind == "constant" and not self.plan_schedule.warmup
        if self.split.arrival == "asynchronous" and not constant:
            raise UserError(
                "update_mode = asynchronous makes an update of every trainer's gradient; a "
                "schedule by batches has no meaning there"
            )
        if self.split.engine == "rpc" and self.slow is not None:
            raise UserError(
                "the framework sends the messages of engine = rpc itself; leave out "
                "straggler, or use engine = messages"
            )
        if not self.batch_size:
            raise UserError("split needs a batch_size: the batch goes through in micro-batches")
        return self

    @model_validator(mode="after")
    def _method_fits(self) -> Arm:
        """Check launcher, method and engine configuration; raise `UserError` for settings that the
        engine cannot follow. Without a method only a launcher and a configuration are checked."""
        if self.launcher and self.world_size == 1:
            raise UserError(f"launcher = {self.launcher} starts several ranks; world_size is 1")
        if self.method_config:
            check_config(
                self.method_config, self.method, self.batch_size, self.world_size, self.optimizer
            )
        if not self.method:
            return self
        if self.kind != "train" or self.split is not None or self.aggregation != Aggregation():
            raise UserError(
                "a method makes the updates itself; leave out kind, split and aggregation"
            )
        check_ranks(self.method, self.world_size, self.backends)
        if self.slow is not None:
            raise UserError("a method sends its messages itself; leave out straggler")
        if self.plan_precision.is_low:
            raise UserError("a method has a precision of its own; leave out precision")
        if not self.plan_schedule.constant:
            raise UserError("a method takes a constant step size; leave out schedule")
        if not self.batch_size or self.batch_size > self.chunk:
            raise UserError(
                "a method takes a batch at once, of 1 to accumulation_batch samples; received "
                f"batch_size = {self.batch_size}, accumulation_batch = {self.chunk}"
            )
        return self

    @model_validator(mode="after")
    def _partition_ranks_fit(self) -> Arm:
        """Check the partition against kind, number of ranks and batch size; raise `UserError` if it
        does not fit."""
        if self.dealt_to and not self.partition:
            raise UserError(f"partition_ranks = {self.dealt_to} needs a partition")
        if self.dealt_to and self.world_size > 1 and self.dealt_to != self.world_size:
            raise UserError(
                f"partition_ranks = {self.dealt_to}, but there are {self.world_size} ranks; "
                "it is for world_size = 1"
            )
        if self.partition and 0 < self.batch_size < self.partition_rank_count:
            raise UserError(
                f"batch_size = {self.batch_size} is shared by {self.partition_rank_count} ranks;"
                f" use {self.partition_rank_count} or more"
            )
        if self.partition and self.kind != "train":
            raise UserError("partition is for training; leave it out of kind = collectives")
        return self

    @model_validator(mode="before")
    @classmethod
    def _drop_default_loss_scale(cls, values: Any) -> Any:
        """Drop an explicit ``dynamic`` loss scale with ``fp16``, its default, so that both forms
        are the same arm."""
        table = values if isinstance(values, dict) else {}
        if (table.get("precision"), table.get("loss_scale")) == ("fp16", "dynamic"):
            return {key: value for key, value in table.items() if key != "loss_scale"}
        return values

    @model_validator(mode="after")
    def _precision_fits(self) -> Arm:
        """Check the settings that low precision and a loss scale exclude; raise `UserError` for the
        first that does not fit. An arm in float32 passes."""
        asked = self.plan_precision
        if not asked.is_low:
            return self
        if self.kind != "train":
            raise UserError(
                f"precision = {self.precision} is for training; leave it out of kind = {self.kind}"
            )
        if self.split is not None and self.split.context > 1:
            raise UserError(
                f"split.context = {self.split.context} attends in float32; leave out "
                f"precision = {self.precision}, or use tensor with sequence = true"
            )
        if asked.loss_scale is None:
            return self
        if self.split is not None and self.split.arrival == "asynchronous":
            raise UserError(
                "loss_scale: the server updates with every trainer's own gradient, and "
                "would skip some of a batch and not others; use precision = bf16 "
                "without loss_scale, or update_mode = synchronous"
            )
        settings = self.aggregation
        if settings.strategy == ASYNCHRONOUS or settings.of == "parameters":
            raise UserError(
                "loss_scale: here ranks update with gradients of their own, and would "
                "each skip other updates; use precision = bf16 without loss_scale, or "
                "an aggregation of gradients"
            )
        if settings.reduce in COORDINATEWISE:
            raise UserError(
                f"loss_scale and reduce = {settings.reduce}: a rank whose gradient "
                "overflows could go unseen; use precision = bf16 without loss_scale, "
                "or reduce = weighted"
            )
        if settings.compress != "none":
            raise UserError(
                f"loss_scale and compress = {settings.compress}: what overflows would "
                "be kept back or cut off before it is seen; leave one of them out"
            )
        return self

    @field_validator("zero", mode="before")
    @classmethod
    def _zero_number(cls, value: Any) -> Any:
        """Return the value unchanged, but raise `ValueError` for true and false, which would pass
        as 1 and 0."""
        if isinstance(value, bool):  # which Python takes for 0 or 1
            raise ValueError("Input should be 0, 1, 2 or 3")
        return value

    @model_validator(mode="after")
    def _zero_fits(self) -> Arm:
        """Check that the arm's other settings allow ZeRO; raise `UserError` if they do not. An arm
        without settings of ZeRO passes."""
        if self.zero or self.zero_reduce != "reduce_scatter" or self.zero_lower:
            other = "method" if self.method else "kind" if self.kind != "train" else ""
            check_zero(self.sharding, other, self.world_size, self.split, self.aggregation)
        if self.zero_lower and self.precision == "fp32":
            raise UserError(
                "zero_param_dtype holds all weights and gradients in the arm's low precision; "
                "precision is fp32: set fp16 or bf16, or leave zero_param_dtype out"
            )
        return self

    @model_validator(mode="after")
    def _offload_fits(self) -> Arm:
        """Check that the arm's other settings allow offloading; raise `UserError` if they do
        not."""
        if self.offload is not None:
            others = {"method": self.method, "split": self.split, "kind": self.kind != "train"}
            check_offload(
                self.offload,
                other=next((key for key, has in others.items() if has), ""),
                zero=self.zero,
                lower=self.zero_lower,
                world_size=self.world_size,
                settings=self.aggregation,
                rule=self.rule,
            )
        return self

    @field_validator("recompute")
    @classmethod
    def _recompute_is_known(cls, value: str | list[str]) -> str | list[str]:
        """Return the recomputation setting; raise `UserError` if it is invalid for every model."""
        check_recompute(value)
        return value

    @model_validator(mode="after")
    def _recompute_fits(self) -> Arm:
        """Check that the arm's other settings allow recomputation; raise `UserError` if they do
        not."""
        if self.recompute == "none":
            return self
        if self.kind != "train":
            raise UserError("recompute is for training; leave it out of kind = collectives")
        if self.method:
            raise UserError(
                f"method = {self.method} keeps what it keeps; leave out recompute, or "
                "use method = recompute"
            )
        if self.recompute == "selective" and self.split is not None and self.split.context > 1:
            raise UserError(
                f"recompute = selective computes attention again, and split.context = "
                f"{self.split.context} keeps no scores in the first place; use full, "
                "or leave it out"
            )
        if self.split is not None and self.split.engine == "rpc":
            raise UserError(
                "recompute and engine = rpc: there the framework keeps what it needs; "
                "use engine = messages, or leave out recompute"
            )
        return self

    @field_validator("schedule")
    @classmethod
    def _schedule_is_known(cls, value: dict[str, Any]) -> dict[str, Any]:
        """Return all fields of the learning rate schedule, with defaults filled in; raise
        `UserError` for an unknown key or a bad value."""
        known = [field.name for field in fields(LRSchedule)]
        for key in value:
            if key not in known:
                raise UserError(f"a schedule has no key {key!r}{did_you_mean(key, known)}")
        return LRSchedule(**value).describe()

    @property
    def variant(self) -> str:
        """Identifier of the arm's own model and of the ``recurrent`` settings that the arm sets, as
        in ``rnn_lm.gru.layers2.tied``; empty if the arm names no model and so trains the
        experiment's."""
        return ".".join((self.model, *self.recurrent.tags)) if self.model else ""

    @property
    def rule(self) -> OptimizerSpec:
        """Optimizer as an `OptimizerSpec`, with all hyperparameters."""
        return rule_from(self.optimizer)

    @property
    def plan_partition(self) -> Partition | None:
        """Partition of the samples, or None without one."""
        return partition_from(self.partition) if self.partition else None

    @property
    def partition_rank_count(self) -> int:
        """Number of ranks to which the partition assigns samples: ``dealt_to`` if it is set, else
        ``world_size``, also for an arm without a partition."""
        return self.dealt_to or self.world_size

    @property
    def plan_schedule(self) -> LRSchedule:
        """Learning rate schedule."""
        return LRSchedule(**self.schedule)

    @property
    def plan_precision(self) -> Precision:
        """Type of the matrix products with the loss scale: the arm's own, else ``dynamic`` with
        ``fp16`` and none otherwise."""
        scale: LossScale = "dynamic" if self.precision == "fp16" else None
        return Precision(self.precision, self.loss_scale or scale)

    @property
    def combining_key(self) -> str:
        """Setting by which several ranks train one model, as text for messages: ``method = NAME``,
        else the split's engine, else ``zero`` (if set) and the aggregation strategy."""
        if self.method:
            return f"method = {self.method}"
        if self.split is not None:
            return f"split (engine = {self.split.engine})"
        strategy = f"aggregation.strategy = {self.aggregation.strategy}"
        return f"zero = {self.zero}, {strategy}" if self.zero else strategy

    @property
    def sharding(self) -> Sharding:
        """Sharding of an arm with ``zero`` or ``offload``; with neither, an object of stage 0 that
        stands for no sharding."""
        stage = self.zero if self.offload is None else zero_stage(self.zero, self.offload)
        own = sharding_of(stage, self.zero_reduce, self.zero_lower, self.aggregation)
        return own if self.offload is None else with_default_units(own, self.aggregation)
