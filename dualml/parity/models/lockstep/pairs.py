"""The parameters and modules of two models as partners: whose weights and outputs are compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dualml.common.tensor_files import LazyArrays, array_shape
from dualml.parity.models.layers import module_name
from dualml.parity.models.lockstep.weights import neutral_weight
from dualml.parity.models.mapping import ParameterMap, match_tensors
from dualml.parity.models.partners import Tensor, TensorPair, apply_change
from dualml.parity.models.pieces import cut_arrays, cut_tensors, find_cuts, join_pieces

if TYPE_CHECKING:
    from dualml.parity.models.lockstep.exchange import BlockRecord
    from dualml.parity.models.lockstep.rows import RowWriter

PARAMETER = "parameter/"


class ParameterPairs:
    """The tensors of two models, paired by their names and shapes.

    Args:
        a, b: the tensors of both models.
        user_map: the user's map, see `dualml.parity.models.mapping.match_tensors`.
        sides: names of the two sides.

    Raises:
        UserError: they cannot be paired.
    """

    def __init__(
        self,
        a: Sequence[Tensor],
        b: Sequence[Tensor],
        user_map: ParameterMap | None,
        sides: tuple[str, str],
    ) -> None:
        self.cuts = find_cuts(a, b)
        first, second = (cut_tensors(x, cuts) for x, cuts in zip((a, b), self.cuts, strict=True))
        self.pairing = match_tensors(first, second, user_map, sides)
        self.first = {one.name: one for one in first}
        self.second = {one.name: one for one in second}

    def compare_training(self, rows: RowWriter) -> None:
        """Add a row to ``rows`` for each paired parameter that only one side trains."""
        for pair in self.pairing.pairs:
            trained = self.first[pair.a].trained, self.second[pair.b].trained
            if trained[0] != trained[1]:
                rows.add_parameter("", pair.a, pair.b, "trained", int(trained[0]))

    def convert_weights(self, theirs: Mapping[str, NDArray[Any]]) -> LazyArrays:
        """Return name → tensor of the second side, each made of the first side's tensors ``theirs``
        when it is looked up.

        A matrix that only the second side has gets the numbers of one of the first side's with its
        shape, where the two may be tied; other parameters that it alone has get neutral values, see
        `neutral_weight`.
        """
        arrays, weights = cut_arrays(theirs, self.cuts[0]), LazyArrays()
        for pair in self.pairing.pairs:
            if pair.a in arrays:
                shape = self.second[pair.b].shape
                weights.add(pair.b, shape, partial(read_changed, arrays, pair, shape))
        for name in self.pairing.unpaired_parameters[1]:
            shape = self.second[name].shape
            tied = [n for n, one in self.first.items() if one.trained and one.shape == shape]
            if len(shape) > 1 and tied and tied[0] in arrays:
                weights.add(name, shape, partial(arrays.__getitem__, tied[0]))
            else:
                weights.add(name, shape, partial(neutral_weight, name, shape))
        return join_pieces(weights, self.cuts[1])

    def compare(
        self,
        rows: RowWriter,
        block: str,
        key: str,
        record: BlockRecord,
        found: Mapping[str, NDArray[Any]],
        widths: Mapping[str, float],
        role: str = "parameter gradient",
    ) -> None:
        """Add a row to ``rows`` for each paired parameter whose array both sides have, last
        parameter first, and for gradients also one for each parameter that one side alone has, if
        its gradient is not zero.

        Args:
            block: the first side's block; empty outside of blocks.
            key: name of the first side's record.
            record: the first side's arrays.
            found: the second side's arrays, under names as in the record.
            widths: rounding envelopes on the second side, by name.
            role: role of the rows; arrays are named ``parameter/NAME`` for gradients, else
                ``ROLE/NAME``.
        """
        prefix = PARAMETER if role.endswith("gradient") else f"{role}/"
        role = role.partition("/")[0]
        theirs, ours = select_arrays(record.arrays, prefix), select_arrays(found, prefix)
        left, right = cut_arrays(theirs, self.cuts[0]), cut_arrays(ours, self.cuts[1])
        for pair in reversed(self.pairing.pairs):
            if pair.a not in left or pair.b not in right:
                continue
            x, y = left[pair.a], right[pair.b]
            if pair.change != "reshape" or x.size == y.size:
                y = apply_change(y, pair.change, x.shape)
            width = widths.get(prefix + pair.b.partition("[")[0], 0.0)
            rows.add(role, block, (key, prefix + pair.a, width), pair.b, x, y)
        for side, arrays in enumerate((left, right) if prefix == PARAMETER else ()):
            for name in self.pairing.unpaired_parameters[side]:
                if name in arrays and arrays[name].any():
                    rows.add_parameter(block, name, name, "alone", side)

    def convert_gradients(
        self, record: BlockRecord, found: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        """Return the second side's gradients, ``parameter/NAME``, each with the numbers of the
        first side's gradient where that has a partner of the same size; others as in ``found``."""
        theirs = cut_arrays(select_arrays(record.arrays, PARAMETER), self.cuts[0])
        ours = cut_arrays(select_arrays(found, PARAMETER), self.cuts[1])
        pairs = {pair.b: pair for pair in self.pairing.pairs if pair.a in theirs}
        given = LazyArrays()
        for name in ours:
            pair, shape = pairs.get(name), ours[name].shape
            if pair is not None and theirs[pair.a].size == ours[name].size:
                given.add(name, shape, partial(read_changed, theirs, pair, shape))
            else:
                given.add(name, shape, partial(ours.__getitem__, name))
        joined = join_pieces(given, self.cuts[1])
        return {PARAMETER + name: joined[name] for name in joined}


def select_arrays(arrays: Mapping[str, NDArray[Any]], prefix: str) -> LazyArrays:
    """Return the arrays whose names begin with ``prefix``, under their names without it; each is
    read when it is looked up."""
    selected = LazyArrays()
    for name in arrays:
        if name.startswith(prefix):
            read = partial(arrays.__getitem__, name)
            selected.add(name.removeprefix(prefix), array_shape(arrays, name), read)
    return selected


def read_changed(
    arrays: Mapping[str, NDArray[Any]], pair: TensorPair, shape: tuple[int, ...]
) -> NDArray[Any]:
    """Read a tensor of the first side and return it in the second side's layout and ``shape``."""
    return apply_change(arrays[pair.a], pair.change, shape)


def partner_output(name: str, modules: Mapping[str, str], known: Collection[str]) -> str | None:
    """Return the second side's name of a module's output; None if there is none among the ``known``
    ones.

    A single tensor pairs with the first one of a tuple.

    Args:
        modules: module of the first side → module of the second.
        known: names of the second side's outputs.
    """
    module = module_name(name)
    if (other := modules.get(module)) is None:
        return None
    tail = name.removeprefix(module)
    candidates = (f"{other}{tail}", f"{other}{tail}[0]", f"{other}{tail.removesuffix('[0]')}")
    return next((one for one in candidates if one in known), None)
