"""One operation whose mutations are enumerated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dualml.parity.causes.mutation import Mutation, MutationContext, Shape
from dualml.parity.causes.tables import OPERATOR_FUNCTIONS
from dualml.parity.models.operations import Operation


@dataclass(frozen=True)
class MutationSite:
    """One operation, whose mutations are enumerated.

    Args:
        operation: the operation.
        shapes: shapes of its tensor inputs.
        context: what is known about the operations around it.
    """

    operation: Operation
    shapes: Sequence[Shape]
    context: MutationContext

    @property
    def name(self) -> str:
        """Name of the function; for an operator that of its function, such as ``add`` for
        ``__add__``."""
        return OPERATOR_FUNCTIONS.get(self.operation.name, self.operation.name)

    @property
    def output_shape(self) -> Shape:
        """Shape of the first output."""
        return self.operation.outputs[0]

    def mutate(
        self, kind: str, action: str, argument: str | float = "", value: Any = None, old: Any = None
    ) -> Mutation:
        """Return a mutation of this operation alone; for the arguments see `Mutation`."""
        numbers = (self.operation.number,)
        return Mutation(kind, action, numbers, self.operation.name, argument, value, old)
