"""Passes through a whole model, each block on the activations of the pass: how far they drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dualml.parity.models.gap import gap
from dualml.parity.models.lockstep.access import BlockCall, Rebuild
from dualml.parity.models.lockstep.exchange import RecordFolder
from dualml.parity.models.lockstep.leading import ModelPass, call_key
from dualml.parity.models.lockstep.runner import BlockRunner

#: The draw whose weights move the whole model: by the most units.
DRIFT_DRAW = 2


class MovedPass(ModelPass):
    """A pass of the first side with all weights moved by units in the last place (draw
    `DRIFT_DRAW`), each block on the activations that follow from it: it measures how far rounding
    drifts.

    Attributes:
        distances: block → largest distance of an output from that of the first side's first pass.
    """

    def __init__(self, runner: BlockRunner, exchange: RecordFolder) -> None:
        super().__init__(runner, exchange)
        self.distances: dict[str, float] = {}

    def make_call(self, block: str, tensors: Sequence[Any], rebuild: Rebuild) -> BlockCall:
        """Count the next call of a block and return it; its ``forward``, which is given the tensors
        again, runs with moved weights and raises `distances`. ``tensors`` are ignored here."""
        return FreeCall(self, block, call_key(block, self.count(block)), rebuild, DRIFT_DRAW)

    def compare(self, block: str, key: str, tensors: Sequence[Any]) -> None:
        """Raise `distances` of the block to the distance of a call's outputs from those of the
        first side's first pass, whose record is ``key``; do nothing if there is no such record."""
        if not self.exchange.has_record(key):
            return
        record = self.exchange.read(key)
        arrays = self.runner.name_outputs(tensors)
        for name, array in arrays.items():
            if name in record.arrays and array.dtype.kind == "f":
                far = gap(record.arrays[name], array)
                self.distances[block] = max(self.distances.get(block, 0.0), far)


class FreeCall:
    """A call on the activations of the pass itself, without gradients.

    Args:
        key: name of the first side's record of the call.
        draw: number of the draw, from 0, that moves the weights; None: they are not moved.
    """

    def __init__(
        self, owner: MovedPass, block: str, key: str, rebuild: Rebuild, draw: int | None
    ) -> None:
        self.owner, self.block, self.key, self.rebuild = owner, block, key, rebuild
        self.draw = draw
        self.rebuild_output: Rebuild = tuple

    def forward(self, tensors: Sequence[Any]) -> list[Any]:
        """Run the block on these tensors, compare its outputs with the first side's first pass, and
        return them."""
        runner = self.owner.runner
        result = runner.run(self.block, tensors, self.rebuild, None, self.draw)
        _, self.rebuild_output = runner.flatten_output(result.output)
        self.owner.compare(self.block, self.key, result.tensors)
        return [runner.model.duplicate(one) for one in result.tensors]

    def backward(self, gradients: Sequence[Any]) -> list[Any]:
        """Raise `NotImplementedError`: these passes have no gradients."""
        raise NotImplementedError


class FreePass(MovedPass):
    """A pass of the second side, each block on the activations of this pass, compared with the
    first side's first pass.

    Args:
        partners: block of this side → block of the first.
    """

    def __init__(
        self, runner: BlockRunner, exchange: RecordFolder, partners: Mapping[str, str]
    ) -> None:
        super().__init__(runner, exchange)
        self.partners = partners

    def make_call(self, block: str, tensors: Sequence[Any], rebuild: Rebuild) -> BlockCall:
        """Count the next call of a block and return it; its weights are not moved."""
        key = call_key(self.partners[block], self.count(block))
        return FreeCall(self, block, key, rebuild, None)

    def compare(self, block: str, key: str, tensors: Sequence[Any]) -> None:
        """Raise `distances` of the first side's block to the distance of a call's outputs from
        those of the first side's first pass.

        Args:
            block: this side's block.
            key: name of the first side's record of the call.
        """
        super().compare(self.partners[block], key, tensors)
