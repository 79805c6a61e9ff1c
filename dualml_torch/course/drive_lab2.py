"""Run a student's gradient aggregation in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dualml.course.restricted import RestrictedCommunicator
from dualml.course.returned import read_numbers, read_tensor, read_tensors
from dualml.course.tally import ALLOWED
from dualml_torch.course.convert import copy_to_array

Arrays = Mapping[str, Any]


def aggregate(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Call the student's function ``target`` of ``module`` with the list of the tensors ``t/0``,
    ``t/1``, … of ``arrays`` and, if present, ``samples``; ``0``, ``1``, … are its results,
    ``before/0``, … the tensors of the list after the call, which must not change them."""
    tensors = [torch.from_numpy(arrays[k].copy()) for k in arrays if k[0] == "t"]
    watched = RestrictedCommunicator(comm, options["collectives"])
    more = [int(arrays["samples"])] if "samples" in arrays else []
    passed = list(tensors)
    out = getattr(module, target)(watched, passed, *more, **options.get("how", {}))
    kept = {
        f"before/{i}": t.detach().numpy().copy()
        for i, t in enumerate(entries_after_call(tensors, passed))
    }
    return {**read_tensors(out, copy_to_array, target), **kept}


def entries_after_call(tensors: list[torch.Tensor], passed: Any) -> list[torch.Tensor]:
    """Return, for each place of ``tensors``, the tensor in the list ``passed`` at that place, after
    a call that got the list: an empty tensor where the list has become shorter, the old one where
    something else than a tensor stands."""
    found = [*passed, *(torch.empty(0) for _ in tensors)]
    return [
        new if isinstance(new, torch.Tensor) and new is not old else old
        for old, new in zip(tensors, found, strict=False)
    ]


def ring(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Call the student's ring all-reduce ``target`` of ``module`` with the array ``t``; ``sum`` is
    its result, ``before`` the argument as it is after the call, which must not change it."""
    tensor = torch.from_numpy(arrays["t"].copy())
    made = getattr(module, target)(RestrictedCommunicator(comm, ALLOWED["ring"]), tensor)
    return {"sum": read_tensor(made, copy_to_array, target), "before": copy_to_array(tensor)}


def measured(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Call the student's timing of collectives ``target`` of ``module`` with the option ``sizes``;
    ``seconds`` is what it returned, one number per size, on a communicator with known times or on a
    real one."""
    watched = RestrictedCommunicator(comm, ALLOWED["measured"])
    made = getattr(module, target)(watched, list(options["sizes"]))
    return {"seconds": np.asarray(read_numbers(made, target))}
