"""``dualml submit``: a run, or any command, into a queue or into files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dualml.cli.commands import COMMAND
from dualml.cli.defaults import Defaults
from dualml.cli.options import LAB, RUNS, AsJson, Lang
from dualml.cli.output import print_json, print_text
from dualml.cli.submitted import REFUSED, frozen, opened, parsed
from dualml.errors import UserError, nearest

#: Where a job may run.
PLACES = ("local", "slurm", "compose", "kubernetes")


def submit(
    context: typer.Context,
    lab: Annotated[str | None, LAB] = None,
    on: Annotated[str, typer.Option(metavar="local|slurm|compose|kubernetes")] = "local",
    out: Path | None = None,
    cores: Annotated[int, typer.Option(min=0)] = 0,
    gpus: Annotated[int, typer.Option(min=0)] = 0,
    memory: Annotated[str | None, typer.Option(metavar="BYTES")] = None,
    nodes: Annotated[int, typer.Option(min=1)] = 1,
    ranks_per_node: Annotated[int, typer.Option(min=1)] = 1,
    gpus_per_node: Annotated[int, typer.Option(min=0)] = 0,
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    gpus_per_worker: Annotated[int | None, typer.Option(min=0)] = None,
    mindspore: Annotated[bool, typer.Option("--mindspore")] = False,
    wait_at_most: Annotated[float | None, typer.Option(metavar="SECONDS")] = None,
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
    """Queue a run, whose further options are those of ``dualml run``, or a command after ``--``."""
    from dualml.cost.units import nbytes
    from dualml.jobs.sbatch import check_name, check_wait

    given = dict(context.params)
    if on not in PLACES:
        hint = nearest(on, PLACES, otherwise="")
        raise UserError(f"--on must be one of {', '.join(PLACES)}; received {on!r}{hint}")
    if on in ("local", "slurm"):
        check_name(name)
    check_wait(on, wait_at_most, time)
    if (command := context.meta.get(COMMAND)) is not None:
        from dualml.cli.commands import submit_command

        submit_command(command, [*([lab] if lab else []), *context.args], given)
        return
    for option in ("workers", "gpus_per_worker", "mindspore"):
        if given[option]:
            text = "is for a command: dualml submit … -- python run.py"
            raise UserError(f"--{option.replace('_', '-')} {text}")
    if lab is None:
        raise UserError("name an experiment, as in `dualml submit lab1`, or a command after --")
    words = [lab, *context.args, *(["--lang", lang] if lang != "en" else [])]
    words = frozen(words, context.obj or Defaults())
    if on in ("compose", "kubernetes"):
        from dualml.cli.render import to_files

        check_rendered(given)
        to_files(on, words, options_of_files(given), as_json=json)
        return
    label = checked(words)
    asked: dict[str, Any] = {"cores": cores, "gpus": gpus}
    asked["memory"] = nbytes(memory, "--memory") if memory else 0
    check_queued(given, ranks_per_node > 1, gpus_per_node)
    queue(given, words, asked, ranks_per_node, gpus_per_node, label)


def check_queued(given: dict[str, Any], ranks: bool, gpus_per_node: int) -> None:
    """Raise `UserError` for options that the queue has not which was chosen."""
    on = given["on"]
    for option in ("render", "kind", "image", "rate", "disk"):
        if given[option] is not None:
            raise UserError(f"--{option} is for --on compose and --on kubernetes")
    if on == "slurm" and any(given[option] for option in ("cores", "gpus", "memory")):
        raise UserError(
            "--cores, --gpus and --memory are for --on local: give Slurm its own options"
        )
    if on != "local":
        return
    of_slurm = {"nodes": given["nodes"] > 1, "ranks-per-node": ranks,
                "gpus-per-node": gpus_per_node, "partition": given["partition"],
                "sbatch": given["sbatch"]}  # fmt: skip
    for option, value in of_slurm.items():
        if value:
            others = "" if option in ("partition", "sbatch") else ", compose and kubernetes"
            raise UserError(f"--{option} is for --on slurm{others}")


def check_rendered(given: dict[str, Any]) -> None:
    """Raise `UserError` for options that files have not."""
    for option in ("out", "gpus", "partition", "sbatch"):
        if given[option]:
            raise UserError(f"--{option} is not for --on {given['on']}")


def options_of_files(given: dict[str, Any]) -> dict[str, Any]:
    """Return what is rendered, under the names of `dualml.render`."""
    same = ("cores", "memory", "nodes", "time", "lang", "render", "kind", "image", "name", "rate",
            "disk")  # fmt: skip
    kept = {option: given[option] for option in same}
    return {**kept, "ranks": given["ranks_per_node"], "gpus": given["gpus_per_node"]}


def queue(
    given: dict[str, Any],
    words: list[str],
    asked: dict[str, Any],
    ranks_per_node: int,
    gpus_per_node: int,
    label: str,
) -> None:
    """Put a job into the queue that was chosen, and say so.

    Args:
        given: options of the command line.
        words: of ``dualml run``; none for a command.
        asked: fields of `dualml.jobs.store.Job`.
        label: names its folder, where nothing else does.
    """
    from dualml.jobs.control import submit as put
    from dualml.jobs.sbatch import options
    from dualml.jobs.store import Jobs, home
    from dualml.render.quantities import seconds
    from dualml.words import Words

    on, time, wait = given["on"], given["time"], given["wait_at_most"]
    if on == "slurm":
        asked["options"] = options(
            nodes=given["nodes"], ranks_per_node=ranks_per_node, gpus_per_node=gpus_per_node,
            time=time, partition=given["partition"], sbatch=given["sbatch"] or [], wait=wait,
        )  # fmt: skip
    elif time is not None:
        asked["limit"] = seconds(time)
    asked |= {"name": given["name"], "wait": wait or 0, "lang": given["lang"]}
    jobs = Jobs(home())
    label = given["name"] or label
    job = put(jobs, on, words, given["out"] or RUNS / f"{label}-job{{id}}", **asked)
    state = jobs.state(job.id)
    if given["json"]:
        described = {"id": job.id, "out": job.out, "status": state.status, "slurm": state.slurm,
                     "name": job.name}  # fmt: skip
        print_json(described, "job")
    else:
        print_text(Words(given["lang"])("jobs.submitted", id=job.id, out=job.out))


def checked(words: list[str]) -> str:
    """The name of the experiment; what cannot be run is said now, not when its turn comes."""
    from dualml.backend import choose

    given = parsed(words, REFUSED)
    choose(given["backend"])
    return str(opened(given, given["world_size"]).name)
