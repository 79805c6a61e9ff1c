"""``dualml run``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import UserError
from dualml.interface.cli import complete, signals
from dualml.interface.cli.defaults import value_origin
from dualml.interface.cli.options import (
    ARM,
    BACKEND,
    DATA,
    DEVICE,
    LAB,
    LANG,
    MODEL,
    OUT_FOLDER,
    SET,
    THREADS,
    AsJson,
)
from dualml.interface.cli.output import complain, print_json, print_run

if TYPE_CHECKING:
    from dualml.runner.request import RunRequest

#: Field of a request → the parameter of `run` that sets it, where the names differ.
PARAMETERS = {"overrides": "set_", "arms": "arm", "seeds": "seed"}


def run(
    context: typer.Context,
    lab: Annotated[str | None, LAB] = None,
    backend: Annotated[str | None, BACKEND] = None,
    out: Annotated[Path | None, OUT_FOLDER] = None,
    name: str | None = None,
    set_: Annotated[list[str] | None, SET] = None,
    arm: Annotated[list[str] | None, ARM] = None,
    seed: list[str] | None = None,
    data: Annotated[str | None, DATA] = None,
    model: Annotated[str | None, MODEL] = None,
    world_size: int | None = None,
    rendezvous: Annotated[str | None, typer.Option(metavar="HOW")] = None,
    check: Annotated[bool, typer.Option("--check")] = False,
    device: Annotated[str | None, DEVICE] = None,
    threads: Annotated[int | None, THREADS] = None,
    quick: Annotated[bool, typer.Option("--quick")] = False,
    resume: Annotated[Path | None, typer.Option(autocompletion=complete.runs)] = None,
    lang: Annotated[str | None, LANG] = None,
    json: AsJson = False,
    no_report: Annotated[bool, typer.Option("--no-report")] = False,
    no_find: Annotated[bool, typer.Option("--no-find")] = False,
    rank: Annotated[int | None, typer.Option(min=0)] = None,
    hosts: Path | None = None,
    insecure: Annotated[bool, typer.Option("--insecure")] = False,
    keep_local: Annotated[bool, typer.Option("--keep-local")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard")] = False,
) -> None:
    """Run an experiment on one or more backends and write a run folder, or continue the one of
    ``resume``."""
    from dualml.experiment.store.findings import read_findings
    from dualml.experiment.store.manifest import RUN
    from dualml.runner import run as runner
    from dualml.runner.outcome import EXIT_INTERRUPTED
    from dualml.runner.request import DECIDED_BY_FOLDER

    given = dict(context.params)
    if resume is not None:  # the run folder decides, not variables and files
        decided = [*map(option_parameter, DECIDED_BY_FOLDER.values()), "world_size"]
        given |= {name: None for name in decided if value_origin(context, name)}
    done = runner.run(make_request(given))
    if done.code == EXIT_INTERRUPTED:  # nothing is left that a second Ctrl-C could stop
        signals.ignore_signals()
    if done.folder is not None and json:
        path = done.folder.path
        print_json(
            {
                "folder": str(path),
                "exit_code": done.code,
                **RUN.content(done.folder.run),
                "parity": [one.describe() for one in done.parity.comparisons],
                "findings": [finding.describe() for finding in read_findings(path)],
            },
            "run",
        )
    elif done.folder is not None and done.code != EXIT_INTERRUPTED:
        print_run(done.folder, done.parity, lang or done.folder.run.lang, report=not no_report)
    if done.remedy:
        complain(done.remedy)
    raise typer.Exit(done.code)


def option_parameter(field: str) -> str:
    """Return the name of the parameter of `run` that sets a field of a request."""
    return PARAMETERS.get(field, field)


def make_request(given: Mapping[str, Any]) -> RunRequest:
    """Make the request from the parameters of `run` by name; None stands for an option that is
    omitted. Raise `UserError` for a value that no run accepts."""
    from dualml.runner.request import RunRequest

    values = {
        field: given[option_parameter(field)]
        for field in RunRequest.model_fields
        if given.get(option_parameter(field)) is not None
    }
    values["seeds"] = parse_seeds(values.get("seeds", []))
    return RunRequest(**values, report=not given["no_report"], find=not given["no_find"])


def parse_seeds(words: list[str]) -> list[int]:
    """Parse the values of ``--seed``: ``["0,1", "2"]`` → ``[0, 1, 2]``. Raise `UserError` for
    anything but whole numbers."""
    from dualml.common.strict_model import clip_text

    try:
        return [int(part) for word in words for part in re.sub(r"[\[\]]", "", word).split(",")]
    except ValueError:
        received = clip_text(repr(words))
        text = f"--seed takes whole numbers, as in --seed 0,1,2; received {received}"
        raise UserError(text) from None
