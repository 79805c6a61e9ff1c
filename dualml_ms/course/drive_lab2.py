"""Run a student's gradient aggregation in MindSpore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np

from dualml.course.restricted import RestrictedCommunicator
from dualml.course.returned import read_numbers, read_tensor, read_tensors
from dualml.course.tally import ALLOWED
from dualml_ms.course.convert import copy_to_array

Arrays = Mapping[str, Any]


def aggregate(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Aggregate tensors with a student's function; ``0``, ``1``, … are the results per tensor,
    ``before/0``, … the tensors of the function's argument after the call, which must not change
    them."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    tensors = [ms.Tensor(arrays[k]) for k in arrays if k[0] == "t"]
    watched = RestrictedCommunicator(comm, options["collectives"])
    more = [int(arrays["samples"])] if "samples" in arrays else []
    passed = list(tensors)
    out = getattr(module, target)(watched, passed, *more, **options.get("how", {}))
    kept = {
        f"before/{i}": t.asnumpy().copy() for i, t in enumerate(entries_after_call(tensors, passed))
    }
    return {**read_tensors(out, copy_to_array, target), **kept}


def entries_after_call(tensors: list[ms.Tensor], passed: Any) -> list[ms.Tensor]:
    """Return, for each of ``tensors``, what is at its place in ``passed``, the list of them that a
    student's function received and may have changed: another tensor that replaced it, an empty one
    if the list became shorter, else itself."""
    found = [*passed, *(ms.Tensor(np.zeros(0, np.float32)) for _ in tensors)]
    return [
        new if isinstance(new, ms.Tensor) and new is not old else old
        for old, new in zip(tensors, found, strict=False)
    ]


def ring(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's ring all-reduce; ``sum`` is its result, ``before`` the function's argument
    after the call."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    tensor = ms.Tensor(arrays["t"])
    made = getattr(module, target)(RestrictedCommunicator(comm, ALLOWED["ring"]), tensor)
    return {"sum": read_tensor(made, copy_to_array, target), "before": copy_to_array(tensor)}


def measured(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's timing of all-reduces; ``seconds`` has a time for each entry of the option
    ``sizes``, measured on a communicator with known times or on a real one."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    watched = RestrictedCommunicator(comm, ALLOWED["measured"])
    made = getattr(module, target)(watched, list(options["sizes"]))
    return {"seconds": np.asarray(read_numbers(made, target))}
