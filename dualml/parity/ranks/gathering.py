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

from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import OUTPUT, Trace, array_key, hash_arrays
from dualml.parity.models.trace_files import TraceArrays
from dualml.parity.ranks.batch_parts import (
    average_losses,
    hash_inputs,
    join_outputs,
    split_by_inputs,
)
from dualml.parity.ranks.micro_batches import join_calls
from dualml.parity.ranks.rank_files import RankRecording, check_steps, find_parts, read_ranks
from dualml.parity.ranks.shards import assemble_shards

Array = NDArray[Any]
#: Key of the number of ranks in the environment of a whole trace.
RANKS = "ranks"
#: Phases whose arrays belong to parameters: every rank has a shard or a copy.
PARAMETER_PHASES = ("parameters", "gradient", "update", "state", "schedule")


def gather_folder(folder: Path, *, interleaved: bool = False) -> Trace:
    """Gather what all ranks recorded into a folder, write the whole trace there, and return it.

    Args:
        interleaved: whether element i of the batch is that of rank i modulo their number, as
            PyTorch's `DistributedSampler` assigns them; else each rank has a block.

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
        UserError: the ranks have different numbers of steps, shapes of one parameter differ, or
            shards are missing.
    """
    check_steps(recordings)
    recordings = [replace(one, trace=join_calls(one.trace)) for one in recordings]
    raised = [
        f"rank {one.facts.rank}: {one.trace.raised}" for one in recordings if one.trace.raised
    ]
    first = recordings[0].trace
    steps = min(one.trace.steps for one in recordings)
    whole: dict[str, Array] = {}
    trace = Trace(
        framework=first.framework,
        environment={**first.environment, RANKS: str(len(recordings))},
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
    if raised:  # as in a trace of one process: what was computed in the step that was not completed
        orders = [one.trace.order for one in recordings if one.trace.raised]
        trace.order.append(next((list(one[steps]) for one in orders if len(one) > steps), []))
    trace.weights_digest = hash_arrays(trace.initial_parameters())
    return trace


def list_names(recordings: Sequence[RankRecording], phase: str, step: int) -> list[str]:
    """Return the names of the arrays of a phase in a step that any rank has, each once in the order
    of the ranks; the model's own outputs come last."""
    names = {name: None for one in recordings for name in one.trace.names(phase, step)}
    own = [name for name in names if name.startswith(OUTPUT)]
    return [name for name in names if name not in own] + own


def list_tensors(recordings: Sequence[RankRecording]) -> Iterator[Tensor]:
    """Yield all parameters and buffers that any rank has, each once, with their whole shapes.

    Raises:
        UserError: two ranks have one with different shapes that are no shards.
    """
    seen: dict[str, tuple[tuple[int, ...], int]] = {}
    for one in recordings:
        for tensor in one.trace.tensors:
            place = one.facts.places.get(f"parameters/{tensor.name}")
            shape = tensor.shape if place is None else place.shape
            known, rank = seen.setdefault(tensor.name, (shape, one.facts.rank))
            if known != shape:
                raise UserError(
                    f"{tensor.name} has shape {known} on rank {rank} and {shape} on rank "
                    f"{one.facts.rank}: a name must mean the same parameter on all ranks; name the "
                    "modules of a stage by their place in the whole model"
                )
            if rank == one.facts.rank:
                yield Tensor(tensor.name, shape, tensor.trained)


def join_envelopes(recordings: Sequence[RankRecording]) -> dict[str, float] | None:
    """Return key of an array → its largest rounding envelope on any rank; None if some rank
    measured none."""
    widths: dict[str, float] = {}
    for one in recordings:
        if one.trace.envelope is None:
            return None
        for key, width in one.trace.envelope.items():
            widths[key] = max(width, widths.get(key, 0.0))
    return widths
