"""Run a student's loss scaler in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dualml.course.returned import read_number

Arrays = Mapping[str, Any]


def scaler(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's loss scaler ``target`` of ``module`` on the weights ``p/a`` with the
    gradients ``g/3/a`` of ``arrays``; ``3/a`` is weight a after step 3, ``3/scale`` the scale then,
    ``3/done`` 1 if the step updated, else 0; ``loss`` is the scaled ``loss`` of ``arrays``, before
    all steps."""
    names = [key[2:] for key in arrays if key.startswith("p/")]
    weights = {n: torch.from_numpy(arrays[f"p/{n}"].copy()) for n in names}
    scaling = getattr(module, target)(**options["hyper"])
    loss = scaling.scaled(torch.from_numpy(arrays["loss"].copy()))
    out = {"loss": np.asarray(read_number(loss, f"{target}.scaled"), np.float64)}
    for step in range(1, options["steps"] + 1):
        gradients = [torch.from_numpy(arrays[f"g/{step}/{n}"].copy()) for n in names]
        done = scaling.step(list(weights.values()), gradients, options["lr"])
        out |= {f"{step}/{n}": w.detach().numpy().copy() for n, w in weights.items()}
        out |= {f"{step}/scale": np.asarray(read_number(scaling.scale, f"{target}.step"))}
        out |= {f"{step}/done": np.asarray(float(bool(done)))}
    return out
