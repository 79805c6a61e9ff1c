"""Names that must not implement a student's class (ready-made solutions, ours and the frameworks'),
and actions that a student's code must not take.

``forbidden.toml`` lists them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_LISTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _dotted_names(tables: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """Return framework → every name of its tables in each of the table's modules."""
    return {
        framework: [
            f"{module}.{name}" for t in rows for name in t["names"] for module in t["modules"]
        ]
        for framework, rows in tables.items()
    }


#: Modules that no exercise needs: dualml's own, which contain the solutions.
BANNED: list[str] = _LISTS["banned"]
#: Framework → classes and functions that do what the student must write.
READY_MADE = _dotted_names(_LISTS["ready_made"])
_OPS = "mindspore.ops."
#: Operators of MindSpore that update parameters.
PRIMITIVES = [n.removeprefix(_OPS) for n in READY_MADE["mindspore"] if n.startswith(_OPS)]
#: Framework → its own communication, which the given communicator replaces.
COMMUNICATION = _dotted_names(_LISTS["communication"])
#: Modules and functions through which forbidden names are accessible indirectly.
ROUNDABOUT: list[str] = _LISTS["roundabout"]
CALLS: list[str] = _LISTS["calls"]
#: Audit events that start or end a process, reach a network, or read memory.
FORBIDDEN_EVENTS: frozenset[str] = frozenset(_LISTS["events"])
#: Event with a path to be changed → indices of the path arguments.
CHANGES: dict[str, list[int]] = _LISTS["changes"]
