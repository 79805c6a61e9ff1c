"""Evidence of two traces and of the traces of their ranks, for hypotheses about mistakes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.tensor_files import array_shape
from dualml.parity.models.gap import gap
from dualml.parity.models.layouts import can_apply
from dualml.parity.models.partners import apply_change
from dualml.parity.models.trace import OUTPUT, Trace, array_key, count_calls, split_number
from dualml.parity.ranks.rank_files import RankRecording, find_parts
from dualml.parity.ranks.shards import RankArray

Array = NDArray[Any]
#: Relative distance up to which a predicted array counts as the recorded one, where no rounding was
#: measured; and the largest one where it was.
ROUNDING, MAX_ROUNDING = 1e-5, 1e-3
#: Relative tolerance of a factor that a hypothesis predicts.
FACTOR_RTOL = 2e-5
#: Bytes of the gradients that are read at once.
MAX_BYTES = 256 << 20


@dataclass(frozen=True)
class TraceSide:
    """One of two traces that are compared, with the traces of its ranks.

    Attributes:
        name: name of the side in verdicts.
        trace: the trace of the whole training.
        recordings: the traces of its ranks; empty if one process recorded it.
        names: name of a parameter on the first side → its name here.
        changes: name on the first side → how an array of this side is converted to the first side's
            layout, such as ``transpose``.
        calls: number of calls of the model in the first step of one process, where they are joined
            in `trace`; 0: as many as in `trace`.
    """

    name: str
    trace: Trace
    recordings: Sequence[RankRecording] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, str] = field(default_factory=dict)
    calls: int = 0

    @property
    def ranks(self) -> int:
        """Number of ranks; 1 for one process."""
        return max(len(self.recordings), 1)

    @cached_property
    def micro_batches(self) -> int:
        """Number of calls of the model in the first step of one rank, at least 1."""
        first = self.recordings[0].trace if self.recordings else self.trace
        return max(0 if self.recordings else self.calls, count_calls(first), 1)

    def count_micro_batches(self, step: int) -> int:
        """Return the number of calls of the model in a step of one rank, at least 1; 1 if the calls
        of a step are joined in `trace`."""
        first = self.recordings[0].trace if self.recordings else self.trace
        return max(count_calls(first, step), 1)

    def own_name(self, name: str) -> str:
        """Return the name here of an array of the first side, such as ``exp_avg/fc.weight``."""
        head, slash, parameter = name.rpartition("/")
        return head + slash + self.names.get(parameter, parameter)

    def find_array(self, phase: str, step: int, name: str) -> Array | None:
        """Return the whole array that has this name on the first side, converted to the first
        side's layout; None if there is none."""
        array = self.trace.find_array(phase, step, self.own_name(name))
        change = self.changes.get(name.rpartition("/")[2], "")
        if array is None or not change:
            return array
        shape = array.shape[::-1] if change == "transpose" else array.shape
        return apply_change(array, change, shape) if can_apply(change, array, array.size) else array

    def find_weight_before(self, step: int, name: str) -> Array | None:
        """Return a parameter as it was before the update of step ``step``, from 1, in the first
        side's layout; None if it was not recorded."""
        phase = "parameters" if step == 1 else "update"
        return self.find_array(phase, step - 1, name)

    def find_parts(self, phase: str, step: int, name: str) -> list[RankArray]:
        """Return each rank's part of the array that has this name on the first side; empty if this
        side's layout differs from the first side's."""
        if self.changes.get(name.rpartition("/")[2]):
            return []
        return find_parts(self.recordings, phase, step, self.own_name(name))

    def find_passes(self, step: int, name: str) -> list[tuple[int, int, Array]]:
        """Return the gradients of a parameter before micro-batches were added up, clipped, or
        exchanged, as (rank, number of the backward pass from 1, array).

        Empty for shards, if this side's layout differs from the first side's, if no gradient of the
        update was recorded, and for one process whose only pass gave the gradient of the update.
        """
        own, found = self.own_name(name), []
        key = array_key("gradient", step, own)
        if self.changes.get(name) or key not in self.trace.arrays:
            return []
        shape = array_shape(self.trace.arrays, key)
        for rank, trace in self.traces_of_ranks():
            for local in trace.names("local", step):
                if split_number(local)[0] != own:
                    continue
                array = trace.find_array("local", step, local)
                if array is not None and array.shape == shape:
                    found.append((rank, split_number(local)[1], array))
        return found

    def traces_of_ranks(self) -> list[tuple[int, Trace]]:
        """Return (rank, its trace) for each rank; ``[(0, trace)]`` for one process."""
        return [(one.facts.rank, one.trace) for one in self.recordings] or [(0, self.trace)]

    def weights_of_losses(self, step: int) -> dict[tuple[int, int], float]:
        """Return (rank, number of the micro-batch from 1) → weight that the script gave its loss;
        empty if it gave none."""
        key = ("weight", step, "losses")
        rows = [(rank, trace.find_array(*key)) for rank, trace in self.traces_of_ranks()]
        return {
            (rank, number): float(weight)
            for rank, losses in rows
            if losses is not None
            for number, weight in enumerate(losses[:, 1], 1)
        }

    def rates(self) -> list[Array]:
        """Return for each step an array of the learning rates, one for each group of parameters;
        empty if they were not recorded in all steps."""
        found = [self.trace.find_array("schedule", s + 1, "lr") for s in range(self.trace.steps)]
        return (
            [] if any(one is None for one in found) else [one for one in found if one is not None]
        )


@dataclass(frozen=True)
class RankEvidence:
    """Two sides of which the second may have made a mistake, and where they begin to differ.

    Attributes:
        reference: the side that is taken to be right.
        suspect: the side that may not be.
        outside: (phase, name) of the arrays of `step` that lie outside of rounding, with the first
            side's names.
        step: the first step, from 1, with such arrays.
        margin: how many rounding envelopes apart arrays still count as equal.
        limit: bytes of the arrays that are read at once; the rest of a large model's are left out.
    """

    reference: TraceSide
    suspect: TraceSide
    outside: Sequence[tuple[str, str]]
    step: int
    margin: float = 10.0
    limit: int = MAX_BYTES

    def names_outside(self, phase: str) -> list[str]:
        """Return the names of a phase whose arrays lie outside of rounding."""
        return [name for one, name in self.outside if one == phase]

    def pairs(
        self, phase: str, names: Sequence[str] | None = None
    ) -> dict[str, tuple[Array, Array]]:
        """Return name → arrays of reference and suspect in `step`, of those that both sides have
        with one shape. Reading stops before the arrays exceed `limit` bytes, but the first is
        always read.

        Args:
            names: names on the first side; None: all names of the phase outside of rounding.
        """
        found: dict[str, tuple[Array, Array]] = {}
        size = 0
        for name in self.names_outside(phase) if names is None else names:
            key = array_key(phase, self.step, self.reference.own_name(name))
            if key not in self.reference.trace.arrays:
                continue
            size += count_bytes(self.reference.trace.arrays, key)
            if size > self.limit and found:
                break
            x = self.reference.find_array(phase, self.step, name)
            y = self.suspect.find_array(phase, self.step, name)
            if x is not None and y is not None and x.shape == y.shape:
                found[name] = (x, y)
        return found

    def parameters(self) -> list[str]:
        """Return the names of all parameters of which both sides recorded a gradient in `step`."""
        traces = (self.reference, self.suspect)
        return [
            name
            for name in self.reference.names
            if all(
                array_key("gradient", self.step, side.own_name(name)) in side.trace.arrays
                for side in traces
            )
        ]

    def pairs_of_all(self) -> dict[str, tuple[Array, Array]] | None:
        """Return name → gradients of reference and suspect, of all parameters that `parameters`
        names; None if they exceed `limit` bytes or differ in shape."""
        every = self.parameters()
        arrays, step = self.reference.trace.arrays, self.step
        keys = [array_key("gradient", step, self.reference.own_name(name)) for name in every]
        if sum(count_bytes(arrays, key) for key in keys) > self.limit:
            return None
        found = self.pairs("gradient", every)
        return found if len(found) == len(every) else None

    def agrees(self, phase: str, name: str, predicted: Array, recorded: Array) -> bool:
        """Return whether a predicted array equals the recorded one up to rounding: within `margin`
        measured envelopes, but at least `ROUNDING` and at most `MAX_ROUNDING` relative."""
        widths = [
            side.trace.envelope_width(phase, self.step, own)
            for side in (self.reference, self.suspect)
            for own in {name, side.own_name(name)}
        ]
        allowed = min(max(self.margin * max(widths), ROUNDING), MAX_ROUNDING)
        return gap(predicted, recorded) <= allowed

    def count_agreeing(self, phase: str, predicted: Mapping[str, Array]) -> int:
        """Return how many of the predicted arrays, by name, equal the suspect's up to rounding;
        names that are not outside of rounding do not count."""
        pairs = self.pairs(phase)
        return sum(
            self.agrees(phase, name, value, pairs[name][1])
            for name, value in predicted.items()
            if name in pairs
        )

    def rows(self) -> int:
        """Return the length of the first axis of the reference's output, its batch; 0 if it was
        not recorded."""
        trace = self.reference.trace
        outputs = (trace.find_array("forward", self.step, OUTPUT),)
        return next((len(one) for one in outputs if one is not None and one.ndim), 0)


def count_bytes(arrays: Mapping[str, Array], key: str) -> int:
    """Return the bytes of an array in float32, without reading it."""
    return 4 * math.prod(array_shape(arrays, key))


def total_norm(arrays: Iterator[Array]) -> float:
    """Return the Euclidean norm of all elements of several arrays together, computed in float64."""
    return math.sqrt(sum(float((one.astype(np.float64) ** 2).sum()) for one in arrays))


def is_near(value: float, expected: float, rtol: float = FACTOR_RTOL) -> bool:
    """Return whether ``value`` differs from ``expected`` by at most ``rtol`` times the latter."""
    return abs(value - expected) <= rtol * abs(expected)
