"""`dualml simulate --published`: published all-reduce measurements and their predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.interface.cli.output import print_json, print_text


def print_published(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Print the tables of docs/cost-measured.md, or all points as JSON.

    Raises:
        UserError: options other than ``--json`` and ``--lang`` were given.
    """
    other = [
        key
        for key, default in defaults.items()
        if key not in ("published", "json", "lang") and given[key] != default.default
    ]
    if other:
        raise UserError(
            f"--published shows what others measured; leave out --{other[0].replace('_', '-')}"
        )
    from dualml.planning.cost.published import describe

    if given["json"]:
        print_json(describe(), "simulate-published")
        return
    from dualml.report.page import terminal
    from dualml.report.published import tables

    for table in tables(Messages(given["lang"])):
        terminal.show(table)
        print_text()
