"""``dualml submit --on compose|kubernetes``: write files instead of queueing a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from dualml.common.errors import UserError
from dualml.interface.cli.output import print_json, print_text
from dualml.interface.cli.submit_options import FORBIDDEN_OPTIONS, parse_run_request

if TYPE_CHECKING:
    from dualml.experiment.schema import Experiment
    from dualml.runner.render.command import SubmitOptions
    from dualml.runner.render.request import RenderRequest
    from dualml.runner.request import RunRequest

#: Options of ``dualml run`` that the generated files set, with the reason given to the user.
FIXED_OPTIONS = dict.fromkeys(
    ("world_size", "rendezvous", "hosts", "insecure", "keep_local"),
    "--nodes and --ranks-per-node say how many ranks there are, and the files where they meet",
)
#: Options that are passed on to the generated files unchanged.
FORWARDED_OPTIONS = ("nodes", "cores", "image", "name", "lang")


def render_run(words: list[str], options: Mapping[str, Any]) -> None:
    """Check the options of a run, then write the files that start it with Docker Compose or on
    Kubernetes into the folder ``options["render"]``, and print their names.

    Args:
        words: command line of ``dualml run``.
        options: options of ``dualml submit``, as given.
    """
    from dualml.runner.render.command import parse_numbers
    from dualml.runner.render.request import make_render_request

    check_render_folder(options)
    request = parse_run_request(words, FORBIDDEN_OPTIONS | FIXED_OPTIONS)
    nodes, ranks = options["nodes"], options["ranks_per_node"]
    asked = make_render_request(
        load_for_ranks(request, nodes * ranks),
        request,
        words=words,
        ranks=ranks,
        gpus=options["gpus_per_node"],
        **parse_numbers(cast("SubmitOptions", options)),
        **{key: options[key] for key in FORWARDED_OPTIONS},
    )
    write_files(asked, options)


def render_command(
    command: Sequence[str], size: int, gpus: int, options: Mapping[str, Any]
) -> None:
    """Check the options of a command, then write the files that start it with Docker Compose or on
    Kubernetes into the folder ``options["render"]``, and print their names; each worker is a
    container.

    Args:
        command: of each worker.
        size: number of workers.
        gpus: GPUs per worker.
        options: options of ``dualml submit``, as given.
    """
    from dualml.runner.render.command import command_request

    on = options["on"]
    check_render_folder(options)
    if options["nodes"] not in (1, size):
        raise UserError(f"--nodes with --on {on}: each of the --workers is a container")
    typed = cast("SubmitOptions", options)
    asked = command_request(command, size, gpus, typed, lend=on == "kubernetes")
    write_files(asked, options)


def check_render_folder(options: Mapping[str, Any]) -> None:
    """Raise `UserError` if no folder for the files is named, it is not empty, or an option was
    given that files for Compose do not have."""
    from dualml.runner.render import files

    on = options["on"]
    if options["render"] is None:
        raise UserError(f"--on {on} writes files and starts nothing: name a folder, --render DIR")
    for option in ("kind", "disk"):
        if on == "compose" and options[option] is not None:
            raise UserError(f"--{option} is for --on kubernetes")
    files.check_empty_folder(options["render"])


def write_files(asked: RenderRequest, options: Mapping[str, Any]) -> None:
    """Write the files of a request into the folder ``options["render"]``, and print their names, or
    JSON."""
    from dualml.common.words import Messages
    from dualml.runner.render import files
    from dualml.runner.render.kinds import choose_kind

    folder = options["render"]
    if options["on"] == "compose":
        written = files.compose_files(asked)
    else:
        written = files.kubernetes_files(asked, choose_kind(options["kind"], asked.backend))
    files.write_files(folder, written)
    if options["json"]:
        print_json({"folder": str(folder), "files": sorted(written)}, "files")
    else:
        names = ", ".join(written)
        print_text(Messages(options["lang"])("render.written", folder=folder, files=names))


def load_for_ranks(request: RunRequest, size: int) -> Experiment:
    """Load the experiment as ``size`` ranks run it.

    If they cannot run it, it is loaded as its file defines it, so that the error can say what it
    needs. For one rank it is always loaded like that.
    """
    if size == 1:
        return request.load_experiment()
    try:
        return request.load_experiment(size)
    except UserError:
        return request.load_experiment()
