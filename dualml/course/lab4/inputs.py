"""The numbers from which a wrong one of a split model is computed, few enough to calculate by
hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import Array, Arrays, Difference

Row = tuple[float, ...]


def layer_inputs(rows: bool, arrays: Sequence[Arrays], difference: Difference) -> dict[str, Any]:
    """Return the row and the column whose product a layer's wrong number is, and the bias.

    Args:
        rows: whether the layer shards its inputs (`RowLinear`), else its outputs.
        arrays: arrays of all ranks: ``w``, ``b``, ``x`` and ``g``.
        difference: the wrong number of ``y``, ``x``, ``weight`` or ``bias``.
    """
    if difference.index is None or difference.key not in ("y", "x", "weight", "bias"):
        return {}
    n, rank, at = len(arrays), difference.rank, difference.index
    w, own = arrays[0]["w"], arrays[rank]
    each = w.shape[1 if rows else 0] // n
    part = slice(rank * each, (rank + 1) * each)
    if difference.key == "bias":
        return {f"g[:, {at[0]}]": as_row(own["g"][:, at[0]])}
    if difference.key == "weight":
        columns = {"g": own["g"][:, at[0]], "x": own["x"][:, at[1]]}
        return {f"{k}[:, {i}]": as_row(v) for (k, v), i in zip(columns.items(), at, strict=True)}
    i, j = at
    if difference.key == "y":
        x = np.concatenate([a["x"][i] for a in arrays]) if rows else own["x"][i]
        out = j if rows else part.start + j
        return {
            f"x[{i}]": as_row(x),
            f"W[{out}]": as_row(w[out]),
            f"b[{out}]": float(arrays[0]["b"][out]),
        }
    g = own["g"][i] if rows else np.concatenate([a["g"][i] for a in arrays])
    column = part.start + j if rows else j
    return {f"g[{i}]": as_row(g), f"W[:, {column}]": as_row(w[:, column])}


def stage_inputs(
    options: Mapping[str, Any],
    arrays: Sequence[Arrays],
    right: Sequence[Arrays],
    difference: Difference,
) -> dict[str, Any]:
    """Return the number before the wrong update, the learning rate η, and the mean gradient of each
    micro-batch there; for a wrong loss each micro-batch's loss L_k.

    Args:
        options: ``lr`` and ``micro_batches``.
        arrays: both stages' ``weight``, ``bias``, and ``x/1`` or ``y/1`` for each update.
        right: the right results of both stages: ``1/weight``, ….
    """
    step, _, name = difference.key.partition("/")
    known = step.isdigit() and name in ("weight", "bias", "loss")
    if difference.index is None or not known:
        return {}
    now = int(step)
    weights = [parameters_before(now, a, r) for a, r in zip(arrays, right, strict=True)]
    shown: dict[str, Any] = {}
    if name != "loss":
        before = weights[difference.rank][name]
        shown = {f"θ_{now - 1}": float(before[difference.index]), "η": options["lr"]}
    count = options["micro_batches"]
    xs, ys = np.split(arrays[0][f"x/{now}"], count), np.split(arrays[1][f"y/{now}"], count)
    for k, (x, y) in enumerate(zip(xs, ys, strict=True)):
        loss, gradients = loss_and_gradients(weights, x, y)
        if name == "loss":
            shown[f"L_{k}"] = loss
        else:
            shown[f"∂L_{k}/∂θ"] = float(gradients[difference.rank][name][difference.index])
    return shown


def parameters_before(step: int, given: Arrays, right: Arrays) -> dict[str, Array]:
    """Return weight and bias of a stage before an update, in float64."""
    names = ("weight", "bias")
    source = {n: given[n] if step == 1 else right[f"{step - 1}/{n}"] for n in names}
    return {n: np.asarray(a, np.float64) for n, a in source.items()}


def loss_and_gradients(
    weights: Sequence[Mapping[str, Array]], x: Array, y: Array
) -> tuple[float, list[dict[str, Array]]]:
    """Return the mean squared error of a micro-batch, and both stages' gradients of it."""
    z = x.astype(np.float64) @ weights[0]["weight"].T + weights[0]["bias"]
    h = z / (1 + np.abs(z))
    off = h @ weights[1]["weight"].T + weights[1]["bias"] - y
    d = 2 * off / off.size
    back = d @ weights[1]["weight"] / (1 + np.abs(z)) ** 2
    first = {"weight": back.T @ x, "bias": back.sum(0)}
    return float((off**2).mean()), [first, {"weight": d.T @ h, "bias": d.sum(0)}]


def as_row(a: Array) -> Row:
    """Return a vector as Python numbers."""
    return tuple(float(v) for v in a)
