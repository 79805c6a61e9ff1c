"""Compare two traces: every distance in execution order, with its phase and module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf, isfinite, prod, sqrt
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.tensor_files import array_shape
from dualml.experiment.comparison import Note
from dualml.parity.models.gap import TensorDistance, gap, has_nan
from dualml.parity.models.layers import canonical_type, module_name, pair_modules
from dualml.parity.models.layouts import can_apply
from dualml.parity.models.operations import call_number
from dualml.parity.models.partners import Change, Pairing, TensorPair, apply_change
from dualml.parity.models.trace import OUTPUT, Trace, array_key, rounding_unit
from dualml.parity.models.value_matching import match_values
from dualml.parity.places import CHAOS, envelope_horizon

#: (step, phase, name on the first side) → distance.
KnownDistances = Mapping[tuple[int, str, str], float]
#: Outputs that rounding moves by no more units in the last place are not chaotic.
CHAOTIC_UNITS = 16


class TraceComparison:
    """A comparison of two traces, under the names of the first.

    Args:
        a, b: the traces of the two sides.
        pairing: the parameters of both sides, paired.
        sides: names of the two sides.
        margin: how many rounding envelopes apart arrays still count as equal.
        known: distances that need not be measured, by (step, phase, name on side a).
    """

    def __init__(
        self,
        a: Trace,
        b: Trace,
        pairing: Pairing,
        sides: tuple[str, str],
        margin: float,
        known: KnownDistances = MappingProxyType({}),
    ) -> None:
        self.a, self.b, self.sides, self.known = a, b, sides, known
        self.pairs = {pair.a: pair for pair in pairing.pairs}
        self.permutes_rows = any("interleave" in pair.change for pair in pairing.pairs)
        self.modules = pair_modules(a.modules, b.modules, pairing)
        self.last_step = min(len(a.order), len(b.order))
        self.margin = margin
        self.flow = (
            match_values(a, b, margin, pairing.pairs) if a.operations and b.operations else None
        )
        self.unmatched = (
            tuple(side.unmatched() for side in self.flow) if self.flow else (set(), set())
        )
        self.differently_cut: set[str] = set()
        self.notes: list[Note] = []
        self.medians: dict[str, float] = {}
        self.unit = rounding_unit(a, b)
        self.tolerance, self.floor = "measured", self.unit
        if a.envelope is None and b.envelope is None:
            # Without draws: a bound for rounding a sum of this many products, not measured.
            fans = [prod(t.shape[1:]) for t in a.tensors if t.trained and len(t.shape) > 1]
            self.tolerance, self.floor = (
                "bound",
                self.unit * sqrt(max(fans, default=a.longest_axis)),
            )

    def training_differences(self) -> Iterator[TensorDistance]:
        """Yield paired parameters that only one side trains, as infinite distances of kind
        ``trained`` at step 0."""
        trained = [{t.name: t.trained for t in side.tensors} for side in (self.a, self.b)]
        for name, pair in self.pairs.items():
            if trained[0][name] != trained[1][pair.b]:
                yield TensorDistance(0, "parameters", name, float("inf"), 0.0, pair.b, "trained")

    def one_sided_parameters(self, pairing: Pairing) -> Iterator[TensorDistance]:
        """Yield trained parameters without a partner whose gradient of step 1 is recorded and not
        zero, as infinite distances of kind ``alone`` at step 0; those of side ``a`` first."""
        for side, names in zip((self.a, self.b), pairing.unpaired_parameters, strict=True):
            for name in names:
                gradient = side.find_array("gradient", 1, name)
                if gradient is not None and gradient.any():
                    yield TensorDistance(0, "parameters", name, float("inf"), 0.0, name, "alone")

    def step_distances(self, step: int) -> Iterator[TensorDistance]:
        """Yield every distance of a step, from 1, in execution order: outputs, loss, gradients
        (last layer first), updated weights, state of the optimizer."""
        yield from self.forward_distances(step)
        yield from self.distances("loss", step, ["loss"], lambda name: TensorPair(name, name, ""))
        flow = [n for n in self.pairs if array_key("gradient", step, n) in self.a.arrays]
        yield from self.distances("gradient", step, flow[::-1], self.pairs.get)
        yield from self.distances("update", step, list(self.pairs), self.pairs.get)

        def state_partner(name: str) -> TensorPair | None:
            """Return the pair of an optimizer-state entry ``SLOT/NAME``; None if the parameter is
            not paired."""
            slot, _, tensor = name.partition("/")
            pair = self.pairs.get(tensor)
            return pair and TensorPair(name, f"{slot}/{pair.b}", pair.how, pair.change)

        yield from self.distances("state", step, self.a.names("state", step), state_partner)

    def forward_distances(self, step: int) -> Iterator[TensorDistance]:
        """Yield the distances of module outputs of a step, in execution order.

        Outputs of the model that only one side has are infinitely far apart. Other modules without
        a partner, and those cut differently (`is_cut_differently`), are left out. A module that a
        mutation moves is at distance 0. Adds a note if the models have different outputs.
        """
        names = [t.names("forward", step) for t in (self.a, self.b)]
        outputs = [[n for n in side if n.startswith(OUTPUT)] for side in names]
        if all(outputs) and outputs[0] != outputs[1]:
            shapes = [
                ", ".join(
                    f"{n.removeprefix(OUTPUT)}"
                    f"{array_shape(t.arrays, array_key('forward', step, n))}"
                    for n in o
                )
                for t, o in zip((self.a, self.b), outputs, strict=True)
            ]
            note = Note("outputs", dict(zip("ab", shapes, strict=True)))
            self.notes += [note] if note not in self.notes else []
        known = set(names[1])
        # One side may return a dict, the other a tuple: outputs are then paired by position.
        ends = dict(zip(*outputs, strict=True)) if len(outputs[0]) == len(outputs[1]) else {}
        for name in names[0]:
            other = ends.get(name) or self.partner_name(name, known)
            if other is not None and module_name(name) in self.a.moved_modules:
                yield TensorDistance(step, "forward", name, 0.0, 0.0, other)
            elif other is not None:
                for spot in self.distances(
                    "forward", step, [name], {name: TensorPair(name, other, "")}.get
                ):
                    if not self.is_cut_differently(spot):
                        yield spot
            elif name.startswith(OUTPUT) and outputs[1]:
                yield TensorDistance(
                    step, "forward", name, float("inf"), 0.0, outputs[1][0], "outputs"
                )
        for name in outputs[1] if outputs[0] and not ends else ():
            if name not in outputs[0]:
                yield TensorDistance(step, "forward", name, float("inf"), 0.0, name, "outputs")

    def is_cut_differently(self, spot: TensorDistance) -> bool:
        """Return whether the distance of two modules' outputs is no difference, because the modules
        hold different parts of the same computation.

        This is so if the other side computed the output somewhere else, or if the output does not
        affect what both sides share afterwards. It is decided in step 1 and holds for all later
        steps; the model's own outputs are never cut differently.

        Args:
            spot: the distance of the outputs of the two modules.
        """
        if self.flow is None or spot.tensor.startswith(OUTPUT):
            return False
        if spot.step == 1 and spot.ratio > self.margin and (arrays := spot.arrays) is not None:
            x, y = arrays
            values = [side.values for side in self.flow]
            tolerance = self.margin * spot.envelope
            own = values[0].find(x, 0.0)
            healed = own is not None and own not in self.unmatched[0]
            module, other = module_name(spot.tensor), module_name(spot.other)
            alike = canonical_type(self.a.modules.get(module, "")) == canonical_type(
                self.b.modules.get(other, "")
            )
            if (
                values[1].find(x, tolerance)
                or self.is_row_order(x, y, tolerance)
                or (healed and (not alike or values[0].find(y, tolerance)))
            ):
                self.differently_cut.add(spot.tensor)
        return spot.tensor in self.differently_cut

    def is_row_order(self, x: NDArray[Any], y: NDArray[Any], tolerance: float) -> bool:
        """Return whether two outputs have the same numbers, up to ``tolerance``, in another order;
        always False unless the user's map reorders rows of matrices, which reorders their outputs
        as well."""
        if not self.permutes_rows or x.size != y.size:
            return False
        return gap(np.sort(x, axis=None), np.sort(y, axis=None)) <= tolerance

    def first_unmatched_operation(self) -> int:
        """Return the number of the second side's first operation whose output the first does not
        compute.

        If there is none, return how many operations it has; 0 if a side recorded no operations.
        """
        if self.flow is None:
            return 0
        numbers = [n for name in self.unmatched[1] if (n := call_number(name)) is not None]
        return min(numbers, default=len(self.b.operations))

    def partner_name(self, name: str, known: set[str]) -> str | None:
        """Return the other side's name of a module output, one of the ``known`` names; None if
        there is none.

        A single tensor of an inner module pairs with the first of a tuple; the model's own outputs
        pair under equal names only.
        """
        module = module_name(name)
        tail = name.removeprefix(module)
        other = module if module == OUTPUT else self.modules.get(module)
        if other is None:
            return None
        candidates = [f"{other}{tail}"]
        if module != OUTPUT:
            candidates += [f"{other}{tail}[0]", f"{other}{tail.removesuffix('[0]')}"]
        return next((n for n in candidates if n in known), None)

    def distances(
        self,
        phase: str,
        step: int,
        names: Sequence[str],
        partner: Callable[[str], TensorPair | None],
    ) -> Iterator[TensorDistance]:
        """Yield the distances of the named arrays of a phase in a step, in the order of ``names``;
        arrays that either side lacks are left out.

        Args:
            names: names on the first side.
            partner: returns the pair of a name, which has the second side's name; None if there is
                none.
        """
        for name in names:
            pair = partner(name)
            keys = array_key(phase, step, name), array_key(phase, step, pair.b if pair else "")
            if pair is None or keys[0] not in self.a.arrays or keys[1] not in self.b.arrays:
                continue
            width = max(self.envelope_width(phase, name, pair.b, step), self.floor)
            read = partial(self.read_pair, *keys, pair.change)
            far, sort = self.known.get((step, phase, name), inf), "value"
            if not isfinite(far):
                x, y = read()
                far = gap(x, y)
                if x.shape != y.shape:
                    sort = "shape"
                elif not isfinite(far):
                    sort = ("value", "nan", "both_nan")[has_nan(x) + has_nan(y)]
                del x, y  # the next pair is read before this name is bound anew
            arrays = read if far else None
            yield TensorDistance(
                step, phase, name, far, width, pair.b, sort, arrays, floor=self.unit
            )

    def read_pair(self, a: str, b: str, change: Change) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the arrays of both traces under these keys; the second is converted to the layout
        of the first by ``change``."""
        x, y = self.a.arrays[a], self.b.arrays[b]
        if can_apply(change, y, x.size):
            y = apply_change(y, change, x.shape)
        return x, y

    def envelope_width(self, phase: str, a: str, b: str, step: int) -> float:
        """Return the rounding envelope of an array, the larger one of both sides: at step 1 that of
        the step, later the largest of all steps up to `envelope_horizon`, but no less than
        `median_envelope`.

        Args:
            a, b: name of the array on each side.
        """
        steps = range(1, min(envelope_horizon(step), max(self.last_step, 1)) + 1)
        widths = [
            max(self.a.envelope_width(phase, at, a), self.b.envelope_width(phase, at, b))
            for at in steps
        ]
        return max(*widths, self.median_envelope(phase, step, a.rpartition("/")[0]))

    def median_envelope(self, phase: str, step: int, slot: str) -> float:
        """Return the median envelope of the gradients, or of an optimizer slot, at a step.

        It is a lower limit for each of these arrays: the gradient of the output bias, for example,
        contains only the rounding of the loss, and moved weights do not make that kernel round
        differently. 0 in other phases.
        """
        if phase not in ("gradient", "state"):
            return 0.0
        where = array_key(phase, step, f"{slot}/" if slot else "")
        if where not in self.medians:
            widths = [
                width
                for side in (self.a, self.b)
                for name, width in (side.envelope or {}).items()
                if name.startswith(where) and isfinite(width)
            ]
            self.medians[where] = median(widths or [0.0])
        return self.medians[where]

    def first_chaotic_step(self, steps: int) -> int | None:
        """Return the first step, from 1 to ``steps``, at which rounding alone changes the loss by
        more than `CHAOS` (relative); None if there is none.

        The outputs must move with it (by more than a tenth of that); else only the terms of the
        loss cancel.
        """
        for step in range(1, steps + 1):
            ends = [n for n in self.a.names("forward", step) if n.startswith(OUTPUT)]
            moved = [self.envelope_width("forward", n, n, step) for n in ends]
            visible = max(moved, default=1.0) > CHAOTIC_UNITS * self.unit  # in low precision, too
            if visible and (
                self.envelope_width("loss", "loss", "loss", step)
                > CHAOS
                < 10 * max(moved, default=1.0)
            ):
                return step
        return None

    def output_layer(self) -> str:
        """Return the first side's name of the last layer with paired parameters; empty if there is
        none."""
        named = [name.rpartition(".")[0] for name in self.pairs]
        return named[-1] if named else ""
