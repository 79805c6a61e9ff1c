"""The interface that a cause search needs, and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from dualml.common.json_types import JsonObject
from dualml.parity.causes.candidate_filter import Prober
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.prefilter import Stepper
from dualml.parity.causes.trial_guard import TrialGuard
from dualml.parity.models.operations import Operation
from dualml.parity.models.trace import Trace


class Explorer(Prober, Stepper, Protocol):
    """A model that can be run with mutations, see `dualml_torch.parity.causes.explore.Explorer`.

    Attributes:
        guard: notes what is tried.
    """

    guard: TrialGuard

    def run(self, changes: Sequence[Mutation], steps: int | None = None) -> Trace:
        """Run all steps, or the first ``steps``, under the mutations from the initial weights and
        return the trace; an error in a step ends the run and is its ``raised``.

        Raises:
            Exception: the run cannot begin, or the last mutation would kill the process.
        """
        ...

    def record(self, changes: Sequence[Mutation]) -> None:
        """Run the first step's forward and backward pass under the mutations, and keep its calls
        for `probe` and `changed_gradients`; nothing if they are kept already."""
        ...

    def trace_update(self, gradients: Mapping[str, NDArray[Any]]) -> list[Operation]:
        """Return the operations of one update of the user's own optimizer, from these gradients."""

    def optimizer_groups(self) -> list[JsonObject]:
        """Return for each parameter group of the optimizer its numbers and flags by name, parameter
        ``names``, rule (``form``) and numbers of a user's own class (``own``)."""
        ...

    def shared_aliases(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Return the alias names of modules and parameters that are used in several places.

        Each maps to the parameters below it, with their shapes. Modules and parameters used in one
        place are left out.
        """

    def set_constants(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Register arrays of the other side, by its names, for mutations with the action
        ``numbers``, in addition to those registered before."""

    def set_initial_values(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Set the initial values of parameters that only a mutation creates."""


@dataclass(frozen=True)
class DivergenceCause:
    """One cause: mutations that explain the difference equally well, the likeliest first.

    Attributes:
        place: the first operation that the likeliest mutation changes; None if it changes no call.
        other: the first operation of the other side with unmatched values; None if there is none.
    """

    alterations: tuple[Mutation, ...]
    place: Operation | None
    other: Operation | None


@dataclass(frozen=True)
class Explanation:
    """The result of a cause search.

    Attributes:
        causes: in order; each begins where the preceding one ends.
        equal: whether the two sides are equal with all causes applied, or fail in the same way.
        enough: whether the causes leave at most a hundredth of the difference anywhere.
        tried: two numbers of mutations that were tried: in replays, and in whole runs.
        place, other: the first operations of either side with unmatched values and without a cause.
        evidence: relations between their values, see `dualml.parity.causes.evidence`.
        computed: whether the difference begins in what is computed from the weights.
        late: whether time ran out before everything was tried.
    """

    causes: list[DivergenceCause] = field(default_factory=list)
    equal: bool = False
    enough: bool = False
    tried: list[int] = field(default_factory=lambda: [0, 0])
    place: Operation | None = None
    other: Operation | None = None
    evidence: list[dict[str, Any]] = field(default_factory=list)
    computed: bool = False
    late: bool = False
