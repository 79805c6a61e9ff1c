"""Calls of blocks on the second side, each on the inputs of the first, and compared with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.parity.models.lockstep.access import BlockCall, Rebuild
from dualml.parity.models.lockstep.exchange import BlockRecord, RecordFolder
from dualml.parity.models.lockstep.inputs import match_inputs
from dualml.parity.models.lockstep.leading import (
    FORWARD_END,
    GRADIENT_END,
    WANTED_RECORD,
    KeptCall,
    ModelPass,
    call_key,
    gradient_key,
    tensors_of_inputs,
    update_key,
)
from dualml.parity.models.lockstep.pairs import ParameterPairs, partner_output
from dualml.parity.models.lockstep.rows import RowWriter
from dualml.parity.models.lockstep.runner import BlockRunner
from dualml.parity.models.lockstep.updates import UPDATE, UpdateRunner, kind_prefix


class FollowingPass(ModelPass):
    """The pass of the second side: each block gets the first side's inputs and is compared with its
    partner; whatever follows the block gets the first side's outputs.

    Args:
        partners: block of this side → block of the first.
        modules: module of the first side → module of this one.
        parameters: the parameters of both sides, paired.
        rows: writer that records each comparison.
        updates: see `ModelPass`.

    Attributes:
        last: the first side's name of the block that was called last.
    """

    def __init__(
        self,
        runner: BlockRunner,
        exchange: RecordFolder,
        partners: Mapping[str, str],
        modules: Mapping[str, str],
        parameters: ParameterPairs,
        rows: RowWriter,
        updates: UpdateRunner | None = None,
    ) -> None:
        super().__init__(runner, exchange, updates)
        self.partners, self.modules, self.parameters = partners, modules, parameters
        self.rows = rows
        self.last = ""
        #: States of the optimizers that only one side names, by side.
        self.lone_states: tuple[set[str], set[str]] = set(), set()

    def make_call(self, block: str, tensors: Sequence[Any], rebuild: Rebuild) -> BlockCall:
        """Count the next call of a block and return it; set `last`."""
        self.last = self.partners[block]
        key = call_key(self.partners[block], self.count(block))
        return FollowingCall(self, block, key, rebuild)

    def wait(self, block: str, key: str) -> BlockRecord:
        """Wait for the record of the first side's call, and return it.

        Args:
            block: this side's block.
            key: name of the record.

        Raises:
            UserError: the first side does not call its block so often.
        """
        record = self.exchange.wait(key, FORWARD_END)
        if record is None:
            raise UserError(
                f"{block} is called {self.calls[block]} times, and its partner "
                f"{self.partners[block]} less often: name blocks that both models call alike with "
                "--blocks"
            )
        return record

    def wait_for_gradients(self, key: str) -> BlockRecord | None:
        """Ask for the first side's gradients of a call, wait for them and return their record; None
        if it has none.

        Args:
            key: name of the record of the call.
        """
        name = gradient_key(key)
        if not self.exchange.has_record(name):
            self.exchange.write(WANTED_RECORD, {}, {})
        try:
            return self.exchange.wait(name, GRADIENT_END)
        finally:
            self.exchange.delete(WANTED_RECORD)

    def make_and_compare_update(
        self, block: str, key: str, record: BlockRecord, found: Mapping[str, NDArray[Any]]
    ) -> None:
        """Compute one update of the parameters with the first side's gradients, on copies (the
        model keeps its weights), and compare the new weights and states with the first side's,
        whose record is waited for and then deleted.

        Args:
            block: the first side's block; empty for parameters outside of blocks.
            key: name of the record of the call.
            record: the first side's gradients.
            found: this side's gradients.
        """
        assert self.updates is not None
        theirs = self.exchange.wait(update_key(key))
        assert theirs is not None
        given = self.parameters.convert_gradients(record, found)
        arrays = self.updates.run(given)
        widths = self.updates.measure(given, arrays)
        self.add_widths(update_key(key), widths)
        kinds = [{kind_prefix(name) for name in side} for side in (theirs.arrays, arrays)]
        for lone, own, other in zip(self.lone_states, kinds, kinds[::-1], strict=True):
            lone.update(prefix.split("/")[1] for prefix in own - other)
        for prefix in sorted(kinds[0] & kinds[1], key=lambda prefix: (prefix != UPDATE, prefix)):
            role = prefix.rstrip("/")
            self.parameters.compare(self.rows, block, update_key(key), theirs, arrays, widths, role)
        self.exchange.delete(update_key(key))


class FollowingCall(KeptCall):
    """A call of a block on the second side.

    Attributes:
        sources: for each input tensor the number, from 0, of the first side's input tensor that
            replaces it; None where this side's own tensor is kept.
    """

    owner: FollowingPass

    def __init__(self, owner: FollowingPass, block: str, key: str, rebuild: Rebuild) -> None:
        super().__init__(owner, block, key, rebuild)
        self.partner = owner.partners[block]
        self.sources: list[int | None] = []
        self.own: dict[int, Any] = {}

    def recall_inputs(self) -> list[Any]:
        """Return the input tensors on which the block runs: the first side's, and this side's own
        where `sources` has None."""
        arrays, model = self.owner.exchange.read(self.key).arrays, self.owner.runner.model
        return [
            self.own[i] if source is None else model.tensor_like(arrays[f"input/{source}"], sample)
            for i, (source, sample) in enumerate(zip(self.sources, self.samples, strict=True))
        ]

    def forward(self, tensors: Sequence[Any]) -> list[Any]:
        """Run the block on the first side's inputs, compare it with its partner, and return the
        output tensors, with the first side's numbers where shapes agree."""
        runner, model, rows = self.owner.runner, self.owner.runner.model, self.owner.rows
        record = self.owner.wait(self.block, self.key)
        self.match_inputs(tensors, record)
        used = self.recall_inputs()
        calls = Counter(self.owner.calls)
        result = runner.run(self.block, used, self.rebuild, self.owner.calls)
        _, self.rebuild_output = runner.flatten_output(result.output)
        outputs = [model.duplicate(one) for one in result.tensors]
        base = result.inner | runner.name_outputs(outputs)
        del result
        self.owner.repeat(self.block, used, self.rebuild, base, calls)
        widths = runner.measure_forward(self.block, used, self.rebuild, base, calls)
        self.owner.add_widths(self.key, widths)
        for name in record.facts["inner"]:
            other = partner_output(name, self.owner.modules, base)
            if other is not None:
                place = (self.key, name, widths.get(other, 0.0))
                rows.add(
                    "inner", self.partner, place, other, record.arrays[f"inner/{name}"], base[other]
                )
        return self.pair_outputs(outputs, record, widths)

    def match_inputs(self, tensors: Sequence[Any], record: BlockRecord) -> None:
        """Choose which input tensors get the numbers of the first side (set `sources`); record the
        distance of the first tensor that differs from its partner by more than rounding."""
        runner, model = self.owner.runner, self.owner.runner.model
        self.samples = [model.sample(one) for one in tensors]
        arrays = {
            i: model.array(one) for i, one in enumerate(tensors) if runner.access.is_float(one)
        }
        numbers = [i for i, is_float in enumerate(record.facts["floats"]) if is_float]
        matched, unlike = match_inputs(arrays, record.arrays, numbers, self.owner.rows.unit)
        if unlike is not None:
            first, source = unlike
            place = (self.key, f"input/{source}", 0.0)
            given = record.arrays[f"input/{source}"]
            rows = self.owner.rows
            rows.add("input", self.partner, place, f"input/{first}", given, arrays[first])
        self.sources = [matched.get(i) for i in range(len(tensors))]
        self.own = {i: tensors[i] for i, source in enumerate(self.sources) if source is None}

    def pair_outputs(
        self, outputs: Sequence[Any], record: BlockRecord, widths: Mapping[str, float]
    ) -> list[Any]:
        """Compare the floating-point output tensors, in order, with the first side's; return all
        output tensors, with the first side's numbers where there is a partner of the same shape.

        Args:
            widths: rounding envelope of each output, by ``output/NUMBER``.
        """
        model, access = self.owner.runner.model, self.owner.runner.access
        known = [n for n in record.arrays if n.startswith("output/")]
        theirs = iter([(n, record.arrays[n]) for n in known if is_floating(record.arrays[n])])
        found = []
        for i, output in enumerate(outputs):
            pair = next(theirs, None) if access.is_float(output) else None
            if pair is None:
                found.append(output)
                continue
            name, given = pair
            array, place = model.array(output), (self.key, name, widths.get(f"output/{i}", 0.0))
            self.owner.rows.add("output", self.partner, place, f"output/{i}", given, array)
            same = given.shape == array.shape
            found.append(model.tensor_like(given.copy(), output) if same else output)
        return found

    def backward(self, gradients: Sequence[Any]) -> list[Any]:
        """Compute the block's gradients from the first side's gradients of its outputs, compare
        them and update parameters if `is_updated`; return the gradients of the input tensors, the
        first side's where there are some. All are None if the first side has no gradients of this
        call."""
        runner, model = self.owner.runner, self.owner.runner.model
        record = self.owner.wait_for_gradients(self.key)
        if record is None:  # the first side's loss does not depend on this call
            return [None] * len(self.samples)
        given = [
            model.tensor_like(record.arrays[f"output/{i}"], one)
            if one is not None and self.compare_array("output", i, i, record, model.array(one))
            else one
            for i, one in enumerate(gradients)
        ]
        tensors = self.recall_inputs()
        found = runner.differentiate(self.block, tensors, self.rebuild, given)
        key = gradient_key(self.key)
        widths = runner.measure_gradients(self.block, tensors, self.rebuild, given, found)
        self.owner.add_widths(key, widths)
        self.owner.parameters.compare(self.owner.rows, self.partner, key, record, found, widths)
        for i, source in enumerate(self.sources):
            if source is not None and f"input/{i}" in found:
                width = widths.get(f"input/{i}", 0.0)
                self.compare_array("input", source, i, record, found[f"input/{i}"], width)
        theirs = {
            f"input/{i}": record.arrays[f"input/{source}"]
            for i, source in enumerate(self.sources)
            if source is not None and f"input/{source}" in record.arrays
        }
        own = {name: array for name, array in found.items() if name.startswith("input/")}
        if self.owner.is_updated(self.block):
            self.owner.make_and_compare_update(self.partner, self.key, record, found)
        self.owner.exchange.delete(key)
        return tensors_of_inputs(self.owner, own | theirs, self.samples)

    def compare_array(
        self,
        role: str,
        theirs: int,
        ours: int,
        record: BlockRecord,
        array: NDArray[Any],
        width: float = 0.0,
    ) -> bool:
        """Record the comparison of the gradient of an input or output with the first side's; return
        whether the first side has it in the same shape.

        Args:
            role: ``input`` or ``output``.
            theirs, ours: number of the tensor on the first side and on this one, from 0.
            record: the first side's gradients.
            array: this side's gradient.
            width: rounding envelope of the gradient.
        """
        name = f"{role}/{theirs}"
        if name not in record.arrays:
            return False
        given = record.arrays[name]
        place = (gradient_key(self.key), name, width)
        self.owner.rows.add(f"{role} gradient", self.partner, place, f"{role}/{ours}", given, array)
        return given.shape == array.shape


def is_floating(array: NDArray[Any]) -> bool:
    """Return whether an array's dtype is a real floating-point type."""
    return array.dtype.kind == "f"
