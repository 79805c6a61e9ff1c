"""Pair the parameters of two traces that scripts recorded.

Both scripts start from the same weights, so that the numbers tell who belongs to whom, whatever the
names. What numbers do not distinguish, such as scales that are all one, is told by its place in the
computation, as far as operations were recorded.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.models.graph_roles import build_graph, match_roles
from dualml.parity.models.layers import parent_name
from dualml.parity.models.mapping import is_paired_by_names
from dualml.parity.models.partners import Tensor, canonical_name, find_change
from dualml.parity.models.pieces import align_pieces
from dualml.parity.models.trace import Trace
from dualml.parity.models.usage import pair_by_use


def pair_recorded_tensors(
    a: Trace, b: Trace, asked: dict[str, Any]
) -> tuple[Trace, dict[str, Any]]:
    """Return a copy of the second trace with ``roles`` and ``guesses`` of its parameters, and the
    user's map with entries added for square matrices that are stored transposed; both unchanged if
    names and the map pair all, or if the trace has roles already.

    Args:
        asked: the user's map.
    """
    if b.roles or is_paired_by_names(a.tensors, b.tensors, asked):
        return b, asked
    first, second = align_pieces(a, b)
    roles = pair_by_value(first, second)
    starts = first.initial_parameters(), second.initial_parameters()
    turned = {
        x: (y, "transpose") for x, y in roles.items() if is_transposed(starts[0][x], starts[1][y])
    }
    roles |= pair_siblings(first.tensors, second.tensors, roles)
    if not (a.operations and b.operations):
        return replace(b, roles=roles), {**turned, **asked}
    taken = set(roles.values())
    by_place = match_roles(
        build_graph(a.operations, a.tensors), build_graph(b.operations, b.tensors)
    )
    roles |= {x: y for x, y in by_place.items() if x not in roles and y not in taken}
    rest = (
        [one for one in first.tensors if one.name not in roles],
        [one for one in second.tensors if one.name not in {*roles.values()}],
    )
    guesses = pair_by_use(*rest, (a.operations, b.operations))
    return replace(b, roles=roles, guesses=guesses), {**turned, **asked}


def pair_by_value(a: Trace, b: Trace) -> dict[str, str]:
    """Return name in ``a`` → name in ``b`` of the parameters that begin with the same numbers in
    any order, with shapes that fit (perhaps transposed), if no other parameter of either side
    begins with them."""
    sizes = {one.size for one in a.tensors} & {one.size for one in b.tensors}
    groups = group_by_values(a, sizes), group_by_values(b, sizes)
    pairs = {}
    for key, ones in groups[0].items():
        others = groups[1].get(key, [])
        if (
            len(ones) == len(others) == 1
            and find_change(ones[0].shape, others[0].shape) is not None
        ):
            pairs[ones[0].name] = others[0].name
    return pairs


def pair_siblings(
    a: Sequence[Tensor], b: Sequence[Tensor], pairs: Mapping[str, str]
) -> dict[str, str]:
    """Return further pairs, name in ``a`` → name in ``b``: parameters of modules of which another
    parameter is paired, with equal last names in PyTorch's terms, such as the biases of two layers
    whose weights are paired.

    Args:
        pairs: the pairs so far.
    """
    places = {parent_name(x): parent_name(y) for x, y in pairs.items()}
    taken = set(pairs.values())
    free = {canonical_name(one.name): one for one in b if one.name not in taken}
    found = {}
    for one in a:
        last = canonical_name(one.name).rpartition(".")[2]
        place = places.get(parent_name(one.name))
        other = None if place is None else free.get(f"{place}.{last}" if place else last)
        if (
            one.name not in pairs
            and other is not None
            and find_change(one.shape, other.shape) is not None
        ):
            found[one.name] = other.name
    return found


def group_by_values(trace: Trace, sizes: set[int]) -> dict[str, list[Tensor]]:
    """Return hash of the initial values → the parameters that have them, for a trace's parameters
    whose number of elements is one of ``sizes``."""
    start, groups = trace.initial_parameters(), defaultdict[str, list[Tensor]](list)
    for one in trace.tensors:
        if one.size in sizes and one.name in start:
            groups[hash_values(start[one.name])].append(one)
    return groups


def is_transposed(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """Return whether two arrays are square matrices that are each other's transposes, and not
    equal."""
    return (
        x.ndim == 2
        and x.shape == y.shape == y.T.shape
        and np.array_equal(x, y.T) > np.array_equal(x, y)
    )


def hash_values(array: NDArray[Any]) -> str:
    """Return a hash of the sorted numbers of an array, which does not depend on their order or the
    shape."""
    return hashlib.sha256(np.sort(array, axis=None).data).hexdigest()
