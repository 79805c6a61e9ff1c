"""``dualml run``."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Any

import typer


def run(
    lab: Annotated[str | None, typer.Argument(help="A name (lab1) or a TOML file.")] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            "-b",
            help="torch, mindspore, numpy, a comma list, both or all. "
            "Default: every installed one of torch and mindspore.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/LAB-TIME.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a dotted key of the TOML."),
    ] = None,
    arm: Annotated[
        list[str] | None, typer.Option(help="Arm or group of arms to run, or all; repeatable.")
    ] = None,
    seed: Annotated[
        list[str] | None, typer.Option(help="Seed, or a comma list; repeatable.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Dataset; never falls back to another.")] = None,
    world_size: Annotated[
        int | None, typer.Option(help="Ranks of every arm that has several.")
    ] = None,
    rendezvous: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="How ranks find one another: auto (the default), file:///path, tcp://host:port "
            "or, under torchrun or msrun, env://.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Compare order, shapes and types of all collectives between the ranks; slow.",
        ),
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="auto (the default), cpu, cuda[:i], gpu or ascend.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=0, help="Threads of each worker; 0, the default: one per usable core."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same protocol on a subset.")] = False,
    resume: Annotated[Path | None, typer.Option(help="Go on with an interrupted run.")] = None,
    lang: Annotated[
        str | None, typer.Option(help="Language of the report: en (the default) or zh.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="The summary as JSON on stdout, progress on stderr.")
    ] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Leave out the report.")] = False,
    no_find: Annotated[
        bool, typer.Option("--no-find", help="Where backends differ, do not look for the cause.")
    ] = False,
) -> None:
    """Run an experiment on one or more backends and write a run folder."""
    from dualml.cli.output import check_lang, print_json, print_run
    from dualml.communicator.place import check_rendezvous
    from dualml.errors import UserError
    from dualml.experiment.schema import MOST_RANKS
    from dualml.finder.record import read as read_findings
    from dualml.runner.execute import INTERRUPTED, Request, execute

    if world_size is not None and not 1 <= world_size <= MOST_RANKS:
        raise UserError(f"--world-size must be from 1 to {MOST_RANKS}; received {world_size}")
    if rendezvous is not None:
        check_rendezvous(rendezvous)
    if lang is not None:
        check_lang(lang)
    code, folder, parity = execute(
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
        )
    )
    if code == INTERRUPTED:  # nothing is left that a second Ctrl-C could end
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, signal.SIG_IGN)
    if json:
        summary: dict[str, Any] = {"folder": str(folder.path), "exit_code": code, **folder.run}
        found = {"parity": parity.get("comparisons", []), "findings": read_findings(folder.path)}
        print_json({**summary, **found})
    elif code != INTERRUPTED and folder.run["trials"]:
        print_run(folder, parity, lang or folder.run["lang"], report=not no_report)
    raise typer.Exit(code)


def numbers(words: list[str]) -> list[int]:
    """``["0,1", "2"]`` → ``[0, 1, 2]``."""
    from dualml.errors import UserError

    try:
        return [
            int(part)
            for word in words
            for part in word.replace("[", "").replace("]", "").split(",")
        ]
    except ValueError:
        raise UserError(
            f"--seed takes whole numbers, as in --seed 0,1,2; received {words}"
        ) from None
