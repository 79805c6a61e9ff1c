"""The texts of ``--help`` in the user's language: commands and options carry no text themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from dualml.common.words import load_messages
from dualml.interface.cli.command_group import prepare_subcommands

#: Names of the help option.
HELP = ("-h", "--help")


def requested_language(arguments: Sequence[str], default: str = "en") -> str:
    """Return the language of ``--lang``, wherever it stands, or of ``DUALML_LANG``, or the default;
    ``en`` for an unknown one. The last ``--lang`` counts."""
    lang = os.environ.get("DUALML_LANG") or default
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if word == "--lang":
            lang = following
        elif word.startswith("--lang="):
            lang = word.removeprefix("--lang=")
    return lang if lang in ("en", "zh") else "en"


def localise(command: Any, lang: str) -> None:
    """Set the texts of a command, its parameters and its subcommands from the message file
    ``help``; those of a subcommand that is not built yet when it is."""
    texts = load_messages(lang, "help")
    command.epilog = texts["help.epilog"]
    _fill_help(command, "help", texts)


def command_parameters(command: Any) -> list[Any]:
    """Return the parameters, options and arguments, of a command, including ``--help``."""
    from typer import Context

    return list(command.get_params(Context(command, help_option_names=[*HELP])))


def _fill_help(command: Any, prefix: str, texts: dict[str, str]) -> None:
    """Set the help texts of a command and its subcommands."""
    command.help = texts[f"{prefix}.about"]
    for parameter in command_parameters(command):
        key = parameter.name.removeprefix("as_").rstrip("_")
        own = f"{prefix}.{key}"
        parameter.help = texts[own] if own in texts else texts[f"help.{key}"]
    command.texts = texts
    for name in getattr(command, "commands", ()):
        command.abouts[name] = texts[f"{prefix}.{name}.about"]
    prepare_subcommands(command, lambda name, sub: _fill_help(sub, f"{prefix}.{name}", texts))
