"""Groups of commands whose modules are imported when one of their commands is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from typer.core import TyperCommand, TyperGroup

from dualml.interface.cli.help_page import print_help_page
from dualml.interface.cli.limits import accept_texts

#: Called with the name of a command and the command, once it is built.
Preparation = Callable[[str, Any], None]


class CommandTable(Mapping[str, Any]):
    """The commands of a group by name; each is built when it is first looked up.

    Args:
        builders: name → function that imports and returns the command, in the order of ``--help``.
    """

    def __init__(self, builders: Mapping[str, Callable[[], Any]]) -> None:
        self.builders = builders
        self.built: dict[str, Any] = {}
        self.preparations: list[Preparation] = []

    def __getitem__(self, name: str) -> Any:
        if name not in self.built:
            command = self.builders[name]()
            for prepare in self.preparations:
                prepare(name, command)
            self.built[name] = command
        return self.built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.builders)

    def __len__(self) -> int:
        return len(self.builders)

    def __contains__(self, name: object) -> bool:
        return name in self.builders  # Mapping's own would build the command

    def prepare_each(self, prepare: Preparation) -> None:
        """Call ``prepare`` with each command: now if it is built, else as soon as it is."""
        self.preparations.append(prepare)
        for name, command in self.built.items():
            prepare(name, command)


class CommandGroup(TyperGroup):
    """Group of commands with dualml's own help page.

    Attributes:
        abouts: name of a command → what it does, for the help page; commands that are not listed
            there are asked, which builds them.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.abouts: dict[str, str] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command into ``ctx`` and return the remaining words; ASCII
        texts, and options without a value, skip the parser's own check (`accept_texts`)."""
        accept_texts(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, without building any."""
        return list(self.commands)

    def describe_commands(self) -> list[tuple[str, str]]:
        """Return the name of each command and what it does, in the order of the group."""
        return [
            (name, self.abouts[name] if name in self.abouts else self.commands[name].help or "")
            for name in self.commands
        ]

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the completions of a word, without building the commands that it may name."""
        commands = self.commands
        self.commands = {name: TyperCommand(name, help=text) for name, text in self.abouts.items()}
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self.commands = commands

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help page; the formatter stays empty."""
        print_help_page(self, ctx)


def prepare_subcommands(command: Any, prepare: Preparation) -> None:
    """Call ``prepare`` with the name and each command of a group, if ``command`` is one: now, or as
    soon as it is built."""
    commands = getattr(command, "commands", {})
    if isinstance(commands, CommandTable):
        commands.prepare_each(prepare)
        return
    for name, sub in commands.items():
        prepare(name, sub)
