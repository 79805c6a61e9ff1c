"""The numbers from which a wrong one of a saved or resumed training is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from dualml.course.checkpoint.rules import begin_training, describe, mean_gradients, update
from dualml.course.exercise import Arrays, Difference

#: State of a training → symbol of its value at the beginning; others have their name.
SYMBOLS: Mapping[str, str] = {"momentum/weight": "v", "momentum/bias": "v", "rate": "η"}


def training_inputs(
    options: Mapping[str, Any], arrays: Sequence[Arrays], difference: Difference
) -> dict[str, Any]:
    """Return for a loaded value the one with which the new training began, which a load has to
    replace; for ``epoch`` and ``step`` those handed to each save; else what the last update
    computes the value from (`update_inputs`).

    Args:
        options: options of the call.
        arrays: arrays of all ranks.
        difference: the wrong number of ``loaded/NAME``, ``progress/NAME``, ``saved/NAME``,
            ``whole/7/NAME`` or ``7/NAME``.
    """
    if difference.index is None:
        return {}
    kind, _, name = difference.key.removeprefix("whole/").partition("/")
    if kind == "progress":
        each = options["epoch"] if name == "epoch" else 1
        saves = (options["early"], options["updates"])
        return {f"{name}_0": 0, **{f"save {n}": at // each for n, at in enumerate(saves, 1)}}
    if kind == "loaded":
        own, seed = arrays[difference.rank], options["fresh_seeds"][difference.rank]
        began = begin_training(options, own, "fresh", seed, np.float64)
        value = describe(began, options, own["x"])[name][difference.index]
        return {f"{SYMBOLS.get(name, name)}_0": as_number(value)}
    step = int(kind) if kind.isdigit() else options["updates"]
    return update_inputs(options, arrays, difference, step, name)


def update_inputs(
    options: Mapping[str, Any],
    arrays: Sequence[Arrays],
    difference: Difference,
    step: int,
    name: str,
) -> dict[str, Any]:
    """Return what an update computes a value from: of a parameter the value θ, its momentum v and
    the learning rate η before the update, the factor μ, and the mean gradient g; of a momentum v, μ
    and g; of the buffer its value and the mean of x; of the learning rate the first one, the factor
    and the number of epochs; of samples to be drawn the seed.

    Args:
        step: number of the update, from 1.
        name: ``weight``, ``momentum/weight``, ``shift``, ``rate``, ``draws``, …
    """
    hyper, last = options["hyper"], step - 1
    if name == "draws":
        return {"seed": options["seeds"][difference.rank], "updates": step}
    if name == "rate":
        epochs = step // options["epoch"]
        return {"η_0": hyper["lr"], "factor": hyper["decay"], "epochs": epochs}
    ranks = [
        begin_training(options, a, "start", seed, np.float64)
        for a, seed in zip(arrays, options["seeds"], strict=True)
    ]
    for _ in range(last):
        update(ranks, options, arrays, np.float64)
    before = deepcopy(ranks[difference.rank].values)
    mean = mean_gradients(ranks, options, arrays, np.float64)
    at, of = difference.index, name.removeprefix("momentum/")
    if name == "shift":
        return {f"shift_{last}": float(before[name][at]), f"x_{step}": float(mean[name][at])}
    shown = {
        f"v_{last}": float(before[f"momentum/{of}"][at]),
        f"g_{step}": float(mean[of][at]),
        "μ": hyper["momentum"],
    }
    if name != of:
        return shown
    return {f"θ_{last}": float(before[name][at]), **shown, "η": float(before["rate"])}


def as_number(value: Any) -> float | int:
    """Return an element of an array as a Python number; an integer stays one."""
    return int(value) if np.issubdtype(value.dtype, np.integer) else float(value)
