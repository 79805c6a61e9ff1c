"""JSON schemas of what commands print with ``--json``: ``NAME.json`` for each.

A version grows where a key goes or changes its meaning; new keys may come at any time.
"""

from __future__ import annotations

from importlib.resources import files

from dualml.errors import UserError, nearest


def named(name: str) -> str:
    """What stands as ``schema`` in an answer."""
    return f"dualml.{name}/1"


def names() -> list[str]:
    here = files("dualml.schemas")
    return sorted(p.name.removesuffix(".json") for p in here.iterdir() if p.name.endswith(".json"))


def text_of(name: str) -> str:
    """A schema as JSON.

    Raises:
        UserError: there is none of that name.
    """
    name = name.removeprefix("dualml.").partition("/")[0]
    if name not in names():
        raise UserError(f"no schema {name!r}{nearest(name, names())}")
    return (files("dualml.schemas") / f"{name}.json").read_text("utf-8")
