"""Errors of usage: what was meant, and the frames of all messages in the reader's language."""

from __future__ import annotations

import re
from functools import cache, partial
from typing import Any

from dualml.cli.defaults import options, origin
from dualml.errors import nearest
from dualml.words import table

#: The parser names a variable also where the value is not from there.
VARIABLE = r" \(env var: '\w+'\)"


def usage(error: Any) -> str:
    """The message of an error of the command line's parser, with the nearest name that there is,
    and where a value stands that was not typed."""
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
    return re.match(pattern(table("en", "errors")[f"errors.{key}"]), text)


def in_language(text: str, lang: str) -> str:
    """The message with the parts that many messages have in another language."""
    if lang == "en":
        return text
    own = table(lang, "errors")
    for key, english in table("en", "errors").items():
        text = re.sub(pattern(english), partial(filled, own[key]), text)
    return text


def filled(template: str, match: re.Match[str]) -> str:
    return template.format(**match.groupdict())


@cache
def pattern(template: str) -> str:
    """What a template may have become: a field in quotes holds none, and no field a semicolon."""
    escaped = re.escape(template)
    quoted = re.sub(r"'\\\{(\w+)\\\}'", r"'(?P<\1>[^']+)'", escaped)
    return re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^;]+?)", quoted)
