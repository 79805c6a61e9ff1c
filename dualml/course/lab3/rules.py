"""Data parallel training with typical mistakes as options, in NumPy: a network with one hidden
layer, its gradient, plain gradient descent and AdaGrad.

Every number has the dtype ``number``: tolerances are derived from the effect of float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Array, Arrays, Flags
from dualml.course.lab3.rank_optimizer import (
    WEIGHTS,
    RankOptimizer,
    Weights,
    average_parameters,
    skips_update,
)
from dualml.course.lab3.weights import (
    Weigh,
    gradient_weights,
    loss_weights,
    split_with_loss,
    weights_on_rank,
)
from dualml.course.mistakes import compute_mistaken
from dualml.course.places import flags_at

#: More than there are of updates, of samples on a rank, or of dimensions, where only the first of
#: them are told apart.
LONGEST = 1000
#: Each rank's loss and gradient.
Evaluation = list[tuple[Any, Weights]]


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


def combine_gradient(
    name: str, gradients: Sequence[Weights], rank: int, weights: Sequence[Any], f: Flags
) -> Any:
    """Return the gradient of parameter ``name`` by which ``rank`` updates: the sum of all ranks'
    ``gradients`` times ``weights``, as the typical mistakes named in ``f`` change it."""
    own = gradients[rank][name]
    alone = ("update_first_alone" in f and name != WEIGHTS[0]) or (
        "update_last_alone" in f and name != WEIGHTS[-1]
    )
    if alone or "update_local" in f or "update_parameters" in f:
        return own
    mistaken = {
        "update_result_unused": lambda: own * weights[rank],
        "update_root_gradient": lambda: gradients[0][name],
        "update_root_gradient#2": lambda: gradients[-1][name],
        "update_root_gradient#3": lambda: gradients[0][name] * weights[0],
    }
    return compute_mistaken(
        f, mistaken, lambda: sum(g[name] * w for g, w in zip(gradients, weights, strict=True))
    )


def reported_loss(
    losses: Sequence[Any],
    sizes: Sequence[int],
    rank: int,
    mistaken: Mapping[str, Weigh],
    f: Flags,
    number: Any,
) -> Any:
    """Return the loss that ``rank`` reports: the mean of all ranks' ``losses`` weighted by
    ``sizes``, as the typical mistakes named in ``f``, and those of the weights ``mistaken``, change
    it."""
    seen = [
        number(0) if not size and "update_loss_nan" not in f else loss
        for loss, size in zip(losses, sizes, strict=True)
    ]
    weights = weights_on_rank(rank, sizes, f, mistaken, number)
    if not sizes[rank] and "update_loss_empty" in f:
        return number(0)
    if not sizes[rank] and "update_loss_empty#2" in f:
        return number(np.nan)
    reported = {
        "update_loss_local": lambda: seen[rank],
        "update_loss_share": lambda: seen[rank] * weights[rank],
        "update_loss_root": lambda: seen[0],
        "update_loss_missing": lambda: number(0),
    }
    return compute_mistaken(
        f, reported, lambda: sum(x * w for x, w in zip(seen, weights, strict=True))
    )


def trajectory(
    options: Mapping[str, Any],
    ranks: Sequence[Arrays],
    f: Flags,
    number: Any = np.float64,
    known: Evaluation | None = None,
) -> list[Arrays]:
    """Compute on each rank ``3/w1``, the parameter after update 3, for all parameters and updates;
    and ``3/loss``, the loss that it reports in update 3, if the option ``loss`` asks for it.

    Args:
        options: ``hyper``; ``loss``; ``steps``, the number of updates to compute; ``of``, if it is
            there, the number of updates of the whole training, to which the places of mistakes
            refer.
        ranks: arrays of each rank.
        f: mistakes.
        number: dtype of the computation.
        known: each rank's loss and gradient before the first update, if they are known.
    """
    steps = options["steps"]
    of = options.get("of", steps)
    weights = [{name: own[f"p/{name}"].astype(number) for name in WEIGHTS} for own in ranks]
    optimizers = [RankOptimizer(p, options["hyper"], number) for p in weights]
    out: list[dict[str, Any]] = [{} for _ in ranks]
    with np.errstate(all="ignore"):  # by mistake something is divided by 0
        for step in range(1, steps + 1):
            now = flags_at(f, step=(step - 1, of))
            start = known if step == 1 else None
            train_once(ranks, optimizers, step, now, out if options["loss"] else [], start)
            if "update_parameters" in now:
                sizes = [len(own[f"y/{step}"]) for own in ranks]
                average_parameters(optimizers, sizes, now, number)
            for found, optimizer in zip(out, optimizers, strict=True):
                found |= {f"{step}/{name}": optimizer.weights[name] for name in WEIGHTS}
    return [dict(own) for own in out]


def train_once(
    ranks: Sequence[Arrays],
    optimizers: Sequence[RankOptimizer],
    step: int,
    f: Flags,
    out: Sequence[dict[str, Any]],
    known: Evaluation | None = None,
) -> None:
    """Make one update on every rank, and write the losses that they report into ``out``, unless it
    is empty.

    Args:
        known: each rank's loss and gradient before the update, if they are known.
    """
    f, with_loss = split_with_loss(f)
    number = optimizers[0].number
    sizes = [len(own[f"y/{step}"]) for own in ranks]
    first = [len(own["y/1"]) for own in ranks]
    given = [
        [own[key].astype(number) for key in ("p/shift", f"x/{step}", f"y/{step}")] for own in ranks
    ]

    def evaluate() -> Evaluation:
        """Return each rank's loss and gradient with its parameters as they are now."""
        return [
            loss_and_gradient(o.weights, *own) for o, own in zip(optimizers, given, strict=True)
        ]

    places = [
        flags_at(f, rank=(rank, len(sizes)), samples=(size, LONGEST))
        for rank, size in enumerate(sizes)
    ]

    def flags_of(rank: int, i: int) -> Flags:
        """Return the mistakes that act on one parameter of one rank."""
        dims = (optimizers[rank].weights[WEIGHTS[i]].ndim, LONGEST)
        return flags_at(places[rank], tensor=(i, len(WEIGHTS)), dim=dims)

    for rank, optimizer in enumerate(optimizers):
        for i, name in enumerate(WEIGHTS):
            if "update_late" in flags_of(rank, i):
                optimizer.step(name, optimizer.before[name], RIGHT)
    found = evaluate() if known is None else known
    gradients = [dict(gradient) for _, gradient in found]
    mistaken = gradient_weights(sizes, first, number)
    for gradient, optimizer, here in zip(gradients, optimizers, places, strict=True):
        if "update_accumulated" in here:
            gradient |= {name: gradient[name] + optimizer.before[name] for name in WEIGHTS}
    for rank, optimizer in enumerate(optimizers):
        for i, name in enumerate(WEIGHTS):
            own = flags_of(rank, i)
            weights = weights_on_rank(rank, sizes, own, mistaken, number)
            g = combine_gradient(name, gradients, rank, weights, own)
            used = optimizer.gradient_to_use(name, g, len(ranks), own)
            if not skips_update(own, rank, sizes):
                optimizer.step(name, used, own)
    if out:
        of_losses = {**loss_weights(sizes, number), **(mistaken if with_loss else {})}
        late = any("update_loss_after" in here for here in places)
        after = [loss for loss, _ in evaluate()] if late else []
        for rank, here in enumerate(places):
            losses = after if "update_loss_after" in here else [loss for loss, _ in found]
            loss = reported_loss(losses, sizes, rank, of_losses, here, number)
            out[rank][f"{step}/loss"] = np.asarray(loss)
