"""Messages of a model comparison in two languages."""

from __future__ import annotations

from typing import Any, Literal

from dualml.words import phrases

Language = Literal["en", "zh"]


def text(lang: Language, key: str, **values: Any) -> str:
    """Return a message with its values filled in.

    Raises:
        KeyError: an unknown key, which is an internal error.
    """
    return phrases(lang, "models")[key].format(**values)
