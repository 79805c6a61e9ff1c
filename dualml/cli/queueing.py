"""From the options of ``dualml submit`` to a job in a queue."""

from __future__ import annotations

from typing import Any

from dualml.cli.options import RUNS
from dualml.cli.output import print_json, print_text
from dualml.errors import UserError


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
