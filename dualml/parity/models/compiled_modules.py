"""Process that finds the smallest module that a compiler changes: ``python -m
dualml.parity.models.compiled_modules FOLDER SIDE``.

The model is rebuilt with the initial weights of its trace. Each module runs alone, on the inputs
that it has in the first step, once as it is and once compiled. The search descends from the whole
model to those parts that show a difference by themselves. The result is a file in the folder,
``explanation.json``.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.files import read_json, write_json
from dualml.launch.child import Emitter, report_to_owner
from dualml.parity.envelope import perturb
from dualml.parity.models.gap import gap
from dualml.parity.models.model_ref import error_reason
from dualml.parity.models.recorder import is_finite_float
from dualml.parity.models.side_processes import RESULT
from dualml.parity.models.sides import PRECISIONS
from dualml.parity.models.trace import read_trace, rounding_unit
from dualml.parity.models.worker import (
    cast_side,
    load_inputs,
    prepare_model,
    set_search_path,
)

Arrays = dict[str, NDArray[Any]]
#: Changes the parameters and inputs of a module before it runs.
Move = Callable[[Arrays], Arrays]


class ModuleReplay(Protocol):
    """Runs a model's modules alone, see `dualml_torch.parity.compiled.ModuleReplay`.

    Attributes:
        calls: its keys are the names of the modules that ran in a forward pass, ``""`` for the
            model itself.
    """

    calls: dict[str, Any]

    def run(self, name: str, mode: str, move: Move | None) -> Arrays:
        """Run a module alone on its recorded inputs, and return its outputs, the gradients of its
        parameters and inputs, and its buffers, by name.

        Args:
            mode: the compiler mode; empty: not compiled.
            move: changes parameters and inputs before the run; None changes nothing.
        """
        ...

    def source(self, name: str) -> tuple[str, Callable[..., Any]]:
        """Return the type name of a module and the function that computes it."""
        ...


class CompilerTest:
    """Tests whether a module computes something else when it is compiled alone.

    Args:
        replay: runs modules alone.
        mode: the compiled mode.
        margin: how many rounding envelopes apart arrays still count as equal.
        unit: a unit in the last place, relative.
        draws: number of runs with moved weights and inputs that measure rounding.
        precision: the type in whose units weights and inputs are moved, such as ``fp32``.
        seed: seed of these moves.
    """

    def __init__(
        self,
        replay: ModuleReplay,
        mode: str,
        margin: float,
        unit: float,
        draws: int,
        precision: str,
        seed: int,
    ) -> None:
        self.replay, self.mode, self.margin, self.unit = replay, mode, margin, unit
        self.draws, self.precision, self.seed = draws, precision, seed
        self.tried = 0

    def find_difference(self, name: str) -> dict[str, Any] | None:
        """Return the first array of a module that the compiler moves beyond the margin; None if
        there is none, or if the module does not run alone. Counts the test in ``tried``.

        Returns:
            A dict with ``tensor``, ``distance`` and ``envelope``; or with ``raised``, the compiled
                module's error.
        """
        self.tried += 1
        try:
            base = self.replay.run(name, "", None)
        except Exception:  # it needs more than its inputs
            return None
        try:
            compiled = self.replay.run(name, self.mode, None)
        except UserError:
            raise
        except Exception as error:
            return {"raised": error_reason(error)}
        widths = dict.fromkeys(base, self.unit)
        for draw in range(self.draws):
            for key, value in self.replay.run(name, "", self.make_move(draw)).items():
                if key in widths:
                    widths[key] = max(widths[key], gap(base[key], value))
        for key, value in base.items():
            far = gap(value, compiled[key]) if key in compiled else float("inf")
            if not far <= self.margin * widths[key]:
                return {"tensor": key, "distance": far, "envelope": widths[key]}
        return None

    def make_move(self, draw: int) -> Move:
        """Return a function that moves floating-point arrays by 2^draw units in the last place and
        returns them; zeros stay, and so do arrays of whole numbers only.

        Args:
            draw: number of the draw, from 0.
        """

        def move(arrays: Arrays) -> Arrays:
            moved = {}
            for name, value in arrays.items():
                moved[name] = value
                if is_finite_float(value) and not (value == np.round(value)).all():
                    near = perturb({name: value}, self.seed, draw, 1, self.precision)[name]
                    moved[name] = np.where(value == 0, 0, near).astype(value.dtype)
            return moved

        return move


def find_smallest_module(
    names: Iterable[str], find_difference: Callable[[str], dict[str, Any] | None]
) -> tuple[str, dict[str, Any]] | None:
    """Return the smallest module that shows a difference by itself, and the difference; None if the
    whole model shows none.

    The search descends from the model into the first direct part that shows a difference, as long
    as there is one.

    Args:
        names: dotted names of the modules that ran, ``""`` for the model itself.
        find_difference: returns what differs if a module is compiled alone; None if nothing does.
    """
    known = list(names)
    current = ""
    if (found := find_difference(current)) is None:
        return None
    while True:
        for name in direct_parts(current, known):
            if (inner := find_difference(name)) is not None:
                current, found = name, inner
                break
        else:
            return current, found


def direct_parts(name: str, names: Sequence[str]) -> list[str]:
    """Return those of ``names`` that lie inside the module ``name`` and in no other of these inner
    modules. Containers that never run, such as lists, are not among ``names`` and so passed
    over."""
    start = f"{name}." if name else ""
    inner = [one for one in names if one != name and one.startswith(start)]
    return [one for one in inner if not any(one.startswith(f"{other}.") for other in inner)]


def describe_source(replay: ModuleReplay, name: str) -> dict[str, Any]:
    """Return ``module``, ``type``, ``file`` and ``line`` of a module's source; file and line are
    None if unknown."""
    kind, function = replay.source(name)
    row: dict[str, Any] = {"module": name, "type": kind, "file": None, "line": None}
    try:
        row["file"] = inspect.getsourcefile(function)
        row["line"] = inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        pass
    return row


def run_search(emit: Emitter) -> dict[str, Any]:
    """Search the model of the side that the command line names, and write ``explanation.json`` into
    the folder: ``tried``, the number of modules, and ``smallest``, the module with its difference,
    or None. Return an empty dict."""
    folder, side = Path(sys.argv[1]), sys.argv[2]
    job = read_json(folder / "job.json")
    own = job["sides"][side]
    set_search_path(job, own)
    emit(phase="import", done=0, total=2)
    backend: Any = importlib.import_module(f"{own['package']}.models")
    model, _ = prepare_model(backend, job, own)
    trace = read_trace(folder / side)
    recorder = backend.Recorder(model, None, steps=1, draws=0, seed=job["seed"])
    recorder.load(trace.initial_parameters())
    tensors = cast_side(backend, own, recorder, load_inputs(backend, job, own, folder))
    inputs = tensors[: -1 if job["targets"] else None]
    emit(phase="search", done=1, total=2)
    replay = backend.ModuleReplay(model, inputs, job["seed"])
    test = CompilerTest(
        replay,
        own["mode"],
        job["margin"],
        rounding_unit(trace),
        job["draws"],
        PRECISIONS[own["dtype"]],
        job["seed"],
    )
    found = find_smallest_module(replay.calls, test.find_difference)
    smallest = None if found is None else describe_source(replay, found[0]) | found[1]
    write_json(folder / RESULT, {"tried": test.tried, "smallest": smallest})
    return {}


if __name__ == "__main__":
    with report_to_owner() as emit:
        emit.result = run_search(emit)
