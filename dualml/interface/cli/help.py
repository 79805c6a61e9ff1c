"""The texts of ``--help`` in the user's language: commands and options carry no text themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from dualml.common.words import load_messages

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


def localise(command: Any, lang: str, *, with_frames: bool = True) -> None:
    """Set the texts of a command, its parameters and its subcommands from the message file
    ``help``.

    Args:
        with_frames: translate the frames of help pages, too; shell completion does not need it.
    """
    texts = load_messages(lang, "help")
    command.epilog = texts["help.epilog"]
    _fill_help(command, "help", texts)
    if not with_frames:
        return
    from typer import rich_utils

    rich_utils.ARGUMENTS_PANEL_TITLE = texts["help.arguments"]
    rich_utils.OPTIONS_PANEL_TITLE = texts["help.options"]
    rich_utils.COMMANDS_PANEL_TITLE = texts["help.commands"]
    rich_utils.DEFAULT_STRING = texts["help.default"]
    rich_utils.REQUIRED_LONG_STRING = texts["help.required"]
    rich_utils.ENVVAR_STRING = texts["help.variable"]


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
    for name, sub in getattr(command, "commands", {}).items():
        _fill_help(sub, f"{prefix}.{name}", texts)
