"""Worker process of one side: ``python -m dualml.parity.models.worker FOLDER SIDE``.

``job.json`` describes what to build, and ``inputs.npz`` holds the batch. Side ``a`` writes its
initial weights to ``weights/``; side ``b`` waits for them, pairs them with its own, and loads them.
Both run the same steps under their framework's Recorder and write a trace to ``FOLDER/SIDE``.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dualml.errors import TrialError, UserError
from dualml.files import read_json
from dualml.launch.child import Emitter, serve
from dualml.optim import rule_from
from dualml.parity.models.built import by_name
from dualml.parity.models.mapping import likeliest, match, named
from dualml.parity.models.operations import Operation, Place
from dualml.parity.models.partners import changed
from dualml.parity.models.pieces import cut_arrays, cut_tensors, cuts, joined
from dualml.parity.models.recorder import Recorder as Base
from dualml.parity.models.roles import graph, roles
from dualml.parity.models.subject import blamed, load
from dualml.parity.models.trace import Trace, key, read_trace
from dualml.parity.models.uses import by_use

#: Seconds between two checks for the other side's weights.
LOOK_S = 0.05


class Room(Protocol):
    """Interface of the ``models`` module of a backend package."""

    Recorder: Callable[..., Base]

    def prepare(self, seed: int) -> None:
        """Set device, mode and seeds of a new process."""

    def building(self) -> AbstractContextManager[dict[int, Place]]:
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
            takes: whether the last input is the targets; else the loss gets None as targets.
        """

    def losses(self) -> dict[str, Callable[[Any, Any], Any]]:
        """Return the named losses, as functions of outputs and targets."""

    def train(self, model: Any, on: bool) -> None: ...


def perform(emit: Emitter) -> dict[str, Any]:
    """Run the steps of one side, given on the command line, and record its trace."""
    folder, side = Path(sys.argv[1]), sys.argv[2]
    job = read_json(folder / "job.json")
    own = job["sides"][side]
    sys.path[:] = job["path"]
    emit(phase="import", done=0, total=job["steps"] + 1)
    room: Room = importlib.import_module(f"{own['package']}.models")
    room.prepare(job["seed"])
    with room.building() as places:
        model = build(own["model"])
    room.train(model, job["train"])
    try:
        recorder = room.Recorder(
            model, folder / side, steps=job["steps"], draws=job["draws"], seed=job["seed"]
        )
    except UserError as error:
        raise UserError(f"{error}; PyTorch's model comes first, MindSpore's second") from None
    with np.load(folder / "inputs.npz", allow_pickle=False) as file:
        tensors = [room.tensor(file[name]) for name in sorted(file.files)]
    forward = room.step(model, None, None, recorder, False)
    calls = partial(recorder.calls, forward, tensors[: -1 if job["targets"] else None])
    if side == "a":
        give(recorder, folder, calls())
    else:
        take(recorder, folder, job, calls)
    with blamed("the optimizer cannot be made", own["model"]["file"]):
        recorder.optimizer = optimizer_of(room, model, own["optimizer"])
    recorder.trace.built = by_name(places, recorder.tape_of_step().modules)
    step = room.step(
        model, loss_of(room, own["loss"]), recorder.optimizer, recorder, job["targets"]
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


def build(model: dict[str, Any]) -> Any:
    """Call the builder of a model; raise `UserError` if it needs arguments or fails."""
    builder = load(model)
    if needed := needs(builder):
        raise UserError(
            f"{model['name']} needs {', '.join(needed)}: write a function without arguments that "
            "returns one, and name that"
        )
    with blamed(f"{model['name']}() cannot be built", model["file"]):
        return builder()


def needs(builder: Callable[..., Any]) -> list[str]:
    """Return the arguments that a builder requires; empty if its signature is unknown."""
    try:
        parameters = signature(builder).parameters.items()
    except (TypeError, ValueError):
        return []
    several = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return [name for name, one in parameters
            if one.default is Parameter.empty and one.kind not in several]  # fmt: skip


def optimizer_of(room: Room, model: Any, kind: dict[str, Any] | None) -> Any:
    """Make the optimizer of a job; None if it has none."""
    if kind is None:
        return None
    return room.optimizer(model, rule_from(kind["rule"]) if "rule" in kind else load(kind))


def loss_of(room: Room, kind: str | dict[str, Any]) -> Any:
    """Return the loss as a function of outputs and targets; None for a forward pass only."""
    if isinstance(kind, dict):
        return load(kind)
    return None if kind == "none" else room.losses()[kind]


def give(recorder: Base, folder: Path, calls: list[Operation]) -> None:
    """Write the weights, their list and the operations that use them for the other side."""
    trace = Trace(recorder.framework, {}, recorder.tensors(), recorder.modules())
    trace.arrays = {key("parameters", 0, n): w for n, w in recorder.weights().items()}
    trace.operations = calls
    trace.write(folder / ".weights")
    (folder / ".weights").rename(folder / "weights")  # both files appear at once


def take(
    recorder: Base, folder: Path, job: dict[str, Any], calls: Callable[[], list[Operation]]
) -> None:
    """Wait for the other side's weights, pair them with this model's, and load them.

    Raises:
        UserError: they cannot be paired, see `match_tensors`.
        TrialError: they did not arrive in time.
    """
    deadline = time.monotonic() + job["timeout"]
    while not (folder / "weights").exists():
        if time.monotonic() > deadline:
            raise TrialError("the other side's weights did not come in time")
        time.sleep(LOOK_S)
    given = read_trace(folder / "weights")
    own = recorder.tensors()
    sides = (job["sides"]["a"]["label"], job["sides"]["b"]["label"])
    theirs, ours = cuts(given.tensors, own)
    first, second = cut_tensors(given.tensors, theirs), cut_tensors(own, ours)
    shapes, arrays = {one.name: one.shape for one in second}, cut_arrays(given.initial(), theirs)
    matched = partial(match, first, second, job["map"], sides)
    trace = recorder.trace
    if not named(given.tensors, own, job["map"]):
        both = given.operations, calls()
        trace.roles = roles(graph(both[0], given.tensors), graph(both[1], own))
        known = matched(trace.roles).pairs
        sure = {pair.a for pair in known if pair.how != "order"}
        taken = {pair.b for pair in known if pair.how != "order"}
        rest = [x for x in first if x.name not in sure], [y for y in second if y.name not in taken]
        trace.guesses = by_use(*rest, both)
        trace.listed = by_use(*rest, both, listed=True)
    pairing = matched(trace.roles, trace.guesses)
    weights = {pair.b: changed(arrays[pair.a], pair.change, shapes[pair.b])
               for pair in pairing.pairs}  # fmt: skip
    for one in second:
        if one.name in pairing.alone[1]:
            same = likeliest(one, first, arrays)
            weights |= {} if same is None else {one.name: same}
    recorder.load(joined(weights, ours))


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
    serve(perform)
