"""Measured places: the distance of two tensors, and the rounding envelope that counts there.

Trajectories of trials and traces of models are both judged by their places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dualml.experiment.store.envelope import Envelope
from dualml.experiment.store.trajectory import Trajectory

#: Two correct backends differ at least by a rounding: 2⁻²³, one unit in the last place of float32.
FLOOR = 2.0**-23
#: Above this relative width of the loss's envelope, rounding alone changes the trajectory visibly:
#: being inside it proves nothing.
CHAOS = 0.1
#: Factor by which a pair of backends may hit a non-differentiable point earlier than the perturbed
#: runs.
EARLIER_FACTOR = 5


@dataclass(frozen=True)
class Distance:
    """A measured relative distance between two tensors, with the rounding envelope there."""

    step: int
    phase: str
    tensor: str
    distance: float
    envelope: float
    floor: float = field(default=FLOOR, kw_only=True)

    @property
    def ratio(self) -> float:
        """Distance divided by the envelope, or by the floor if that is larger."""
        return self.distance / max(self.envelope, self.floor)


D = TypeVar("D", bound=Distance)

#: Beginning of the names of buffers in the phase ``state``.
BUFFER = "buffer/"


def farthest_by_phase(
    places: Sequence[D], phases: Sequence[str]
) -> Iterator[tuple[str, list[D], D]]:
    """Yield for each of the phases that occurs: the phase, its places, and the one with the largest
    ratio of the distance to the envelope."""
    for phase in phases:
        if of_phase := [p for p in places if p.phase == phase]:
            yield phase, of_phase, max(of_phase, key=lambda p: p.ratio)


def is_lone_kink(strays: Sequence[Distance], output: str) -> bool:
    """Return whether one non-differentiable point explains everything outside the envelope.

    This is so if, after step 1, gradients stray at only one traced step or at none, together with
    the optimizer state that accumulates them from then on, and nothing else leaves the envelope:
    running statistics and averaged weights do not accumulate gradients.
    The output layer is excluded: no ReLU or pooling follows it, so such a point moves its gradient
    no more than a rounding. True also if nothing strays.

    Args:
        strays: all distances outside the envelope.
        output: name of the last layer with parameters.
    """
    steps = {p.step for p in strays if p.phase == "gradient"}
    first = min(steps, default=2)
    return (
        len(steps) <= 1
        and first > 1
        and all(p.phase in ("gradient", "state") and p.step >= first for p in strays)
        and not any(p.tensor.startswith(BUFFER) for p in strays)
        and not any(p.tensor.split("/")[-1].startswith(f"{output}.") for p in strays)
    )


def first_chaotic_step(a: Trajectory, b: Trajectory, drawn: list[Envelope]) -> int | None:
    """Return the first step, from 1, at which rounding alone changes the loss by more than `CHAOS`.

    None if there is none. Only the envelopes decide; the trajectories give the number of steps.
    """
    loss = max_loss_envelope(drawn, min(len(a.losses), len(b.losses)))
    wild = np.flatnonzero(loss > CHAOS)
    return int(wild[0]) + 1 if len(wild) else None


def max_loss_envelope(envelopes: list[Envelope], horizon: int) -> NDArray[np.float64]:
    """Return the largest relative width of the loss up to each step, over all envelopes.

    The shape is (steps,): ``horizon``, or the length of the shortest envelope if that is less.
    """
    out = np.zeros(min([horizon, *(len(e.loss) for e in envelopes)]))
    for envelope in envelopes:
        out = np.maximum(out, envelope.loss[: len(out)])
    return np.maximum.accumulate(out)


def envelope_horizon(step: int) -> int:
    """Return the last step whose envelope counts at ``step``: 1 at step 1, else EARLIER_FACTOR ×
    step."""
    return 1 if step == 1 else EARLIER_FACTOR * step


def max_envelope(envelopes: list[Envelope], calm: int) -> Callable[[str, str, int], float]:
    """Return a function of (phase, tensor, step) that gives the largest envelope that counts there.

    Envelopes up to `envelope_horizon` count; the function returns 0 for a tensor without any.

    Args:
        calm: last step before the trajectory becomes chaotic; envelopes of later steps count only
            up to the step asked for.
    """
    seen: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for envelope in envelopes:
        for key, width in envelope.tensors.items():
            phase, at, tensor = key.split("/", 2)
            widths = seen[phase, tensor]
            widths[int(at)] = max(widths.get(int(at), 0.0), width)

    def width_at(phase: str, tensor: str, step: int) -> float:
        last = min(envelope_horizon(step), max(calm, step))
        return max((w for at, w in seen[phase, tensor].items() if at <= last), default=0.0)

    return width_at
