"""Run a student's ZeRO optimizer in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dualml.course.restricted import RestrictedCommunicator
from dualml.course.returned import read_attribute
from dualml.course.tally import ALLOWED

Arrays = Mapping[str, Any]


def zero(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's ZeRO optimizer ``target`` of ``module`` on the parameters ``p`` with the
    gradients ``g/3`` of ``arrays``; ``3/parameters`` are all parameters after update 3,
    ``3/gradient`` the gradient of that update once it is over, ``m``, ``v`` this rank's state at
    the end, if it has attributes of these names."""
    parameters = torch.from_numpy(arrays["p"].copy())
    hyper = {n: tuple(v) if isinstance(v, list) else v for n, v in options["hyper"].items()}
    watched = RestrictedCommunicator(comm, ALLOWED["zero"])
    opt = getattr(module, target)(watched, parameters, **hyper)
    out: dict[str, Any] = {}
    for step in range(1, options["steps"] + 1):
        comm.mark()
        gradient = torch.from_numpy(arrays[f"g/{step}"].copy())
        opt.step(gradient)
        out[f"{step}/gradient"] = gradient.numpy().copy()
        out[f"{step}/parameters"] = parameters.detach().numpy().copy()
    own = [n for n in ("m", "v") if hasattr(opt, n)]
    return out | {n: read_attribute(opt, n, np.array, target) for n in own}
