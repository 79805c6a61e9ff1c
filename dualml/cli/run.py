"""``dualml run``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from dualml.cli import signals
from dualml.cli.options import LANG, AsJson
from dualml.cli.output import complain, print_json, print_run
from dualml.errors import UserError


def run(
    lab: Annotated[str | None, typer.Argument()] = None,
    backend: Annotated[str | None, typer.Option("--backend", "-b")] = None,
    out: Path | None = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    arm: list[str] | None = None,
    seed: list[str] | None = None,
    data: str | None = None,
    world_size: int | None = None,
    rendezvous: Annotated[str | None, typer.Option(metavar="HOW")] = None,
    check: Annotated[bool, typer.Option("--check")] = False,
    device: str | None = None,
    threads: Annotated[int | None, typer.Option(min=0)] = None,
    quick: Annotated[bool, typer.Option("--quick")] = False,
    resume: Path | None = None,
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
    """Run an experiment on one or more backends and write a run folder."""
    from dualml.session.execute import execute
    from dualml.session.perform import INTERRUPTED
    from dualml.session.prepare import Request
    from dualml.store.findings import read_findings
    from dualml.store.manifest import RUN

    done = execute(
        Request(
            lab=lab,
            backend=backend,
            out=out,
            overrides=set_ or [],
            arms=arm or [],
            seeds=numbers(seed or []),
            data=data,
            device=device,
            threads=threads,
            quick=quick,
            resume=resume,
            lang=lang,
            report=not no_report,
            world_size=world_size,
            rendezvous=rendezvous,
            check=check,
            find=not no_find,
            rank=rank,
            hosts=hosts,
            insecure=insecure,
            keep_local=keep_local,
            tensorboard=tensorboard,
        )
    )
    if done.code == INTERRUPTED:  # nothing is left that a second Ctrl-C could end
        signals.ignore()
    if done.folder is not None and json:
        path = done.folder.path
        print_json({
            "folder": str(path), "exit_code": done.code, **RUN.content(done.folder.run),
            "parity": done.parity.get("comparisons", []),
            "findings": [finding.describe() for finding in read_findings(path)],
        })  # fmt: skip
    elif done.folder is not None and done.code != INTERRUPTED:
        print_run(done.folder, done.parity, lang or done.folder.run.lang, report=not no_report)
    if done.remedy:
        complain(done.remedy)
    raise typer.Exit(done.code)


def numbers(words: list[str]) -> list[int]:
    """``["0,1", "2"]`` → ``[0, 1, 2]``."""
    from dualml.strict import shortened

    try:
        return [int(part) for word in words for part in re.sub(r"[\[\]]", "", word).split(",")]
    except ValueError:
        received = shortened(repr(words))
        text = f"--seed takes whole numbers, as in --seed 0,1,2; received {received}"
        raise UserError(text) from None
