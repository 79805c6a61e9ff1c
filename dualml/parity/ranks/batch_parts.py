"""Parts of a batch that ranks train on: which ranks share one, and how their outputs are joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.models.gap import is_bit_identical
from dualml.parity.models.layers import module_name
from dualml.parity.models.trace import OUTPUT, array_key, hash_array
from dualml.parity.ranks.rank_files import RankRecording, find_parts, loss_weight
from dualml.parity.ranks.shards import (
    RankArray,
    assemble_shards,
    average,
    is_sharded,
    join_batch,
)

Array = NDArray[Any]


def split_by_inputs(recordings: Sequence[RankRecording], step: int) -> list[list[RankRecording]]:
    """Return the ranks in groups that had the same inputs in a step: each group has one part of the
    batch. Groups, and the ranks in them, are in the order of ``recordings``."""
    groups: dict[tuple[str, ...], list[RankRecording]] = {}
    for one in recordings:
        inputs = one.trace.inputs[step - 1] if 0 < step <= len(one.trace.inputs) else []
        groups.setdefault(tuple(inputs), []).append(one)
    return list(groups.values())


def join_outputs(
    parts: Sequence[Sequence[RankRecording]], step: int, name: str, interleaved: bool
) -> Array | None:
    """Return the whole output of a module in a step, joined from the parts of the batch; None if it
    is not known how the ranks' outputs lie in it.

    Args:
        parts: the ranks in groups, see `split_by_inputs`.
        interleaved: whether the parts have samples in turn, not one part after the other.
    """
    outputs = [share_output(part, step, name) for part in parts]
    known = [one for one in outputs if one is not None]
    if len(known) < len(outputs) or not known:
        return None
    if len(known) == 1:
        return known[0]
    return join_parts(known, interleaved)


def join_parts(parts: Sequence[Array], interleaved: bool) -> Array | None:
    """Return the parts of a batch joined along their first axis; None if their shapes do not fit.

    Args:
        interleaved: whether the parts have samples in turn, not one part after the other; they must
            then be equally long.
    """
    joined = join_batch(parts)
    if joined is None or not interleaved:
        return joined
    if len({len(part) for part in parts}) > 1:
        return None
    return np.stack(parts, axis=1).reshape(joined.shape)


def share_output(part: Sequence[RankRecording], step: int, name: str) -> Array | None:
    """Return the output of a module in a step on ranks that have the same inputs: the last stage's
    in a pipeline, assembled by recorded places, the copy that all ranks have, or joined along the
    features as the module's weight is divided. None if it is none of these. Raise ValueError if
    recorded places do not fit together."""
    found = find_parts(part, "forward", step, name)
    if not found:
        return None
    if is_pipeline(part) and name.startswith(OUTPUT):
        return found[-1].array  # those before are what stages hand on
    if found[0].place is not None:
        return assemble_shards(found)
    if all(is_bit_identical(found[0].array, one.array) for one in found[1:]):
        return found[0].array
    return join_features(part, found, module_name(name))


def join_features(
    part: Sequence[RankRecording], found: Sequence[RankArray], module: str
) -> Array | None:
    """Return outputs joined along their last axis, if the rows of the module's weight are divided
    among the ranks in the same way; else None."""
    weights = find_parts(part, "parameters", 0, f"{module}.weight")
    if len(weights) != len(found) or not is_sharded(weights):
        return None
    rows = [one.array.shape[0] for one in weights]
    columns = [one.array.shape[-1] if one.array.ndim else 0 for one in found]
    whole = weights[0].place.shape[0] if weights[0].place is not None else 0
    if rows != columns or sum(rows) != whole:
        return None
    return np.concatenate([one.array for one in found], axis=-1)


def is_pipeline(recordings: Sequence[RankRecording]) -> bool:
    """Return whether there are several ranks and no two of them have a trained parameter of the
    same name."""
    names = [t.name for one in recordings for t in one.trace.tensors if t.trained]
    return len(recordings) > 1 and len(names) == len(set(names))


def hash_inputs(
    parts: Sequence[Sequence[RankRecording]], step: int, interleaved: bool
) -> list[str]:
    """Return the digest of each whole input of a step; an input that differs between the parts of
    the batch is joined along its first axis, or the first part's digest counts if it cannot be
    joined.

    Args:
        parts: the ranks in groups, see `split_by_inputs`.
        interleaved: whether the parts have samples in turn, not one part after the other.
    """
    hashes = [list(part[0].trace.inputs[step - 1]) for part in parts]
    whole = []
    for i in range(max(map(len, hashes))):
        own = [one[i] for one in hashes if i < len(one)]
        if len(set(own)) > 1 and len(own) == len(hashes):
            keys = array_key("input", step, str(i))
            arrays = [part[0].trace.arrays[keys] for part in parts]
            joined = join_parts(arrays, interleaved)
            whole.append(own[0] if joined is None else hash_array(joined))
        else:
            whole.append(own[0])
    return whole


def average_losses(parts: Sequence[Sequence[RankRecording]], step: int) -> Array | None:
    """Return the mean of the losses of all parts of a batch, in float64, with the weights that the
    script gave them (1 if none); None if no loss was recorded or all weights are 0."""
    values, weights = [], []
    for part in parts:
        for one in reversed(part):  # of a pipeline the last stage has it
            value = one.trace.find_array("loss", step, "loss")
            if value is not None:
                values.append(value)
                weights.append(loss_weight(one.trace, step))
                break
    return average(values, weights) if values and sum(weights) else None
