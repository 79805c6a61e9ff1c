"""Run a student's loss scaler in MindSpore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np

from dualml.course.returned import read_number

Arrays = Mapping[str, Any]


def scaler(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's loss scaler; ``3/a`` is weight a after step 3, ``3/scale`` the scale then,
    ``3/done`` whether the step returned true; ``loss`` is a scaled loss."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    names = [key[2:] for key in arrays if key.startswith("p/")]
    weights = {n: ms.Parameter(ms.Tensor(arrays[f"p/{n}"]), name=n) for n in names}
    scaling = getattr(module, target)(**options["hyper"])
    loss = scaling.scaled(ms.Tensor(arrays["loss"]))
    out = {"loss": np.asarray(read_number(loss, f"{target}.scaled"), np.float64)}
    for step in range(1, options["steps"] + 1):
        gradients = [ms.Tensor(arrays[f"g/{step}/{n}"]) for n in names]
        done = scaling.step(list(weights.values()), gradients, options["lr"])
        out |= {f"{step}/{n}": w.asnumpy().copy() for n, w in weights.items()}
        out |= {f"{step}/scale": np.asarray(read_number(scaling.scale, f"{target}.step"))}
        out |= {f"{step}/done": np.asarray(float(bool(done)))}
    return out
