"""The user's map of parameters: names, pieces of fused tensors, and changes of layout.

An entry has the name on the first side, and the name on the second or a list of it and words that
say what turns the first array into the second (`dualml.parity.models.layouts`)::

    "fc.weight" = "head.weight"
    "fc.weight" = ["head.weight", "transpose"]
    "q_proj.weight" = ["wq.weight", "interleave:8"]           # other halves of rotary positions
    "c_attn.weight" = ["q.weight", "k.weight", "v.weight"]    # a fused tensor and its pieces
    "wqkv.weight[0]" = ["q.weight", "groups:8"]               # its rows are q, k, v of each group
    "k.weight" = ["wqkv.weight[1]", "groups:8"]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dualml.common.errors import UserError, did_you_mean
from dualml.parity.models.layouts import (
    GROUPS,
    SIZED,
    changed_shape,
    invert_change,
    is_layout_word,
    join_changes,
)
from dualml.parity.models.partners import Tensor, TensorPair, find_change

#: The user's map of parameters: name → partner, or a list of partners and words.
ParameterMap = Mapping[str, "str | Sequence[str]"]
#: Name of a piece of a fused tensor: ``qkv.weight[1]``.
PIECE = re.compile(r"(?P<whole>.+)\[(?P<number>\d{1,3})\]")
#: Words that may stand behind a name, for error messages.
WORDS = (
    "'transpose', 'interleave:HEADS', 'deinterleave:HEADS', 'heads:COUNT', 'merge:COUNT' or "
    "'groups:COUNT'"
)


def split_words(partner: str | Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (names, words) of the value of an entry of the map: the partner or partners, and the
    words behind them (see the module); the first is always a name."""
    values = [partner] if isinstance(partner, str) else list(partner)
    count = next((i for i, word in enumerate(values) if i and is_word(word)), len(values))
    return values[:count], values[count:]


def is_word(word: str) -> bool:
    """Return whether a text of the map is a word about layout or groups of rows; any other text is
    a name."""
    return is_layout_word(word) or GROUPS.fullmatch(word) is not None


def flat_map(asked: ParameterMap) -> dict[str, list[str]]:
    """Return name → list of its one partner and words about layout, without words about groups of
    rows; a fused tensor with several partners becomes its pieces.

    Example:
        >>> flat_map({"qkv": ["q", "kv", "groups:2"]})
        {'qkv[0]': ['q'], 'qkv[1]': ['kv']}

    Raises:
        UserError: an entry has several partners, and a word that cannot be applied to all of them.
    """
    flat = {}
    for name, partner in asked.items():
        names, words = split_words(partner)
        layout = [word for word in words if not GROUPS.fullmatch(word)]
        if len(names) == 1:
            flat[name] = [*names, *layout]
            continue
        sized = [word for word in layout if SIZED.fullmatch(word)]
        if sized:  # queries and keys are rotated, values are not
            raise UserError(
                f"map: {name}: {sized[0]} applies to one piece; write {name}[0] = "
                f'["{names[0]}", "{sized[0]}"], and so for the others'
            )
        flat |= {f"{name}[{i}]": [one, *layout] for i, one in enumerate(names)}
    return flat


def group_counts(asked: ParameterMap) -> dict[str, int]:
    """Return fused tensor, of either side → number of groups in which its rows lie, as the map
    says, 1 by default; tensors whose pieces it does not name are left out.

    Raises:
        UserError: two numbers for one tensor, or a word about groups where no piece is named.
    """
    counts: dict[str, int] = {}
    for name, partner in asked.items():
        names, words = split_words(partner)
        said = [int(match[1]) for word in words if (match := GROUPS.fullmatch(word))]
        pieces = [match["whole"] for one in (name, *names) if (match := PIECE.fullmatch(one))]
        fused = [name] if len(names) > 1 else pieces
        if said and not fused:
            raise UserError(
                f"map: groups:{said[0]} of {name}: name a piece, as {name}[0], or several partners"
            )
        for one in fused:
            count = said[0] if said else counts.get(one, 1)
            if counts.setdefault(one, count) != count:
                raise UserError(f"map: {one} has {counts[one]} groups and {count}")
    return counts


def pairs_from_user_map(
    a: Sequence[Tensor], b: Sequence[Tensor], asked: ParameterMap, sides: tuple[str, str]
) -> dict[str, TensorPair]:
    """Return name in ``a`` → pair, for all entries of the user's map.

    Args:
        a, b: tensors of both sides, fused ones already cut.

    Raises:
        UserError: a name that does not exist, a name used twice, an unknown word behind a name, or
            shapes that do not fit.
    """
    shapes = [{one.name: one.shape for one in side} for side in (a, b)]
    pairs: dict[str, TensorPair] = {}
    for name, partner in asked.items():
        names, words = split_words(partner)
        if len(names) > 1 and f"{name}[0]" not in shapes[0]:
            wrong = [one for one in names[1:] if one.partition("[")[0] not in shapes[1]]
            if wrong:
                raise UserError(f"map: after the name only {WORDS}; received {wrong} for {name!r}")
            listed = ", ".join(f"{one} {shapes[1].get(one, '')}" for one in names)
            whole = f"{name} {shapes[0].get(name, '')}"
            raise UserError(f"map: {whole} cannot be cut into {listed}: the rows differ")
    for name, (other, *words) in flat_map(asked).items():
        for word, known, side in ((name, shapes[0], sides[0]), (other, shapes[1], sides[1])):
            if word not in known:
                raise UserError(f"map: {side} has no parameter {word!r}{did_you_mean(word, known)}")
        x, y = shapes[0][name], shapes[1][other]
        after = changed_shape(x, [word for word in words if word != "reshape"])
        # Back from the second side: what is left to change first, then the words.
        rest = None if after is None else find_change(after, y)
        if rest is None or (rest == "transpose" and "transpose" in words):
            raise UserError(
                f"map: {name} {x} cannot be {' '.join([other, *words])} {y}: the shapes differ"
            )
        if other in {pair.b for pair in pairs.values()}:
            raise UserError(f"map: {other!r} is named twice")
        back = invert_change("+".join(word for word in words if word != "reshape"))
        pairs[name] = TensorPair(name, other, "asked", join_changes(rest, back))
    return pairs
