"""The separator ``--`` between options and a command."""

from __future__ import annotations

from typing import Any

from dualml.interface.cli.limits import Command

#: Key in the context of the words after ``--``.
COMMAND = "dualml.command"
SEPARATOR = "--"


class SubmitCommand(Command):
    """Command line that does not parse words after ``--``: they are the command of a job."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Store the words after the first ``--`` in ``ctx.meta``, and parse the others."""
        if SEPARATOR in args and not ctx.resilient_parsing:
            at = args.index(SEPARATOR)
            ctx.meta[COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)
