"""Select the weights of a checkpoint, and check that two checkpoints are of one model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dualml.common.errors import UserError
from dualml.runner.checkpoint.stored_checkpoint import Checkpoint
from dualml.runner.checkpoint.tensorfile import format_names

PREFIX = "weights/"
#: Prefix of every name in a state dict of torch's ``DistributedDataParallel`` or ``DataParallel``.
WRAPPER = "module."


def select_weights(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint of the weights only, under their canonical names.

    Raises:
        UserError: the checkpoint does not distinguish weights from other tensors.
    """
    weights = checkpoint.with_prefix(PREFIX)
    if weights.tensors:
        return weights
    if checkpoint.format == "trial":  # one that has ended has nothing else
        return checkpoint
    raise UserError(
        f"{checkpoint.path} has no tensors called weights/NAME, but "
        f"{format_names(checkpoint.tensors) or 'none'}: leave out --weights"
    )


def strip_wrapper(checkpoint: Checkpoint, names: Iterable[str]) -> Checkpoint:
    """Return the checkpoint without the prefix ``module.`` in its names, if all tensors have it.

    Tensors called ``weights/NAME`` and ``state/SLOT/NAME`` lose it from NAME. A model that has such
    names itself keeps them.

    Args:
        checkpoint: the checkpoint to rename.
        names: canonical names of the expected parameters.
    """
    heads = {name: name.rpartition("/")[0] for name in checkpoint.tensors}
    leaves = {name: name.rpartition("/")[2] for name in checkpoint.tensors}
    if not leaves or not all(leaf.startswith(WRAPPER) for leaf in leaves.values()):
        return checkpoint
    if any(name.rpartition("/")[2].startswith(WRAPPER) for name in names):
        return checkpoint
    short = {name: leaf.removeprefix(WRAPPER) for name, leaf in leaves.items()}
    tensors = {
        f"{heads[name]}/{short[name]}" if heads[name] else short[name]: tensor
        for name, tensor in checkpoint.tensors.items()
    }
    return replace(checkpoint, tensors=tensors)


def check_same_model(one: Checkpoint, other: Checkpoint) -> None:
    """Raise `UserError` for checkpoints of different models. Where one holds weights only, under
    their names or as ``weights/NAME``, only the weights are compared."""
    marked = [[name.startswith(PREFIX) for name in c.tensors] for c in (one, other)]
    if any(map(any, marked)) and any(all(each) or not any(each) for each in marked):
        one, other = (
            c.with_prefix(PREFIX) if any(each) else c
            for c, each in zip((one, other), marked, strict=True)
        )
    one, other = strip_wrapper(one, other.tensors), strip_wrapper(other, one.tensors)
    one.check_model({name: t.shape for name, t in other.tensors.items()}, str(other.path))
