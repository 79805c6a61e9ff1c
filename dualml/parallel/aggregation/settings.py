"""Settings of an arm's aggregation, as users write them: a union of kinds, by what is combined and
who sends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field

from dualml.common.errors import UserError, did_you_mean
from dualml.common.strict_model import Restricted
from dualml.common.tagged_union import (
    OTHER_KIND,
    TaggedUnion,
    make_choice,
    make_minimum,
    make_union_type,
    read_setting,
)
from dualml.parallel.aggregation import ASYNCHRONOUS, SCHEMES, STRATEGIES
from dualml.parallel.aggregation.buckets import BUCKET_BYTES
from dualml.parallel.aggregation.coordinates import COORDINATEWISE

#: Newer keys, which a plan contains only if the user set them.
RARE_OF_AGGREGATION = ("overlap", "cut")
#: Reductions that are sums, or sums that are divided.
SUMS = ("weighted", "mean", "sum")


def _known_strategy(value: str) -> str:
    """Return the strategy's name; raise `UserError` if no strategy or scheme has this name."""
    known = [*STRATEGIES, *SCHEMES]
    if value not in known:
        raise UserError(f"unknown strategy {value!r}{did_you_mean(value, known)}")
    return value


def _require_strategy(reduce: str) -> Restricted:
    """Return the restriction of the reduction ``max`` or ``median`` to the strategies that compute
    it."""
    able = COORDINATEWISE[reduce]
    return Restricted(
        f"reduce = {reduce} is no sum, which {{strategy}} makes; set strategy = "
        f"{' or '.join(able)}",
        lambda value, strategy: value != reduce or strategy in able,
        earlier=("strategy",),
    )


_NEEDS_RING = Restricted(
    "cut = layers cuts the chunks of a ring; {strategy} has none: set strategy = ring, or leave "
    "cut out",
    lambda cut, strategy: cut == "equal" or strategy == "ring",
    earlier=("strategy",),
)


class Aggregation(TaggedUnion):
    """Settings for combining gradients or parameters over the ranks of a trial, of one of the kinds
    below.

    ``of`` says what is combined: gradients before every update, or parameters after every ``every``
    updates. ``reduce`` is ``weighted`` by the samples of each rank (the exact gradient of the
    batch), ``mean`` over the ranks regardless of their samples, ``sum``, or elementwise ``max`` or
    ``median`` of the ranks' values. ``cut``: the chunks of a ring are ``equal``, or whole
    ``layers``. ``bucket_bytes`` 0 sends every tensor separately. ``overlap`` sends a bucket while
    the gradients of the next one are computed. ``fraction`` is the share of entries that ``topk``
    sends. ``arrival`` is the order in which an asynchronous server handles the ranks: ``planned``
    (drawn from the seed, the same on every backend) or ``free``.
    """

    model_config = ConfigDict(defer_build=True)  # arms build what they need

    strategy: Annotated[str, AfterValidator(_known_strategy)] = "all_reduce"
    of: Literal["gradients", "parameters"] = "gradients"
    reduce: Annotated[
        Literal["weighted", "mean", "sum", "max", "median"],
        _require_strategy("max"),
        _require_strategy("median"),
    ] = "weighted"
    every: Annotated[int, Field(ge=1)] = 1
    bucket_bytes: Annotated[int, Field(ge=0)] = BUCKET_BYTES
    compress: Literal["none", "fp16", "topk"] = "none"
    fraction: Annotated[float, Field(gt=0, le=1, strict=False)] = 0.01
    arrival: Literal["planned", "free"] = "planned"
    overlap: bool = False
    cut: Annotated[Literal["equal", "layers"], _NEEDS_RING] = "equal"

    @classmethod
    def infer_tag(cls, settings: Any) -> str:
        """Return the tag of the kind to which ``settings``, a mapping or an object, belong, such as
        ``averaging``. Of settings that exclude each other the first one checked decides; errors of
        its kind name the others."""
        strategy = read_setting(settings, "strategy")
        if strategy in SCHEMES:
            return "asynchronous" if strategy == ASYNCHRONOUS else "framework"
        if read_setting(settings, "of") == "parameters":
            return "averaging"
        if read_setting(settings, "overlap") is True:
            return "overlapped"
        return "gradients" if read_setting(settings, "compress") in (None, "none") else "compressed"


class AveragingAggregation(
    Aggregation,
    tag="averaging",
    without={
        "compress": "compress = {value} is for gradients; leave out target = parameters",
        "overlap": "overlap adds up buckets of gradients; leave it out, or target = parameters",
    },
):
    """Averages parameters after every ``every`` updates (local SGD)."""

    of: Literal["parameters"]


class PerUpdateAggregation(
    Aggregation,
    without={
        "every": "sync_period = {value} needs target = parameters: gradients are combined before "
        "every update"
    },
    only={"of": make_choice(OTHER_KIND, "gradients")},
):
    """Combines gradients before every update: all kinds but `AveragingAggregation`."""


class SchemeAggregation(
    PerUpdateAggregation,
    without={
        "of": "{strategy} takes whole gradients; leave out target = {value}",
        "compress": "{strategy} takes whole gradients; leave out compress = {value}",
        "overlap": "overlap adds up buckets of gradients by all_reduce, not {strategy}; leave out "
        "one of them",
    },
):
    """Combines gradients in a scheme that is no strategy of `STRATEGIES`."""


class AsynchronousAggregation(SchemeAggregation, tag="asynchronous"):
    """Sends gradients to a parameter server, which updates with every rank's."""

    strategy: Literal["parameter_server_async"]


class FrameworkAggregation(SchemeAggregation, tag="framework"):
    """Combines gradients by the framework's own data parallel training."""

    strategy: Literal["native", "replicas"]


class OverlappedAggregation(
    PerUpdateAggregation,
    tag="overlapped",
    only={
        "strategy": make_choice(
            "overlap = true adds up buckets of gradients by all_reduce; leave out strategy = "
            "{value}, or overlap",
            "all_reduce",
        ),
        "reduce": make_choice(
            "overlap = true adds up buckets of gradients; leave out reduce = {value}, or overlap",
            *SUMS,
        ),
        "bucket_bytes": make_minimum(
            "overlap = true sends buckets of several gradients; leave out bucket_bytes = {value}, "
            "or overlap",
            1,
        ),
    },
    without={
        "compress": "overlap = true adds up buckets of gradients as they are; leave out compress = "
        "{value}, or overlap",
    },
):
    """Sends a bucket of gradients while those of the next one are computed."""

    overlap: Literal[True]


class AfterBackwardAggregation(
    PerUpdateAggregation,
    only={
        "strategy": Restricted(
            "neighbour averages parameters; set target = parameters, or another strategy for "
            "gradients",
            lambda strategy: strategy != "neighbour",
        ),
        "overlap": make_choice(OTHER_KIND, False),
    },
):
    """Combines gradients by a strategy once the backward pass is done."""


class CompressedAggregation(
    AfterBackwardAggregation,
    tag="compressed",
    only={
        "compress": Restricted(
            "reduce = {reduce} compares whole values of gradients; leave out compress = {value}",
            lambda compress, reduce: compress != "none" and reduce in SUMS,
            {"enum": ["fp16", "topk"]},
            earlier=("reduce",),
        ),
    },
):
    """Sends gradients in fewer bits, or the largest entries alone."""


class GradientAggregation(
    AfterBackwardAggregation,
    tag="gradients",
    only={"compress": make_choice(OTHER_KIND, "none")},
):
    """Sends gradients as they are."""


if TYPE_CHECKING:
    AnyAggregation: TypeAlias = Aggregation
else:
    AnyAggregation = make_union_type(
        AsynchronousAggregation,
        FrameworkAggregation,
        AveragingAggregation,
        OverlappedAggregation,
        CompressedAggregation,
        GradientAggregation,
    )
