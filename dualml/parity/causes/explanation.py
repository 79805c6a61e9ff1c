"""What a search needs, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from dualml.parity.causes.alteration import Alteration
from dualml.parity.causes.quick import Stepper
from dualml.parity.causes.screen import Prober
from dualml.parity.models.operations import Operation
from dualml.parity.models.trace import Trace


class Explorer(Prober, Stepper, Protocol):
    """A model that can be run with alterations: `dualml_torch.causes.explore.Explorer`."""

    def run(self, changes: Sequence[Alteration], steps: int | None = None) -> Trace: ...

    def lines(self, gradients: Mapping[str, NDArray[Any]]) -> list[Operation]:
        """What an update of a user's own optimizer calls."""

    def settings(self) -> list[dict[str, Any]]: ...

    def places(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Every further name of a module or parameter that stands in several places → the
        parameters below it, with their shapes."""

    def numbers(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Constants of the other side, by its names, that ``numbers`` puts in the place of own."""

    def begin(self, values: Mapping[str, NDArray[Any]]) -> None:
        """What parameters begin with that only an alteration makes."""


@dataclass(frozen=True)
class Cause:
    """One cause: alterations that explain equally well, the likeliest first."""

    alterations: tuple[Alteration, ...]
    place: Operation | None
    other: Operation | None


@dataclass
class Explanation:
    """What a search found.

    Attributes:
        causes: one after the other; each begins where the one before it ends.
        equal: whether the two sides are equal with all of them, or fail alike.
        enough: whether nowhere more than a hundredth of the difference is left with them.
        tried: how many alterations were tried, in replays and in whole runs.
        place, other: the first operations that no longer share their values, without a cause.
        evidence: what holds between their values, see `dualml.parity.causes.evidence`.
        computed: whether the difference begins in what is computed from the weights.
        late: whether time ran out before everything was tried.
    """

    causes: list[Cause] = field(default_factory=list)
    equal: bool = False
    enough: bool = False
    tried: list[int] = field(default_factory=lambda: [0, 0])
    place: Operation | None = None
    other: Operation | None = None
    evidence: list[dict[str, Any]] = field(default_factory=list)
    computed: bool = False
    late: bool = False
