"""What a training holds in memory, in bytes by what they are for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Memory:
    """Of one rank, in bytes, counted tensor by tensor; None where the framework does not show it.

    Attributes:
        weights: parameters.
        gradients: one of every parameter, as they are when the optimizer gets them.
        state: the optimizer's, without its count of updates.
        activations: what a forward pass keeps for its backward pass, without parameters and
            samples: of one chunk of the batch; of a split model the most that the rank kept at
            once, for all its micro-batches (`dualml.backend.stage.Stage.held`).
        buckets: copies of gradients or parameters that ranks make to combine them.
    """

    weights: int
    gradients: int
    state: int
    activations: int | None = None
    buckets: int = 0
