"""The side of a framework: ``python -m dualml.diffs.worker FOLDER`` runs probes.

``job.json`` of the folder lists them. Each leaves ``NAME.VARIANT.npz`` with its arrays, or
``NAME.VARIANT.json`` with what it raised, between the marks ``NAME.begun`` and ``NAME.done``: so
whoever started this sees which probe took the process down.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dualml.diffs import VARIANTS
from dualml.files import write_bytes, write_json
from dualml.launch.child import Emitter, serve


def arrays(value: Any, name: str = "value") -> dict[str, Any]:
    """Whatever a probe returns (a number, an array, lists and dicts of them) by name."""
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for key, one in value.items():
            found |= arrays(one, str(key))
        return found
    if isinstance(value, tuple) or (isinstance(value, list) and not is_flat(value)):
        found = {}
        for number, one in enumerate(value):
            found |= arrays(one, f"{name}{number}")
        return found
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"a probe returned {type(value).__name__}; NumPy arrays and numbers only")
    return {name: array}


def is_flat(values: Sequence[Any]) -> bool:
    return all(isinstance(one, int | float | bool | np.number) for one in values)


def find(package: str, topic: str, function: str) -> dict[str, Callable[..., Any]]:
    """Variant → probe; there is no ``equal`` where it is the plain one."""
    module = importlib.import_module(f"{package}.{topic}")
    return {variant: getattr(module, function + suffix) for variant, suffix in VARIANTS.items()
            if variant == "plain" or hasattr(module, function + suffix)}  # fmt: skip


def run(probe: Callable[..., Any], *given: Any) -> tuple[str, dict[str, Any] | str]:
    """``("arrays", …)``, or ``("raised", "Error: first line")``, of one probe."""
    try:
        told = probe(*given)
    except Exception as error:  # what a framework raises is the answer
        first = (str(error).strip().splitlines() or [""])[0]
        return "raised", f"{type(error).__name__}: {first}"[:300]
    return "arrays", arrays(told)


def settle(package: str, kind: str) -> None:
    """What a backend wants done after a probe that raised."""
    wait = getattr(importlib.import_module(package), "settle", None)
    if kind == "raised" and wait is not None:
        wait()


def leave(folder: Path, name: str, variant: str, kind: str, told: Any) -> None:
    if kind == "arrays":
        with (folder / f"{name}.{variant}.npz.part").open("wb") as file:
            np.savez(file, **told)
        (folder / f"{name}.{variant}.npz.part").rename(folder / f"{name}.{variant}.npz")
    else:
        write_json(folder / f"{name}.{variant}.json", {"raised": told})


def use(package: str, device: str) -> None:
    """Take this device, also where the framework would take another by itself."""
    environment = f"{package.rpartition('.')[0]}.environment"
    if importlib.util.find_spec(environment):
        importlib.import_module(environment).resolve_device(device)


def perform(emit: Emitter) -> dict[str, Any]:
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text("utf-8"))
    use(job["package"], job["device"])
    for number, (name, topic, function) in enumerate(job["probes"]):
        emit(phase=name, done=number, total=len(job["probes"]))
        write_bytes(folder / f"{name}.begun", b"")
        for variant, probe in find(job["package"], topic, function).items():
            kind, told = run(probe)
            leave(folder, name, variant, kind, told)
            settle(job["package"], kind)
        write_bytes(folder / f"{name}.done", b"")
    return {}


def on_ranks(comm: Any, argument: dict[str, Any]) -> None:
    """The same on every rank, for entries about ranks: their probes get the rank and the number of
    ranks, in a group that is there already; rank 0's arrays are kept."""
    folder = Path(argument["folder"])
    for name, topic, function in argument["probes"]:
        if comm.rank == 0:
            write_bytes(folder / f"{name}.begun", b"")
        for variant, probe in find(argument["package"], topic, function).items():
            kind, told = run(probe, comm.rank, comm.size)
            settle(argument["package"], kind)
            if comm.rank == 0:
                leave(folder, name, variant, kind, told)
            comm.barrier()
        if comm.rank == 0:
            write_bytes(folder / f"{name}.done", b"")


if __name__ == "__main__":
    serve(perform)
