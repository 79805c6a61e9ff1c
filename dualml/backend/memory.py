"""Memory of a training in bytes, by purpose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryUsage:
    """Memory of one rank in bytes, counted tensor by tensor; None where the framework does not
    report it.

    Attributes:
        weights: parameters.
        gradients: one per parameter, in the form that the optimizer receives.
        state: optimizer state, without the update count.
        activations: tensors that a forward pass saves for its backward pass, without parameters and
            samples. An unsplit training counts one chunk of the batch; a split one the peak of the
            rank over all its micro-batches (`dualml.backend.stage.Stage.saved_activation_bytes`).
        buckets: copies of gradients or parameters that ranks make to combine them.
    """

    weights: int
    gradients: int
    state: int
    activations: int | None = None
    buckets: int = 0
