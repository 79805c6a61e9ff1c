"""Gather the traces of all ranks into one trace of the usual form.

Parameters, gradients, updates and optimizer states are put together from shards; of copies the
lowest rank's is taken. Ranks that had other inputs than others trained on other parts of the batch:
what they computed is joined along the first axis, in the order of the ranks, and their losses are
averaged. Ranks with the same inputs share one part: tensor-parallel ranks, and pipeline stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.parity.models.gap import is_bit_identical
from dualml.parity.models.layers import module_name
from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import OUTPUT, Trace, array_key, hash_array, hash_arrays
from dualml.parity.models.trace_files import TraceArrays
from dualml.parity.ranks.micro_batches import join_calls
from dualml.parity.ranks.rank_files import (
    RankRecording,
    check_steps,
    find_parts,
    loss_weight,
    read_ranks,
)
from dualml.parity.ranks.shards import (
    RankArray,
    assemble_shards,
    average,
    is_sharded,
    join_batch,
)

Array = NDArray[Any]
#: Phases whose arrays belong to parameters: every rank has a shard or a copy.
PARAMETER_PHASES = ("parameters", "gradient", "update", "state", "schedule")


def gather_folder(folder: Path, *, interleaved: bool = False) -> Trace:
    """Gather what all ranks recorded into a folder, and write the whole trace there.

    Args:
        interleaved: whether element i of the batch is that of rank i modulo their number, as
            PyTorch's `DistributedSampler` deals; else each rank has a block.

    Raises:
        UserError: a rank's trace is missing, or they do not fit together.
    """
    arrays = TraceArrays(folder)
    trace = gather_ranks(read_ranks(folder), arrays, interleaved=interleaved)
    arrays.write()
    trace.write_header(folder)
    return trace


def gather_ranks(
    recordings: Sequence[RankRecording],
    arrays: TraceArrays | None = None,
    *,
    interleaved: bool = False,
) -> Trace:
    """Return the whole trace of what the ranks recorded, see `gather_folder`.

    Args:
        arrays: where the whole arrays go; None: into memory.

    Raises:
        UserError: shapes of one parameter differ, or shards are missing.
    """
    check_steps(recordings)
    recordings = [replace(one, trace=join_calls(one.trace)) for one in recordings]
    raised = [f"rank {one.rank}: {one.trace.raised}" for one in recordings if one.trace.raised]
    first = recordings[0].trace
    steps = min(one.trace.steps for one in recordings)
    whole: dict[str, Array] = {}
    trace = Trace(
        framework=first.framework,
        environment={**first.environment, "ranks": str(len(recordings))},
        tensors=list(list_tensors(recordings)),
        modules={k: v for one in recordings for k, v in one.trace.modules.items()},
        steps=steps,
        envelope=join_envelopes(recordings),
        draws=min(one.trace.draws for one in recordings),
        random=next((one.trace.random for one in recordings if one.trace.random), None),
        repeated=all(one.trace.repeated for one in recordings),
        raised=raised[0] if raised else None,
    )
    trace.arrays = whole if arrays is None else arrays

    def store(phase: str, step: int, name: str, array: Array) -> None:
        key = array_key(phase, step, name)
        if arrays is None:
            whole[key] = array
        else:
            arrays.store(key, array)

    for step in range(steps + 1):
        parts = split_by_inputs(recordings, step)
        names: list[str] = []
        for name in list_names(recordings, "forward", step):
            joined = join_outputs(parts, step, name, interleaved)
            if joined is not None:
                store("forward", step, name, joined)
                names.append(name)
        if step:
            trace.order.append(names)
            trace.inputs.append(hash_inputs(parts, step, interleaved))
            loss = average_losses(parts, step)
            if loss is not None:
                store("loss", step, "loss", loss)
        for phase in PARAMETER_PHASES:
            for name in list_names(recordings, phase, step):
                found = find_parts(recordings, phase, step, name)
                try:
                    store(phase, step, name, assemble_shards(found))
                except ValueError as error:
                    raise UserError(f"{phase} of {name} in step {step}: {error}") from None
    trace.weights_digest = hash_arrays(trace.initial_parameters())
    return trace


def list_names(recordings: Sequence[RankRecording], phase: str, step: int) -> list[str]:
    """Return the names of the arrays of a phase, of all ranks, each once in the order of the
    ranks; the model's own outputs are the last ones."""
    names = {name: None for one in recordings for name in one.trace.names(phase, step)}
    own = [name for name in names if name.startswith(OUTPUT)]
    return [name for name in names if name not in own] + own


def list_tensors(recordings: Sequence[RankRecording]) -> Iterator[Tensor]:
    """Yield all parameters and buffers with their whole shapes.

    Raises:
        UserError: two ranks have one with different shapes that are no shards.
    """
    seen: dict[str, tuple[tuple[int, ...], int]] = {}
    for one in recordings:
        for tensor in one.trace.tensors:
            place = one.facts.places.get(f"parameters/{tensor.name}")
            shape = tensor.shape if place is None else place.shape
            known, rank = seen.setdefault(tensor.name, (shape, one.rank))
            if known != shape:
                raise UserError(
                    f"{tensor.name} has shape {known} on rank {rank} and {shape} on rank "
                    f"{one.rank}: a name must mean the same parameter on all ranks; name the "
                    "modules of a stage by their place in the whole model"
                )
            if rank == one.rank:
                yield Tensor(tensor.name, shape, tensor.trained)


def split_by_inputs(recordings: Sequence[RankRecording], step: int) -> list[list[RankRecording]]:
    """Return the ranks in groups that had the same inputs in a step, in the order of the ranks:
    each group has one part of the batch."""
    groups: dict[tuple[str, ...], list[RankRecording]] = {}
    for one in recordings:
        inputs = one.trace.inputs[step - 1] if 0 < step <= len(one.trace.inputs) else []
        groups.setdefault(tuple(inputs), []).append(one)
    return list(groups.values())


def join_outputs(
    parts: Sequence[Sequence[RankRecording]], step: int, name: str, interleaved: bool
) -> Array | None:
    """Return the whole output of a module; None if it is not known how the ranks' ones lie in
    it."""
    outputs = [share_output(part, step, name) for part in parts]
    known = [one for one in outputs if one is not None]
    if len(known) < len(outputs) or not known:
        return None
    if len(known) == 1:
        return known[0]
    return join_parts(known, interleaved)


def join_parts(parts: Sequence[Array], interleaved: bool) -> Array | None:
    """Return the parts of a batch joined along their first axis; None if they do not fit."""
    joined = join_batch(parts)
    if joined is None or not interleaved:
        return joined
    if len({len(part) for part in parts}) > 1:
        return None
    return np.stack(parts, axis=1).reshape(joined.shape)


def share_output(part: Sequence[RankRecording], step: int, name: str) -> Array | None:
    """Return the output of a module on ranks that have the same inputs: put together by their
    places, or the same everywhere, or cut into features as the module's weight is; None if it is
    none of these."""
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
    """Return outputs joined along their last axis, where the rows of the module's weight are
    divided among the ranks; None if they are not."""
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
    """Return whether no two ranks have a parameter of the same name."""
    names = [t.name for one in recordings for t in one.trace.tensors if t.trained]
    return len(recordings) > 1 and len(names) == len(set(names))


def hash_inputs(
    parts: Sequence[Sequence[RankRecording]], step: int, interleaved: bool
) -> list[str]:
    """Return the digests of the whole inputs of a step, those that differ between the parts joined
    along their first axis."""
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
    """Return the mean of the losses of all parts of a batch, with the weights that the script gave
    them; None if none was recorded."""
    values, weights = [], []
    for part in parts:
        for one in reversed(part):  # of a pipeline the last stage has it
            value = one.trace.find_array("loss", step, "loss")
            if value is not None:
                values.append(value)
                weights.append(loss_weight(one.trace, step))
                break
    return average(values, weights) if values and sum(weights) else None


def join_envelopes(recordings: Sequence[RankRecording]) -> dict[str, float] | None:
    """Return for each array the largest width that a rank measured; None if one measured none."""
    widths: dict[str, float] = {}
    for one in recordings:
        if one.trace.envelope is None:
            return None
        for key, width in one.trace.envelope.items():
            widths[key] = max(width, widths.get(key, 0.0))
    return widths
