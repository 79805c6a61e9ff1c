"""Settings of an arm's aggregation, as users write them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from dualml.common.errors import UserError, did_you_mean
from dualml.common.strict_model import StrictModel
from dualml.parallel.aggregation import SCHEMES, STRATEGIES
from dualml.parallel.aggregation.buckets import BUCKET_BYTES
from dualml.parallel.aggregation.coordinates import COORDINATEWISE

#: Newer keys, which a plan contains only if the user set them.
RARE_OF_AGGREGATION = ("overlap", "cut")


class Aggregation(StrictModel):
    """Settings for combining gradients or parameters over the ranks of a trial.

    ``of`` says what is combined: gradients before every update, or parameters after every ``every``
    updates. ``reduce`` is ``weighted`` by the samples of each rank (the exact gradient of the
    batch), ``mean`` over the ranks regardless of their samples, ``sum``, or elementwise ``max`` or
    ``median`` of the ranks' values. ``cut``: the chunks of a ring are ``equal``, or whole
    ``layers``. ``bucket_bytes`` 0 sends every tensor separately. ``overlap`` sends a bucket while
    the gradients of the next one are computed. ``fraction`` is the share of entries that ``topk``
    sends. ``arrival`` is the order in which an asynchronous server handles the ranks: ``planned``
    (drawn from the seed, the same on every backend) or ``free``.
    """

    strategy: str = "all_reduce"
    of: Literal["gradients", "parameters"] = "gradients"
    reduce: Literal["weighted", "mean", "sum", "max", "median"] = "weighted"
    every: Annotated[int, Field(ge=1)] = 1
    bucket_bytes: Annotated[int, Field(ge=0)] = BUCKET_BYTES
    compress: Literal["none", "fp16", "topk"] = "none"
    fraction: Annotated[float, Field(gt=0, le=1, strict=False)] = 0.01
    arrival: Literal["planned", "free"] = "planned"
    overlap: bool = False
    cut: Literal["equal", "layers"] = "equal"

    @field_validator("strategy")
    @classmethod
    def _strategy_is_known(cls, value: str) -> str:
        """Return the strategy's name; raise `UserError` if no strategy or scheme has this name."""
        known = [*STRATEGIES, *SCHEMES]
        if value not in known:
            raise UserError(f"unknown strategy {value!r}{did_you_mean(value, known)}")
        return value

    @model_validator(mode="after")
    def _means_something(self) -> Aggregation:
        """Return the settings; raise `UserError` with a remedy if they do not fit together."""
        parameters = self.of == "parameters"
        if self.every > 1 and not parameters:
            raise UserError(
                f"sync_period = {self.every} needs target = parameters: gradients are combined "
                "before every update"
            )
        if parameters and self.compress != "none":
            raise UserError(
                f"compress = {self.compress} is for gradients; leave out target = parameters"
            )
        if self.strategy == "neighbour" and not parameters:
            raise UserError("neighbour averages parameters; set target = parameters")
        if self.strategy in SCHEMES and (parameters or self.compress != "none"):
            raise UserError(f"{self.strategy} takes whole gradients; leave out target and compress")
        able = COORDINATEWISE.get(self.reduce, (self.strategy,))
        if self.strategy not in able:
            raise UserError(
                f"reduce = {self.reduce} is no sum, which {self.strategy} makes; set strategy = "
                f"{' or '.join(able)}"
            )
        if self.reduce in COORDINATEWISE and self.compress != "none":
            raise UserError(
                f"reduce = {self.reduce} compares whole values; leave out compress = "
                f"{self.compress}"
            )
        if self.cut == "layers" and self.strategy != "ring":
            raise UserError(
                f"cut = layers cuts the chunks of a ring; {self.strategy} has none: set strategy = "
                "ring, or leave cut out"
            )
        if self.overlap and (
            self.strategy != "all_reduce"
            or parameters
            or not self.bucket_bytes
            or self.compress != "none"
            or self.reduce in COORDINATEWISE
        ):
            raise UserError(
                "overlap adds up buckets of gradients by all_reduce; leave out target, "
                "compress, reduce = max, other strategies and bucket_bytes = 0"
            )
        return self
