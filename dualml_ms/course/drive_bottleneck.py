"""Run a student's measurement of a bottleneck, and its remedy, in MindSpore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn

from dualml.course.drive_bottleneck import run_diagnoses, run_measurement, run_splits
from dualml.course.restricted import RestrictedCommunicator
from dualml.course.tally import ALLOWED
from dualml_ms.course.drive_lab3 import Descent, Net

Arrays = Mapping[str, Any]


class CountingNet(Net):
    """The network of Lab 3 that counts in ``rows`` the samples that it is given."""

    rows = 0

    def construct(self, x: Any) -> Any:
        """Return the outputs for the samples ``x``, and count them."""
        self.rows += len(x)
        return super().construct(x)


def read_array(value: Any) -> Any:
    """Return a tensor as an array; raise `TypeError` for anything else."""
    if not isinstance(value, ms.Tensor):
        raise TypeError(f"expected a tensor, received {type(value).__name__}")
    return value.asnumpy()


def make_number(value: float) -> ms.Tensor:
    """Return a float64 tensor of one number."""
    return ms.Tensor(value, ms.float64)


def measure(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's measurement on a simulated node; ``times`` is what it returned. ``arrays`` as
    for `dualml.course.drive_bottleneck.run_measurement`."""
    function = getattr(module, target)
    return run_measurement(function, options, arrays, comm, make_number, read_array)


def diagnose(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's diagnosis of the tables of times in ``arrays``; ``kinds`` and ``ranks`` are
    its answers, one per table, as numbers, see
    `dualml.course.drive_bottleneck.run_diagnoses`."""
    return run_diagnoses(getattr(module, target), options, arrays)


def split(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's division over ranks of the batches of the option ``asks``; ``0``, ``1``, …
    are the sizes that it returned, ``integers`` is 1 if all are integers, see
    `dualml.course.drive_bottleneck.run_splits`."""
    return run_splits(getattr(module, target), options, arrays)


def balanced(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's updates with batches divided by speed; ``3/w1`` is parameter w1 after update
    3, ``3/rows`` the number of samples that this rank's model has seen in it."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    h, net = options["hyper"], CountingNet(arrays)
    optimizer = Descent(net.trainable_params(), h["lr"], False, 0.0)
    watched = RestrictedCommunicator(comm, ALLOWED["balanced"])
    loss_fn = nn.MSELoss()
    out: dict[str, Any] = {}
    for step in range(1, options["steps"] + 1):
        x, y = (ms.Tensor(arrays[f"{k}/{step}"].copy()) for k in ("x", "y"))
        net.rows = 0
        getattr(module, target)(watched, net, loss_fn, optimizer, x, y, list(h["sizes"]))
        out |= {k: v for k, v in net.values(f"{step}/").items() if not k.endswith("shift")}
        out[f"{step}/rows"] = np.asarray(float(net.rows))
    return out
