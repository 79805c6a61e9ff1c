"""Find out that two models rotate queries and keys differently: rotary position embeddings turn
element i of a head together with element i + DIMS/2 (two halves), or with its neighbour (pairs).

Neither names nor shapes tell. Where nothing else pairs, both ways are tried: the rows of the
matrices of queries and keys in the other order make the two models equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dualml.parity.models.layers import module_name
from dualml.parity.models.layouts import join_changes
from dualml.parity.models.mapping import match_tensors
from dualml.parity.models.partners import TensorPair
from dualml.parity.models.pieces import align_pieces
from dualml.parity.models.trace import Trace
from dualml.parity.models.user_map import ParameterMap

#: Module whose parameters compute queries or keys.
QUERY_KEY = re.compile(
    r"(^|[._])(w|to_|linear_|lin_)?(q|k|query|key)(_?(proj|projection|layer|linear|lin|dense))?$"
)
#: Piece of a fused matrix of queries, keys and values that is one of the first two.
FUSED = re.compile(r"(?i)(qkv|wqkv|query_key_value|c_attn|in_proj)[^.]*\.\w+\[[01]\]$")
#: Words in the names of calls or tensors of a model that rotates.
ROTATES = re.compile(r"(?i)(^|[^a-z])(r?sin|cos|polar|rope)|rotary|freq|view_as_complex")
HEAD_DIMS = (8, 512)  # of a head, at least and at most


def is_query_or_key(name: str) -> bool:
    """Return whether a parameter's name says that it computes queries or keys."""
    parent = name.partition("[")[0].rpartition(".")[0].lower()
    return QUERY_KEY.search(parent) is not None or FUSED.search(name) is not None


def rotates(trace: Trace) -> bool:
    """Return whether a model seems to rotate queries and keys (rotary position embeddings), by
    names of its calls, tensors or modules."""
    words = [
        *(call.name for call in trace.operations),
        *(one.name for one in trace.tensors),
        *trace.modules,
        *trace.modules.values(),
    ]
    return any(ROTATES.search(word) for word in words)


def head_dims(trace: Trace) -> list[int]:
    """Return the possible lengths of a head, the most frequent first: even last axes, within
    `HEAD_DIMS`, of what operations of the first step computed with four axes."""
    counts: dict[int, int] = {}
    for call in trace.operations:
        for shape in call.outputs:
            if len(shape) == 4 and shape[-1] % 2 == 0:
                counts[shape[-1]] = counts.get(shape[-1], 0) + 1
    low, high = HEAD_DIMS
    found = [dims for dims in counts if low <= dims <= high]
    return sorted(found, key=lambda dims: -counts[dims])


def interleaved_maps(a: Trace, b: Trace, asked: ParameterMap) -> Iterator[dict[str, list[str]]]:
    """Yield maps to try (name in ``a`` → name in ``b`` and words) that give the rows of the
    matrices of queries and keys another order, see the module; none if neither model seems to
    rotate them, or if the map permutes some of them already.

    Args:
        asked: the map with which the traces were recorded.
    """
    if not (rotates(a) or rotates(b)):  # the tables of one side may be constants
        return
    ours, theirs = align_pieces(a, b)
    pairing = match_tensors(
        ours.tensors, theirs.tensors, asked, roles=b.roles, guesses=b.guesses, complete=False
    )
    pairs = [pair for pair in pairing.pairs if is_query_or_key(pair.a) or is_query_or_key(pair.b)]
    if not pairs or any("interleave" in pair.change for pair in pairs):
        return
    shapes = {one.name: one.shape for one in ours.tensors}
    for dims in head_dims(a)[:2]:
        for word in ("interleave", "deinterleave"):
            changed = {
                pair.a: entry
                for pair in pairs
                if (entry := permuted_entry(pair, shapes[pair.a], word, dims)) is not None
            }
            if len(changed) == len(pairs):
                yield changed


def permuted_entry(
    pair: TensorPair, shape: tuple[int, ...], word: str, dims: int
) -> list[str] | None:
    """Return the entry of a map, name in ``b`` and words, that gives the rows of a pair another
    order; None if heads of length ``dims`` do not fit.

    A matrix that is stored as (in, out) on the first side is transposed first.

    Args:
        shape: shape on the first side.
        word: ``interleave`` or ``deinterleave``.
    """
    stored = pair.change == "transpose" and len(shape) == 2
    for rows, before in ((shape[-1], "transpose"), (shape[0], "")) if stored else ((shape[0], ""),):
        if rows % dims == 0:
            words = join_changes(before, f"{word}:{rows // dims}")
            return [pair.b, *words.split("+")]
    return None


def interleaved_names(asked: ParameterMap) -> tuple[str, str]:
    """Return the first parameters of a map whose rows have another order, and the words for these
    orders, both as text; empty texts if there is none."""
    found = {
        name: word
        for name, value in asked.items()
        if not isinstance(value, str)
        for word in value[1:]
        if "interleave" in word
    }
    names, more = list(found)[:4], len(found) - 4
    text = ", ".join(names) + (f" + {more}" if more > 0 else "")
    return text, ", ".join(dict.fromkeys(found.values()))


def runs_before(trace: Trace, tensor: str, parameters: Iterable[str]) -> bool:
    """Return whether the module of an output, ``tensor``, ran in the first step before all modules
    to which these parameters belong; False where that cannot be told."""
    order = trace.order[0] if trace.order else []
    module = module_name(tensor)
    if module not in order:
        return False
    until = order[: order.index(module) + 1]
    modules = {name.rpartition(".")[0] for name in parameters}
    return all(one in order and one not in until for one in modules)
