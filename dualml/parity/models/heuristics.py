"""Repair parameter pairs that were only guessed, if nothing else differs between the models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualml.common.errors import UserError
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.mapping import ParameterMap, match_tensors
from dualml.parity.models.pieces import align_pieces
from dualml.parity.models.trace import Trace

PREFIX = "parameter:"


def find_better_pairing(
    found: ModelComparison, explanation: Mapping[str, Any] | None
) -> dict[str, str] | None:
    """Return other parameter pairs that make both sides equal, if only the guessed pairs were
    wrong.

    Typical cases are gate and up projections, or the matrices of queries and keys, of equal shape.

    Returns:
        Name on the first side → new partner on the second, for the parameters whose partners
            change; None if the explanation needs more than swaps of parameters that were paired by
            their order alone.
    """
    if explanation is None or not explanation["equal"] or not explanation["causes"]:
        return None
    pairs = {pair["a"]: pair["b"] for pair in found.mapping if pair["how"] == "order"}
    changed: dict[str, str] = {}
    for cause in explanation["causes"]:
        swaps = [one for one in cause["alterations"] if one["action"] == "parameters"]
        if not swaps:
            return None
        x, y = (str(swaps[0][key]).removeprefix(PREFIX) for key in ("old", "value"))
        if x not in pairs or y not in pairs:
            return None
        pairs[x], pairs[y] = pairs[y], pairs[x]
        changed |= {x: pairs[x], y: pairs[y]}
    return changed


def pair_by_listing(a: Trace, b: Trace, asked: ParameterMap) -> dict[str, str]:
    """Return name in ``a`` → name in ``b`` of the pairs by listing order that differ from those by
    order of use; empty if none does, or if listing order pairs another number of tensors.

    Args:
        asked: the map with which the traces were recorded.
    """
    if not b.guesses:
        return {}
    ours, theirs = align_pieces(a, b)
    tensors = ours.tensors, theirs.tensors
    used = match_tensors(*tensors, asked, roles=b.roles, guesses=b.guesses)
    try:
        by_list = match_tensors(*tensors, asked, roles=b.roles, guesses=b.listed)
    except UserError:  # listing order leaves parameters without a partner
        return {}
    known = {pair.a: pair.b for pair in used.pairs}
    other = {x.a: x.b for x in by_list.pairs if x.how == "order" and known.get(x.a) != x.b}
    return other if len(by_list.pairs) == len(used.pairs) else {}


def pair_transposed(a: Trace, b: Trace, asked: ParameterMap) -> dict[str, tuple[str, str]]:
    """Return name in ``a`` → (name in ``b``, "transpose") of square matrices to pair transposed,
    because other matrices of the model are stored so.

    The shape of a square matrix does not tell how it is stored. Lookup tables are excluded. Empty
    if there are none.
    """
    ours, theirs = align_pieces(a, b)
    pairs = match_tensors(
        ours.tensors, theirs.tensors, asked, roles=b.roles, guesses=b.guesses
    ).pairs
    shapes = {one.name: one.shape for one in ours.tensors}
    tables = {n for one in a.operations if "embedding" in one.name for n in one.inputs}
    ways = {pair.change for pair in pairs if shapes[pair.a] != shapes[pair.a][::-1]}
    return {
        pair.a: (pair.b, "transpose")
        for pair in pairs
        if "transpose" in ways
        and len(shapes[pair.a]) == 2
        and shapes[pair.a] == shapes[pair.a][::-1]
        and pair.change != "transpose"
        and f"{PREFIX}{pair.a}" not in tables
    }
