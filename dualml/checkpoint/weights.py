"""The weights of a checkpoint, among what else it has, and two checkpoints side by side."""

from __future__ import annotations

from dualml.checkpoint.stored import Checkpoint
from dualml.checkpoint.tensorfile import listed
from dualml.errors import UserError

PREFIX = "weights/"


def weights_of(checkpoint: Checkpoint) -> Checkpoint:
    """The weights alone, under their canonical names.

    Raises:
        UserError: it does not tell weights from other tensors.
    """
    weights = checkpoint.below(PREFIX)
    if weights.tensors:
        return weights
    if checkpoint.format == "trial":  # one that has ended has nothing else
        return checkpoint
    raise UserError(
        f"{checkpoint.path} has no tensors called weights/NAME, but "
        f"{listed(checkpoint.tensors) or 'none'}: leave out --weights"
    )


def check_alike(one: Checkpoint, other: Checkpoint) -> None:
    """Raises `UserError` for checkpoints of different models. Where one has weights alone, under
    their names or as ``weights/NAME``, the weights are compared."""
    marked = [[name.startswith(PREFIX) for name in c.tensors] for c in (one, other)]
    if any(map(any, marked)) and any(all(each) or not any(each) for each in marked):
        one, other = (
            c.below(PREFIX) if any(each) else c
            for c, each in zip((one, other), marked, strict=True)
        )
    one.match({name: t.shape for name, t in other.tensors.items()}, str(other.path))
