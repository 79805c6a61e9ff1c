"""Worker process of one framework: ``python -m dualml.parity.diffs.worker FOLDER`` runs probes.

``job.json`` in the folder lists them. Each probe leaves ``NAME.VARIANT.npz`` with its arrays, or
``NAME.VARIANT.json`` with the error it raised. It is written between the marker files
``NAME.begun`` and ``NAME.done``, so the parent process sees which probe terminated the worker.
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

from dualml.common.files import write_bytes, write_json
from dualml.launch.child import Emitter, report_to_owner
from dualml.parity.diffs import VARIANTS


def collect_arrays(value: Any, name: str = "value") -> dict[str, Any]:
    """Flatten what a probe returned (a number, an array, nested lists and dicts) into named arrays.

    Dict keys give the names; elements of a list get the list's name and their index, as ``value0``.
    A list of numbers is one array. A value that NumPy could only hold as an object raises
    `TypeError`.

    Args:
        name: name of a value that no dict names.
    """
    parts: Mapping[Any, Any] | None = value if isinstance(value, Mapping) else None
    flat = isinstance(value, list) and all(isinstance(x, int | float | np.number) for x in value)
    if isinstance(value, tuple | list) and not flat:
        parts = {f"{name}{number}": one for number, one in enumerate(value)}
    if parts is not None:
        return {
            k: a for key, one in parts.items() for k, a in collect_arrays(one, str(key)).items()
        }
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"a probe returned {type(value).__name__}; NumPy arrays and numbers only")
    return {name: array}


def load_probes(package: str, topic: str, function: str) -> dict[str, Callable[..., Any]]:
    """Return an entry's probe functions by variant; ``equal`` is absent if it equals ``plain``."""
    module = importlib.import_module(f"{package}.{topic}")
    return {
        variant: getattr(module, function + suffix)
        for variant, suffix in VARIANTS.items()
        if variant == "plain" or function + suffix in vars(module)
    }


def run_probe(probe: Callable[..., Any], *given: Any) -> tuple[str, dict[str, Any] | str]:
    """Run one probe; return ``("arrays", …)`` or ``("raised", "Error: first line")`` with at most
    300 characters. A result that is no array raises `TypeError`, see `collect_arrays`."""
    try:
        value = probe(*given)
    except Exception as error:  # the error of a framework is the result
        first = (str(error).strip().splitlines() or [""])[0]
        return "raised", f"{type(error).__name__}: {first}"[:300]
    return "arrays", collect_arrays(value)


def settle_backend(package: str, kind: str) -> None:
    """Call the backend's ``settle`` hook, if it has one and the probe raised (``kind``)."""
    wait = getattr(importlib.import_module(package), "settle", None)
    if kind == "raised" and wait is not None:
        wait()


def write_outcome(folder: Path, name: str, variant: str, kind: str, outcome: Any) -> None:
    """Write the outcome of one probe as an ``.npz`` file, or as ``.json`` if it raised."""
    if kind == "arrays":
        part = folder / f"{name}.{variant}.npz.part"
        with part.open("wb") as file:
            np.savez(file, **outcome)
        part.rename(part.with_suffix(""))
    else:
        write_json(folder / f"{name}.{variant}.json", {"raised": outcome})


def select_device(package: str, device: str) -> None:
    """Select this device, also if the framework would choose another one by default; nothing
    happens for a backend without ``common.environment``."""
    common = f"{package.partition('.')[0]}.common"
    environment = f"{common}.environment"
    if importlib.util.find_spec(common) and importlib.util.find_spec(environment):
        importlib.import_module(environment).resolve_device(device)


def run_probe_job(emit: Emitter) -> dict[str, Any]:
    """Run all probes of the job in the folder given on the command line; outcomes are files there,
    and the result is empty."""
    job = json.loads((Path(sys.argv[1]) / "job.json").read_text("utf-8"))
    select_device(job["package"], job["device"])
    measure_probes(job, lambda name, done, total: emit(phase=name, done=done, total=total))
    return {}


def measure_on_ranks(comm: Any, job: dict[str, Any]) -> None:
    """Run the probes of entries about several ranks; every rank of a group calls this.

    Each probe gets the rank and the number of ranks; only rank 0 writes its arrays.
    """
    measure_probes(job, lambda *progress: None, comm)


def measure_probes(job: dict[str, Any], on_begin: Callable[..., None], comm: Any = None) -> None:
    """Run all probes of a job and write their outcomes.

    Args:
        on_begin: called with an entry's name, its number from 0 and their total before its probes.
        comm: the communicator of the group, all of whose ranks call this and meet after each
            probe; None for a single process.
    """
    folder, leads = Path(job["folder"]), comm is None or comm.rank == 0
    for number, (name, topic, function) in enumerate(job["probes"]):
        on_begin(name, number, len(job["probes"]))
        if leads:
            write_bytes(folder / f"{name}.begun", b"")
        for variant, probe in load_probes(job["package"], topic, function).items():
            kind, outcome = (
                run_probe(probe) if comm is None else run_probe(probe, comm.rank, comm.size)
            )
            if leads:
                write_outcome(folder, name, variant, kind, outcome)
            settle_backend(job["package"], kind)
            if comm is not None:
                comm.barrier()
        if leads:
            write_bytes(folder / f"{name}.done", b"")


if __name__ == "__main__":
    with report_to_owner() as emit:
        emit.result = run_probe_job(emit)
