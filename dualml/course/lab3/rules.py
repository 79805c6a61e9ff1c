"""Data parallel training with typical mistakes as options, in NumPy: a network with one hidden
layer, its gradient, plain gradient descent and AdaGrad.

Every number has the dtype ``number``: tolerances are derived from the effect of float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import Array, Arrays, Flags
from dualml.course.mistakes import compute_mistaken

WEIGHTS = ("w1", "b1", "w2", "b2")
Weights = dict[str, Any]


def loss_and_gradient(p: Weights, shift: Array, x: Array, y: Array) -> tuple[Any, Weights]:
    """Compute the mean squared error of s((x − shift)·w1 + b1)·w2 + b2 with s(z) = z / (1 + |z|),
    and its gradient; NaN and 0 without samples, as in the frameworks. It has only sums, products
    and quotients, so that the frameworks' functions add no error of their own."""
    if not len(x):
        return x.dtype.type(np.nan), {name: np.zeros_like(w) for name, w in p.items()}
    moved = x - shift
    z = moved @ p["w1"] + p["b1"]
    hidden = z / (1 + np.abs(z))
    off = hidden @ p["w2"] + p["b2"] - y
    d = off * x.dtype.type(2) / x.dtype.type(off.size)
    back = (d @ p["w2"].T) / (1 + np.abs(z)) ** 2
    gradient = {"w1": moved.T @ back, "b1": back.sum(0), "w2": hidden.T @ d, "b2": d.sum(0)}
    return (off**2).mean(), gradient


def broadcast_start(ranks: Sequence[Arrays], f: Flags, number: Any) -> list[Arrays]:
    """Return the parameters of every rank after rank 0's were broadcast, as the mistakes ``f``
    change it, in the dtype ``number``."""
    every = [{name[2:]: a.astype(number) for name, a in own.items()} for own in ranks]
    root = every[-1 if "start_other_root" in f else 0]
    out: list[Arrays] = []
    for own in every:
        now = dict(own) if "start_not_broadcast" in f else dict(root)
        if "start_averaged" in f:
            now = {name: sum(r[name] for r in every) / number(len(every)) for name in own}
        if "start_first_alone" in f:
            now = {name: (now if name == "w1" else own)[name] for name in own}
        if "start_buffers_left" in f:
            now["shift"] = own["shift"]
        out.append(now)
    return out


def combine_gradient(
    name: str, gradients: Sequence[Weights], sizes: Sequence[int], rank: int, f: Flags, number: Any
) -> Any:
    """Return the gradient of parameter ``name`` by which ``rank`` updates: the mean of all ranks'
    ``gradients`` weighted by ``sizes``, as the mistakes ``f`` change it."""
    own, count, total = gradients[rank][name], len(sizes), sum(sizes)
    shares = [number(size) / number(total) for size in sizes]
    alone = ("update_first_alone" in f and name != WEIGHTS[0]) or (
        "update_last_alone" in f and name != WEIGHTS[-1]
    )
    if alone or "update_local" in f or "update_parameters" in f:
        return own
    every = [g[name] for g in gradients]

    def weighted_sum(weights: Sequence[Any]) -> Any:
        return sum(g * weight for g, weight in zip(every, weights, strict=True))

    mistaken = {
        "update_result_unused": lambda: own * shares[rank],
        "update_summed": lambda: sum(every),
        "update_unweighted": lambda: sum(every) / number(count),
        "update_loss_sum": lambda: weighted_sum([number(size) for size in sizes]),
        "update_divided_twice": lambda: weighted_sum(shares) / number(count),
    }
    return compute_mistaken(f, mistaken, lambda: weighted_sum(shares))


def reported_loss(
    losses: Sequence[Any], sizes: Sequence[int], rank: int, f: Flags, number: Any
) -> Any:
    """Return the loss that ``rank`` reports: the mean of all ranks' ``losses`` weighted by
    ``sizes``, as the mistakes ``f`` change it."""
    seen = [
        number(0) if not size and "update_loss_nan" not in f else loss
        for loss, size in zip(losses, sizes, strict=True)
    ]
    mistaken = {
        "update_loss_local": lambda: seen[rank],
        "update_loss_unweighted": lambda: sum(seen) / number(len(seen)),
        "update_loss_summed": lambda: sum(seen),
    }
    weighted = (x * number(s) / number(sum(sizes)) for x, s in zip(seen, sizes, strict=True))
    return compute_mistaken(f, mistaken, lambda: sum(weighted))


def trajectory(
    options: Mapping[str, Any], ranks: Sequence[Arrays], f: Flags, number: Any = np.float64
) -> list[Arrays]:
    """Compute on each rank ``3/w1``, the parameter after update 3, for all parameters and updates;
    and ``3/loss``, the loss that it reports in update 3, if ``options`` asks for it."""
    h = options["hyper"]
    lr, eps = number(h["lr"]), number(h["eps"])
    weights = [{name: own[f"p/{name}"].astype(number) for name in WEIGHTS} for own in ranks]
    sums: list[Weights] = [{name: number(0) for name in WEIGHTS} for _ in ranks]
    kept: list[Weights] = [{name: number(0) for name in WEIGHTS} for _ in ranks]
    out: list[dict[str, Any]] = [{} for _ in ranks]
    for step in range(1, options["steps"] + 1):
        sizes = [len(own[f"y/{step}"]) for own in ranks]
        given = [
            [own[key].astype(number) for key in ("p/shift", f"x/{step}", f"y/{step}")]
            for own in ranks
        ]
        found = [loss_and_gradient(p, *own) for p, own in zip(weights, given, strict=True)]
        gradients = [gradient for _, gradient in found]
        if "update_accumulated" in f:
            for gradient, before in zip(gradients, kept, strict=True):
                gradient |= {name: gradient[name] + before[name] for name in WEIGHTS}
        for rank, p in enumerate(weights):
            if options["loss"]:
                loss = reported_loss([loss for loss, _ in found], sizes, rank, f, number)
                out[rank][f"{step}/loss"] = np.asarray(loss)
            for name in WEIGHTS:
                g = combine_gradient(name, gradients, sizes, rank, f, number)
                if "update_accumulated#2" in f:  # every rank adds what all of them have kept
                    g = g + number(len(ranks)) * kept[rank][name]
                kept[rank][name] = g
                if "update_root_only" in f and rank:
                    continue
                if h["adaptive"]:
                    sums[rank][name] = sums[rank][name] + g * g
                    g = g / (np.sqrt(sums[rank][name]) + eps)
                p[name] = p[name] - lr * g
        if "update_parameters" in f:
            weights = average_parameters(weights, sizes, f, number)
        for own, p in zip(out, weights, strict=True):
            own |= {f"{step}/{name}": p[name] for name in WEIGHTS}
    return [dict(own) for own in out]


def average_parameters(
    weights: Sequence[Weights], sizes: Sequence[int], f: Flags, number: Any
) -> list[Any]:
    """Return the mean of all ranks' ``weights``, weighted by ``sizes`` or, by mistake, equally; a
    dict of its own for every rank."""
    even = "update_unweighted" in f
    shares = [
        number(1) / number(len(sizes)) if even else number(s) / number(sum(sizes)) for s in sizes
    ]
    mean = {
        name: sum(p[name] * s for p, s in zip(weights, shares, strict=True)) for name in WEIGHTS
    }
    return [dict(mean) for _ in weights]
