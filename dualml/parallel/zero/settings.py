"""Settings of sharded training (ZeRO), as an arm requests them."""

from __future__ import annotations

from dataclasses import dataclass

from dualml.common.former_members import keep_former_members
from dualml.parallel.aggregation.buckets import BUCKET_BYTES

#: ZeRO stages: shard the optimizer state; also the gradients; also the weights.
STAGES = (1, 2, 3)
#: Collectives that reduce gradients and distribute weights: reduce-scatter, then all-gather (the
#: halves of an all-reduce); or all-reduce, after which each rank broadcasts its updated part.
REDUCE_MODES = ("reduce_scatter", "all_reduce")
#: Strategy of an arm that uses the collectives of the framework; with the other strategies they are
#: composed of messages around a ring.
NATIVE = "reduce_scatter_all_gather"
#: Strategies of an arm that ZeRO supports.
STRATEGIES = ("all_reduce", "ring", NATIVE)


@keep_former_members
@dataclass(frozen=True)
class Sharding:
    """The sharded parts of the training state, and the way they are sharded.

    Attributes:
        stage: 1: optimizer state; 2: also gradients; 3: also weights.
        reduce: one of `REDUCE_MODES`.
        bucket_bytes: bytes of a unit, see `dualml.parallel.zero.units.units_of`; 0: every layer
            with parameters is a unit; None: about an eighth of the model.
        native: whether the framework's own collectives are used.
        overlap: whether ranks gather a unit while they compute the previous one, and reduce the
            gradient of a unit while they compute the next one; stages 2 and 3.
        lower: whether whole weights and gradients are held and sent in low precision; the float32
            weights are then part of the optimizer state.
    """

    stage: int
    reduce: str = "reduce_scatter"
    bucket_bytes: int | None = BUCKET_BYTES
    native: bool = False
    overlap: bool = False
    lower: bool = False

    @property
    def buffer_slots(self) -> int:
        """Number of buffers that units use in turn, in stages that do not keep all units: 2 with
        overlap, else 1."""
        return 2 if self.overlap else 1
