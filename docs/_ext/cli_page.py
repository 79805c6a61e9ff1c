"""The command-line reference, made from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from _ext.pages import Page
from _ext.words import code, table, words


def pages() -> Iterator[Page]:
    """Yield the page of the command-line reference."""
    yield Page("reference/cli", make=command_line)


def command_line(lang: str) -> str:
    """Return every command with its arguments, options and defaults, as ``--help`` shows them."""
    from typer import Context
    from typer.main import get_command

    from dualml.interface.cli.app import app
    from dualml.interface.cli.help import localise

    texts, root = words(lang)["cli"], get_command(app)
    localise(root, lang)
    parts = [f"# {texts['title']}", texts["intro"], options(root, Context(root), lang), root.epilog]
    for name, command in subcommands(root, "dualml"):
        context = Context(command, info_name=name)
        parts += [f"## {name}", command.help, f"```text\n{usage(context)}\n```"]
        parts.append(options(command, context, lang))
    return "\n\n".join(part for part in parts if part) + "\n"


def subcommands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Return every command below a group, with its full name."""
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from subcommands(command, f"{name} {word}")
        elif not command.hidden:
            yield f"{name} {word}", command


def usage(context: Any) -> str:
    """Return the usage line of a command."""
    return str(context.get_usage()).partition(": ")[2]


def options(command: Any, context: Any, lang: str) -> str:
    """Return the table of a command's parameters without ``--help``, or "" if it has no others."""
    texts = words(lang)["cli"]
    rows = [
        [name(parameter, context), parameter.help + default(parameter, context, texts)]
        for parameter in command.get_params(context)
        if parameter.name != "help" and not getattr(parameter, "hidden", False)
    ]
    return table([texts["option"], texts["meaning"]], rows) if rows else ""


def name(parameter: Any, context: Any) -> str:
    """Return the names of a parameter as they are typed."""
    if parameter.param_type_name == "argument":
        return code(parameter.display_name_raw)
    kind = "" if parameter.is_flag else f" {value(parameter, context)}"
    return ", ".join(code(f"{word}{kind}") for word in parameter.opts)


def value(parameter: Any, context: Any) -> str:
    """Return the placeholder for an option's value: its metavar, or its type."""
    shown = str(parameter.display_type_rich(ctx=context))
    kind = re.fullmatch(r"<(?:list\[)?(\w+).*>", shown)
    return kind[1].upper().replace("STR", "TEXT") if kind else shown


def default(parameter: Any, context: Any, texts: dict[str, str]) -> str:
    """Return an option's default as text; "" for flags and for defaults that say nothing."""
    given = parameter.get_default(context, call=False)
    if given is None or given is False or given in ((), []):
        return ""
    return texts["default"].format(value=code(given))
