"""The rounding envelope: how far rounding alone can move a backend's results.

A *draw* repeats the first updates of a trial and adds noise of the size of rounding at every step.
Before each update every weight is moved by 1, 2, 4, … units in the last place (for the first,
second, third draw), up or down at random. All draws but the first also reorder the samples within
the batch. Neither changes the mathematics by more than rounding does, so rounding can produce
whatever a draw produces.

This holds for a correct backend. A backend that drops the last sample of a batch drops a different
sample in each order, and would hide its fault in an envelope that the fault itself widened.
Therefore, where the order of the samples moves a tensor far more than moved weights alone do, this
extra width counts only as far as every backend shows it (`robust_envelopes`): a non-differentiable
point moves all backends alike, a fault moves only its own. Until the order moves the loss or the
output layer's gradient that far, the whole envelope counts: a lost sample moves both at once, while
a non-differentiable point, which a single backend may hit, leaves the loss and everything behind it
unchanged.

One perturbation at the start would not be enough. Real arithmetic rounds at every step, and
networks with ReLU or max pooling have non-differentiable points, where two values that
agree to the last digit take different branches and one update changes by far more than a rounding.
Draws hit such points as often as backends do.

In a lower precision (`dualml.algorithms.precision`) backends round the same values at the same
places, but some round once more inside a layer. The weights of matrix products are therefore moved
by half a unit of the low-precision type, the most that one such rounding moves, and only while the
gradient is computed. The updated weights stay float32 and are moved by float32 units.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.precision import ulp
from dualml.common.distance import distance, elementwise_distances
from dualml.common.seeds import make_generator, packed_random_bits, random_bits
from dualml.experiment.store.envelope import Envelope

Arrays = Mapping[str, NDArray[Any]]
#: The draw that keeps the order of the samples.
PLAIN = 0
#: The bits of a float32 that hold its exponent, and the smallest positive float32.
EXPONENT_BITS, SMALLEST = 0x7F800000, np.float32(2.0**-149)
#: Number of elements of a weight that are moved at once: a multiple of 8.
PERTURBED_ELEMENTS = 1 << 15
#: Byte of random bits → the sign bits, as of a float32, of eight moves: (256, 8).
SIGNS = (1 - np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)).astype(np.uint32) << 31
#: Reordered samples may move a tensor this many times as far as moved weights alone do, ...
ORDER = 100.0
#: ... and by this relative distance in any case.
ORDER_FLOOR = 1e-4


def perturb(
    weights: Arrays, seed: int, draw: int, step: int, precision: str = "fp32"
) -> dict[str, NDArray[np.float32]]:
    """Return every weight as float32, with each element moved by 2^draw units in its own last
    place.

    The direction of each element is random, fixed by ``seed``, ``draw``, ``step`` and the weight's
    name. ``weights`` is not changed.

    Args:
        precision: the type whose units count. In low precision, for example ``bf16``, every draw
            moves by one unit: kernels add up in float32 and round each result once.
    """
    out = {}
    for name, w in weights.items():
        out[name] = moved = np.array(w, np.float32, order="C")
        perturb_in_place(moved, seed, draw, step, name, precision)
    return out


def perturb_in_place(
    w: NDArray[np.float32], seed: int, draw: int, step: int, name: str, precision: str = "fp32"
) -> None:
    """Move every element of a contiguous weight by 2^draw units in its own last place, see
    `perturb`."""
    flat = w.reshape(-1)
    up = packed_random_bits(flat.size, seed, "ulp", draw, step, name)
    for at in range(0, flat.size, PERTURBED_ELEMENTS):  # in blocks that stay in a core's cache
        part = flat[at : at + PERTURBED_ELEMENTS]
        signs = SIGNS[up[at // 8 : -(-(at + part.size) // 8)]].reshape(-1)[: part.size]
        if precision == "fp32":
            move = last_places(part)
            move *= np.float32(2**draw)
        else:
            move = ulp(part, precision).astype(np.float32)
        bits = move.view(np.uint32)
        bits |= signs
        part += move


def last_places(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ``np.spacing(np.abs(x))``, several times as fast for finite numbers."""
    exponents = x.view(np.uint32) & np.uint32(EXPONENT_BITS)
    if exponents.max(initial=0) == EXPONENT_BITS:  # infinite, or no number
        spacing: NDArray[np.float32] = np.spacing(np.abs(x))
        return spacing
    powers = exponents.view(np.float32)
    powers *= np.float32(2.0**-23)
    return np.maximum(powers, SMALLEST, out=powers)  # below the normal numbers


class RoundingPerturbation:
    """The perturbation of one draw: applied to the weights before each update, partly reverted
    after it.

    Args:
        seed: seed of the random signs.
        draw: number of the draw, from 0; weights are moved by 2^draw units.
        precision: the low-precision type, for example ``bf16``.
        lower: names of the weights that are cast to ``precision``.
    """

    def __init__(self, seed: int, draw: int, precision: str, lower: Collection[str]) -> None:
        self.seed, self.draw, self.precision, self.lower = seed, draw, precision, frozenset(lower)
        self.cast_offsets: dict[str, NDArray[np.float32]] = {}

    def apply(self, weights: Arrays, step: int) -> dict[str, NDArray[np.float32]]:
        """Return the perturbed weights of a step as float32, for `Training.transform_weights`.

        All weights are moved as `perturb` does; those in ``lower`` also by half a unit of the
        low-precision type, which is remembered for `revert`.
        """
        moved = perturb(weights, self.seed, self.draw, step)
        for name in filter(self.is_cast, moved):
            single = moved[name]
            up = random_bits(single.size, self.seed, self.precision, self.draw, step, name)
            sign = 2.0 * up.reshape(single.shape) - 1
            moved[name] = (single + sign * ulp(single, self.precision) / 2).astype(np.float32)
            self.cast_offsets[name] = moved[name] - single
        return moved

    def revert(self, weights: Arrays) -> dict[str, NDArray[Any]]:
        """Return the weights minus the low-precision offset that the last `apply` added.

        The move by float32 units stays; weights outside ``lower`` are returned as they are.
        """
        return {
            name: w - self.cast_offsets[name] if name in self.cast_offsets else w
            for name, w in weights.items()
        }

    def is_cast(self, name: str) -> bool:
        """Return whether a weight is cast to low precision, also for a part of one:
        ``fc.weight[rows 1/2]``."""
        return name.partition("[")[0] in self.lower


def shuffle_batch(batch: NDArray[np.int64], seed: int, draw: int, step: int) -> NDArray[np.int64]:
    """Return the sample indices of a batch in a random order, so that sums round differently.

    The order is fixed by ``seed``, ``draw`` and ``step``.
    """
    return make_generator(seed, "within-batch", draw, step).permutation(batch)


def robust_envelopes(envelopes: Sequence[Envelope], output: str) -> list[Envelope]:
    """Return the envelopes of several backends without widths that only a fault of one explains.

    Each is clipped by `clip_to_plain`; if at least two have losses, one more follows with the
    smallest width that all of these show. Callers use the largest per tensor. The envelope of a
    single backend is returned unchanged, because nothing tells whether a width stems from a
    non-differentiable point or from a fault.

    Args:
        output: name of the last layer with parameters.
    """
    if len(envelopes) < 2:
        return list(envelopes)
    whole = [e for e in envelopes if len(e.loss)]
    shared = [min_envelope(whole)] if len(whole) > 1 else []
    return [*(clip_to_plain(e, output) for e in envelopes), *shared]


def exceeds(width: Any, plain: Any) -> Any:
    """Return whether ``width`` is above both ORDER × ``plain`` and ORDER_FLOOR: reordered samples
    move a result far more than moved weights alone. Elementwise for arrays.

    Args:
        width: relative distance with reordered samples.
        plain: relative distance with moved weights alone.
    """
    return width > np.maximum(ORDER * plain, ORDER_FLOOR)


def update_envelope(
    envelope: Envelope,
    losses: NDArray[Any],
    capture: Arrays,
    base_losses: NDArray[Any],
    base_capture: Arrays,
) -> Envelope:
    """Return the envelope extended by one more draw: the larger width per loss and tensor.

    The distances of the first draw also become the plain ones. ``envelope`` itself is not changed.

    Args:
        losses: losses of the draw, one per update, shape (steps,).
        capture: tensors of the draw, by ``PHASE/STEP/NAME``.
        base_losses, base_capture: the same of the unperturbed trial.
    """
    gap = elementwise_distances(losses, base_losses[: len(losses)])
    widths = {key: distance(value, base_capture[key]) for key, value in capture.items()}
    before = envelope.tensors
    return Envelope(
        np.maximum(envelope.loss, gap) if envelope.draws else gap,
        {**before, **{key: max(before.get(key, 0.0), width) for key, width in widths.items()}},
        envelope.draws + 1,
        gap if envelope.draws == PLAIN else envelope.plain_loss,
        widths if envelope.draws == PLAIN else envelope.plain_tensors,
    )


def clip_to_plain(envelope: Envelope, output: str) -> Envelope:
    """Return the envelope with the plain draw's width where only reordered samples widen it.

    Tensors are clipped from `first_suspect_step` on, losses at `order_sensitive_steps`. Without a
    suspect step or a plain draw the envelope is returned unchanged.
    """
    start = first_suspect_step(envelope, output)
    if start is None or envelope.plain_loss is None:
        return envelope
    tensors = {}
    for key, width in envelope.tensors.items():
        late = int(key.split("/")[1]) >= start
        plain = envelope.plain_tensors.get(key, width)
        tensors[key] = plain if late and exceeds(width, plain) else width
    loss = np.where(order_sensitive_steps(envelope), envelope.plain_loss, envelope.loss)
    return replace(envelope, loss=loss, tensors=tensors)


def first_suspect_step(envelope: Envelope, output: str) -> int | None:
    """Return the first step, from 1, at which the sample order moves the loss or the output layer's
    gradient far more than moved weights do.

    None if it never does, or if no plain draw was recorded.
    """
    steps = (np.flatnonzero(order_sensitive_steps(envelope)) + 1).tolist()
    for key, width in envelope.tensors.items():
        phase, at, tensor = key.split("/", 2)
        last = phase == "gradient" and tensor.split("/")[-1].startswith(f"{output}.")
        if last and exceeds(width, envelope.plain_tensors.get(key, width)):
            steps.append(int(at))
    return min(steps, default=None)


def order_sensitive_steps(envelope: Envelope) -> NDArray[np.bool_]:
    """Return a mask of shape (updates,): whether the sample order moves the loss of that update far
    more than moved weights do. All False if no plain draw was recorded."""
    if envelope.plain_loss is None:
        return np.zeros(len(envelope.loss), np.bool_)
    where: NDArray[np.bool_] = exceeds(envelope.loss, envelope.plain_loss)
    return where


def min_envelope(envelopes: Sequence[Envelope]) -> Envelope:
    """Return an envelope with the smallest width that any backend shows, per loss and tensor.

    The losses end with the shortest; tensors that some backend lacks are left out.
    """
    length = min(len(e.loss) for e in envelopes)
    keys = set.intersection(*(set(e.tensors) for e in envelopes))
    return Envelope(
        np.min([e.loss[:length] for e in envelopes], axis=0),
        {key: min(e.tensors[key] for e in envelopes) for key in keys},
        min(e.draws for e in envelopes),
    )
