"""The page that ``--help`` prints: usage, what the command does, and frames of parameters and
commands.

Everything is laid out here, without a library for terminals: importing one takes longer than all
else that ``--help`` does, and most count a Chinese letter as a word that cannot be wrapped.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, get_args, get_origin

from dualml.common.text_width import display_width, wrap_text
from dualml.common.words import load_messages
from dualml.interface.cli.terminal_text import Terminal, find_terminal

#: Styles by ECMA-48: of options, short options, values, frames, what is required, remarks.
OPTION, SHORT, VALUE, FRAME, REQUIRED, REMARK = "1;36", "1;32", "1;33", "2", "31", "2"
#: An option inside a text.
OPTION_IN_TEXT = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
#: Columns that texts need at least beside the names; with fewer they stand below them.
MIN_TEXT_COLUMNS = 34
GAP = "  "


@dataclass(frozen=True)
class Row:
    """A row of a frame: its cells with their styles, and the text with its remarks, such as the
    default, which stand in their own style after it."""

    cells: Sequence[tuple[str, str]]
    text: str
    remarks: Sequence[str] = ()


def print_help_page(command: Any, context: Any) -> None:
    """Print the help page of a command or a group of commands to standard output. ``context`` is
    the parser's context of that command."""
    terminal = find_terminal()
    print("\n".join(format_page(command, context, terminal)))


def format_page(command: Any, context: Any, terminal: Terminal) -> Iterator[str]:
    """Yield the lines of the help page of a command."""
    texts: Mapping[str, str] = getattr(command, "texts", None) or load_messages("en", "help")
    pieces = " ".join(command.collect_usage_pieces(context))
    usage = texts["help.usage"].format(f"{context.command_path} {pieces}")
    width = terminal.width - 2
    yield ""
    for line in wrap_text(usage, width):
        yield terminal.style(f" {line}", "1")
    for paragraph in filter(None, (command.help,)):
        yield ""
        yield from (f" {line}" for line in wrap_text(paragraph, width))
    yield ""
    for title, rows in group_parameters(command, context, texts).items():
        yield from format_frame(title, rows, terminal)
    if hasattr(command, "describe_commands"):
        rows = [Row([(name, OPTION)], about) for name, about in command.describe_commands()]
        yield from format_frame(texts["help.commands"], rows, terminal)
    if command.epilog:
        yield ""
        yield from (f" {line}" for line in wrap_text(command.epilog, width))


def group_parameters(command: Any, context: Any, texts: Mapping[str, str]) -> dict[str, list[Row]]:
    """Return the rows of the parameters by the title of their frame: arguments, options, then the
    frames that options name."""
    own = {"argument": texts["help.arguments"], "option": texts["help.options"]}
    frames: dict[str, list[Row]] = {title: [] for title in own.values()}
    for parameter in command.get_params(context):
        if not getattr(parameter, "hidden", False):
            panel = getattr(parameter, "rich_help_panel", None)
            title = (
                texts.get(f"help.panel.{panel}", panel) if panel else own[parameter.param_type_name]
            )
            frames.setdefault(title, []).append(describe_parameter(parameter, context, texts))
    return {title: rows for title, rows in frames.items() if rows}


def describe_parameter(parameter: Any, context: Any, texts: Mapping[str, str]) -> Row:
    """Return the row of a parameter: its names, its value, its text, and its variable and
    default."""
    if parameter.param_type_name == "argument":
        long, short = parameter.display_name_raw, ""
    else:
        names = [*parameter.opts, *parameter.secondary_opts]
        long = ", ".join(name for name in names if name.startswith("--"))
        short = ", ".join(name for name in names if not name.startswith("--"))
    remarks = []
    if getattr(parameter, "show_envvar", False) and parameter.envvar:
        remarks.append(texts["help.variable"].format(parameter.envvar))
    if default := describe_default(parameter, context):
        remarks.append(texts["help.default"].format(default))
    if parameter.required:
        remarks.append(texts["help.required"])
    star = "*" if parameter.required else ""
    value = describe_value(parameter)
    return Row(
        [(star, REQUIRED), (long, OPTION), (short, SHORT), (value, VALUE)],
        (parameter.help or "").replace("\n", " "),
        remarks,
    )


def describe_default(parameter: Any, context: Any) -> str:
    """Return the default of a parameter as text; empty for one that has none, or hides it, and for
    a flag that is not set."""
    value = parameter.get_default(context, call=False)
    if value is None or value is False or callable(value) or not parameter.show_default:
        return ""
    values = value if isinstance(value, list | tuple) else [value]
    return ", ".join(map(str, values))


def describe_value(parameter: Any) -> str:
    """Return the placeholder for the value of a parameter in the help: its metavar, or its type
    with its bounds; empty for a flag."""
    if getattr(parameter, "is_flag", False) or getattr(parameter, "count", False):
        return ""
    if parameter.metavar and parameter.param_type_name == "option":
        return str(parameter.metavar)
    annotation = parameter.type_descriptor.annotation
    several = get_origin(annotation) is list
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)] or [annotation]
    kind = kinds[0]
    path = isinstance(kind, type) and issubclass(kind, PurePath)
    name = "path" if path else getattr(kind, "__name__", str(kind))
    low, high = getattr(parameter, "min", None), getattr(parameter, "max", None)
    bounds = ", ".join(
        f"{sign} {bound:g}" for sign, bound in (("≥", low), ("≤", high)) if bound is not None
    )
    return f"<{name}>{'…' * several}" + f" {bounds}" * bool(bounds)


def format_frame(title: str, rows: Sequence[Row], terminal: Terminal) -> Iterator[str]:
    """Yield the lines of a frame with its title in the upper edge."""
    inner = terminal.width - 4
    corners, edge, side = terminal.frame
    name = f" {title} "
    line = edge + name + edge * max(0, inner + 1 - display_width(name))
    yield terminal.style(f"{corners[0]}{line}{corners[1]}", FRAME)
    bar = terminal.style(side, FRAME)
    for plain, styled in format_rows(drop_empty_columns(rows), inner, terminal):
        yield f"{bar} {styled}{' ' * (inner - display_width(plain))} {bar}"
    yield terminal.style(f"{corners[2]}{edge * (inner + 2)}{corners[3]}", FRAME)


def drop_empty_columns(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without the columns that are empty in all of them."""
    used = [any(row.cells[i][0] for row in rows) for i in range(len(rows[0].cells))]
    return [
        replace(row, cells=[cell for cell, keep in zip(row.cells, used, strict=True) if keep])
        for row in rows
    ]


def format_rows(rows: Sequence[Row], width: int, terminal: Terminal) -> Iterator[tuple[str, str]]:
    """Yield the lines of a frame's rows, plain and styled: names in columns and texts beside them;
    a text stands below names that are too wide."""
    columns = fit_columns(rows, width)
    indent = sum(columns) + len(GAP) * len(columns) if columns else len(GAP) * 2
    for row in rows:
        widths = [display_width(text) for text, _ in row.cells]
        texts = list(format_text(row, width - indent, terminal))
        if columns and all(map(operator.le, widths, columns)):
            gaps = [" " * (column - own) + GAP for own, column in zip(widths, columns, strict=True)]
            cells = list(zip(row.cells, gaps, strict=True))
            plain = "".join(text + gap for (text, _), gap in cells)
            styled = "".join(terminal.style(text, style) + gap for (text, style), gap in cells)
            first = texts.pop(0) if texts else ("", "")
            yield plain + first[0], styled + first[1]
        else:
            yield from format_names(row, width, terminal)
        for plain, styled in texts:
            yield " " * indent + plain, " " * indent + styled


def fit_columns(rows: Sequence[Row], width: int) -> list[int]:
    """Return the widths of the columns before the texts that leave at least `MIN_TEXT_COLUMNS` for
    the texts: those that all rows need or, if that is too much, that at least two thirds of the
    rows need, the narrowest ones. An empty list if there are none."""
    fitting = sorted(([display_width(text) for text, _ in row.cells] for row in rows), key=sum)
    while fitting and len(fitting) * 3 >= len(rows) * 2:
        columns = [max(column) for column in zip(*fitting, strict=True)]
        if width - sum(columns) - len(GAP) * len(columns) >= MIN_TEXT_COLUMNS:
            return columns
        fitting.pop()
    return []


def format_names(row: Row, width: int, terminal: Terminal) -> Iterator[tuple[str, str]]:
    """Yield the lines of the cells of a row, plain and styled, each as full as it can be; a cell
    that is wider than a line is broken into several pieces."""
    plain, styled = "", ""
    for text, style in row.cells:
        for piece in wrap_text(text, width) if text else ():
            gap = GAP if plain else ""
            if plain and display_width(plain + gap + piece) > width:
                yield plain, styled
                plain, styled, gap = "", "", ""
            plain, styled = plain + gap + piece, styled + gap + terminal.style(piece, style)
    yield plain, styled


def format_text(row: Row, width: int, terminal: Terminal) -> Iterator[tuple[str, str]]:
    """Yield the lines of a row's text, plain and styled: options are highlighted; remarks follow in
    the last line if they fit, else in lines of their own."""
    lines = wrap_text(row.text, width) if row.text else []
    tails: list[list[str]] = [[] for _ in lines]
    for remark in row.remarks:
        last = " ".join([lines[-1], *tails[-1], remark]) if lines else ""
        if lines and display_width(last) <= width:
            tails[-1].append(remark)
        else:
            pieces = wrap_text(remark, width)
            lines += [""] * len(pieces)
            tails += [[piece] for piece in pieces]
    for line, tail in zip(lines, tails, strict=True):
        marked = OPTION_IN_TEXT.sub(lambda match: terminal.style(match[0], OPTION), line)
        remarks = [terminal.style(remark, REMARK) for remark in tail]
        yield " ".join(filter(None, [line, *tail])), " ".join(filter(None, [marked, *remarks]))
