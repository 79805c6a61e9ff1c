"""What ``--help`` says, in the reader's language: commands and options carry no text themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from dualml.words import table


def language(arguments: Sequence[str]) -> str:
    """That of ``--lang``, wherever it stands, or of ``DUALML_LANG``; English by default."""
    lang = os.environ.get("DUALML_LANG", "")
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if word == "--lang":
            lang = following
        elif word.startswith("--lang="):
            lang = word.removeprefix("--lang=")
    return lang if lang in ("en", "zh") else "en"


def localise(command: Any, lang: str) -> None:
    """Give a command, its parameters and all its subcommands their texts of ``words/LANG/help``."""
    from typer import rich_utils

    texts = table(lang, "help")
    command.epilog = texts["help.epilog"]
    _fill(command, "help", texts)
    rich_utils.ARGUMENTS_PANEL_TITLE = texts["help.arguments"]
    rich_utils.OPTIONS_PANEL_TITLE = texts["help.options"]
    rich_utils.COMMANDS_PANEL_TITLE = texts["help.commands"]
    rich_utils.DEFAULT_STRING = texts["help.default"]
    rich_utils.REQUIRED_LONG_STRING = texts["help.required"]


def _fill(command: Any, prefix: str, texts: dict[str, str]) -> None:
    from typer import Context

    command.help = texts[f"{prefix}.about"]
    for parameter in command.get_params(Context(command)):  # with --help itself
        key = parameter.name.removeprefix("as_").rstrip("_")
        own = f"{prefix}.{key}"
        parameter.help = texts[own] if own in texts else texts[f"help.{key}"]
    for name, sub in getattr(command, "commands", {}).items():
        _fill(sub, f"{prefix}.{name}", texts)
