"""Compare two traces: every distance in execution order, with its phase and module."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, prod, sqrt
from statistics import median
from typing import Any

from numpy.typing import NDArray

from dualml.experiment.comparison import FirstDivergence, Note
from dualml.parity.models.gap import gap, has_nan, largest_differences
from dualml.parity.models.layers import canonical_type, pair_modules
from dualml.parity.models.operations import call_number
from dualml.parity.models.partners import Pairing, TensorPair, apply_change
from dualml.parity.models.trace import OUTPUT, Trace, array_key
from dualml.parity.models.value_matching import match_values
from dualml.parity.places import CHAOS, FLOOR, Distance, envelope_horizon

#: Relative envelope above which a gradient is not judged.
WILD = 0.01


@dataclass(frozen=True)
class TensorDistance(Distance):
    """The measured distance of two arrays, under the name of the first side.

    Attributes:
        other: the array's name on the second side.
        kind: ``value``; ``shape``, ``nan`` (one side), ``both_nan``, ``trained`` (one side),
            ``alone`` (a parameter of one side), ``outputs`` (an output of one side).
        arrays: the two arrays if they differ; else None.
    """

    other: str = ""
    kind: str = "value"
    arrays: tuple[NDArray[Any], NDArray[Any]] | None = None

    @property
    def is_hard(self) -> bool:
        """Whether this is a difference by itself: any kind but ``shape``, which may be a mere
        layout unless the model's own output has it."""
        return self.kind != "shape" or self.tensor.startswith(OUTPUT)

    @property
    def is_unstable(self) -> bool:
        """Whether rounding alone can turn the value over.

        A channel near the non-differentiable point of its ReLU has all of its gradient or none, and
        three draws do not tell how often.
        """
        known = self.kind == "value" and self.phase in ("gradient", "update", "state")
        return known and self.envelope > WILD


class TraceComparison:
    """A comparison of two traces, under the names of the first.

    Args:
        pairing: the parameters of both sides, paired.
        sides: names of the two sides.
        margin: how many times the measured rounding still counts as equal.
    """

    def __init__(
        self, a: Trace, b: Trace, pairing: Pairing, sides: tuple[str, str], margin: float
    ) -> None:
        self.a, self.b, self.sides = a, b, sides
        self.pairs = {pair.a: pair for pair in pairing.pairs}
        self.modules = pair_modules(a.modules, b.modules, pairing)
        self.last_step = min(len(a.order), len(b.order))
        self.margin = margin
        self.flow = match_values(a, b, margin) if a.operations and b.operations else None
        self.unmatched = (
            tuple(side.unmatched() for side in self.flow) if self.flow else (set(), set())
        )
        self.differently_cut: set[str] = set()
        self.notes: list[Note] = []
        self.medians: dict[str, float] = {}
        self.tolerance, self.floor = "measured", FLOOR
        if a.envelope is None and b.envelope is None:
            # Without draws: a bound for rounding a sum of this many products, not measured.
            fans = [prod(t.shape[1:]) for t in a.tensors if t.trained and len(t.shape) > 1]
            self.tolerance, self.floor = "bound", FLOOR * sqrt(max(fans, default=a.longest_axis))

    def training_differences(self) -> Iterator[TensorDistance]:
        """Yield paired parameters that only one side trains, as infinite distances at step 0."""
        trained = [{t.name: t.trained for t in side.tensors} for side in (self.a, self.b)]
        for name, pair in self.pairs.items():
            if trained[0][name] != trained[1][pair.b]:
                yield TensorDistance(0, "parameters", name, float("inf"), 0.0, pair.b, "trained")

    def one_sided_parameters(self, pairing: Pairing) -> Iterator[TensorDistance]:
        """Yield trained parameters that only one side has, if their gradient of step 1 is not zero,
        as infinite distances at step 0."""
        for side, names in zip((self.a, self.b), pairing.unpaired_parameters, strict=True):
            for name in names:
                gradient = side.find_array("gradient", 1, name)
                if gradient is not None and gradient.any():
                    yield TensorDistance(0, "parameters", name, float("inf"), 0.0, name, "alone")

    def step_distances(self, step: int) -> Iterator[TensorDistance]:
        """Yield every distance of a step, in execution order."""
        yield from self.forward_distances(step)
        yield from self.distances("loss", step, ["loss"], lambda name: TensorPair(name, name, ""))
        flow = [n for n in self.pairs if self.a.find_array("gradient", step, n) is not None]
        yield from self.distances("gradient", step, flow[::-1], self.pairs.get)
        yield from self.distances("update", step, list(self.pairs), self.pairs.get)

        def state_partner(name: str) -> TensorPair | None:
            """Return the pair of an optimizer-state entry ``SLOT/NAME``."""
            slot, _, tensor = name.partition("/")
            pair = self.pairs.get(tensor)
            return pair and TensorPair(name, f"{slot}/{pair.b}", pair.how, pair.change)

        yield from self.distances("state", step, self.a.names("state", step), state_partner)

    def forward_distances(self, step: int) -> Iterator[TensorDistance]:
        """Yield the distances of module outputs of a step; outputs of the model that only one side
        has are infinitely far apart, other modules without a partner, and those cut differently
        (`is_cut_differently`), are left out. A module that a mutation moves is at distance 0."""
        names = [t.names("forward", step) for t in (self.a, self.b)]
        outputs = [[n for n in side if n.startswith(OUTPUT)] for side in names]
        if all(outputs) and outputs[0] != outputs[1]:
            shapes = [
                ", ".join(
                    f"{n.removeprefix(OUTPUT)}{format_shape(t.find_array('forward', step, n))}"
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
        """Return whether two modules of one name hold different parts of the same computation.

        Only the model's results count: a module's output that the other side computed anywhere is
        no difference, nor is one that does not affect what both sides share afterwards.
        """
        if self.flow is None or spot.tensor.startswith(OUTPUT):
            return False
        if spot.step == 1 and spot.ratio > self.margin and spot.arrays is not None:
            x, y = spot.arrays
            values = [side.values for side in self.flow]
            tolerance = self.margin * spot.envelope
            own = values[0].find(x, 0.0)
            healed = own is not None and own not in self.unmatched[0]
            module, other = module_name(spot.tensor), module_name(spot.other)
            alike = canonical_type(self.a.modules.get(module, "")) == canonical_type(
                self.b.modules.get(other, "")
            )
            if values[1].find(x, tolerance) or (
                healed and (not alike or values[0].find(y, tolerance))
            ):
                self.differently_cut.add(spot.tensor)
        return spot.tensor in self.differently_cut

    def first_unmatched_operation(self) -> int:
        """Return the number of the second side's first operation whose output the first does not
        compute.

        The number of all its operations if there is none; 0 if a side recorded no operations.
        """
        if self.flow is None:
            return 0
        numbers = [n for name in self.unmatched[1] if (n := call_number(name)) is not None]
        return min(numbers, default=len(self.b.operations))

    def partner_name(self, name: str, known: set[str]) -> str | None:
        """Return the other side's name of a module output; None if there is none.

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
        """Yield the distances of the named arrays of a phase; arrays that either side lacks are
        left out."""
        for name in names:
            pair = partner(name)
            x = self.a.find_array(phase, step, name)
            y = self.b.find_array(phase, step, pair.b) if pair else None
            if x is None or y is None or pair is None:
                continue
            width = max(self.envelope_width(phase, name, pair.b, step), self.floor)
            if (pair.change == "transpose" and y.ndim == 2) or (
                pair.change == "reshape" and y.size == x.size
            ):
                y = apply_change(y, pair.change, x.shape)
            sort = (
                "shape"
                if x.shape != y.shape
                else ("value", "nan", "both_nan")[has_nan(x) + has_nan(y)]
            )
            far = gap(x, y)
            yield TensorDistance(
                step, phase, name, far, width, pair.b, sort, (x, y) if far else None
            )

    def envelope_width(self, phase: str, a: str, b: str, step: int) -> float:
        """Return the larger envelope of both sides: at step 1 its own, later the largest up to
        `envelope_horizon`, but no less than `median_envelope`."""
        steps = range(1, min(envelope_horizon(step), max(self.last_step, 1)) + 1)
        widths = [
            max(self.a.envelope_width(phase, at, a), self.b.envelope_width(phase, at, b))
            for at in steps
        ]
        return max(*widths, self.median_envelope(phase, step, a.rpartition("/")[0]))

    def median_envelope(self, phase: str, step: int, slot: str) -> float:
        """Return the median envelope of the gradients, or of an optimizer slot, at a step.

        No array is taken to be narrower. The gradient of the output bias, for example, contains
        only the rounding of the loss, and moved weights do not make that kernel round differently.
        0 in other phases.
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
        """Return the first step at which rounding alone changes the loss visibly; None if none
        does.

        The outputs must move with it; else only the terms of the loss cancel.
        """
        for step in range(1, steps + 1):
            ends = [n for n in self.a.names("forward", step) if n.startswith(OUTPUT)]
            moved = [self.envelope_width("forward", n, n, step) for n in ends]
            if (
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

    def module_and_type(self, spot: TensorDistance) -> tuple[str, str]:
        """Return name and type of the module that a distance belongs to."""
        forward, parameter = spot.phase == "forward", spot.tensor.rpartition("/")[2]
        name = module_name(spot.tensor) if forward else parameter.rpartition(".")[0]
        return name, self.a.modules.get(name, "")

    def make_divergence(self, spot: TensorDistance, stray: TensorDistance) -> FirstDivergence:
        """Return the divergence that begins at one distance and exceeds the margin at another."""
        layer, kind = self.module_and_type(spot)
        shapes = tuple(a.shape for a in spot.arrays) if spot.arrays else None
        elements = largest_differences(*spot.arrays, self.sides) if spot.arrays else []
        return FirstDivergence(
            step=spot.step,
            phase=spot.phase,
            layer=layer,
            type=kind,
            tensor=spot.tensor,
            other=spot.other,
            kind=spot.kind,
            distance=spot.distance,
            envelope=spot.envelope,
            shapes=shapes,
            elements=tuple(elements),
            side=self.deviating_side(spot),
            outside=None
            if spot is stray
            else {"phase": stray.phase, "tensor": stray.tensor, "ratio": stray.ratio},
        )

    def deviating_side(self, spot: TensorDistance) -> str:
        """Return the side that has the NaN, does not train or alone has a parameter; empty for
        other kinds."""
        if spot.kind == "nan" and spot.arrays is not None:
            return self.sides[0] if has_nan(spot.arrays[0]) else self.sides[1]
        if spot.kind == "alone":
            return (
                self.sides[0] if spot.tensor in {t.name for t in self.a.tensors} else self.sides[1]
            )
        if spot.kind == "trained":
            trained = {t.name: t.trained for t in self.a.tensors}[spot.tensor]
            return self.sides[1] if trained else self.sides[0]
        return ""

    def locate_error(self) -> FirstDivergence:
        """Return the first module that only the other side completed, as a divergence."""
        failed, other = (self.a, self.b) if self.a.raised else (self.b, self.a)
        step = len(failed.order)
        done, order = failed.order[-1], other.order[step - 1] if step <= len(other.order) else []
        forth = self.modules if other is self.a else {y: x for x, y in self.modules.items()}

        def was_reached(name: str) -> bool:
            """Whether the failed side reached a module, or has no partner for it."""
            there = forth.get(module_name(name))
            return there is None or any(n.startswith(there) for n in done)

        name = next((n for n in order if not was_reached(n)), OUTPUT)
        side = self.sides[0] if failed is self.a else self.sides[1]
        return FirstDivergence(
            step=step,
            phase="forward",
            layer=name,
            type=other.modules.get(name, ""),
            tensor=name,
            other=forth.get(name, ""),
            kind="raised",
            distance=float("inf"),
            envelope=0.0,
            shapes=None,
            elements=(),
            side=side,
        )

    def layout_note(self, spot: TensorDistance) -> Note:
        """Return a note that a module's output has another shape."""
        assert spot.arrays is not None
        x, y = spot.arrays
        return Note("layout", {"name": spot.tensor, "a": str(x.shape), "b": str(y.shape)})


def module_name(output: str) -> str:
    """Return the module that gave an output: ``enc.0`` of ``enc.0#2[1]``."""
    return re.split(r"[#\[]", output, maxsplit=1)[0]


def format_shape(array: NDArray[Any] | None) -> str:
    """Format an array's shape; empty for None."""
    return "" if array is None else str(array.shape)
