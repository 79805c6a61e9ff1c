"""Run a student's ZeRO optimizer in MindSpore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms

from dualml.course.restricted import RestrictedCommunicator
from dualml.course.returned import read_attribute
from dualml.course.tally import ALLOWED
from dualml_ms.course.convert import copy_to_array

Arrays = Mapping[str, Any]


def zero(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's ZeRO optimizer; ``3/parameters`` are the parameters after update 3,
    ``3/gradient`` the gradient of that update once it is over, ``m``, ``v`` the state at the
    end."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    parameters = ms.Parameter(ms.Tensor(arrays["p"]), name="parameters")
    hyper = {n: tuple(v) if isinstance(v, list) else v for n, v in options["hyper"].items()}
    watched = RestrictedCommunicator(comm, ALLOWED["zero"])
    opt = getattr(module, target)(watched, parameters, **hyper)
    out: dict[str, Any] = {}
    for step in range(1, options["steps"] + 1):
        comm.mark()
        gradient = ms.Tensor(arrays[f"g/{step}"])
        opt.step(gradient)
        out[f"{step}/gradient"] = gradient.asnumpy().copy()
        out[f"{step}/parameters"] = parameters.asnumpy().copy()
    own = [n for n in ("m", "v") if hasattr(opt, n)]
    return out | {n: read_attribute(opt, n, copy_to_array, target) for n in own}
