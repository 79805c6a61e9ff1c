"""Run a student's parameter server: rank 0 serves, the others train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dualml.course.language_model import (
    WEIGHTS,
    join_weights,
    language_model,
    split_weights,
    weight_shapes,
)
from dualml.course.restricted import RestrictedCommunicator
from dualml.course.tally import ALLOWED

Arrays = Mapping[str, Any]


def make_model(
    arrays: Arrays,
    options: Mapping[str, Any],
    step: int,
    to_array: Callable[[Any], Any],
    to_tensor: Callable[[Any], Any],
) -> Callable[[Any, Any], tuple[float, Any, Any]]:
    """Return the language model of one window as a function of rows and weights that returns loss
    and gradients, all tensors of the student's framework."""
    targets = arrays[f"y/{step}"]
    shapes = weight_shapes(options["words"], options["width"], options["hidden"])

    def model(rows: Any, weights: Any) -> tuple[float, Any, Any]:
        own = np.asarray(to_array(rows), np.float32).reshape(*targets.shape, options["width"])
        named = split_weights(np.asarray(to_array(weights), np.float32), shapes)
        state = np.zeros((targets.shape[1], options["hidden"]), np.float32)
        loss, of_rows, of_weights, _ = language_model(own, named, targets, state)
        of_rows = of_rows.reshape(-1, options["width"])
        return float(loss), to_tensor(of_rows), to_tensor(join_weights(of_weights))

    return model


def run_server(
    make: Callable[..., Any],
    arrays: Arrays,
    options: Mapping[str, Any],
    comm: Any,
    to_array: Callable[[Any], Any],
    to_tensor: Callable[[Any], Any],
    to_parameter: Callable[[Any, str], Any],
) -> dict[str, Any]:
    """Make updates with a parameter server; ``3/table`` and ``3/weights`` on rank 0 are the
    parameters after update 3, ``3/loss`` on a trainer the loss that it returned.

    Args:
        make: (communicator, lr, width, count) → the student's object.
    """
    shapes = weight_shapes(options["words"], options["width"], options["hidden"])
    count = sum(int(np.prod(shape)) for shape in shapes.values())
    own = make(
        RestrictedCommunicator(comm, ALLOWED["rows"]), options["lr"], options["width"], count
    )
    out: dict[str, Any] = {}
    if comm.rank == 0:
        table = to_parameter(arrays["table"], "table")
        weights = to_parameter(join_weights({n: arrays[n] for n in WEIGHTS}), "weights")
    for step in range(1, options["steps"] + 1):
        if comm.rank == 0:
            own.serve(table, weights, options["length"] * options["batch"])
            out |= {f"{step}/table": to_array(table), f"{step}/weights": to_array(weights)}
        else:
            model = make_model(arrays, options, step, to_array, to_tensor)
            loss = own.train(model, to_tensor(arrays[f"words/{step}"]))
            if loss is None:
                raise TypeError("train has to return the loss; it returned None")
            out[f"{step}/loss"] = np.asarray(float(loss))
    return out
