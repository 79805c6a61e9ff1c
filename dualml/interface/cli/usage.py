"""Usage errors: suggestions of known names, and translation of all error messages."""

from __future__ import annotations

import re
from functools import cache, partial
from typing import Any

from dualml.common.errors import did_you_mean
from dualml.common.words import load_messages
from dualml.interface.cli.defaults import command_options, value_origin

#: The parser names the variable even if the value does not come from it.
VARIABLE = r" \(env var: '\w+'\)"


def usage_message(error: Any) -> str:
    """Return the message of a parser error, with the nearest known name.

    If the value was not typed, the message says where it is set.
    """
    text = re.sub(VARIABLE, "", str(error.format_message()))
    context = getattr(error, "ctx", None)
    option, command = getattr(error, "option_name", None), match_template("command", text)
    if match_template("option", error.message) and context:
        known = ["--help", *(f"--{name}" for name in command_options(context.command))]
        return f"{error.message}{did_you_mean(str(option), known)}"
    if command and context:
        return f"{text.rstrip('.')}{did_you_mean(command['name'], context.command.commands)}"
    parameter = getattr(error, "param", None)
    place = value_origin(context, parameter.name) if context and parameter else None
    return f"{text.rstrip('.')} ({place})" if place else text


def match_template(key: str, text: str) -> re.Match[str] | None:
    """Match the beginning of a text against the English message template ``errors.KEY``; None if it
    does not follow it."""
    return re.match(template_pattern(load_messages("en", "errors")[f"errors.{key}"]), text)


def translate(text: str, lang: str) -> str:
    """Translate the parts of an English message that follow known templates; the rest stays."""
    if lang == "en":
        return text
    own = load_messages(lang, "errors")
    for key, english in load_messages("en", "errors").items():
        text = re.sub(template_pattern(english), partial(fill_template, own[key]), text)
    return text


def fill_template(template: str, match: re.Match[str]) -> str:
    """Fill the fields of a template, names in braces, with the named groups of a match."""
    return template.format(**match.groupdict())


@cache
def template_pattern(template: str) -> str:
    """Return a regular expression for the texts of a template.

    A field in single quotes contains no single quote, any other field no semicolon.
    """
    escaped = re.escape(template)
    quoted = re.sub(r"'\\\{(\w+)\\\}'", r"'(?P<\1>[^']+)'", escaped)
    return re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^;]+?)", quoted)
