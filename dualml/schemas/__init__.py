"""JSON schemas of what commands print with ``--json``: one file ``NAME.json`` each.

The version of a schema increases when a key is removed or changes its meaning; new keys may be
added at any time.
"""

from __future__ import annotations

from importlib.resources import files

from dualml.errors import UserError, nearest


def named(name: str) -> str:
    """Return the ID of a schema, the value of ``schema`` in the output."""
    return f"dualml.{name}/1"


def names() -> list[str]:
    """List the names of all schemas."""
    here = files("dualml.schemas")
    return sorted(p.name.removesuffix(".json") for p in here.iterdir() if p.name.endswith(".json"))


def text_of(name: str) -> str:
    """Return a schema as JSON text.

    Raises:
        UserError: there is no schema of that name.
    """
    name = name.removeprefix("dualml.").partition("/")[0]
    if name not in names():
        raise UserError(f"no schema {name!r}{nearest(name, names())}")
    return (files("dualml.schemas") / f"{name}.json").read_text("utf-8")
