"""Explanations of the frameworks' errors whose text does not say what a student did."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from dualml.course.exercise import Trouble


@cache
def read_error_patterns() -> Mapping[str, str]:
    """Read the patterns of explained errors: name → pattern, the most special one first."""
    table: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return table


def find_explanation(trouble: Trouble) -> str:
    """Return the name of the explanation of an error, ``course.explained.NAME``; empty if it has
    none."""
    said = f"{trouble.kind}: {trouble.message}"
    return next((n for n, p in read_error_patterns().items() if re.search(p, said)), "")
