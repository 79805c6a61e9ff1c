"""Options of ``dualml run`` that stand on the command line of ``dualml submit``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from dualml.errors import UserError

if TYPE_CHECKING:
    from dualml.experiment.schema import Experiment

#: Options of ``dualml run`` that a job cannot have, and what is there instead.
REFUSED = {
    "resume": "dualml resume takes a job up again",
    "rank": "a job starts its own ranks",
    "json": "dualml jobs --json tells how it stands",
}


def parsed(words: list[str], refused: Mapping[str, str]) -> dict[str, Any]:
    """The options of ``dualml run`` by name.

    Raises:
        UserError: one that is ``refused``, with what is there instead.
    """
    from typer.main import get_command

    from dualml.cli.run import run

    app = typer.Typer(add_completion=False)
    app.command()(run)
    command: Any = get_command(app)
    given: dict[str, Any] = command.make_context("run", list(words)).params
    for name, instead in refused.items():
        if given[name] not in (None, False):
            raise UserError(f"submit takes no --{name.replace('_', '-')}: {instead}")
    return given


def opened(given: Mapping[str, Any], world_size: int | None) -> Experiment:
    """The experiment that options of ``dualml run`` mean."""
    from dualml.cli.run import numbers
    from dualml.experiment.load import load

    return load(
        given["lab"], overrides=given["set_"] or [], arms=given["arm"] or [],
        seeds=numbers(given["seed"] or []), data=given["data"], quick=given["quick"],
        world_size=world_size,
    )  # fmt: skip
