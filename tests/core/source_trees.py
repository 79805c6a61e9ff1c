"""Syntax trees of source texts, each parsed once in a session: several tests walk through all."""

from __future__ import annotations

import ast
from functools import cache


@cache
def parse_source(text: str) -> ast.Module:
    """Return the syntax tree of a source text; callers must not change it."""
    return ast.parse(text)
