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
from dualml.algorithms.precision import round_to_type
from dualml.common.errors import TrialError, Unsupported, UserError
from dualml.common.files import read_json, write_json
from dualml.common.json_types import JsonObject
from dualml.common.machine import usable_cores
from dualml.common.tensor_files import select_arrays
from dualml.launch.child import Emitter, report_to_owner
from dualml.parity.models.construction import locations_by_name
from dualml.parity.models.mapping import find_tied_value
from dualml.parity.models.model_ref import load_builder, report_as_user_error
from dualml.parity.models.operations import Operation, SourceLocation
from dualml.parity.models.pairing import match_sides
from dualml.parity.models.partners import Tensor
from dualml.parity.models.recorder import Recorder as Base
from dualml.parity.models.resources import SIZE, check_resources, estimate_size
from dualml.parity.models.sides import DEVICE, DTYPE, PRECISIONS
from dualml.parity.models.source_frameworks import PACKAGES
from dualml.parity.models.stated import write_settings
from dualml.parity.models.trace import Trace, array_key, read_trace
from dualml.parity.models.weights.loading import load_first_weights

#: Seconds between two checks for the other side's weights.
WEIGHTS_POLL_S = 0.05


class ModelBackend(Protocol):
    """Interface of the ``models`` module of a backend package."""

    Recorder: Callable[..., Base]

    def prepare(self, seed: int, device: str = "cpu") -> None:
        """Set device, mode and seeds of a new process; raise `UserError` or `Unsupported` if there
        is no such device."""

    def building(self) -> AbstractContextManager[dict[int, SourceLocation]]:
        """Record the source location at which each layer is built within the context, as id of the
        layer → location, see `dualml.parity.models.construction.record_construction`."""

    def tensor(self, array: NDArray[Any]) -> Any:
        """Return an array as a tensor: floats as float32, integers as the dtype of the framework's
        indices."""

    def optimizer(self, model: Any, given: Any) -> Any:
        """Make an optimizer for a model.

        Args:
            given: an `OptimizerSpec`, or a function that returns an optimizer for the parameters.
        """

    def step(
        self,
        model: Any,
        loss: Callable[[Any, Any], Any] | None,
        optimizer: Any,
        recorder: Base,
        takes: bool,
    ) -> Callable[..., None]:
        """Return a function of the input tensors that makes one whole step of a model and returns
        nothing.

        Args:
            loss: function of outputs and targets; None for a forward pass only, without a backward
                pass or an update.
            optimizer: None for no update.
            recorder: gets the loss and the gradients with `Recorder.saw`.
            takes: whether the last input is the targets; else the loss gets None as targets.
        """

    def losses(self) -> dict[str, Callable[[Any, Any], Any]]:
        """Return name → loss, a function of outputs and targets, of the losses that a job can
        name."""

    def set_threads(self, count: int) -> None:
        """Let this process's kernels use ``count`` threads."""

    def module_settings(self, model: Any) -> dict[str, dict[str, Any]]:
        """Return module name → the settings that the module states about itself, see
        `dualml.parity.models.stated`."""
        ...

    def train(self, model: Any, on: bool) -> None:
        """Set a model to training mode, or to evaluation mode if ``on`` is False."""
        ...

    def is_model(self, value: Any) -> bool:
        """Return whether a value is a model of this framework."""
        ...

    def move(self, value: Any, device: str, dtype: str) -> Any:
        """Return a model or a tensor on a device, with its floating-point numbers as ``dtype``; a
        model is changed in place."""

    def load_checkpoint(self, model: Any, path: Path) -> None:
        """Load a checkpoint file with the framework's own reader; raise `UserError` if names,
        shapes or types are not those of the model."""
        ...

    def compile_module(self, model: Any, mode: str) -> None:
        """Let the framework's compiler translate a model in place; raise `UserError` if the
        compiler cannot work here.

        Args:
            mode: name of the compiler mode, of the side's ``mode`` in the job.
        """

    def has_active_dropout(self, model: Any) -> bool:
        """Return whether a Dropout of the model draws random numbers in its present mode."""
        ...


def run_side(emit: Emitter) -> dict[str, Any]:
    """Run the steps of the side that the command line names (``FOLDER SIDE``), and record its trace
    in ``FOLDER/SIDE``; end early if a step raises or is not reproducible.

    Returns:
        ``{"raised": MESSAGE or None}``, the error of a step; or ``{"deferred": True}`` if side
            ``b`` has to be started again after side ``a`` has ended.
    """
    folder, side = Path(sys.argv[1]), sys.argv[2]
    job = read_json(folder / "job.json")
    own = job["sides"][side]
    set_search_path(job, own)
    emit(phase="import", done=0, total=job["steps"] + 1)
    backend: ModelBackend = importlib.import_module(f"{own['package']}.models")
    if side == "b":
        size = wait_for_size(folder, job["timeout"])
        if not size["together"]:
            return {"deferred": True}
        use_threads(backend, size["threads"])
    model, places = prepare_model(backend, job, own, folder / f"{side}.framework")
    recorder = backend.Recorder(
        model, folder / side, steps=job["steps"], draws=job["draws"], seed=job["seed"]
    )
    write_settings(folder, side, backend.module_settings(model))
    tensors = load_inputs(backend, job, own, folder)
    if side == "a":
        load_first_weights(recorder, folder, job)
        announce_size(backend, folder, job, recorder.tensors())
        round_weights(recorder, job["precision"])
        recorder.record_start()
    recorder.restores_last_step = False
    forward = backend.step(model, None, None, recorder, False)
    calls = partial(recorder.trace_forward, forward, tensors[: -1 if job["targets"] else None])
    if side == "a":
        write_weights(recorder, folder, calls())
    else:
        load_matched_weights(recorder, folder, job, calls)
        round_weights(recorder, job["precision"])
    recorder.precision = PRECISIONS[own["dtype"]]
    recorder.keeps_attention = job["keeps_attention"]  # modules were paired by all of its calls
    tensors = cast_side(backend, own, recorder, tensors)
    recorder.optimizer = make_side_optimizer(backend, own, model)
    recorder.trace.built = locations_by_name(places, recorder.make_tape().modules)
    compile_side(backend, own, job, recorder)
    step = backend.step(
        model, make_loss(backend, own["loss"]), recorder.optimizer, recorder, job["targets"]
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


def set_search_path(job: JsonObject, own: JsonObject) -> None:
    """Set this process's ``sys.path`` to the parent's folders of modules; in the interpreter of
    another environment, to the user's folders and then its own."""
    sys.path[:] = [*own["path"], *sys.path] if "path" in own else job["path"]


def prepare_model(
    backend: ModelBackend, job: JsonObject, own: JsonObject, note: Path | None = None
) -> tuple[Any, dict[int, SourceLocation]]:
    """Prepare the process of one side, build its model, and return it, on its device and in the
    job's mode (training or evaluation), with id of a layer → where it was built.

    Args:
        own: description of the side, an entry of the job's ``sides``.
        note: file that gets the name of the framework of a model that belongs to another one.

    Raises:
        UserError: there is no such device, or the model cannot be built or belongs to another
            framework.
    """
    option = f"--{own['letter']}"
    try:
        backend.prepare(job["seed"], own["device"])
    except (UserError, Unsupported) as error:
        raise UserError(str(error).replace("--device", f"{option}-device")) from None
    with backend.building() as places:
        model = build_model(own["model"])
    if not backend.is_model(model):
        actual = {PACKAGES.get(base.__module__.partition(".")[0]) for base in type(model).__mro__}
        if note is not None and len(actual := actual - {None}) == 1:
            note.write_text(str(actual.pop()))
        raise UserError(
            f"{own['model']['name']} builds a {type(model).__name__}, which is no model of this "
            f"framework; say the right one with {option}-framework"
        )
    backend.train(model, job["train"])
    return (backend.move(model, own["device"], DTYPE) if own["device"] != DEVICE else model), places


def load_inputs(backend: ModelBackend, job: JsonObject, own: JsonObject, folder: Path) -> list[Any]:
    """Return the arrays of ``FOLDER/inputs.npz``, sorted by name, as tensors on the side's device:
    floats as float32, rounded to the job's precision (the lower one of both sides)."""
    with np.load(folder / "inputs.npz", allow_pickle=False) as file:
        arrays = [round_floats(file[name], job["precision"]) for name in sorted(file.files)]
    tensors = [backend.tensor(array) for array in arrays]
    if own["device"] != DEVICE:
        tensors = [backend.move(tensor, own["device"], DTYPE) for tensor in tensors]
    return tensors


def round_weights(recorder: Base, precision: str) -> None:
    """Round a model's weights in place to a precision, such as ``bf16``, so that both sides begin
    with the same numbers; does nothing for float32."""
    if precision != PRECISIONS[DTYPE]:
        weights = recorder.weights().items()
        recorder.load({name: round_floats(value, precision) for name, value in weights})


def round_floats(array: NDArray[Any], precision: str) -> NDArray[Any]:
    """Return an array with floating-point numbers rounded to a precision, of the same dtype."""
    if array.dtype.kind != "f" or precision == PRECISIONS[DTYPE]:
        return array
    return round_to_type(array, precision).astype(array.dtype)


def cast_side(
    backend: ModelBackend, own: JsonObject, recorder: Base, tensors: list[Any]
) -> list[Any]:
    """Cast the recorded model in place to the side's dtype, note the dtype in the trace's
    environment, and return the inputs cast to it; for float32, do nothing."""
    if own["dtype"] == DTYPE:
        return tensors
    backend.move(recorder.model, own["device"], own["dtype"])
    recorder.trace.environment["dtype"] = own["dtype"]
    return [backend.move(tensor, own["device"], own["dtype"]) for tensor in tensors]


def compile_side(backend: ModelBackend, own: JsonObject, job: JsonObject, recorder: Base) -> None:
    """Let the framework's compiler translate the recorded model in place, if the side has a
    compiler mode, and note the mode in the trace; set how the recorder seeds random numbers.

    Raises:
        UserError: the compiler cannot work here, or a Dropout would draw other numbers than the
            other side's.
    """
    recorder.seeded = job["seeded"] or bool(own["mode"])
    if not own["mode"]:
        return
    if not job["seeded"] and backend.has_active_dropout(recorder.model):
        raise UserError(
            f"in mode {own['mode']} a Dropout draws other random numbers than the other side; "
            "compare in evaluation mode (--eval, train=False)"
        )
    backend.compile_module(recorder.model, own["mode"])
    recorder.compiled = True
    recorder.trace.environment["mode"] = own["mode"]


def build_model(model: dict[str, Any]) -> Any:
    """Call the builder that a job's import spec names, and return its model; raise `UserError` if
    it needs arguments or fails."""
    builder = load_builder(model)
    if needed := required_arguments(builder):
        raise UserError(
            f"{model['name']} needs {', '.join(needed)}: write a function without arguments that "
            "returns one, and name that"
        )
    with report_as_user_error(f"{model['name']}() cannot be built", model["file"]):
        return builder()


def required_arguments(builder: Callable[..., Any]) -> list[str]:
    """Return the names of a builder's parameters that have no default, without ``*args`` and
    ``**kwargs``; empty if its signature is unknown."""
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


def make_optimizer(backend: ModelBackend, model: Any, kind: JsonObject | None) -> Any:
    """Make the optimizer for a model.

    Args:
        kind: ``{"rule": …}`` with an update rule, or the import spec of a function; None returns
            None.
    """
    if kind is None:
        return None
    return backend.optimizer(
        model, rule_from(kind["rule"]) if "rule" in kind else load_builder(kind)
    )


def make_side_optimizer(backend: ModelBackend, own: JsonObject, model: Any) -> Any:
    """Make the optimizer of a side; None if it has none. Raise `UserError` if it cannot be made;
    for a side that is not float32 the message adds what can be compared instead."""
    try:
        with report_as_user_error("the optimizer cannot be made", own["model"]["file"]):
            return make_optimizer(backend, model, own["optimizer"])
    except UserError as error:
        if own["dtype"] == DTYPE:
            raise
        raise UserError(
            f"{error}; compare {own['dtype']} without an optimizer, or with one of the framework's"
        ) from None


def make_loss(backend: ModelBackend, kind: str | dict[str, Any]) -> Any:
    """Return the loss as a function of outputs and targets; None for a forward pass only.

    Args:
        kind: name of a loss, ``"none"``, or the import spec of a function.
    """
    if isinstance(kind, dict):
        return load_builder(kind)
    return None if kind == "none" else backend.losses()[kind]


def announce_size(
    backend: ModelBackend, folder: Path, job: dict[str, Any], tensors: Sequence[Tensor]
) -> None:
    """Estimate the size of a run, write to the job's folder whether both sides run at once, which
    side ``b`` waits for, and let this process use all cores if they do not.

    Raises:
        UserError: a step of the model does not fit into the memory, or the traces onto the disk.
    """
    size = estimate_size(tensors, job)
    check_resources(size, folder)
    together = size.fits_twice()
    write_json(folder / SIZE, {"together": together, "threads": 0})
    use_threads(backend, 0 if together else usable_cores())


def use_threads(backend: ModelBackend, count: int) -> None:
    """Let this process's kernels use ``count`` threads, and set ``OMP_NUM_THREADS``; 0 changes
    nothing."""
    if count:
        os.environ["OMP_NUM_THREADS"] = str(count)
        backend.set_threads(count)


def wait_for_size(folder: Path, timeout: float) -> JsonObject:
    """Wait for the size that side ``a`` announces, see `announce_size`.

    Args:
        timeout: seconds to wait.

    Returns:
        ``together``, whether both sides run at once, and ``threads``, the number of threads for
            this side, see `use_threads`.

    Raises:
        TrialError: the size did not arrive in time.
    """
    deadline = time.monotonic() + timeout
    while not (folder / SIZE).exists():
        if time.monotonic() > deadline:
            raise TrialError("the other side's size did not come in time")
        time.sleep(WEIGHTS_POLL_S)
    size: JsonObject = read_json(folder / SIZE)
    return size


def write_weights(recorder: Base, folder: Path, calls: list[Operation]) -> None:
    """Write the initial weights, the list of tensors and the operations that use them to
    ``FOLDER/weights``, where side ``b`` reads them; the folder appears when it is complete."""
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
    """Wait for side ``a``'s weights, pair them with this model's, and load them. If names alone do
    not pair all, set the trace's ``roles``, ``guesses`` and ``listed``.

    Args:
        calls: returns the operations of this model's forward pass; called only if they are needed.

    Raises:
        UserError: they cannot be paired, see `match_tensors`.
        TrialError: they did not arrive in the job's ``timeout`` seconds.
    """
    deadline = time.monotonic() + job["timeout"]
    while not (folder / "weights").exists():
        if time.monotonic() > deadline:
            raise TrialError("the other side's weights did not come in time")
        time.sleep(WEIGHTS_POLL_S)
    given = read_trace(folder / "weights")
    sides = (job["sides"]["a"]["label"], job["sides"]["b"]["label"])
    matched = match_sides(given, recorder.trace, job["map"], sides, calls)

    def fill(one: Tensor, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
        return find_tied_value(one, matched.first, arrays)

    recorder.load(matched.carry_to_second(given.initial_parameters(), fill))


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
