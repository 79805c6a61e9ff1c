"""Messages of a model comparison in two languages."""

from __future__ import annotations

from typing import Any, Literal

from dualml.common.words import section_messages

Language = Literal["en", "zh"]


def format_message(lang: Language, key: str, **values: Any) -> str:
    """Return a message with its values filled in.

    Raises:
        KeyError: an unknown key, which is an internal error.
    """
    return section_messages(lang, "models")[key].format(**values)


def find_message(lang: Language, *keys: str, **values: Any) -> str:
    """Return the first of these messages that exists, with its values filled in.

    Raises:
        KeyError: none of them exists, which is an internal error.
    """
    known = section_messages(lang, "models")
    key = next((key for key in keys if key in known), keys[-1])
    return format_message(lang, key, **values)
