"""Settings laid over an experiment file by a table or an option, and where each was written."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError, did_you_mean
from dualml.common.files import read_text
from dualml.common.parse import MAX_DEPTH, check_limits, find_line, from_toml
from dualml.common.strict_model import clip_text
from dualml.experiment.keys import WrittenKeys


def merge_tables(table: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Merge ``more`` into ``table`` in place, tables recursively; any other value replaces the old
    one."""
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(table.get(key), dict):
            merge_tables(table[key], value)
        else:
            table[key] = value


def apply_override(table: dict[str, Any], text: str, keys: WrittenKeys | None = None) -> list[str]:
    """Apply one ``KEY=VALUE`` to ``table`` in place; a value that is no TOML is taken as text.

    Args:
        keys: record of renamed keys, which turns present names into stored ones; None: names stay.

    Returns:
        The path of the key, by stored names.

    Raises:
        UserError: no ``KEY=VALUE``, an unknown arm, or a table where a value is set.
    """
    key, equals, raw = text.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise UserError(
            f"--set takes KEY=VALUE with a dotted key; received {clip_text(repr(text))}"
        )
    if len(path) > MAX_DEPTH:
        raise UserError(
            f"--set {clip_text(key)}: a key of {len(path):,} parts; at most {MAX_DEPTH}"
        )
    try:
        check_limits(text)
        value = from_toml(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw
    except ValueError as error:
        reason = str(error).removeprefix("value: ")
        raise UserError(f"--set {clip_text(text)}: {reason}") from None
    if keys is not None:
        path, value = keys.store_override(path, value, f"--set {clip_text(text)}")
    here = table
    for depth, part in enumerate(path[:-1]):
        if part not in here and depth == 1 and path[0] == "arms":
            raise UserError(f"--set {key}: no arm {part!r}{did_you_mean(part, here)}")
        here = here.setdefault(part, {})
        if not isinstance(here, dict):
            raise UserError(f"--set {key}: {'.'.join(path[: depth + 1])} is a value, not a table")
    if isinstance(here.get(path[-1]), dict) and not isinstance(value, dict):
        raise UserError(
            f"--set {key}: this is a table; name one of its keys: "
            f"{', '.join(f'{key}.{k}' for k in here[path[-1]])}"
        )
    here[path[-1]] = value
    return path


def locate_error(
    loc: list[str],
    written: list[str],
    path: Path,
    overrides: Sequence[tuple[str, list[str]]],
    seeds: bool,
) -> str:
    """Return where an invalid value was written, for a message: an option, or the file and its
    line.

    Args:
        loc, written: its key as it is stored, and as the user has written it.
        path: the experiment file.
        overrides: options with the stored keys that they set.
        seeds: whether an option set the seeds.
    """
    for text, key in reversed(overrides):
        if key == loc[: len(key)] or (loc and loc == key[: len(loc)]):
            return f"--set {clip_text(text)}"
    if seeds and loc[:1] == ["seeds"]:
        return "--seed"
    return locate_line(written, path)


def locate_line(key: Sequence[str], path: Path) -> str:
    """Return ``path``, the experiment file, as text for a message, with the number of the line
    in it that sets ``key`` (its parts, as the user wrote them) or else its nearest parent table,
    if one is found. Errors of `read_text` are raised."""
    line = find_line(read_text(path), key)
    return f"{path}, line {line}" if line else str(path)
