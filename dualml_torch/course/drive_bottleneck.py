"""Run a student's measurement of a bottleneck, and its remedy, in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dualml.course.drive_bottleneck import run_diagnoses, run_measurement, run_splits
from dualml.course.restricted import RestrictedCommunicator
from dualml.course.tally import ALLOWED
from dualml_torch.course.drive_lab3 import Descent, Net

Arrays = Mapping[str, Any]


class CountingNet(Net):
    """The network of Lab 3 that counts the rows that it is given."""

    rows = 0

    def forward(self, x: Any) -> Any:
        """Return the outputs for the samples ``x``, and count them."""
        self.rows += len(x)
        return super().forward(x)


def read_array(value: Any) -> Any:
    """Return a tensor as an array; raise `TypeError` for anything else."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"expected a tensor, received {type(value).__name__}")
    return value.detach().cpu().numpy()


def make_number(value: float) -> torch.Tensor:
    """Return a float64 tensor of one number."""
    return torch.tensor(value, dtype=torch.float64)


def measure(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's measurement ``target`` of ``module`` on a simulated node; ``times`` is what
    it returned. ``arrays`` as for `run_measurement`."""
    function = getattr(module, target)
    return run_measurement(function, options, arrays, comm, make_number, read_array)


def diagnose(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's diagnosis ``target`` of ``module`` on the tables in ``arrays``; ``kinds``
    and ``ranks`` are its answers, one per table, as numbers, see `run_diagnoses`."""
    return run_diagnoses(getattr(module, target), options, arrays)


def split(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's division ``target`` of ``module`` on the batches of the option ``asks``;
    ``0``, ``1``, … are the sizes that it returned, ``integers`` is 1 if all are integers, see
    `run_splits`."""
    return run_splits(getattr(module, target), options, arrays)


def balanced(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's update function ``target`` of ``module``; ``3/w1`` is parameter w1 after
    update 3, ``3/rows`` the number of samples that the model has seen in it. ``arrays``: the
    parameters ``p/w1``, …, and ``x/3``, ``y/3``, the whole batch of update 3."""
    h, net = options["hyper"], CountingNet(arrays)
    optimizer = Descent(net.parameters(), h["lr"], False, 0.0)
    watched = RestrictedCommunicator(comm, ALLOWED["balanced"])
    loss_fn = torch.nn.MSELoss()
    out: dict[str, Any] = {}
    for step in range(1, options["steps"] + 1):
        x, y = (torch.from_numpy(arrays[f"{k}/{step}"].copy()) for k in ("x", "y"))
        net.rows = 0
        getattr(module, target)(watched, net, loss_fn, optimizer, x, y, list(h["sizes"]))
        out |= {k: v for k, v in net.values(f"{step}/").items() if not k.endswith("shift")}
        out[f"{step}/rows"] = np.asarray(float(net.rows))
    return out
