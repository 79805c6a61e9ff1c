"""JSON schemas of what commands print with ``--json``: one file ``NAME.json`` each.

The version of a schema increases when a key is removed or changes its meaning; new keys may be
added at any time.
"""

from __future__ import annotations

from importlib.resources import files

from dualml.common.errors import UserError, did_you_mean


def schema_id(name: str) -> str:
    """Return the ID of a schema, the value of ``schema`` in the output."""
    return f"dualml.{name}/1"


def schema_names() -> list[str]:
    """List the names of all schemas."""
    here = files("dualml.interface.schemas")
    return sorted(p.name.removesuffix(".json") for p in here.iterdir() if p.name.endswith(".json"))


def schema_text(name: str) -> str:
    """Return a schema as JSON text, by its name or its ID.

    Raises:
        UserError: there is no schema of that name.
    """
    name = name.removeprefix("dualml.").partition("/")[0]
    if name not in schema_names():
        raise UserError(f"no schema {name!r}{did_you_mean(name, schema_names())}")
    return (files("dualml.interface.schemas") / f"{name}.json").read_text("utf-8")
