"""Groups of typical mistakes, from ``mistakes.toml``, and what a mistake makes of a rule's line."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dualml.course.exercise import Flags


@cache
def read_groups() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Read all groups: lab → group → names of mistakes."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def mistake_groups(lab: str, *names: str) -> list[tuple[str, ...]]:
    """Return the mistakes of each group of a lab, in the order of ``names``; raise `KeyError` for
    an unknown group."""
    return [tuple(read_groups()[lab][name]) for name in names]


def compute_mistaken(
    flags: Flags, mistaken: Mapping[str, Callable[[], Any]], right: Callable[[], Any]
) -> Any:
    """Compute a value as the first mistake of ``mistaken`` that is among the flags does, or as
    ``right`` does if none is."""
    return next((mistaken[name] for name in mistaken if name in flags), right)()
