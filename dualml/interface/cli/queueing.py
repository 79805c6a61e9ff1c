"""Queue a job from the options of ``dualml submit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualml.common.errors import UserError
from dualml.interface.cli.options import RUNS
from dualml.interface.cli.output import print_json, print_text

if TYPE_CHECKING:
    from dualml.runner.jobs.control import JobFields


def check_queue_options(given: dict[str, Any], ranks: bool, gpus_per_node: int) -> None:
    """Raise `UserError` for options that the chosen queue does not have; ``ranks`` says whether
    several ranks per node were asked for."""
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
    of_slurm = {
        "nodes": given["nodes"] > 1,
        "ranks-per-node": ranks,
        "gpus-per-node": gpus_per_node,
        "partition": given["partition"],
        "sbatch": given["sbatch"],
    }
    for option, value in of_slurm.items():
        if value:
            others = "" if option in ("partition", "sbatch") else ", compose and kubernetes"
            raise UserError(f"--{option} is for --on slurm{others}")


def check_render_options(given: dict[str, Any]) -> None:
    """Raise `UserError` for options that do not apply to rendered files."""
    for option in ("out", "gpus", "partition", "sbatch"):
        if given[option]:
            raise UserError(f"--{option} is not for --on {given['on']}")


def queue_job(
    given: dict[str, Any],
    words: list[str],
    asked: JobFields,
    ranks_per_node: int,
    gpus_per_node: int,
    label: str,
) -> None:
    """Put a job into the chosen queue, and print its number and folder.

    Args:
        given: options of ``dualml submit``.
        words: command line of ``dualml run``; empty for a command.
        asked: further fields of `dualml.runner.jobs.store.JobSpec`; more are added to it here.
        ranks_per_node, gpus_per_node: for Slurm.
        label: name of its folder if no name or folder is given.
    """
    from dualml.common.words import Messages
    from dualml.runner.jobs.control import submit as put
    from dualml.runner.jobs.sbatch import sbatch_options
    from dualml.runner.jobs.store import Jobs, jobs_folder
    from dualml.runner.render.quantities import parse_time_limit

    on, time, wait = given["on"], given["time"], given["wait_at_most"]
    if on == "slurm":
        asked["options"] = sbatch_options(
            nodes=given["nodes"],
            ranks_per_node=ranks_per_node,
            gpus_per_node=gpus_per_node,
            time=time,
            partition=given["partition"],
            sbatch=given["sbatch"] or [],
            wait=wait,
        )
    elif time is not None:
        asked["limit"] = parse_time_limit(time)
    asked |= {"name": given["name"], "wait": wait or 0, "lang": given["lang"]}
    jobs = Jobs(jobs_folder())
    label = given["name"] or label
    job = put(jobs, on, words, given["out"] or RUNS / f"{label}-job{{id}}", **asked)
    state = jobs.state(job.id)
    if given["json"]:
        described = {
            "id": job.id,
            "out": job.out,
            "status": state.status,
            "slurm": state.slurm,
            "name": job.name,
        }
        print_json(described, "job")
    else:
        print_text(Messages(given["lang"])("jobs.submitted", id=job.id, out=job.out))
