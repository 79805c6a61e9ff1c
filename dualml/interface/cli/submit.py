"""``dualml submit``: submit a run, or any command, to a queue, or render it into files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualml.common.errors import UserError, did_you_mean
from dualml.interface.cli.defaults import Defaults
from dualml.interface.cli.options import LAB, AsJson, Lang
from dualml.interface.cli.queueing import check_queue_options, check_render_options, queue_job
from dualml.interface.cli.separator import COMMAND
from dualml.interface.cli.submit_options import FORBIDDEN_OPTIONS, add_defaults, parse_run_request

if TYPE_CHECKING:
    from dualml.runner.jobs.control import JobFields

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
    from dualml.planning.cost.units import parse_bytes
    from dualml.runner.jobs.sbatch import check_name, check_wait

    given = dict(context.params)
    if on not in PLACES:
        hint = did_you_mean(on, PLACES, fallback="")
        raise UserError(f"--on must be one of {', '.join(PLACES)}; received {on!r}{hint}")
    if on in ("local", "slurm"):
        check_name(name)
    check_wait(on, wait_at_most, time)
    if (command := context.meta.get(COMMAND)) is not None:
        from dualml.interface.cli.commands import submit_command

        submit_command(command, [*([lab] if lab else []), *context.args], given)
        return
    for option in ("workers", "gpus_per_worker", "mindspore"):
        if given[option]:
            text = "is for a command: dualml submit … -- python run.py"
            raise UserError(f"--{option.replace('_', '-')} {text}")
    if lab is None:
        raise UserError("name an experiment, as in `dualml submit lab1`, or a command after --")
    words = [lab, *context.args, *(["--lang", lang] if lang != "en" else [])]
    words = add_defaults(words, context.obj or Defaults())
    if on in ("compose", "kubernetes"):
        from dualml.interface.cli.render import render_run

        check_render_options(given)
        render_run(words, given)
        return
    label = check_experiment(words)
    nbytes = parse_bytes(memory, "--memory") if memory else 0
    asked: JobFields = {"cores": cores, "gpus": gpus, "memory": nbytes}
    check_queue_options(given, ranks_per_node > 1, gpus_per_node)
    queue_job(given, words, asked, ranks_per_node, gpus_per_node, label)


def check_experiment(words: list[str]) -> str:
    """Return the name of the experiment; raise `UserError` now, not in the job, if it or its
    backends do not exist or its settings are invalid."""
    from dualml.backend import select_backends

    request = parse_run_request(words, FORBIDDEN_OPTIONS)
    select_backends(request.backend)
    return str(request.load_experiment(request.world_size).name)
