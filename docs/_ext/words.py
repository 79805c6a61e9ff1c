"""The site's own texts in both languages, and helpers that make Markdown."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from _ext.pages import DOCS


@cache
def words(lang: str) -> dict[str, Any]:
    """Return the texts of ``docs/_words/LANG.toml``."""
    return tomllib.loads((DOCS / "_words" / f"{lang}.toml").read_text("utf-8"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; bars inside cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def code(text: object) -> str:
    """Return a text in Markdown code quotes."""
    return f"`{text}`"
