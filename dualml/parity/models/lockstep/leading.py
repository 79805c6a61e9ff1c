"""Calls of blocks on the first side, whose inputs, outputs and gradients the second side gets."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from dualml.common.errors import TrialError
from dualml.parity.models.gap import gap, has_nan
from dualml.parity.models.layers import module_name
from dualml.parity.models.lockstep.access import BlockCall, Rebuild
from dualml.parity.models.lockstep.exchange import POLL_S, RecordFolder
from dualml.parity.models.lockstep.runner import BlockRunner
from dualml.parity.models.lockstep.updates import UpdateRunner
from dualml.parity.models.recorder import REPRODUCIBLE_RTOL

#: Record behind the last one of the forward pass, and of the gradients.
FORWARD_END, GRADIENT_END = "forward-end", "gradient-end"
#: Record with which the second side says that it waits for a gradient.
WANTED_RECORD = "wanted"
#: Record with which the second side says that its model raised an error: nothing else is read.
STOPPED_RECORD = "stopped"
#: Number of blocks whose gradients are on the disk at once.
KEPT_GRADIENTS = 2


def call_key(block: str, number: int) -> str:
    """Return the name of the record of a block's call number ``number``, counted from 1:
    ``BLOCK.NUMBER``."""
    return f"{block}.{number}"


def gradient_key(key: str) -> str:
    """Return the name of the record of the gradients of a call, from its `call_key`."""
    return f"gradient-{key}"


def update_key(key: str) -> str:
    """Return the name of the record of the new weights after a call, from its `call_key`."""
    return f"update-{key}"


class OtherSideStoppedError(Exception):
    """The second side has stopped and reads no further records."""


class ModelPass:
    """One pass through a model: it makes the calls of all blocks, and counts them.

    Args:
        runner: runs the blocks.
        exchange: folder in which the first side writes the records that the second reads.

        updates: updates the parameters of a block after its gradients are computed; None: no
            updates.

    Attributes:
        calls: number of calls of each module so far.
        widths: KEY/NAME → rounding envelope: largest distance that weights moved by units in the
            last place make.
        random: the first output that differs between two runs of one block, as
            ``{"phase", "name", "type"}``; None if there is none.
    """

    def __init__(
        self, runner: BlockRunner, exchange: RecordFolder, updates: UpdateRunner | None = None
    ) -> None:
        self.runner, self.exchange, self.updates = runner, exchange, updates
        self.calls: Counter[str] = Counter()
        self.widths: dict[str, float] = {}
        self.random: dict[str, str] | None = None
        self.repeated: set[str] = set()

    def make_call(self, block: str, tensors: Sequence[Any], rebuild: Rebuild) -> BlockCall:
        """Count the next call of a block, and return the object that runs its forward and backward
        passes.

        Args:
            tensors: the input tensors of the call, which its ``forward`` is given again.
            rebuild: makes the block's arguments of these tensors.
        """
        raise NotImplementedError

    def count(self, block: str) -> int:
        """Count a call of a block; return its number, from 1."""
        self.calls[block] += 1
        return self.calls[block]

    def repeat(
        self,
        block: str,
        tensors: Sequence[Any],
        rebuild: Rebuild,
        base: Mapping[str, NDArray[Any]],
        calls: Counter[str],
    ) -> None:
        """Run the first block of each type once more, and set `random` if its results differ by
        more than rounding; do nothing if `random` is set, or for later blocks of a type.

        Args:
            base: the arrays of the first run, by name.
            calls: number of calls of each module before that run.
        """
        modules = self.runner.model.modules()
        if self.random is not None or modules.get(block, "") in self.repeated:
            return
        self.repeated.add(modules.get(block, ""))
        result = self.runner.run(block, tensors, rebuild, Counter(calls))
        again = result.inner | self.runner.name_outputs(result.tensors)
        for name, array in base.items():
            if gap(array, again.get(name, array)) > REPRODUCIBLE_RTOL and not has_nan(array):
                place = block if name.startswith("output/") else name
                kind = modules.get(module_name(place), "")
                self.random = {"phase": "forward", "name": place, "type": kind}
                return

    def is_updated(self, block: str) -> bool:
        """Return whether a block's parameters are updated right after its gradients: there is an
        update, and the block was called once. With several calls, no call has the whole
        gradient."""
        return self.updates is not None and self.calls[block] == 1

    def add_widths(self, key: str, widths: Mapping[str, float]) -> None:
        """Add rounding envelopes, by array name, of the arrays of the record ``key`` to `widths` as
        ``KEY/NAME``."""
        self.widths |= {f"{key}/{name}": width for name, width in widths.items()}


class KeptCall:
    """A call whose input tensors are kept as arrays of a record, not in memory.

    Args:
        key: name of the record of the call.
        rebuild: makes the block's arguments of the input tensors.
    """

    def __init__(self, owner: ModelPass, block: str, key: str, rebuild: Rebuild) -> None:
        self.owner, self.block, self.key, self.rebuild = owner, block, key, rebuild
        self.samples: list[Any] = []
        self.rebuild_output: Rebuild = tuple

    def recall_inputs(self) -> list[Any]:
        """Read the call's record and return the input tensors as the call got them."""
        arrays = self.owner.exchange.read(self.key).arrays
        model = self.owner.runner.model
        return [
            model.tensor_like(arrays[f"input/{i}"], sample) for i, sample in enumerate(self.samples)
        ]


class LeadingPass(ModelPass):
    """The pass of the first side: it computes with its own activations, writes a record of each
    call for the second side, and measures the rounding envelope of each block."""

    def __init__(
        self, runner: BlockRunner, exchange: RecordFolder, updates: UpdateRunner | None = None
    ) -> None:
        super().__init__(runner, exchange, updates)
        self.written: list[str] = []

    def make_call(self, block: str, tensors: Sequence[Any], rebuild: Rebuild) -> BlockCall:
        """Count the next call of a block and return it; raise `OtherSideStoppedError` if the second
        side has stopped."""
        if self.exchange.has_record(STOPPED_RECORD):
            raise OtherSideStoppedError
        return LeadingCall(self, block, call_key(block, self.count(block)), rebuild)

    def write_gradients(self, key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the gradients of a call, by array name, as soon as fewer than `KEPT_GRADIENTS`
        records of gradients are unread, or the other side waits for a gradient.

        Raises:
            OtherSideStoppedError: the second side has stopped.
            TrialError: the second side did not read earlier gradients in time.
        """
        exchange = self.exchange
        deadline = time.monotonic() + exchange.timeout
        while sum(map(exchange.has_record, self.written)) >= KEPT_GRADIENTS:
            if exchange.has_record(WANTED_RECORD):
                break
            if exchange.has_record(STOPPED_RECORD):
                raise OtherSideStoppedError
            if time.monotonic() > deadline:
                raise TrialError("the other side did not read the gradients in time")
            time.sleep(POLL_S)
        exchange.write(gradient_key(key), arrays, {})
        self.written = [*filter(exchange.has_record, self.written), gradient_key(key)]

    def make_and_write_update(self, key: str, gradients: Mapping[str, NDArray[Any]]) -> None:
        """Compute one update of the parameters with these gradients, on copies (the model keeps its
        weights), write the new weights and states as a record, and add the update's rounding
        envelope to `widths`."""
        assert self.updates is not None
        arrays = self.updates.run(gradients)
        self.exchange.write(update_key(key), arrays, {})
        self.add_widths(update_key(key), self.updates.measure(gradients, arrays))


class LeadingCall(KeptCall):
    """A call of a block on the first side."""

    owner: LeadingPass

    def forward(self, tensors: Sequence[Any]) -> list[Any]:
        """Run the block, write its inputs and outputs, and measure its rounding envelope; return
        its output tensors."""
        runner, model, calls = self.owner.runner, self.owner.runner.model, self.owner.calls
        self.samples = [model.sample(one) for one in tensors]
        before = Counter(calls)
        result = runner.run(self.block, tensors, self.rebuild, calls)
        _, self.rebuild_output = runner.flatten_output(result.output)
        outputs = [model.duplicate(one) for one in result.tensors]
        base = result.inner | runner.name_outputs(outputs)
        facts = {
            "block": self.block,
            "inner": list(result.inner),
            "floats": [runner.access.is_float(one) for one in tensors],
        }
        inputs = {f"input/{i}": model.array(one) for i, one in enumerate(tensors)}
        inner = {f"inner/{name}": array for name, array in result.inner.items()}
        self.owner.exchange.write(self.key, inputs | inner | runner.name_outputs(outputs), facts)
        del result
        self.owner.repeat(self.block, tensors, self.rebuild, base, before)
        widths = runner.measure_forward(self.block, tensors, self.rebuild, base, before)
        self.owner.add_widths(self.key, widths)
        return outputs

    def backward(self, gradients: Sequence[Any]) -> list[Any]:
        """Compute and write the block's gradients from those of its outputs, update its parameters
        if `is_updated`, and return the gradients of the input tensors; None for an input that has
        none."""
        runner, model = self.owner.runner, self.owner.runner.model
        tensors = self.recall_inputs()
        found = runner.differentiate(self.block, tensors, self.rebuild, gradients)
        ends = enumerate(gradients)
        given = {f"output/{i}": model.array(one) for i, one in ends if one is not None}
        self.owner.write_gradients(self.key, found | given)
        widths = runner.measure_gradients(self.block, tensors, self.rebuild, gradients, found)
        self.owner.add_widths(gradient_key(self.key), widths)
        if self.owner.is_updated(self.block):
            self.owner.make_and_write_update(self.key, found)
        return tensors_of_inputs(self.owner, found, self.samples)


def tensors_of_inputs(
    owner: ModelPass, arrays: Mapping[str, NDArray[Any]], samples: Sequence[Any]
) -> list[Any]:
    """Return the gradients ``input/0``, ``input/1``, … of ``arrays`` as tensors with the dtype and
    device of ``samples``; None where the array or the sample is missing."""
    model = owner.runner.model
    return [
        model.tensor_like(arrays[name].copy(), sample)
        if (name := f"input/{i}") in arrays and sample is not None
        else None
        for i, sample in enumerate(samples)
    ]
