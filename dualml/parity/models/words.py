"""The sentences of a comparison in two languages."""

from __future__ import annotations

from typing import Any, Literal

from dualml.words import phrases

Language = Literal["en", "zh"]


def text(lang: Language, key: str, **values: Any) -> str:
    """A sentence with its values; an unknown key is an error of ours and raises `KeyError`."""
    return phrases(lang, "models")[key].format(**values)
