"""Tensors of two models, cut into pieces and paired, and arrays carried from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import NDArray

from dualml.common.tensor_files import LazyArrays
from dualml.parity.models.cuts import SideCuts, plan_cuts
from dualml.parity.models.graph_roles import build_graph, match_roles
from dualml.parity.models.layouts import invert_change
from dualml.parity.models.mapping import is_paired_by_names, match_tensors
from dualml.parity.models.operations import Operation
from dualml.parity.models.partners import Change, Pairing, Tensor, apply_change
from dualml.parity.models.pieces import cut_arrays, cut_tensors, describe_cut, join_pieces
from dualml.parity.models.trace import Trace
from dualml.parity.models.usage import pair_by_use
from dualml.parity.models.user_map import ParameterMap, group_counts

Arrays = Mapping[str, NDArray[Any]]
#: Returns the value of a parameter without a partner, from the other side's arrays, or None.
Fill = Callable[[Tensor, Arrays], NDArray[Any] | None]


@dataclass(frozen=True)
class MatchedTensors:
    """The tensors of two models with their partners.

    Attributes:
        pairing: the pairs; a fused tensor is paired by its pieces.
        first, second: the tensors of both sides, fused ones cut.
        cuts: for each side: fused tensor → lengths of its pieces.
    """

    pairing: Pairing
    first: list[Tensor]
    second: list[Tensor]
    cuts: tuple[SideCuts, SideCuts]

    def carry_to_second(self, arrays: Arrays, fill: Fill) -> LazyArrays:
        """Return the second side's arrays, in its layouts, from those of the first; each is read
        when it is looked up.

        Args:
            arrays: name on the first side → array; tensors that are missing in it are left out.
            fill: called with a trained parameter that only the second side has, and the first
                side's arrays; returns its value, or None to leave it out.
        """
        pairs = [(pair.a, pair.b, invert_change(pair.change)) for pair in self.pairing.pairs]
        alone = self.pairing.unpaired_parameters[1]
        cut = cut_arrays(arrays, self.cuts[0])
        return join_pieces(carry_arrays(cut, pairs, self.second, alone, fill), self.cuts[1])

    def carry_to_first(self, arrays: Arrays, fill: Fill) -> LazyArrays:
        """Return the first side's arrays, in its layouts, from those of the second, each read when
        it is looked up; like `carry_to_second` with the sides exchanged."""
        pairs = [(pair.b, pair.a, pair.change) for pair in self.pairing.pairs]
        alone = self.pairing.unpaired_parameters[0]
        cut = cut_arrays(arrays, self.cuts[1])
        return join_pieces(carry_arrays(cut, pairs, self.first, alone, fill), self.cuts[0])


def carry_arrays(
    arrays: Arrays,
    pairs: Sequence[tuple[str, str, Change]],
    tensors: Sequence[Tensor],
    alone: Sequence[str],
    fill: Fill,
) -> LazyArrays:
    """Return arrays under the names and in the layouts of another side.

    Args:
        arrays: arrays of this side by name; those without a pair are left out.
        pairs: (name here, name on the other side, change to the other side's layout).
        tensors: tensors of the other side.
        alone: names of the other side's trained parameters without a partner.
        fill: as for `MatchedTensors.carry_to_second`.
    """
    shapes = {one.name: one.shape for one in tensors}
    carried = LazyArrays()
    for name, other, change in pairs:
        if name in arrays:
            read = partial(read_changed, arrays, name, change, shapes[other])
            carried.add(other, shapes[other], read)
    for one in (x for x in tensors if x.name in alone):
        if (value := fill(one, arrays)) is not None:
            carried.add(one.name, value.shape, value.copy)
    return carried


def read_changed(arrays: Arrays, name: str, change: Change, shape: tuple[int, ...]) -> NDArray[Any]:
    """Read an array and return it after a change of its layout, in its new ``shape``."""
    return apply_change(arrays[name], change, shape)


def match_sides(
    given: Trace,
    trace: Trace,
    asked: ParameterMap,
    sides: tuple[str, str],
    calls: Callable[[], Sequence[Operation]] | None,
    *,
    complete: bool = True,
) -> MatchedTensors:
    """Pair the tensors of two models and return them; set the second trace's ``cuts`` if the map
    has groups of rows, and, if names alone do not pair all, its ``roles``, ``guesses`` and
    ``listed``.

    Args:
        given: trace of the first side, with its operations.
        trace: trace of the second side.
        asked: the user's map.
        sides: names of both sides, for error messages.
        calls: returns the operations of the second side, called only if they are needed; None if no
            forward pass can be made.
        complete: whether too many parameters without a partner are an error.

    Raises:
        UserError: they cannot be paired, see `match_tensors`.
    """
    cuts = plan_cuts(given.tensors, trace.tensors, asked)
    if group_counts(asked):
        trace.cuts = [{name: describe_cut(cut) for name, cut in side.items()} for side in cuts]
    first, second = cut_tensors(given.tensors, cuts[0]), cut_tensors(trace.tensors, cuts[1])
    matched = partial(match_tensors, first, second, asked, sides, complete=complete)
    if calls is not None and not is_paired_by_names(given.tensors, trace.tensors, asked):
        both = given.operations, calls()
        trace.roles = match_roles(
            build_graph(both[0], given.tensors), build_graph(both[1], trace.tensors)
        )
        known = matched(trace.roles).pairs
        sure = {pair.a for pair in known if pair.how != "order"}
        taken = {pair.b for pair in known if pair.how != "order"}
        rest = [x for x in first if x.name not in sure], [y for y in second if y.name not in taken]
        trace.guesses = pair_by_use(*rest, both)
        trace.listed = pair_by_use(*rest, both, listed=True)
    return MatchedTensors(matched(trace.roles, trace.guesses), first, second, cuts)
