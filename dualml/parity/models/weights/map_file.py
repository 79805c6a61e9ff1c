"""The map of two models' tensors as a file, which ``--write-map`` writes and ``--map`` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.common.files import read_json, read_toml, write_bytes
from dualml.common.json_types import JsonObject
from dualml.parity.models.layouts import invert_change
from dualml.parity.models.mapping import shape_distance
from dualml.parity.models.pairing import MatchedTensors
from dualml.parity.models.partners import Tensor
from dualml.parity.models.pieces import cut_axis, group_count
from dualml.parity.models.weights.fitting import SideModel
from dualml.parity.models.weights.loading import TiedValues

#: ID of the published schema, and the key by which such a map is told from a table of names.
MAP_SCHEMA = "dualml.map/1"
PAIRS_KEY = "pairs"
SUFFIXES = (".json", ".toml")


def describe_map(models: tuple[SideModel, SideModel], matched: MatchedTensors) -> JsonObject:
    """Return the map of two models as JSON: pairs with the changes of layout in both directions,
    and for each side its fused, tied and unpaired tensors; ``complete`` says whether no trained
    parameter lacks a value."""
    shapes = [{one.name: one.shape for one in side} for side in (matched.first, matched.second)]
    pairs = [
        {
            "a": pair.a,
            "b": pair.b,
            "how": pair.how,
            "a_shape": list(shapes[0][pair.a]),
            "b_shape": list(shapes[1][pair.b]),
            "a_to_b": split_change(invert_change(pair.change)),
            "b_to_a": split_change(pair.change),
        }
        for pair in matched.pairing.pairs
    ]
    sides: dict[str, JsonObject] = {}
    for i, letter in enumerate("ab"):
        tensors, other = [(matched.first, matched.second), (matched.second, matched.first)][i]
        tied = TiedValues(models[1 - i].stored)
        alone = {*matched.pairing.unpaired_parameters[i], *matched.pairing.unpaired_buffers[i]}
        taken = {getattr(pair, "ba"[i]) for pair in matched.pairing.pairs}
        left = [one for one in other if one.name not in taken]
        sides[letter] = {
            "label": models[i].label,
            "fused": {
                name: {
                    "groups": group_count(lengths),
                    "axis": cut_axis(lengths),
                    "lengths": list(lengths),
                }
                for name, lengths in matched.cuts[i].items()
            },
            "tied": {
                alias: name for name, names in models[i].stored.items() for alias in names[1:]
            },
            "unpaired": [
                describe_unpaired(one, left, tied) for one in tensors if one.name in alone
            ],
        }
    complete = not any(
        row["trained"] and not row["equals"] for side in sides.values() for row in side["unpaired"]
    )
    return {"schema": MAP_SCHEMA, "complete": complete, **sides, PAIRS_KEY: pairs}


def split_change(change: str) -> list[str]:
    """Return the words of a change of layout (``transpose+reshape``) as a list; empty for no
    change."""
    return change.split("+") if change else []


def describe_unpaired(one: Tensor, left: Sequence[Tensor], tied: TiedValues) -> JsonObject:
    """Return a tensor without a partner as JSON, with the reason, and as ``equals`` the tensor of
    the other side that has its value, or an empty text.

    Args:
        left: tensors of the other side without a partner.
        tied: the tensors that the other side shares between modules.
    """
    equals = tied.source(one) or ""
    same = [y.name for y in left if sorted(y.shape) == sorted(one.shape)]
    if equals:
        why = f"the other side shares {equals}"
    elif same:
        why = f"{len(same)} of this shape are left on the other side: {', '.join(same[:3])}"
    elif left:
        near = min(left, key=lambda y: shape_distance(one, y))
        why = (
            f"none of this shape is left on the other side; the nearest is {near.name} {near.shape}"
        )
    else:
        why = "nothing is left on the other side"
    return {**one.describe(), "equals": equals, "why": why}


def write_map(path: Path, described: JsonObject) -> None:
    """Write a map as JSON or, with the suffix ``.toml``, as TOML.

    Raises:
        UserError: another suffix, or the file cannot be written.
    """
    check_suffix(path)
    text = json.dumps(described, indent=1, ensure_ascii=False) + "\n"
    if path.suffix == ".toml":
        text = format_toml(described)
    try:
        write_bytes(path, text.encode())
    except OSError as error:
        raise UserError(f"--write-map: {path}: {error.strerror or error}") from None


def check_suffix(path: Path) -> None:
    """Raise `UserError` unless a path ends in ``.json`` or ``.toml``."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"--write-map: {path} must end in .json or .toml")


def format_toml(described: JsonObject) -> str:
    """Return a map as TOML text: texts and truth values first, then tables, then one table for each
    pair."""
    lines = [f"{k} = {toml_value(v)}" for k, v in described.items() if isinstance(v, str | bool)]
    for key, value in described.items():
        if isinstance(value, dict):
            lines += ["", f"[{key}]", *(f"{k} = {toml_value(v)}" for k, v in value.items())]
    for pair in described[PAIRS_KEY]:
        lines += ["", f"[[{PAIRS_KEY}]]", *(f"{k} = {toml_value(v)}" for k, v in pair.items())]
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """Return a text, number, truth value, list or table as TOML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_map_file(path: Path) -> dict[str, Any]:
    """Read a map from a TOML or JSON file: one that `write_map` wrote, or a table of names.

    Returns:
        Name on the first side → name on the second, or a list of it and words; dotted names may be
            nested tables, as TOML reads ``fc.weight = …``.

    Raises:
        UserError: the file cannot be read, or a value is neither a name nor such a list.
    """
    if path.suffix == ".json":
        try:
            value = read_json(path)
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    else:
        value = read_toml(path)
    if not isinstance(value, dict):
        raise UserError(f"{path}: a map is a table of names; this is a {type(value).__name__}")
    if isinstance(value.get(PAIRS_KEY), list):
        return entries_of_pairs(path, value)
    flat = flatten_table(value, "")
    for name, partner in flat.items():
        several = isinstance(partner, list) and all(isinstance(word, str) for word in partner)
        if not isinstance(partner, str) and not (several and partner):
            raise UserError(
                f'{path}: {name} must be a name or ["name", "transpose"]; received {partner!r}'
            )
    return flat


def entries_of_pairs(path: Path, value: JsonObject) -> dict[str, Any]:
    """Return name on the first side → list of the name on the second side and words of layout, from
    the content of a map that `write_map` wrote.

    Raises:
        UserError: the content is invalid; the message has ``path``.
    """
    entries: dict[str, Any] = {}
    try:
        groups = {
            name: fused["groups"] for side in "ab" for name, fused in value[side]["fused"].items()
        }
        for pair in value[PAIRS_KEY]:
            fused = [name for one in (pair["a"], pair["b"]) if (name := one.rpartition("[")[0])]
            words = [f"groups:{groups[name]}" for name in fused if name in groups]
            changes = [str(word) for word in pair["a_to_b"]]
            entries[str(pair["a"])] = [str(pair["b"]), *changes, *words]
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not a map that --write-map wrote: {error!r}") from None
    return entries


def flatten_table(table: dict[str, Any], above: str) -> dict[str, Any]:
    """Return a nested table as one with dotted names: ``fc.weight = …`` is a name here, not a
    table. ``above`` is put before every name."""
    flat: dict[str, Any] = {}
    for word, value in table.items():
        name = above + word
        flat |= flatten_table(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat
