"""Groups of typical mistakes, from ``mistakes.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path


@cache
def read_groups() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Read all groups: lab → group → names of mistakes."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def mistake_groups(lab: str, *names: str) -> list[tuple[str, ...]]:
    """Return these groups of a lab's typical mistakes; raise `KeyError` for an unknown one."""
    return [tuple(read_groups()[lab][name]) for name in names]
