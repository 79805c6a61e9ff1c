"""The settings of arms of all kinds, and the checks that all kinds have in common."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from dualml.algorithms.optim import LRSchedule, OptimizerSpec, rule_from
from dualml.algorithms.precision import LossScale, Precision
from dualml.common.errors import UserError
from dualml.common.tagged_union import TaggedUnion
from dualml.experiment.arm import settings as types
from dualml.experiment.arm.infer import infer_kind
from dualml.experiment.models import RecurrentSettings
from dualml.experiment.offload_checks import unit_stage, with_default_units
from dualml.experiment.split import AnySplit
from dualml.experiment.zero_checks import sharding_of
from dualml.parallel.aggregation import NATIVE, REPLICAS
from dualml.parallel.aggregation.coordinates import COORDINATEWISE
from dualml.parallel.aggregation.settings import Aggregation, AnyAggregation
from dualml.parallel.offload.settings import Offload
from dualml.parallel.partition import Partition, partition_from
from dualml.parallel.zero.settings import Sharding

#: Rarely used keys of an arm.
RARE = (
    "kind", "world_size", "aggregation", "slow", "sizes", "strategies", "seconds", "partition",
    "dealt_to", "cores", "seeds", "model", "split", "method", "method_config", "launcher",
    "backends", "precision", "loss_scale", "zero", "zero_reduce", "zero_lower", "recompute",
    "offload", "recurrent",
)  # fmt: skip


class Arm(TaggedUnion):
    """One configuration of an experiment: the settings of arms of all kinds.

    An arm is of one of the kinds in `dualml.experiment.arm.kinds`, which take fewer values of some
    settings and need others. The checks here are between settings that kinds have in common.

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

    model_config = ConfigDict(defer_build=True)  # the union builds what it needs

    kind: Literal["train", "collectives"] = "train"
    optimizer: types.Optimizer = {"name": "sgd", "lr": 0.01}
    world_size: types.WorldSize = 1
    aggregation: AnyAggregation = Aggregation()
    slow: types.StragglerSettings | None = None
    partition: types.Partitioning = {}
    dealt_to: types.PartitionRanks = 0
    cores: Annotated[int, Field(ge=0)] = 0
    sizes: types.Sizes = []
    strategies: types.Strategies = []
    seconds: Annotated[float, Field(gt=0, strict=False)] = 0.5
    schedule: types.Schedule = {}
    batch_size: types.BatchSize = 64
    epochs: Annotated[float, Field(gt=0, strict=False)] = 3.0
    updates: Annotated[int, Field(ge=0, le=types.MAX_UPDATES)] = 0
    samples: Annotated[int, Field(ge=0)] = 0
    chunk: Annotated[int, Field(ge=1)] = 256
    seeds: Annotated[int, Field(ge=0)] = 0
    group: str = "main"
    model: types.Model = ""
    split: AnySplit | None = None
    method: types.Method = ""
    method_config: types.MethodConfig = {}
    launcher: types.Launcher = ""
    backends: types.Backends = []
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    loss_scale: types.LossScaling = None
    zero: types.ZeroStage = 0
    zero_reduce: Literal["reduce_scatter", "all_reduce"] = "reduce_scatter"
    zero_lower: bool = False
    recompute: types.Recompute = "none"
    offload: Offload | None = None
    recurrent: RecurrentSettings = RecurrentSettings()

    @classmethod
    def infer_tag(cls, settings: Any) -> str:
        """Return the tag of the kind of arm that ``settings`` describe, see `infer_kind`."""
        return infer_kind(settings)

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
    def _ranks_fit(self) -> Self:
        """Raise `UserError` for a straggler that is no rank or delays messages of the framework, or
        for a launcher of one rank."""
        slow, sharing = self.slow, self.aggregation
        if slow is not None and slow.rank >= self.world_size:
            raise UserError(
                f"straggler.rank = {slow.rank}, but world_size is {self.world_size}: "
                f"ranks go from 0 to {self.world_size - 1}"
            )
        late = slow is not None and slow.delays_messages
        if late and (sharing.strategy in (NATIVE, REPLICAS) or sharing.overlap):
            raise UserError(
                "the framework sends these messages itself: straggler can only make the "
                "computation late there (compute, jitter_s)"
            )
        if self.launcher and self.world_size == 1:
            raise UserError(f"launcher = {self.launcher} starts several ranks; world_size is 1")
        return self

    @model_validator(mode="after")
    def _partition_fits(self) -> Self:
        """Raise `UserError` for a partition that does not fit the ranks or the batch size."""
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
        return self

    @model_validator(mode="after")
    def _precision_fits(self) -> Self:
        """Raise `UserError` for low precision, or a loss scale, that the aggregation or the dtype
        of the weights excludes."""
        scaled, sharing = self.plan_precision.loss_scale is not None, self.aggregation
        if scaled and sharing.reduce in COORDINATEWISE:
            raise UserError(
                f"loss_scale and reduce = {sharing.reduce}: a rank whose gradient "
                "overflows could go unseen; use precision = bf16 without loss_scale, "
                "or reduce = weighted"
            )
        if scaled and sharing.compress != "none":
            raise UserError(
                f"loss_scale and compress = {sharing.compress}: what overflows would "
                "be kept back or cut off before it is seen; leave one of them out"
            )
        if self.zero_lower and self.precision == "fp32":
            raise UserError(
                "zero_param_dtype holds all weights and gradients in the arm's low precision; "
                "precision is fp32: set fp16 or bf16, or leave zero_param_dtype out"
            )
        return self

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
        """Learning rate schedule that the table ``schedule`` describes."""
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
        stage = self.zero if self.offload is None else unit_stage(self.zero, self.offload)
        own = sharding_of(stage, self.zero_reduce, self.zero_lower, self.aggregation)
        return own if self.offload is None else with_default_units(own, self.aggregation)
