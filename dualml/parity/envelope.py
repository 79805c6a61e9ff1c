"""The rounding envelope: how far a backend strays from itself when only rounding changes.

A *draw* repeats the first updates of a trial with noise of the size of rounding at every step:
before each update every weight is moved by 1, 2, 4, … units in the last place (for the first,
second, third draw), up or down at random, and in all draws but the first the samples inside the
batch change their order. Neither changes the mathematics by more than rounding does: what a draw
does, rounding can do.

That holds for a backend that is right. One that loses the last sample of a batch loses another one
in each order, and would hide its fault in an envelope of its own making. So where the order of the
samples moves something far more than the moved weights alone do, it counts only as far as every
backend shows it (`believed`): a kink moves all of them alike, a fault its own. Before the loss or
the output layer's gradient moves so, all of it counts: a lost sample moves both at once, while a
kink, which one backend may sit on alone, leaves the loss and everything behind it where they were.

One nudge at the start would not be enough: real arithmetic rounds at every step, and networks with
ReLU or max pooling have kinks, where two values that agree to the last digit decide differently and
one update changes by far more than a rounding. Draws meet such kinks as often as backends do.

In a lower precision (`dualml.precision`) backends round the same values at the same places, but
some of them once more inside a layer. So the weights of products are moved by half a unit of the
lower type, which is what one such rounding moves at most, and only for as long as the gradient is
computed: what is updated stays float32, and is moved by units of that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.distance import distance, distances
from dualml.precision import units
from dualml.seeds import bits, generator
from dualml.store.envelope import Envelope

Arrays = Mapping[str, NDArray[Any]]
#: The draw that leaves the samples in their order.
PLAIN = 0
#: Another order of the samples may move a tensor so many times as far as moved weights alone, ...
ORDER = 100.0
#: ... and by this share of its size in any case.
ORDER_FLOOR = 1e-4


def perturb(weights: Arrays, seed: int, draw: int, step: int) -> dict[str, NDArray[np.float32]]:
    """Every float32 weight moved by 2^draw units in the last place, up or down at random."""
    out = {}
    for name, w in weights.items():
        w32 = np.asarray(w, np.float32)
        up = bits(w32.size, seed, "ulp", draw, step, name).reshape(w32.shape)
        move = np.float32(2**draw) * np.spacing(np.abs(w32))
        out[name] = w32 + move * (2 * up.astype(np.float32) - 1)
    return out


class Roundings:
    """What a draw does to the weights before each update, and takes back after it.

    Args:
        lower: names of the weights that are cast to the type ``precision``.
    """

    def __init__(self, seed: int, draw: int, precision: str, lower: Collection[str]) -> None:
        self.seed, self.draw, self.precision, self.lower = seed, draw, precision, frozenset(lower)
        self.lent: dict[str, NDArray[np.float32]] = {}

    def before(self, weights: Arrays, step: int) -> dict[str, NDArray[np.float32]]:
        """Moved weights, for `Training.move`."""
        moved = perturb(weights, self.seed, self.draw, step)
        for name in filter(self.casts, moved):
            single = moved[name]
            up = bits(single.size, self.seed, self.precision, self.draw, step, name)
            sign = 2.0 * up.reshape(single.shape) - 1
            moved[name] = (single + sign * units(single, self.precision) / 2).astype(np.float32)
            self.lent[name] = moved[name] - single
        return moved

    def after(self, weights: Arrays) -> dict[str, NDArray[Any]]:
        """Weights without what the lower type moved them by."""
        return {name: w - self.lent[name] if name in self.lent else w
                for name, w in weights.items()}  # fmt: skip

    def casts(self, name: str) -> bool:
        """Whether a weight is cast: a part of one, which is named ``fc.weight[rows 1/2]``, too."""
        return name.partition("[")[0] in self.lower


def shuffled(batch: NDArray[np.int64], seed: int, draw: int, step: int) -> NDArray[np.int64]:
    """The same samples in another order: sums are rounded in another order."""
    return generator(seed, "within-batch", draw, step).permutation(batch)


def believed(envelopes: Sequence[Envelope], output: str) -> list[Envelope]:
    """The envelopes of several backends, as far as they are believed; the widest counts.

    Of a single backend all of it: nobody says whether a width is a kink's or a fault's.

    Args:
        output: name of the last layer with parameters.
    """
    if len(envelopes) < 2:
        return list(envelopes)
    whole = [e for e in envelopes if len(e.loss)]
    shared = [common(whole)] if len(whole) > 1 else []
    return [*(trusted(e, output) for e in envelopes), *shared]


def moved(width: Any, plain: Any) -> Any:
    """Whether another order of the samples goes far beyond moved weights alone; arrays: where."""
    return width > np.maximum(ORDER * plain, ORDER_FLOOR)


def widened(
    envelope: Envelope,
    losses: NDArray[Any],
    capture: Arrays,
    base_losses: NDArray[Any],
    base_capture: Arrays,
) -> Envelope:
    """With one more draw."""
    gap = distances(losses, base_losses[: len(losses)])
    widths = {key: distance(value, base_capture[key]) for key, value in capture.items()}
    before = envelope.tensors
    return Envelope(
        np.maximum(envelope.loss, gap) if envelope.draws else gap,
        {**before, **{key: max(before.get(key, 0.0), width) for key, width in widths.items()}},
        envelope.draws + 1,
        gap if envelope.draws == PLAIN else envelope.plain_loss,
        widths if envelope.draws == PLAIN else envelope.plain_tensors,
    )


def trusted(envelope: Envelope, output: str) -> Envelope:
    """Without what only a fault explains: widths that the order of the samples alone makes."""
    start = suspect_from(envelope, output)
    if start is None or envelope.plain_loss is None:
        return envelope
    tensors = {}
    for key, width in envelope.tensors.items():
        late = int(key.split("/")[1]) >= start
        plain = envelope.plain_tensors.get(key, width)
        tensors[key] = plain if late and moved(width, plain) else width
    loss = np.where(reordered(envelope), envelope.plain_loss, envelope.loss)
    return replace(envelope, loss=loss, tensors=tensors)


def suspect_from(envelope: Envelope, output: str) -> int | None:
    """First step at which the order of the samples moves the loss or the output layer's gradient;
    None if it never does, or if nobody wrote down what moved weights alone do."""
    steps = (np.flatnonzero(reordered(envelope)) + 1).tolist()
    for key, width in envelope.tensors.items():
        phase, at, tensor = key.split("/", 2)
        last = phase == "gradient" and tensor.split("/")[-1].startswith(f"{output}.")
        if last and moved(width, envelope.plain_tensors.get(key, width)):
            steps.append(int(at))
    return min(steps, default=None)


def reordered(envelope: Envelope) -> NDArray[np.bool_]:
    """(updates of the horizon,): whether the order of the samples moves the loss there."""
    if envelope.plain_loss is None:
        return np.zeros(len(envelope.loss), np.bool_)
    where: NDArray[np.bool_] = moved(envelope.loss, envelope.plain_loss)
    return where


def common(envelopes: Sequence[Envelope]) -> Envelope:
    """The smallest width of any backend: what all of them show."""
    length = min(len(e.loss) for e in envelopes)
    keys = set.intersection(*(set(e.tensors) for e in envelopes))
    return Envelope(
        np.min([e.loss[:length] for e in envelopes], axis=0),
        {key: min(e.tensors[key] for e in envelopes) for key in keys},
        min(e.draws for e in envelopes),
    )
