"""What separates options from a command: ``--``."""

from __future__ import annotations

from typing import Any

from dualml.cli.limits import Command

#: Where the words after ``--`` are kept until the command line has been read.
COMMAND = "dualml.command"
SEPARATOR = "--"


class SubmitCommand(Command):
    """Keeps what stands after ``--`` out of the options: it is the command of a job."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if SEPARATOR in args and not ctx.resilient_parsing:
            at = args.index(SEPARATOR)
            ctx.meta[COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)
