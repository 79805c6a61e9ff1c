"""``dualml run``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

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

#: Options that a run folder fixes: --resume does not take them from variables and files.
DECIDED = (
    *("backend", "out", "set_", "arm", "seed", "data", "model", "quick", "device", "threads"),
    *("world_size", "rendezvous", "check"),
)


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
    from dualml.runner.session.execution import EXIT_INTERRUPTED
    from dualml.runner.session.prepare import RunRequest
    from dualml.runner.session.runner import run_request

    given = dict(context.params)
    if resume is not None:
        given |= {name: None for name in DECIDED if value_origin(context, name)}
    done = run_request(
        RunRequest(
            lab=lab,
            backend=given["backend"],
            out=given["out"],
            name=name,
            overrides=given["set_"] or [],
            arms=given["arm"] or [],
            seeds=parse_seeds(given["seed"] or []),
            data=given["data"],
            model=given["model"],
            device=given["device"],
            threads=given["threads"],
            quick=bool(given["quick"]),
            resume=resume,
            lang=lang,
            report=not no_report,
            world_size=given["world_size"],
            rendezvous=given["rendezvous"],
            check=bool(given["check"]),
            find=not no_find,
            rank=rank,
            hosts=hosts,
            insecure=insecure,
            keep_local=keep_local,
            tensorboard=tensorboard,
        )
    )
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
