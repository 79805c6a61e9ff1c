"""Two pipeline stages and tensor parallel layers with typical mistakes as options, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, Flags

Number = type[np.floating[Any]]


def train_stages(
    options: Mapping[str, Any],
    ranks: Sequence[Arrays],
    flags: Flags = RIGHT,
    number: Number = np.float64,
) -> list[dict[str, Any]]:
    """Compute ``3/weight`` and ``3/bias`` of both stages after update 3, and ``3/loss`` on the
    second stage, for all updates.

    Stage 0 is h = s(x·Wᵀ + b) with s(z) = z/(1 + |z|), stage 1 is h·Wᵀ + b, and the loss is the
    mean squared error.
    """
    count, lr = options["micro_batches"], number(options["lr"])
    w = [a["weight"].astype(number) for a in ranks]
    b = [a["bias"].astype(number) for a in ranks]
    out: list[dict[str, Any]] = [{}, {}]
    kept = [[w[0] * 0, b[0] * 0], [w[1] * 0, b[1] * 0]]
    for step in range(1, options["steps"] + 1):
        xs = np.split(ranks[0][f"x/{step}"].astype(number), count)
        ys = np.split(ranks[1][f"y/{step}"].astype(number), count)
        zs = [x @ w[0].T + b[0] for x in xs]
        hs = [z / (1 + np.abs(z)) for z in zs]
        offs = [h @ w[1].T + b[1] - y for h, y in zip(hs, ys, strict=True)]
        size = number(offs[0].size * (1 if "stage_undivided" in flags else count))
        if "stage_divided_twice" in flags:
            size = size * number(count)
        ds = [2 * off / size for off in offs]
        backs = [d @ w[1] for d in ds]
        if "stage_order_crossed" in flags:
            backs = backs[::-1]
        if "stage_last_gradient" in flags:
            backs = [backs[-1]] * count
        pulled = [g / (1 + np.abs(z)) ** 2 for g, z in zip(backs, zs, strict=True)]
        own = range(count)
        chosen = [own[-1:] if "stage_last_alone" in flags else own for _ in range(2)]
        if "stage_first_micro_batch" in flags:
            chosen = [own[:1], own[:1]]
        gradients = [
            [sum(pulled[m].T @ xs[m] for m in chosen[0]), sum(pulled[m].sum(0) for m in chosen[0])],
            [sum(ds[m].T @ hs[m] for m in chosen[1]), sum(ds[m].sum(0) for m in chosen[1])],
        ]
        loss = sum((off**2).sum() for off in offs) / number(offs[0].size * count)
        if "stage_undivided" in flags:
            loss = loss * number(count)
        if "stage_divided_twice" in flags:
            loss = loss / number(count)
        for r in range(2):
            frozen = f"stage_{'first' if r == 0 else 'second'}_frozen" in flags
            g = [a + k for a, k in zip(gradients[r], kept[r], strict=True)]
            if "stage_accumulated" in flags:
                kept[r] = g
            if not frozen:
                w[r], b[r] = w[r] - lr * g[0], b[r] - lr * g[1]
            out[r] |= {f"{step}/weight": w[r], f"{step}/bias": b[r]}
        out[1][f"{step}/loss"] = np.asarray(loss)
    return out


def rank_slices(length: int, n: int, reverse: bool) -> list[slice]:
    """Return each rank's slice of ``length`` elements, all of ``length`` // n; in reverse order of
    ranks if ``reverse``."""
    each = length // n
    parts = [slice(r * each, (r + 1) * each) for r in range(n)]
    return parts[::-1] if reverse else parts


def column_layer(
    options: Mapping[str, Any],
    ranks: Sequence[Arrays],
    f: Flags = RIGHT,
    number: Number = np.float64,
) -> list[dict[str, Any]]:
    """Compute output, input gradient and parameter gradients on every rank of a layer whose output
    features are split over the ranks."""
    n = len(ranks)
    w, b = ranks[0]["w"].astype(number), ranks[0]["b"].astype(number)
    x = ranks[0]["x"].astype(number)
    own = rank_slices(len(w), n, "column_reversed" in f)
    backs = [a["g"].astype(number) @ w[s] for a, s in zip(ranks, own, strict=True)]
    out = []
    for r, (a, s) in enumerate(zip(ranks, own, strict=True)):
        g = a["g"].astype(number)
        y = x @ w[s].T + (0 if "column_bias_missing" in f else b[s])
        back: Any = backs[r] if "column_gradient_local" in f else sum(backs)
        back = back / number(n) if "column_gradient_mean" in f else back
        out.append(add_parameter_gradients(y, back, g, x, f, number))
    return out


def row_layer(
    options: Mapping[str, Any],
    ranks: Sequence[Arrays],
    f: Flags = RIGHT,
    number: Number = np.float64,
) -> list[dict[str, Any]]:
    """Compute output, input gradient and parameter gradients on every rank of a layer whose input
    features are split over the ranks."""
    n = len(ranks)
    w, b = ranks[0]["w"].astype(number), ranks[0]["b"].astype(number)
    own = rank_slices(w.shape[1], n, "row_reversed" in f)
    xs = [a["x"].astype(number) for a in ranks]
    products = [x @ w[:, s].T for x, s in zip(xs, own, strict=True)]
    times = {"row_bias_every_rank": number(n), "row_bias_missing": number(0)}
    bias = next((t * b for flag, t in times.items() if flag in f), b)
    backs = [a["g"].astype(number) @ w[:, s] for a, s in zip(ranks, own, strict=True)]
    out = []
    for r, x in enumerate(xs):
        y: Any = products[r] if "row_not_reduced" in f else sum(products)
        y = y / number(n) if "row_mean" in f else y
        back = sum(backs) if "row_gradient_reduced" in f else backs[r]
        out.append(
            add_parameter_gradients(y + bias, back, ranks[r]["g"].astype(number), x, f, number)
        )
    return out


def add_parameter_gradients(
    y: Any, back: Any, g: Any, x: Any, f: Flags, number: Number
) -> dict[str, Any]:
    """Return a layer's results: output ``y``, input gradient ``x`` (``back``), and the gradients
    ``weight`` and ``bias`` computed from the output gradient ``g`` and the input ``x``, which need
    no other rank."""
    bias = g.mean(0) if "bias_gradient_mean" in f else g.sum(0)
    weight = g.T @ x / number(len(x)) if "weight_gradient_mean" in f else g.T @ x
    return {"y": y, "x": back, "weight": weight, "bias": bias}
