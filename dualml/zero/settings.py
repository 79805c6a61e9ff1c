"""What of a model is shared out, and how, as an arm asks for it."""

from __future__ import annotations

from dataclasses import dataclass

from dualml.aggregation.buckets import BUCKET_BYTES

#: What is shared out: the optimizer's state, gradients, too, and weights, too.
STAGES = (1, 2, 3)
#: How gradients come together and weights go out: each rank gets the sum of its part, and gives its
#: part to all (the halves of an all-reduce); or every rank gets the whole sum, and each broadcasts.
WAYS = ("reduce_scatter", "all_reduce")
#: The strategy of an arm that leaves the collectives to the framework; with any other that fits
#: they are made of messages around a ring.
NATIVE = "reduce_scatter_all_gather"
#: Strategies of an arm that fit.
STRATEGIES = ("all_reduce", "ring", NATIVE)


@dataclass(frozen=True)
class Sharding:
    """How a trial shares out what it holds.

    Attributes:
        stage: 1 the optimizer's state, 2 and gradients, 3 and weights.
        reduce: one of `WAYS`.
        bucket_bytes: of a unit, as `dualml.zero.units.units_of` takes it; 0: every layer with
            parameters is one.
        native: whether the framework's own collectives are used.
        overlap: whether the ranks gather a unit while they compute the one before it, and add up
            the gradient of one while they compute the next; stages 2 and 3.
        lower: whether whole weights and gradients are held, and sent, in the lower type of the
            precision; the float32 weights are a part of the state.
    """

    stage: int
    reduce: str = "reduce_scatter"
    bucket_bytes: int | None = BUCKET_BYTES
    native: bool = False
    overlap: bool = False
    lower: bool = False

    @property
    def rooms(self) -> int:
        """How many units are there at a time, of stages that do not keep all of them."""
        return 2 if self.overlap else 1
