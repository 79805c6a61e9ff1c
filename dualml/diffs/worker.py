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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dualml.diffs import VARIANTS
from dualml.files import write_bytes, write_json
from dualml.launch.child import Emitter, serve


def arrays(value: Any, name: str = "value") -> dict[str, Any]:
    """Whatever a probe returns (a number, an array, lists and dicts of them) by name."""
    parts: Mapping[Any, Any] | None = value if isinstance(value, Mapping) else None
    flat = isinstance(value, list) and all(isinstance(x, int | float | np.number) for x in value)
    if isinstance(value, tuple | list) and not flat:
        parts = {f"{name}{number}": one for number, one in enumerate(value)}
    if parts is not None:
        return {k: a for key, one in parts.items() for k, a in arrays(one, str(key)).items()}
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"a probe returned {type(value).__name__}; NumPy arrays and numbers only")
    return {name: array}


def find(package: str, topic: str, function: str) -> dict[str, Callable[..., Any]]:
    """Variant → probe; there is no ``equal`` where it is the plain one."""
    module = importlib.import_module(f"{package}.{topic}")
    return {variant: getattr(module, function + suffix) for variant, suffix in VARIANTS.items()
            if variant == "plain" or function + suffix in vars(module)}  # fmt: skip


def run(probe: Callable[..., Any], *given: Any) -> tuple[str, dict[str, Any] | str]:
    """``("arrays", …)``, or ``("raised", "Error: first line")``, of one probe."""
    try:
        value = probe(*given)
    except Exception as error:  # what a framework raises is the answer
        first = (str(error).strip().splitlines() or [""])[0]
        return "raised", f"{type(error).__name__}: {first}"[:300]
    return "arrays", arrays(value)


def settle(package: str, kind: str) -> None:
    """What a backend wants done after a probe that raised."""
    wait = getattr(importlib.import_module(package), "settle", None)
    if kind == "raised" and wait is not None:
        wait()


def leave(folder: Path, name: str, variant: str, kind: str, outcome: Any) -> None:
    if kind == "arrays":
        part = folder / f"{name}.{variant}.npz.part"
        with part.open("wb") as file:
            np.savez(file, **outcome)
        part.rename(part.with_suffix(""))
    else:
        write_json(folder / f"{name}.{variant}.json", {"raised": outcome})


def use(package: str, device: str) -> None:
    """Take this device, also where the framework would take another by itself."""
    environment = f"{package.rpartition('.')[0]}.environment"
    if importlib.util.find_spec(environment):
        importlib.import_module(environment).resolve_device(device)


def perform(emit: Emitter) -> dict[str, Any]:
    job = json.loads((Path(sys.argv[1]) / "job.json").read_text("utf-8"))
    use(job["package"], job["device"])
    measure(job, lambda name, done, total: emit(phase=name, done=done, total=total))
    return {}


def on_ranks(comm: Any, job: dict[str, Any]) -> None:
    """The same on every rank, for entries about ranks: their probes get the rank and the number of
    ranks, in a group that is there already; rank 0's arrays are kept."""
    measure(job, lambda *progress: None, comm)


def measure(job: dict[str, Any], begun: Callable[..., None], comm: Any = None) -> None:
    folder, leads = Path(job["folder"]), comm is None or comm.rank == 0
    for number, (name, topic, function) in enumerate(job["probes"]):
        begun(name, number, len(job["probes"]))
        if leads:
            write_bytes(folder / f"{name}.begun", b"")
        for variant, probe in find(job["package"], topic, function).items():
            kind, outcome = run(probe) if comm is None else run(probe, comm.rank, comm.size)
            if leads:
                leave(folder, name, variant, kind, outcome)
            settle(job["package"], kind)
            if comm is not None:
                comm.barrier()
        if leads:
            write_bytes(folder / f"{name}.done", b"")


if __name__ == "__main__":
    serve(perform)
