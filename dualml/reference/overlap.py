"""What the referee does where a framework sends while it computes: one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dualml.communicator import Communicator
from dualml.reference.aggregation import Array, NumpyPieces

if TYPE_CHECKING:
    from dualml.reference.training import NumpyTraining


class NumpyOverlap(NumpyPieces):
    """See `dualml.backend.pieces.Summing`; the same numbers, and no time saved."""

    detail = "no overlap: all_reduce of each bucket when all are there"

    def __init__(
        self, training: NumpyTraining, layout: Sequence[Sequence[str]], comm: Communicator
    ) -> None:
        super().__init__(training, layout)
        self.comm = comm

    def settle(self, gradients: Sequence[Array]) -> list[Array]:
        return [self.comm.all_reduce(g, inplace=True) for g in gradients]
