"""Worker process of one side: ``python -m dualml.parity.models.worker FOLDER SIDE``.

``job.json`` describes what to build, and ``inputs.npz`` holds the batch. Side ``a`` writes its
initial weights to ``weights/``; side ``b`` waits for them, pairs them with its own, and loads them.
Both run the same steps under their framework's Recorder and write a trace to ``FOLDER/SIDE``.
Side ``a`` first says how large the model is: before a large one, side ``b`` ends with ``deferred``
and is started once more when ``a`` has ended.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.optim import rule_from
from dualml.common.errors import TrialError, UserError
from dualml.common.files import read_json, write_json
from dualml.common.json_types import JsonObject
from dualml.common.machine import usable_cores
from dualml.common.tensor_files import LazyArrays, select_arrays
from dualml.launch.child import Emitter, report_to_owner
from dualml.parity.models.construction import locations_by_name
from dualml.parity.models.graph_roles import build_graph, match_roles
from dualml.parity.models.mapping import guess_initial_value, is_paired_by_names, match_tensors
from dualml.parity.models.model_ref import load_builder, report_as_user_error
from dualml.parity.models.operations import Operation, SourceLocation
from dualml.parity.models.partners import Tensor, TensorPair, apply_change
from dualml.parity.models.pieces import cut_arrays, cut_tensors, find_cuts, join_pieces
from dualml.parity.models.recorder import Recorder as Base
from dualml.parity.models.resources import SIZE, check_resources, estimate_size
from dualml.parity.models.trace import Trace, array_key, read_trace
from dualml.parity.models.usage import pair_by_use

#: Seconds between two checks for the other side's weights.
WEIGHTS_POLL_S = 0.05


class ModelBackend(Protocol):
    """Interface of the ``models`` module of a backend package."""

    Recorder: Callable[..., Base]

    def prepare(self, seed: int) -> None:
        """Set device, mode and seeds of a new process."""

    def building(self) -> AbstractContextManager[dict[int, SourceLocation]]:
        """Record where layers are built, see
        `dualml.parity.models.construction.record_construction`."""

    def tensor(self, array: NDArray[Any]) -> Any:
        """Return an array as a tensor: floats as float32, integers as the dtype of the framework's
        indices."""

    def optimizer(self, model: Any, given: Any) -> Any:
        """Make an optimizer from an `OptimizerSpec`, or from a function of the parameters."""

    def step(
        self,
        model: Any,
        loss: Callable[[Any, Any], Any] | None,
        optimizer: Any,
        recorder: Base,
        takes: bool,
    ) -> Callable[..., None]:
        """Return a function of the inputs that makes one whole step.

        Args:
            loss: None for a forward pass only, without a backward pass or an update.
            optimizer: None for no update.
            takes: whether the last input is the targets; else the loss gets None as targets.
        """

    def losses(self) -> dict[str, Callable[[Any, Any], Any]]:
        """Return the named losses, as functions of outputs and targets."""

    def set_threads(self, count: int) -> None:
        """Let this process's kernels use so many threads."""

    def train(self, model: Any, on: bool) -> None:
        """Set a model to training mode, or to evaluation mode if ``on`` is False."""
        ...


def run_side(emit: Emitter) -> dict[str, Any]:
    """Run the steps of one side, given on the command line, and record its trace. Ends early if a
    step raises or is not reproducible; the result holds the error of the step or None."""
    folder, side = Path(sys.argv[1]), sys.argv[2]
    job = read_json(folder / "job.json")
    own = job["sides"][side]
    sys.path[:] = job["path"]
    emit(phase="import", done=0, total=job["steps"] + 1)
    room: ModelBackend = importlib.import_module(f"{own['package']}.models")
    room.prepare(job["seed"])
    if side == "b" and wait_for_size(folder, job["timeout"]):
        return {"deferred": True}
    with room.building() as places:
        model = build_model(own["model"])
    room.train(model, job["train"])
    try:
        recorder = room.Recorder(
            model, folder / side, steps=job["steps"], draws=job["draws"], seed=job["seed"]
        )
    except UserError as error:
        raise UserError(f"{error}; PyTorch's model comes first, MindSpore's second") from None
    with np.load(folder / "inputs.npz", allow_pickle=False) as file:
        tensors = [room.tensor(file[name]) for name in sorted(file.files)]
    if side == "a":
        announce_size(room, folder, job, recorder.tensors())
        recorder.record_start()
    recorder.restores_last_step = False
    forward = room.step(model, None, None, recorder, False)
    calls = partial(recorder.trace_forward, forward, tensors[: -1 if job["targets"] else None])
    if side == "a":
        write_weights(recorder, folder, calls())
    else:
        load_matched_weights(recorder, folder, job, calls)
    with report_as_user_error("the optimizer cannot be made", own["model"]["file"]):
        recorder.optimizer = make_optimizer(room, model, own["optimizer"])
    recorder.trace.built = locations_by_name(places, recorder.make_tape().modules)
    step = room.step(
        model, make_loss(room, own["loss"]), recorder.optimizer, recorder, job["targets"]
    )
    for number in range(job["steps"]):
        emit(phase="steps", done=number, total=job["steps"] + 1)
        try:
            recorder.run(step, *tensors)
        except Exception as error:
            if recorder.trace.raised is None:
                raise
            import traceback

            traceback.print_exc()
            return {"raised": str(error)[:400]}
        if recorder.trace.random is not None:
            break
    return {"raised": None}


def build_model(model: dict[str, Any]) -> Any:
    """Call the builder of a model; raise `UserError` if it needs arguments or fails."""
    builder = load_builder(model)
    if needed := required_arguments(builder):
        raise UserError(
            f"{model['name']} needs {', '.join(needed)}: write a function without arguments that "
            "returns one, and name that"
        )
    with report_as_user_error(f"{model['name']}() cannot be built", model["file"]):
        return builder()


def required_arguments(builder: Callable[..., Any]) -> list[str]:
    """Return the arguments that a builder requires; empty if its signature is unknown."""
    try:
        parameters = signature(builder).parameters.items()
    except (TypeError, ValueError):
        return []
    several = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return [
        name
        for name, one in parameters
        if one.default is Parameter.empty and one.kind not in several
    ]


def make_optimizer(room: ModelBackend, model: Any, kind: JsonObject | None) -> Any:
    """Make the optimizer of a job from a rule or an import spec; None if it has none."""
    if kind is None:
        return None
    return room.optimizer(model, rule_from(kind["rule"]) if "rule" in kind else load_builder(kind))


def make_loss(room: ModelBackend, kind: str | dict[str, Any]) -> Any:
    """Return the loss as a function of outputs and targets; None for a forward pass only."""
    if isinstance(kind, dict):
        return load_builder(kind)
    return None if kind == "none" else room.losses()[kind]


def announce_size(
    room: ModelBackend, folder: Path, job: dict[str, Any], tensors: Sequence[Tensor]
) -> None:
    """Tell side b whether the two sides run at once; if not, use all cores.

    Raises:
        UserError: a step of the model does not fit into the memory, or the traces onto the disk.
    """
    size = estimate_size(tensors, job)
    check_resources(size, folder)
    together = size.fits_twice()
    write_json(folder / SIZE, {"together": together})
    if not together:
        os.environ["OMP_NUM_THREADS"] = str(usable_cores())
        room.set_threads(usable_cores())


def wait_for_size(folder: Path, timeout: float) -> bool:
    """Wait for the other side's size; return whether this side has to wait for its end, too.

    Raises:
        TrialError: the size did not arrive in time.
    """
    deadline = time.monotonic() + timeout
    while not (folder / SIZE).exists():
        if time.monotonic() > deadline:
            raise TrialError("the other side's size did not come in time")
        time.sleep(WEIGHTS_POLL_S)
    return not read_json(folder / SIZE)["together"]


def write_weights(recorder: Base, folder: Path, calls: list[Operation]) -> None:
    """Write the weights, their list and the operations that use them for the other side."""
    trace = Trace(recorder.framework, {}, recorder.tensors(), recorder.modules())
    known = recorder.trace
    keys = [array_key("parameters", 0, name) for name in known.names("parameters", 0)]
    trace.arrays, trace.weights_digest = select_arrays(known.arrays, keys), known.weights_digest
    trace.operations = calls
    place = folder / ".weights"
    place.mkdir()
    files = recorder.files
    if files is not None and files.is_on_disk and files.link(place):
        trace.write_header(place)
    else:
        trace.write(place)
    place.rename(folder / "weights")  # both files appear at once


def load_matched_weights(
    recorder: Base, folder: Path, job: dict[str, Any], calls: Callable[[], list[Operation]]
) -> None:
    """Wait for the other side's weights, pair them with this model's, and load them. If names alone
    do not pair all, set the trace's ``roles``, ``guesses`` and ``listed``.

    Raises:
        UserError: they cannot be paired, see `match_tensors`.
        TrialError: they did not arrive in time.
    """
    deadline = time.monotonic() + job["timeout"]
    while not (folder / "weights").exists():
        if time.monotonic() > deadline:
            raise TrialError("the other side's weights did not come in time")
        time.sleep(WEIGHTS_POLL_S)
    given = read_trace(folder / "weights")
    own = recorder.tensors()
    sides = (job["sides"]["a"]["label"], job["sides"]["b"]["label"])
    theirs, ours = find_cuts(given.tensors, own)
    first, second = cut_tensors(given.tensors, theirs), cut_tensors(own, ours)
    shapes = {one.name: one.shape for one in second}
    arrays = cut_arrays(given.initial_parameters(), theirs)
    matched = partial(match_tensors, first, second, job["map"], sides)
    trace = recorder.trace
    if not is_paired_by_names(given.tensors, own, job["map"]):
        both = given.operations, calls()
        trace.roles = match_roles(build_graph(both[0], given.tensors), build_graph(both[1], own))
        known = matched(trace.roles).pairs
        sure = {pair.a for pair in known if pair.how != "order"}
        taken = {pair.b for pair in known if pair.how != "order"}
        rest = [x for x in first if x.name not in sure], [y for y in second if y.name not in taken]
        trace.guesses = pair_by_use(*rest, both)
        trace.listed = pair_by_use(*rest, both, listed=True)
    pairing = matched(trace.roles, trace.guesses)
    weights = LazyArrays()
    for pair in pairing.pairs:
        read = partial(read_changed, arrays, pair, shapes[pair.b])
        weights.add(pair.b, shapes[pair.b], read)
    for one in second:
        if one.name in pairing.unpaired_parameters[1]:
            same = guess_initial_value(one, first, arrays)
            if same is not None:
                weights.add(one.name, same.shape, partial(np.copy, same))
    recorder.load(join_pieces(weights, ours))


def read_changed(
    arrays: Mapping[str, NDArray[Any]], pair: TensorPair, shape: tuple[int, ...]
) -> NDArray[Any]:
    """Read a tensor of the first side in the layout of the second, of this shape."""
    return apply_change(arrays[pair.a], pair.change, shape)


def check_targets(loss: str, target: NDArray[Any] | None) -> None:
    """Raise `UserError` if a named loss cannot take these targets."""
    if target is None:
        raise UserError(f"loss {loss!r} needs targets=; on the command line y in --inputs FILE.npz")
    if loss == "cross_entropy" and target.dtype.kind not in "iu":
        raise UserError(
            f"loss 'cross_entropy' takes class numbers; targets are {target.dtype} {target.shape}"
        )
    if loss == "mse" and target.dtype.kind != "f":
        raise UserError(
            f"loss 'mse' takes targets of the outputs' shape and type float32; they are "
            f"{target.dtype} {target.shape}"
        )


if __name__ == "__main__":
    with report_to_owner() as emit:
        emit.result = run_side(emit)
