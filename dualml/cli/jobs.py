"""``dualml submit``, ``jobs``, ``logs``, ``stop`` and ``resume``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dualml.cli.defaults import Defaults
from dualml.cli.options import JOB, LAB, RUNS, AsJson, Lang
from dualml.cli.output import print_json, print_text
from dualml.cli.submitted import REFUSED, frozen, opened, parsed
from dualml.errors import UserError, nearest, plain

Number = Annotated[int, JOB]


def submit(
    context: typer.Context,
    lab: Annotated[str, LAB],
    on: Annotated[str, typer.Option(metavar="local|slurm|compose|kubernetes")] = "local",
    out: Path | None = None,
    cores: Annotated[int, typer.Option(min=0)] = 0,
    gpus: Annotated[int, typer.Option(min=0)] = 0,
    memory: Annotated[str | None, typer.Option(metavar="BYTES")] = None,
    nodes: Annotated[int, typer.Option(min=1)] = 1,
    ranks_per_node: Annotated[int, typer.Option(min=1)] = 1,
    gpus_per_node: Annotated[int, typer.Option(min=0)] = 0,
    time: Annotated[str | None, typer.Option(metavar="TIME")] = None,
    partition: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    sbatch: Annotated[list[str] | None, typer.Option(metavar="--OPTION=VALUE")] = None,
    render: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    kind: Annotated[str | None, typer.Option(metavar="trainjob|pytorchjob|volcano")] = None,
    image: Annotated[str | None, typer.Option(metavar="NAME:TAG")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    rate: Annotated[str | None, typer.Option(metavar="RATE")] = None,
    disk: Annotated[str | None, typer.Option(metavar="BYTES")] = None,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Queue a run; further options are those of ``dualml run``."""
    from dualml.cost.units import nbytes
    from dualml.jobs.control import submit as queue
    from dualml.jobs.sbatch import options
    from dualml.jobs.store import Jobs, home
    from dualml.words import Words

    places = ("local", "slurm", "compose", "kubernetes")
    if on not in places:
        hint = nearest(on, places, otherwise="")
        raise UserError(f"--on must be one of {', '.join(places)}; received {on!r}{hint}")
    words = [lab, *context.args, *(["--lang", lang] if lang != "en" else [])]
    words = frozen(words, context.obj or Defaults())
    rendered = {
        "render": render, "kind": kind, "image": image, "name": name, "rate": rate, "disk": disk,
    }  # fmt: skip
    if on in ("compose", "kubernetes"):
        from dualml.cli.render import to_files

        for option, value in (("out", out), ("gpus", gpus), ("partition", partition),
                              ("sbatch", sbatch)):  # fmt: skip
            if value:
                raise UserError(f"--{option} is not for --on {on}")
        options_given = {
            "cores": cores, "memory": memory, "nodes": nodes, "ranks": ranks_per_node,
            "gpus": gpus_per_node, "time": time, "lang": lang,
        }  # fmt: skip
        to_files(on, words, {**options_given, **rendered}, as_json=json)
        return
    for option, value in rendered.items():
        if value is not None:
            raise UserError(f"--{option} is for --on compose and --on kubernetes")
    label = checked(words)
    asked: dict[str, Any] = {"cores": cores, "gpus": gpus}
    asked["memory"] = nbytes(memory, "--memory") if memory else 0
    wanted = options(
        nodes=nodes, ranks_per_node=ranks_per_node, gpus_per_node=gpus_per_node, time=time,
        partition=partition, sbatch=sbatch or [],
    )  # fmt: skip
    if on == "local" and wanted:
        option = next(option for option, value in {
            "nodes": nodes > 1, "ranks-per-node": ranks_per_node > 1,
            "gpus-per-node": gpus_per_node, "time": time, "partition": partition, "sbatch": sbatch,
        }.items() if value)  # fmt: skip
        others = "" if option in ("partition", "sbatch") else ", compose and kubernetes"
        raise UserError(f"--{option} is for --on slurm{others}")
    if on == "slurm" and any(asked.values()):
        raise UserError(
            "--cores, --gpus and --memory are for --on local: give Slurm its own options"
        )
    if on == "slurm":
        asked["options"] = wanted
    jobs = Jobs(home())
    job = queue(jobs, on, words, out or RUNS / f"{label}-job{{id}}", **asked)  # type: ignore[arg-type]
    state = jobs.state(job.id)
    if json:
        described = {"id": job.id, "out": job.out, "status": state.status, "slurm": state.slurm}
        print_json(described, "job")
    else:
        print_text(Words(lang)("jobs.submitted", id=job.id, out=job.out))


def checked(words: list[str]) -> str:
    """The name of the experiment; what cannot be run is said now, not when its turn comes."""
    from dualml.backend import choose

    given = parsed(words, REFUSED)
    choose(given["backend"])
    return str(opened(given, given["world_size"]).name)


def jobs(
    everything: Annotated[bool, typer.Option("--all")] = False,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Jobs that wait and run, and the last that have ended."""
    from dualml.jobs.control import rows
    from dualml.jobs.store import Jobs, home
    from dualml.jobs.table import table
    from dualml.report.page import terminal
    from dualml.words import Words

    found = rows(Jobs(home()), everything)
    if json:
        print_json({"jobs": [row.describe() for row in found]}, "jobs")
    elif found:
        terminal.show(table(found, Words(lang)))
    else:
        print_text(Words(lang)("jobs.none"))


def print_status(number: int, status: str, lang: str) -> None:
    from dualml.words import Words

    words = Words(lang)
    print_text(words("jobs.now", id=number, status=words(f"jobs.status.{status}")))


def logs(
    number: Number,
    follow: Annotated[bool, typer.Option("--follow", "-f")] = False,
    rank: Annotated[int | None, typer.Option(min=0)] = None,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """What a job prints."""
    from dualml.jobs.logs import lines
    from dualml.jobs.store import Jobs, home

    jobs = Jobs(home())
    if json and follow:
        raise UserError("--json prints a log as it is now; leave out --follow")
    pieces = lines(jobs, jobs.job(number), rank, follow)
    if json:
        print_json({"id": number, "rank": rank, "lines": "".join(pieces).splitlines()}, "logs")
        return
    for piece in pieces:
        typer.echo(plain(piece, "\n\t"), nl=False)


def stop(number: Number, json: AsJson = False, lang: Lang = "en") -> None:
    """End a job, or take it out of the queue."""
    from dualml.jobs.control import stop as end
    from dualml.jobs.store import Jobs, home

    state = end(Jobs(home()), number)
    if json:
        print_json({"id": number, "status": state.status}, "job")
    else:
        print_status(number, state.status, lang)


def resume(number: Number, json: AsJson = False, lang: Lang = "en") -> None:
    """Take up a job again that failed or was stopped."""
    from dualml.jobs.control import resume as go_on
    from dualml.jobs.store import Jobs, home

    jobs = Jobs(home())
    go_on(jobs, number)
    state = jobs.state(number)
    if json:
        print_json({"id": number, "status": state.status}, "job")
    else:
        print_status(number, state.status, lang)
