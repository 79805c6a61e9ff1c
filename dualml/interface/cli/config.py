"""``dualml config``: show the defaults of options that apply here, and where each is set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import typer

from dualml.common.variables import CONFIG, KNOWN_VARIABLES, OPTIONS, is_secret
from dualml.common.words import Messages
from dualml.interface.cli.defaults import Defaults, general_options, user_file
from dualml.interface.cli.options import AsJson, Lang
from dualml.interface.cli.output import print_json, print_text
from dualml.report.blocks import Column, Table
from dualml.report.page import terminal


@dataclass(frozen=True)
class OptionDefault:
    """The default of an option.

    Attributes:
        key: the key in files of defaults, such as ``run.quick``.
        source: ``variable``, ``file`` or ``built in``.
        place: the variable, or the file and line; None for built-in defaults.
    """

    key: str
    value: Any
    source: str
    place: str | None = None


def config(context: typer.Context, json: AsJson = False, lang: Lang = "en") -> None:
    """Show the defaults of options that apply here, and where each of them is set."""
    defaults = context.obj or Defaults()
    chosen = list(list_defaults(context.find_root().command, defaults))
    variables = {
        name: "…" if is_secret(name) else os.environ[name]
        for name in KNOWN_VARIABLES
        if os.environ.get(name) and name not in OPTIONS
    }
    read = [str(file.path) for file in defaults.files]
    looked = [] if CONFIG in variables else [str(user_file())]
    missing = [path for path in looked if path not in read]
    if json:
        print_json(
            {
                "settings": [asdict(setting) for setting in chosen],
                "variables": variables,
                "files": read,
            },
            "config",
        )
        return
    words = Messages(lang)
    rows = [
        [
            one.key,
            format_value(one.value),
            (one.place or words("config.built_in")).replace(", line ", ":"),
        ]
        for one in chosen
    ]
    heads = [Column(key, words(f"config.{key}")) for key in ("key", "value", "place")]
    terminal.show(Table("settings", "", heads, rows))
    if variables:
        print_text()
        heads = [Column(key, words(f"config.{key}")) for key in ("variable", "value")]
        terminal.show(Table("variables", "", heads, [[*pair] for pair in variables.items()]))
    print_text()
    for key, paths in (("read", read), ("absent", missing)):
        for path in paths:
            print_text(words(f"config.{key}", path=path))


def list_defaults(root: Any, defaults: Defaults) -> Iterator[OptionDefault]:
    """Yield the default in effect of every general option, one with an environment variable, then
    those of options of single commands that files set."""
    given = {
        name: os.environ.get(uses[0][1].envvar) for name, uses in general_options(root).items()
    }
    overruled = {
        (command, parameter.name)
        for name, uses in general_options(root).items()
        if given[name]
        for command, parameter in uses
    }
    standing = {p.keys: p for use, p in defaults.entries.items() if use not in overruled}
    for name, uses in general_options(root).items():
        parameter, place = uses[0][1], standing.pop((name,), None)
        if given[name]:
            yield OptionDefault(name, given[name], "variable", parameter.envvar)
        elif place:
            yield OptionDefault(name, place.value, "file", place.location)
        else:
            yield OptionDefault(name, parameter.default, "built in")
    for keys, place in standing.items():
        yield OptionDefault(".".join(keys), place.value, "file", place.location)


def format_value(value: Any) -> str:
    """Format a value for display: a list separated by commas, text without quotes, and a dash for
    None, where the command decides."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
