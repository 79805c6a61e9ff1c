"""Defaults of options, set in the project's ``pyproject.toml`` or the user's own file.

In ``pyproject.toml`` they are in the table ``[tool.dualml]``. Environment variables are declared
with the options. Precedence: option, variable, project file, user file, built-in default. Only the
command line reads defaults: workers, queued jobs and ranks on other machines receive the result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from dualml.common.errors import UserError, did_you_mean
from dualml.common.files import is_regular, read_text, read_toml
from dualml.common.json_types import JsonObject
from dualml.common.parse import find_line
from dualml.common.variables import CONFIG, NO_FILE
from dualml.interface.cli.project import ALLOWED, find_project

#: Type of an option → the TOML types it takes, and their description in messages.
KINDS: Mapping[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str, int, float), "a text or a number"),
    Path: ((str,), "a path"),
}
#: Words of a command, ("data", "get"), or keys below a table of a file.
Names = tuple[str, ...]


@dataclass(frozen=True)
class DefaultsFile:
    """A file of defaults; ``table_path`` is the path of its table of defaults."""

    path: Path
    table_path: tuple[str, ...]

    def table(self) -> JsonObject:
        """Return the table of defaults, read anew; empty if the file has none.

        Raises:
            UserError: the file cannot be read, or the key is not a table.
        """
        table: Any = read_toml(self.path)
        for part in self.table_path:
            table = table.get(part, {})
            if not isinstance(table, dict):
                raise UserError(f"{self.path}: {'.'.join(self.table_path)} is no table")
        return dict(table)

    def location(self, keys: Names) -> str:
        """Return the file and the line that sets a key, for messages; the file alone if the line is
        not found. ``keys`` are below the table of defaults."""
        line = find_line(read_text(self.path), [*self.table_path, *keys])
        return f"{self.path}, line {line}" if line else str(self.path)


@dataclass(frozen=True)
class DefaultEntry:
    """A default that a file sets: its keys in the file, its value, and the file and line."""

    keys: Names
    value: Any
    location: str


@dataclass(frozen=True)
class Defaults:
    """The defaults that files set.

    Attributes:
        map: command → … → parameter → value, as Click's ``default_map``.
        entries: (command, parameter) → the entry that sets it.
        files: the files that were read, in ascending precedence.
        notices: one line per project file that is ignored.
    """

    map: dict[str, Any] = field(default_factory=dict)
    entries: dict[tuple[Names, str], DefaultEntry] = field(default_factory=dict)
    files: tuple[DefaultsFile, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def lang(self) -> str:
        """Language of help and messages if the command has none: that of ``dualml run``."""
        return str(self.for_command(("run",)).get("lang", "en"))

    def for_command(self, command: Names) -> dict[str, Any]:
        """Return parameter → value of one command, as far as files set them."""
        here = self.map
        for part in command:
            here = here.get(part, {})
        return here

    def add_entry(self, command: Names, parameter: str, place: DefaultEntry) -> None:
        """Add the default of one parameter to `map` and `entries`, replacing an earlier one."""
        here = self.map
        for part in command:
            here = here.setdefault(part, {})
        here[parameter] = place.value
        self.entries[command, parameter] = place


def user_file() -> Path:
    """Return the path of the user's own file of defaults, whether or not it exists."""
    from platformdirs import user_config_path

    return user_config_path("dualml") / "config.toml"


def find_defaults() -> Defaults:
    """Find the files that apply here, in ascending precedence, without reading their values: the
    one that ``DUALML_CONFIG`` names (no file if that is ``none``), or else the user's and the
    project's, if they exist."""
    if chosen := os.environ.get(CONFIG):
        return Defaults(
            files=() if chosen == NO_FILE else (DefaultsFile(Path(chosen).expanduser(), ()),)
        )
    user, project = user_file(), find_project()
    found = [DefaultsFile(user, ())] if is_regular(user) else []
    if project.path is not None:
        found.append(DefaultsFile(project.path, ("tool", "dualml")))
    return Defaults(files=tuple(found), notices=project.notices)


def read_defaults(root: Any) -> Defaults:
    """Read the defaults of all commands below ``root``.

    Raises:
        UserError: a file cannot be read, is not TOML, has an unknown key, a value that its option
            does not take, or as a project's file an option that only users may set.
    """
    defaults = find_defaults()
    for file in defaults.files:
        table = file.table()
        for key, value in sorted(table.items(), key=lambda item: item[0] in root.commands):
            if key in root.commands:
                _read_command_table(defaults, file, root.commands[key], (key,), value)
            elif key.replace("_", "-") in general_options(root):
                for command, parameter in general_options(root)[key.replace("_", "-")]:
                    _read_option(defaults, file, command, parameter, (key,), value)
            else:
                hint = did_you_mean(key, [*general_options(root), *root.commands])
                raise UserError(f"{file.location((key,))}: unknown key {key}{hint}")
    return defaults


def _read_command_table(
    defaults: Defaults, file: DefaultsFile, command: Any, keys: Names, value: Any
) -> None:
    """Add the defaults in the table of a command, or of a group of commands, to ``defaults``; raise
    `UserError` for an unknown key or a value that its option does not take."""
    if not isinstance(value, dict):
        raise UserError(f"{file.location(keys)}: {keys[-1]} is a command: a table of its options")
    groups, known = getattr(command, "commands", {}), command_options(command)
    for key, inner in value.items():
        here = (*keys, key)
        if key in groups:
            _read_command_table(defaults, file, groups[key], here, inner)
        elif (name := key.replace("_", "-")) in known:
            _read_option(defaults, file, keys, known[name], here, inner)
        else:
            hint = did_you_mean(name, [*known, *groups])
            raise UserError(f"{file.location(here)}: unknown key {'.'.join(here)}{hint}")


def _read_option(
    defaults: Defaults, file: DefaultsFile, command: Names, parameter: Any, keys: Names, value: Any
) -> None:
    """Check the default of one option and add it to ``defaults``; raise `UserError` for a value of
    another type, or an option that a project's file may not set."""
    if file.table_path and keys[-1].replace("_", "-") not in ALLOWED:
        raise UserError(
            f"{file.location(keys)}: {'.'.join(keys)} is for each user to decide: on the command "
            "line "
            f"or in {user_file()}"
        )
    annotation = parameter.type_descriptor.annotation
    kind = next(iter(get_args(annotation)), annotation)
    allowed, what = KINDS[kind if kind in KINDS else str]
    several = parameter.multiple and isinstance(value, list)
    values = list(value) if several else [value]
    for one in values:
        if not isinstance(one, allowed) or (isinstance(one, bool) and kind is not bool):
            name, lists = ".".join(keys), ", or a list of such" if parameter.multiple else ""
            raise UserError(f"{file.location(keys)}: {name} takes {what}{lists}; received {one!r}")
    if kind not in (bool, int, float):
        values = list(map(str, values))
    chosen = values if parameter.multiple else values[0]
    defaults.add_entry(command, parameter.name, DefaultEntry(keys, chosen, file.location(keys)))


def command_options(command: Any) -> dict[str, Any]:
    """Return name → parameter of the options that are spelled ``--name``, without ``--help`` and
    ``--version``."""
    named = (p for p in command.params if p.param_type_name == "option" and not p.is_eager)
    return {max(p.opts, key=len).lstrip("-"): p for p in named if p.expose_value}


def general_options(root: Any) -> dict[str, list[tuple[Names, Any]]]:
    """Return the options with an environment variable: name → (command, parameter) of each use."""
    found: dict[str, list[tuple[Names, Any]]] = {}
    for path, command in leaf_commands(root):
        for name, parameter in command_options(command).items():
            if parameter.envvar:
                found.setdefault(name, []).append((path, parameter))
    return found


def leaf_commands(command: Any, path: Names = ()) -> Iterator[tuple[Names, Any]]:
    """Yield every command that is not a group, with the words that name it."""
    inside = getattr(command, "commands", None)
    if inside is None:
        yield path, command
    for name, sub in (inside or {}).items():
        yield from leaf_commands(sub, (*path, name))


def value_origin(context: Any, name: str) -> str | None:
    """Return where a parameter's value comes from, the variable or the file and line; None if it
    was typed or is built in."""
    source = str(getattr(context.get_parameter_source(name), "name", ""))
    if source == "ENVIRONMENT":
        return next(str(p.envvar) for p in context.command.params if p.name == name)
    if source != "DEFAULT_MAP":
        return None
    command = tuple(context.command_path.split()[1:])  # without the program's name
    place = (context.obj or Defaults()).entries.get((command, name))
    return place.location if place else "a file of defaults"
