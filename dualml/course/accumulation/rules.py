"""Accumulated, clipped updates of all ranks, with typical mistakes as options, in NumPy.

Every number has the dtype ``number``: tolerances are derived from the effect of float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualml.course.accumulation.model import WEIGHTS, Weights, norm_of, token_loss
from dualml.course.exercise import RIGHT, Arrays, Flags
from dualml.course.mistakes import compute_mistaken

#: Mistakes by which gradients from before the first update count.
NEVER_ZEROED = {"accum_stale", "accum_remainder_leaks", "accum_not_zeroed#3"}


@dataclass
class RankState:
    """Parameters of one rank, and sums over its micro-batches since the last update.

    Attributes:
        gradient: sum of the micro-batches' gradients, by parameter.
        loss: sum of their losses; ``means`` has the mean loss of each.
        counts: real tokens of each micro-batch; ``positions`` is the number of all positions.
        kept: tokens of earlier updates that a mistake counts again.
    """

    weights: Weights
    gradient: Weights
    loss: Any = 0.0
    means: list[Any] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    positions: int = 0
    kept: int = 0

    def add(self, x: Any, y: Any, k: int, f: Flags) -> None:
        """Add the gradient, the loss and the token count of one micro-batch ``x``, ``y`` (see
        `token_loss`), as the typical mistakes named in ``f`` do it; ``k`` is the number of
        micro-batches of an update."""
        loss, gradient, n = token_loss(self.weights, x, y, "accum_padding_learned" in f)
        number = x.dtype.type
        scale = compute_mistaken(
            f,
            {
                "accum_mean_of_means": lambda: number(1) / number(n),
                "accum_mean_of_means#2": lambda: number(1) / number(n),
                "accum_mean_of_means#3": lambda: number(1) / number(n),
                "accum_empty_nan": lambda: number(n) / number(n),
                "accum_by_k": lambda: number(1) / number(k),
            },
            lambda: number(1),
        )
        for name in WEIGHTS:
            before = 0 if "accum_gradient_last" in f else self.gradient[name]
            self.gradient[name] = before + gradient[name] * scale
        self.loss = self.loss + loss
        empty = "accum_empty_nan" in f or "accum_empty_nan#2" in f
        self.loss = self.loss * number(n) / number(n) if empty else self.loss
        self.means.append(loss / number(n))
        self.counts.append(n)
        self.positions += y.size

    def forget(self, f: Flags) -> None:
        """Clear loss, means and counts for the next update; the gradient stays. A mistake among
        ``f`` keeps the count."""
        if "accum_count_kept" in f:
            self.kept += sum(self.counts)
        self.loss, self.means, self.counts, self.positions = 0.0, [], [], 0


def clip(gradient: Weights, most: Any, f: Flags = RIGHT) -> Weights:
    """Return a gradient scaled down to the norm ``most`` if its norm is larger, as the typical
    mistakes named in ``f`` do it."""
    norm = norm_of(gradient)
    if "accum_clip_value" in f:
        return {name: np.clip(g, -most, most) for name, g in gradient.items()}
    if "accum_clip_per_tensor" in f:
        return {name: clip({name: g}, most)[name] for name, g in gradient.items()}
    if norm > most or "accum_clip_always" in f:
        return {name: g * (most / norm) for name, g in gradient.items()}
    return gradient


def combine(states: Sequence[RankState], rank: int, most: Any, k: int, f: Flags) -> Weights:
    """Return the gradient by which ``rank`` updates: the sum over all ranks and micro-batches over
    the number of all real tokens, clipped to the norm ``most``, as the typical mistakes named in
    ``f`` do it; ``k`` is the number of micro-batches of an update."""
    number = type(most)
    own, ranks, micro = states[rank], number(len(states)), number(len(states[0].counts))

    def count_of(state: RankState) -> Any:
        """Return the tokens of a rank, as the mistakes count them."""
        if "accum_count_last" in f:
            return number(state.counts[-1])
        return number(sum(state.counts) + state.kept)

    counts = [count_of(state) for state in states]
    total = sum(counts)

    def over_ranks(name: str, shares: Sequence[Any]) -> Any:
        """Return the sum of every rank's gradient of a parameter times its share."""
        return sum(s.gradient[name] * share for s, share in zip(states, shares, strict=True))

    def gradient_of(name: str) -> Any:
        """Return the combined gradient of one parameter, before it is clipped."""
        even = [number(1)] * len(states)
        if "accum_first_alone" in f and name != WEIGHTS[0]:
            return own.gradient[name] / total
        mistaken = {
            "accum_mean_of_means": lambda: over_ranks(name, even) / micro / ranks,
            "accum_mean_of_means#2": lambda: over_ranks(name, even) / number(k) / ranks,
            "accum_mean_of_means#3": lambda: over_ranks(name, counts) / total / micro,
            "accum_rank_mean": lambda: over_ranks(name, [1 / c for c in counts]) / ranks,
            "accum_padded_counted": lambda: (
                over_ranks(name, even) / number(sum(s.positions for s in states))
            ),
            "accum_summed": lambda: over_ranks(name, even),
            "accum_counts_local": lambda: over_ranks(name, even) / counts[rank],
            "accum_local": lambda: own.gradient[name] / counts[rank],
            "accum_local#2": lambda: own.gradient[name] / total,
            "accum_divided_twice": lambda: over_ranks(name, even) / total / ranks,
        }
        return compute_mistaken(f, mistaken, lambda: over_ranks(name, even) / total)

    if "accum_clip_local" in f:
        clipped = [clip({n: g / total for n, g in s.gradient.items()}, most) for s in states]
        return {name: sum(g[name] for g in clipped) for name in WEIGHTS}
    if "accum_clip_before_division" in f:
        whole = clip({name: over_ranks(name, [number(1)] * len(states)) for name in WEIGHTS}, most)
        return {name: g / total for name, g in whole.items()}
    found = {name: gradient_of(name) for name in WEIGHTS}
    return found if {"accum_clip_ignored", "accum_clip_each"} & f else clip(found, most, f)


def mean_loss(states: Sequence[RankState], rank: int, f: Flags, number: Any) -> Any:
    """Return the mean loss of all real tokens of an update that ``rank`` reports, as the typical
    mistakes named in ``f`` compute it."""
    own, total = states[rank], number(sum(sum(s.counts) for s in states))
    mistaken = {
        "accum_loss_local": lambda: own.loss / number(sum(own.counts)),
        "accum_loss_unreduced": lambda: own.loss / total,
        "accum_loss_summed": lambda: sum(s.loss for s in states),
        "accum_loss_last": lambda: sum(s.means[-1] for s in states) / number(len(states)),
        "accum_loss_means": lambda: (
            sum(sum(s.means) / number(len(s.means)) for s in states) / number(len(states))
        ),
    }
    return compute_mistaken(f, mistaken, lambda: sum(s.loss for s in states) / total)


def is_update(i: int, count: int, k: int, f: Flags) -> bool:
    """Return whether an update follows micro-batch ``i`` (from 1) of ``count``: after every ``k``
    and after the last, as the typical mistakes named in ``f`` see it."""
    if "accum_every_micro" in f:
        return True
    last = i == count and not {"accum_remainder_dropped", "accum_remainder_leaks"} & f
    return last or (i - 1 if "accum_step_early" in f else i) % k == 0


@dataclass
class AccumulatedTraining:
    """Training of all ranks in step, as the mistakes ``f`` do it.

    Attributes:
        lr, most: step size and largest norm, in the dtype of all numbers; k: micro-batches of an
            update.
        states: one per rank; ``out`` and ``losses`` are its results.
        details: for each update each rank's ``tokens`` and sum ``loss``; ``gradient``, ``norm``.
    """

    lr: Any
    most: Any
    k: int
    f: Flags
    states: Sequence[RankState]
    out: list[dict[str, Any]] = field(default_factory=list)
    losses: list[list[Any]] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin the results of each rank."""
        self.out = [{"updates": np.zeros(())} for _ in self.states]
        self.losses = [[] for _ in self.states]

    def update(self) -> None:
        """Make one update on all ranks, record its results, and begin the next collection."""
        states, number = self.states, type(self.most)
        ranks = range(len(states))
        found = [combine(states, rank, self.most, self.k, self.f) for rank in ranks]
        whole = combine(states, 0, number(np.inf), self.k, self.f)
        tokens = [sum(state.counts) for state in states]
        sums = {"tokens": tokens, "loss": [state.loss for state in states]}
        self.details.append({**sums, "gradient": whole, "norm": norm_of(whole)})
        for rank, state in enumerate(states):
            own = self.out[rank]
            self.losses[rank].append(mean_loss(states, rank, self.f, number))
            if not ("accum_root_only" in self.f and rank):
                step = int(own["updates"]) + 1
                for name in WEIGHTS:
                    state.weights[name] = state.weights[name] - self.lr * found[rank][name]
                own["updates"] = np.asarray(float(step))
                own |= {f"{step}/{name}": state.weights[name] for name in WEIGHTS}
        for rank, state in enumerate(states):
            if {"accum_not_zeroed", "accum_not_zeroed#3"} & self.f:
                state.gradient = found[rank]
            elif "accum_not_zeroed#2" not in self.f:
                state.gradient = {name: number(0) for name in WEIGHTS}
            state.forget(self.f)


def train_epoch(
    options: Mapping[str, Any], ranks: Sequence[Arrays], f: Flags = RIGHT, number: Any = np.float64
) -> AccumulatedTraining:
    """Train all ranks through the epochs, in the dtype ``number``, with the typical mistakes named
    in ``f``.

    Args:
        options: ``epochs``, ``micro_batches``, and in ``hyper`` ``lr``, ``max_norm`` and ``k``, the
            micro-batches of an update.
        ranks: each rank's ``p/NAME``, ``x/EPOCH/I`` and ``y/EPOCH/I`` (I from 1), and
            ``stale/NAME`` if gradients are left from before, which only mistakes add.
    """
    h, states = options["hyper"], []
    for own in ranks:
        weights = {name: own[f"p/{name}"].astype(number) for name in WEIGHTS}
        stale = {n: own.get(f"stale/{n}", np.zeros(())).astype(number) for n in WEIGHTS}
        zero = {name: number(0) for name in WEIGHTS}
        states.append(RankState(weights, stale if NEVER_ZEROED & f else zero))
    made = AccumulatedTraining(number(h["lr"]), number(h["max_norm"]), int(h["k"]), f, states)
    with np.errstate(all="ignore"):
        for epoch in range(options["epochs"]):
            for i in range(1, options["micro_batches"] + 1):
                for own, state in zip(ranks, states, strict=True):
                    x = own[f"x/{epoch}/{i}"].astype(number)
                    state.add(x, own[f"y/{epoch}/{i}"], made.k, f)
                    if "accum_clip_each" in f:
                        state.gradient = clip(state.gradient, made.most)
                if is_update(i, options["micro_batches"], made.k, f):
                    made.update()
            for state in states:
                state.forget(f)
                if not {"accum_remainder_leaks", "accum_not_zeroed#3"} & f:
                    state.gradient = {name: number(0) for name in WEIGHTS}
    return made


def accumulated_training(
    options: Mapping[str, Any], ranks: Sequence[Arrays], f: Flags = RIGHT, number: Any = np.float64
) -> list[Arrays]:
    """Compute on each rank ``updates``, their number; ``3/w``, the parameter after update 3; and
    ``losses`` of all updates, if ``options`` asks for them."""
    made = train_epoch(options, ranks, f, number)
    if options["loss"]:
        for own, values in zip(made.out, made.losses, strict=True):
            own["losses"] = np.array(values, number)
    return [dict(own) for own in made.out]
