"""Usage errors: suggestions of known names, and translation of all error messages."""

from __future__ import annotations

import re
from functools import cache, partial
from typing import Any

from dualml.cli.defaults import options, origin
from dualml.errors import nearest
from dualml.words import table

#: The parser names the variable even if the value does not come from it.
VARIABLE = r" \(env var: '\w+'\)"


def usage(error: Any) -> str:
    """Return the message of a parser error, with the nearest known name.

    If the value was not typed, the message says where it is set.
    """
    text = re.sub(VARIABLE, "", str(error.format_message()))
    context = getattr(error, "ctx", None)
    option, command = getattr(error, "option_name", None), matched("command", text)
    if matched("option", error.message) and context:
        known = ["--help", *(f"--{name}" for name in options(context.command))]
        return f"{error.message}{nearest(str(option), known)}"
    if command and context:
        return f"{text.rstrip('.')}{nearest(command['name'], context.command.commands)}"
    parameter = getattr(error, "param", None)
    place = origin(context, parameter.name) if context and parameter else None
    return f"{text.rstrip('.')} ({place})" if place else text


def matched(key: str, text: str) -> re.Match[str] | None:
    """Match a text against the message template ``errors.key``."""
    return re.match(pattern(table("en", "errors")[f"errors.{key}"]), text)


def in_language(text: str, lang: str) -> str:
    """Translate the parts of a message that follow known templates."""
    if lang == "en":
        return text
    own = table(lang, "errors")
    for key, english in table("en", "errors").items():
        text = re.sub(pattern(english), partial(filled, own[key]), text)
    return text


def filled(template: str, match: re.Match[str]) -> str:
    """Fill a template with the groups of a match."""
    return template.format(**match.groupdict())


@cache
def pattern(template: str) -> str:
    """Return a regular expression for the texts of a template.

    A quoted field contains no quotes, and no field contains a semicolon.
    """
    escaped = re.escape(template)
    quoted = re.sub(r"'\\\{(\w+)\\\}'", r"'(?P<\1>[^']+)'", escaped)
    return re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^;]+?)", quoted)
