"""Keys of experiment files that users write by another name than plans and run folders store.

Version 0.1 called the period between two averagings ``every`` and what is averaged ``of``. Such
keys have standard names since. What is stored keeps its names, so that every version reads the
folders of the others: a key is renamed where a file or an option is read. The former name is read
as well, with a notice.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dualml.common.errors import UserError, escape_unprintable
from dualml.common.strict_model import clip_text


@dataclass(frozen=True)
class RenamedKey:
    """A key with two names.

    Attributes:
        place: table that has the key; ``*`` is the name of an arm.
        present: name that users write.
        stored: name in plans and run folders, and in files for version 0.1.
        values: value as users write it → value as it is stored; empty: they are the same.
    """

    place: tuple[str, ...]
    present: str
    stored: str
    values: Mapping[str, Any] = field(default_factory=dict)


ARM = ("arms", "*")
AGGREGATION, SPLIT = (*ARM, "aggregation"), (*ARM, "split")
ARRIVAL_ORDERS = {"deterministic": "planned", "nondeterministic": "free"}
RENAMED_KEYS = (
    RenamedKey((), "epochs_multiplier", "epochs_times"),
    RenamedKey(ARM, "accumulation_batch", "chunk"),
    RenamedKey(ARM, "cores_per_rank", "cores"),
    RenamedKey(ARM, "partition_ranks", "dealt_to"),
    RenamedKey(ARM, "straggler", "slow"),
    RenamedKey(ARM, "zero_param_dtype", "zero_lower", {"fp32": False, "precision": True}),
    RenamedKey(AGGREGATION, "arrival_order", "arrival", ARRIVAL_ORDERS),
    RenamedKey(AGGREGATION, "sync_period", "every"),
    RenamedKey(AGGREGATION, "target", "of"),
    RenamedKey(SPLIT, "update_mode", "arrival"),
)
#: Tables of a file that have the keys of the whole file.
OVERLAYS = ("quick", "small")
#: Notices that this process has printed.
_printed: set[str] = set()


class WrittenKeys:
    """The names by which a user has written the keys of an experiment.

    Attributes:
        former: path of each key that the user has written by its former name, in stored names.
        notices: lines to print, one for each file or option with former names.
    """

    def __init__(self) -> None:
        self.former: dict[tuple[str, ...], RenamedKey] = {}
        self.notices: list[str] = []

    def store(self, table: dict[str, Any], origin: str, origin_of: Origin | None = None) -> None:
        """Rename the keys of a ``table`` in place to those that are stored, and add a notice if it
        has former names.

        Args:
            origin: the file or option that ``table`` comes from.
            origin_of: function that finds the line of a key in it.

        Raises:
            UserError: a key that is there by both names, or a value that it does not take.
        """
        found = list(self._rename(table, (), origin_of or (lambda path: origin)))
        if found:
            names = (f"{'.'.join((*k.place[2:], k.stored))} is now {k.present}" for k in found)
            told = ", ".join(dict.fromkeys(names))
            self.notices.append(f"{origin}: {told}; the former names still work")

    def print_notices(self) -> None:
        """Print the notices on standard error that this process has not printed yet. Call it once
        the experiment is valid: invalid input is answered by one line, its error."""
        for text in self.notices:
            if text not in _printed:
                _printed.add(text)
                print(f"dualml: {escape_unprintable(text)}", file=sys.stderr, flush=True)

    def _rename(
        self, table: dict[str, Any], below: tuple[str, ...], origin_of: Origin
    ) -> Iterator[RenamedKey]:
        """Rename the keys of ``table`` in place, overlays first, and note former names in
        ``former``; yield each key that was written by its former name. Raise `UserError` for one
        that is there by both names."""
        for overlay in OVERLAYS:
            if isinstance(table.get(overlay), dict):
                yield from self._rename(table[overlay], (*below, overlay), origin_of)
        for key in RENAMED_KEYS:
            for path, here in list(find_tables(table, key.place)):
                written = (*below, *path, key.present)
                if key.present not in here:
                    if key.stored in here:
                        self.former[*path, key.stored] = key
                        yield key
                    continue
                if key.stored in here:
                    raise UserError(
                        f"{origin_of(written)}: {'.'.join(written)} is the present name of "
                        f"{key.stored}; leave out {key.stored}"
                    )
                self.former.pop((*path, key.stored), None)
                here[key.stored] = _stored_value(key, here.pop(key.present), written, origin_of)

    def store_override(self, path: list[str], value: Any, origin: str) -> tuple[list[str], Any]:
        """Return path and value of the command-line option ``path`` = ``value`` in stored names;
        raise `UserError`, with ``origin``, for a value that the key does not take."""
        nested = value
        for part in reversed(path):
            nested = {part: nested}
        self.store(nested, origin)
        stored = []
        for _ in path:
            ((part, nested),) = nested.items()
            stored.append(part)
        return stored, nested

    def path_of(self, stored: Sequence[str]) -> list[str]:
        """Return the path of the key at the path ``stored``, in stored names, as the user has
        written it, or would write it."""
        return [
            part
            if (key := find_key(stored[:depth], part)) is None
            or tuple(stored[: depth + 1]) in self.former
            else key.present
            for depth, part in enumerate(stored)
        ]

    def text_of(self, message: str, path: Sequence[str]) -> str:
        """Return the message about the key at ``path`` with the present names of keys replaced by
        the former ones, for those keys of the same arm that the user has written by their former
        name."""
        for where, key in self.former.items():
            if where[:2] != tuple(path[:2]):
                continue
            message = re.sub(rf"\b{key.present}\b", key.stored, message)
            for present, stored in key.values.items():
                value = str(stored).lower() if isinstance(stored, bool) else stored
                message = message.replace(f"{key.stored} = {present}", f"{key.stored} = {value}")
        return message


Origin = Callable[[tuple[str, ...]], str]


def _stored_value(key: RenamedKey, value: Any, written: tuple[str, ...], origin_of: Origin) -> Any:
    """Return the stored form of a value that a renamed key was given; raise `UserError` for one
    that the key does not take."""
    if not key.values:
        return value
    if not isinstance(value, str) or value not in key.values:
        raise UserError(
            f"{origin_of(written)}: {'.'.join(written)}: Input should be "
            f"{' or '.join(map(repr, key.values))}; received {clip_text(repr(value))}"
        )
    return key.values[value]


def find_tables(
    table: Any, place: tuple[str, ...], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield path and table of every table at ``place``, where ``*`` stands for any key."""
    if not isinstance(table, dict):
        return
    if not place:
        yield path, table
        return
    for name in table if place[0] == "*" else [place[0]]:
        yield from find_tables(table.get(name), place[1:], (*path, name))


def find_key(place: Sequence[str], stored: str) -> RenamedKey | None:
    """Return the entry of the key that is stored by this name in the table at ``place``, where an
    arm has its own name or ``*``; None if the key has only one name."""
    named = ("arms", "*", *place[2:]) if len(place) > 1 and place[0] == "arms" else tuple(place)
    return next((k for k in RENAMED_KEYS if (k.place, k.stored) == (named, stored)), None)


def stored_name(present: str, place: Sequence[str]) -> str:
    """Return the stored name of a key that users write as ``present`` in the table at ``place``
    (``*`` is the name of an arm); ``present`` itself if it is not renamed."""
    stored = {key.present: key.stored for key in RENAMED_KEYS if key.place == tuple(place)}
    return stored.get(present, present)


def present_table(table: Mapping[str, Any], place: Sequence[str]) -> dict[str, Any]:
    """Return a copy of the table at ``place`` with the names and values that users write instead of
    those stored; tables inside it are not renamed."""
    return dict(_present_item(find_key(place, name), name, value) for name, value in table.items())


def _present_item(key: RenamedKey | None, name: str, value: Any) -> tuple[str, Any]:
    """Return name and value as users write them today; ``key`` None leaves both unchanged."""
    if key is None:
        return name, value
    return key.present, next((p for p, s in key.values.items() if s == value), value)
