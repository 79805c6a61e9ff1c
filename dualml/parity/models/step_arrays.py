"""Where the arrays of a step go as they arise: into the trace, or into a comparison with it.

The first run of a step is stored. A repetition only needs its distance from that run, array by
array, so that no two runs are ever in memory together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from numpy.typing import NDArray

from dualml.parity.models.gap import gap, has_nan, is_bit_identical
from dualml.parity.models.trace import array_key
from dualml.parity.models.trace_files import TraceArrays


class StepArrays:
    """The arrays of one run of a step, added by ``PHASE/NAME``; subclasses store or compare them.

    Args:
        step: number of the step, from 1.

    Attributes:
        names: the names so far, in the order in which they were first added.
        needs_copy: whether an added array is kept, so that the caller must not pass one that shares
            memory with a tensor.
    """

    needs_copy = True

    def __init__(self, step: int) -> None:
        self.step = step
        self.names: dict[str, None] = {}

    def add(self, name: str, array: NDArray[Any]) -> None:
        """Add an array under the name ``PHASE/NAME``; an earlier one of this name is replaced."""
        self.names[name] = None
        phase, _, rest = name.partition("/")
        self.accept_array(array_key(phase, self.step, rest), array)

    def accept_array(self, key: str, array: NDArray[Any]) -> None:
        """Store or compare an array under its key in the trace."""
        raise NotImplementedError

    def has_phase(self, phase: str) -> bool:
        """Return whether any array of this phase was added."""
        return any(name.startswith(f"{phase}/") for name in self.names)

    def keys(self, *, operations: bool) -> list[str]:
        """Return the keys in the trace of the arrays so far: with ``operations`` those of
        operations' outputs, else those of all other arrays."""
        parts = (name.partition("/") for name in self.names)
        return [
            array_key(phase, self.step, rest)
            for phase, _, rest in parts
            if (phase == "operation") == operations
        ]


class StoredStep(StepArrays):
    """The first run of a step, whose arrays are stored in a trace.

    Args:
        arrays: the trace's arrays, to which those of the step are added.
    """

    def __init__(self, step: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        super().__init__(step)
        self.arrays = arrays

    @property
    def needs_copy(self) -> bool:  # type: ignore[override]
        """Whether the trace keeps an added array itself: True unless it writes its arrays to the
        disk."""
        return not (isinstance(self.arrays, TraceArrays) and self.arrays.is_on_disk)

    def accept_array(self, key: str, array: NDArray[Any]) -> None:
        """Store an array under its key in the trace."""
        if isinstance(self.arrays, TraceArrays):
            self.arrays.store(key, array)
        elif isinstance(self.arrays, MutableMapping):
            self.arrays[key] = array

    def finish(self) -> None:
        """Move the outputs of operations, which arise between the other arrays, to the end of the
        trace."""
        keys = self.keys(operations=True)
        if isinstance(self.arrays, TraceArrays):
            self.arrays.move_to_end(keys)
        elif isinstance(self.arrays, MutableMapping):
            for key in keys:
                self.arrays[key] = self.arrays.pop(key)


class ComparedStep(StepArrays):
    """A repetition of a step, whose arrays are compared with the first run and dropped.

    Args:
        base: the arrays of the trace.
        measure: called with an array of the first run and its repetition; returns their distance,
            or None if it does not count.

    Attributes:
        distances: key → what ``measure`` returned, for the arrays that the first run has.
    """

    needs_copy = False

    def __init__(
        self,
        step: int,
        base: Mapping[str, NDArray[Any]],
        measure: Callable[[NDArray[Any], NDArray[Any]], float | None],
    ) -> None:
        super().__init__(step)
        self.base, self.measure = base, measure
        self.distances: dict[str, float | None] = {}

    def accept_array(self, key: str, array: NDArray[Any]) -> None:
        """Measure the distance of an array from the one of this key in the trace; ignored if the
        trace has none."""
        if key in self.base:
            self.distances[key] = self.measure(self.base[key], array)


class OperationArrays(MutableMapping[str, NDArray[Any]]):
    """Mapping through which a `Tape` adds the outputs of operations to a step; looking one up
    raises `KeyError`.

    Args:
        step: gets each array as ``operation/NAME``; None drops them.
    """

    def __init__(self, step: StepArrays | None) -> None:
        self.step = step
        self.shapes: dict[str, tuple[int, ...]] = {}

    def __setitem__(self, name: str, array: NDArray[Any]) -> None:
        self.shapes[name] = array.shape
        if self.step is not None:
            self.step.add(f"operation/{name}", array)

    def __getitem__(self, name: str) -> NDArray[Any]:
        raise KeyError(name)

    def __delitem__(self, name: str) -> None:
        raise KeyError(name)

    def __iter__(self) -> Any:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def measure_repetition(base: NDArray[Any], repeated: NDArray[Any]) -> float | None:
    """Return the relative distance of two runs of an array; None if they have the same bits."""
    return None if is_bit_identical(base, repeated) else gap(base, repeated)


def measure_draw(base: NDArray[Any], drawn: NDArray[Any]) -> float | None:
    """Return the relative distance of a draw from the first run; None if it is not finite and the
    first run has a NaN."""
    far = gap(base, drawn)
    return far if math.isfinite(far) or not has_nan(base) else None  # NaN is infinitely far away
