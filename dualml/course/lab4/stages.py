"""Two pipeline stages with typical mistakes as options, in NumPy.

Stage 0 is h = s(x·Wᵀ + b) with s(z) = z/(1 + |z|), stage 1 is h·Wᵀ + b, and the loss is the mean
squared error. The optimizer is v ← μ·v + g, θ ← θ − η·v: with a momentum it shows how often it was
called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, Flags
from dualml.course.lab4.stage_mistakes import (
    BACKWARD_MICRO_BATCHES,
    CUMULATIVE_STEPS,
    CUT_GRADIENTS,
    DIVISORS,
    FORWARD_FIRST,
    GRADIENT_FORMS,
    LOCKSTEP,
    RECEIVED_ACTIVATIONS,
    RECOMPUTED_STEPS,
    RETURNED_LOSSES,
    SAMPLE_SLICES,
    SKIPPED,
    STEPS_IN_LOOP,
    TARGET_SLICES,
    Tensors,
    samples_of,
)
from dualml.course.places import flags_at

Number = type[np.floating[Any]]


@dataclass
class StageState:
    """Parameters of a stage, with their gradients and momentum buffers: weight and bias."""

    values: Tensors
    gradients: Tensors = field(default_factory=list)
    buffers: Tensors = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with gradients and buffers of 0."""
        self.buffers = [np.zeros_like(p) for p in self.values]
        self.zero_grad()

    def zero_grad(self) -> None:
        """Set the gradients to 0."""
        self.gradients = [np.zeros_like(p) for p in self.values]

    def accumulate(self, gradients: Sequence[Any], left_out: bool, times: int) -> None:
        """Add ``times`` the gradients of a micro-batch to those of the update, unless it is left
        out."""
        if not left_out:
            pairs = zip(self.gradients, gradients, strict=True)
            self.gradients = [a + g.dtype.type(times) * g for a, g in pairs]

    def step(self, lr: Any, momentum: Any) -> None:
        """Update the parameters: v ← ``momentum`` · v + gradient, θ ← θ − ``lr`` · v."""
        self.buffers = [momentum * v + g for v, g in zip(self.buffers, self.gradients, strict=True)]
        self.values = [p - lr * v for p, v in zip(self.values, self.buffers, strict=True)]


def train_stages(
    options: Mapping[str, Any],
    ranks: Sequence[Arrays],
    flags: Flags = RIGHT,
    number: Number = np.float64,
) -> list[dict[str, Any]]:
    """Compute ``3/weight`` and ``3/bias`` of both stages after update 3, and ``3/loss`` on the
    second stage, for all updates.

    A mistake acts at a place (`dualml.course.places`) of the axes ``rank`` or ``stage``, ``step``
    and ``micro_batch``.
    """
    states = make_states(ranks, number)
    out: list[dict[str, Any]] = [{}, {}]
    for step in range(1, options["steps"] + 1):
        here = flags_at(flags, step=(step - 1, options["steps"]))
        loss = PipelineUpdate(options, states, here, number).run(*batch_of(ranks, step, number))
        out[1][f"{step}/loss"] = np.asarray(loss)
        for own, state in zip(out, states, strict=True):
            own |= dict(zip((f"{step}/weight", f"{step}/bias"), state.values, strict=True))
    return out


def make_states(ranks: Sequence[Arrays], number: Number) -> list[StageState]:
    """Return both stages before the first update, in the dtype ``number``."""
    return [StageState([a[n].astype(number) for n in ("weight", "bias")]) for a in ranks[:2]]


def batch_of(ranks: Sequence[Arrays], step: int, number: Number) -> tuple[Any, Any]:
    """Return the inputs and the targets of an update, in the dtype ``number``."""
    return ranks[0][f"x/{step}"].astype(number), ranks[1][f"y/{step}"].astype(number)


class PipelineUpdate:
    """One update of both stages.

    Args:
        options: ``micro_batches``, ``lr`` and ``momentum``.
        states: the two stages; they are updated in place.
        flags: mistakes that act in this update.
        number: dtype of the computation.
    """

    def __init__(
        self, options: Mapping[str, Any], states: Sequence[StageState], flags: Flags, number: Number
    ) -> None:
        self.count, self.number, self.states = options["micro_batches"], number, states
        self.lr, self.momentum = number(options["lr"]), number(options.get("momentum", 0.0))
        self.flags = [flags_at(flags, rank=(r, 2), stage=(r, 2)) for r in range(2)]
        self.losses: Tensors = []

    def run(self, x: Any, y: Any) -> Any:
        """Update both stages by a batch, inputs ``x`` and targets ``y``, and return the loss that
        the student's function would return."""
        m, n = self.count, len(x)
        for state, f in zip(self.states, self.flags, strict=True):
            if "stage_accumulated" not in f:
                state.zero_grad()
        own = range(m)
        for micro_batches in [[k] for k in own] if self.has_mistake(LOCKSTEP) else [list(own)]:
            self.pass_batch(x, y, micro_batches)
        loss = self.returned_loss(n)
        first, second = ("stage_first_frozen", "stage_second_frozen")
        for state, f, frozen in zip(self.states, self.flags, (first, second), strict=True):
            if frozen in f or f & STEPS_IN_LOOP:
                continue
            for _ in range(2 if "stage_step_twice" in f else 1):
                state.step(self.lr, self.momentum)
        if "stage_loss_after#2" in self.flags[1]:
            z = x @ self.states[0].values[0].T + self.states[0].values[1]
            loss = self.loss_of(z / (1 + np.abs(z)), y)
        if "stage_loss_after" in self.flags[1]:
            loss = sum(self.loss_of(h, t) for h, t in self.pairs) / self.number(m)
        return loss

    def has_mistake(self, forms: set[str]) -> bool:
        """Return whether a rank makes a mistake of these forms."""
        return any(f & forms for f in self.flags)

    def select(self, k: int, n: int) -> list[Any]:
        """Return the samples that each rank takes for micro-batch ``k`` of a batch of ``n``."""
        taken = []
        for f, mistaken in zip(
            self.flags, (SAMPLE_SLICES, {**SAMPLE_SLICES, **TARGET_SLICES}), strict=True
        ):
            right = samples_of(k, self.count, n)
            taken.append(next((mistaken[s](k, self.count, n) for s in mistaken if s in f), right))
        return taken

    def residual_of(self, h: Any, y: Any) -> Any:
        """Return output less target of one micro-batch, of its activation and targets."""
        w, b = self.states[1].values
        return h @ w.T + b - y

    def loss_of(self, h: Any, y: Any) -> Any:
        """Return the mean loss of one micro-batch, of its activation and targets."""
        return (self.residual_of(h, y) ** 2).mean()

    def pass_batch(self, x: Any, y: Any, micro_batches: Sequence[int]) -> None:
        """Go forward and backward with these micro-batches on both stages, and add up their
        gradients and losses."""
        (w, b), n = self.states[0].values, len(x)
        taken = [self.select(k, n) for k in micro_batches]
        xs = [x[at[0]] for at in taken]
        zs = [part @ w.T + b for part in xs]
        hs = [z / (1 + np.abs(z)) for z in zs]
        came = next(
            (make(hs) for name, make in RECEIVED_ACTIVATIONS.items() if name in self.flags[1]), hs
        )
        self.pairs = [(h, y[at[1]]) for h, at in zip(came, taken, strict=True)]
        cuts = self.backward_second(micro_batches, n)
        for name, make in CUT_GRADIENTS.items():
            if name in self.flags[0]:
                cuts = make(cuts, hs)
        for name, index in BACKWARD_MICRO_BATCHES.items():
            if name in self.flags[0]:
                at = index(len(micro_batches))
                xs, zs = [xs[at]] * len(xs), [zs[at]] * len(zs)
        for k, part, z, cut in zip(micro_batches, xs, zs, cuts, strict=True):
            if self.flags[0] & RECOMPUTED_STEPS:
                z = part @ self.states[0].values[0].T + self.states[0].values[1]
            pulled = cut / (1 + np.abs(z)) ** 2
            self.add(0, k, [pulled.T @ part, pulled.sum(0)])

    def backward_second(self, micro_batches: Sequence[int], n: int) -> Tensors:
        """Go forward and backward on stage 1, and return the gradients at the cut as they are
        sent."""
        cuts, before = [], self.states[1].values
        for k, (h, target) in zip(micro_batches, self.pairs, strict=True):
            w, b = before if self.flags[1] & FORWARD_FIRST else self.states[1].values
            off = h @ w.T + b - target
            self.losses.append((off**2).mean())
            slope = 2 * off / self.number(off.size)
            cuts.append(slope / self.divisor(0, k, n) @ w)
            d = slope / self.divisor(1, k, n)
            self.add(1, k, [d.T @ h, d.sum(0)])
        return cuts

    def add(self, rank: int, k: int, gradients: Tensors) -> None:
        """Add up the gradients of micro-batch ``k`` on a rank, and update at once where the
        mistakes do so."""
        f, m, state = self.flags[rank], self.count, self.states[rank]
        if "stage_last_alone" in f or (f & STEPS_IN_LOOP and not f & CUMULATIVE_STEPS):
            state.zero_grad()
        twice = "stage_gradient_twice" in flags_at(f, micro_batch=(k, m))
        state.accumulate(gradients, self.is_left_out(rank, k), 2 if twice else 1)
        if f & STEPS_IN_LOOP:
            state.step(self.lr, self.momentum)

    def is_left_out(self, rank: int, k: int) -> bool:
        """Return whether a rank passes over micro-batch ``k``."""
        return any(name in self.flags[rank] and out(k, self.count) for name, out in SKIPPED.items())

    def divisor(self, rank: int, k: int, n: int, forms: bool = True) -> Any:
        """Return what the loss of micro-batch ``k`` is divided by in the gradients that a rank
        uses, or in the returned loss (``forms`` is False)."""
        m, f = self.count, flags_at(self.flags[rank], micro_batch=(k, self.count))
        for name, value in DIVISORS.items():
            both = name in f and (forms or name != "stage_negated")
            if both or (forms and GRADIENT_FORMS.get(name, f"{name}#2") in f):
                return self.number(value(m, n))
        return self.number(m)

    def returned_loss(self, n: int) -> Any:
        """Return the loss that rank 1 returns for a batch of ``n`` samples."""
        m, f, each = self.count, self.flags[1], self.losses
        for name, value in RETURNED_LOSSES.items():
            if name in f:
                return value(each, m, n)
        passed = {"stage_left_out", "stage_left_out#2"} & f
        used = [k for k in range(m) if not (passed and self.is_left_out(1, k))]
        return sum((each[k] / self.divisor(1, k, n, forms=False) for k in used), self.number(0))
