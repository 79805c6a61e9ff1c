"""``dualml submit --on compose|kubernetes``: files instead of a job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualml.cli.output import print_json, print_text
from dualml.cli.submitted import REFUSED, opened, parsed
from dualml.errors import UserError

if TYPE_CHECKING:
    from dualml.experiment.schema import Experiment

#: As a job's, and what the files say of the ranks themselves.
TAKEN = dict.fromkeys(
    ("world_size", "rendezvous", "hosts", "insecure", "keep_local"),
    "--nodes and --ranks-per-node say how many ranks there are, and the files where they meet",
)
#: Options that are right as they are read.
KEPT = ("nodes", "ranks", "gpus", "cores", "image", "name", "lang")
#: Of each volume.
DISK = "10GB"


def to_files(on: str, words: list[str], options: Mapping[str, Any], as_json: bool) -> None:
    """Check everything, then write the folder.

    Args:
        on: ``compose`` or ``kubernetes``.
        words: of ``dualml run``.
        options: of ``dualml submit``, as they were given.
    """
    from dualml.cost.units import nbytes
    from dualml.render import files, quantities
    from dualml.render.kinds import kind_of
    from dualml.render.request import request
    from dualml.words import Words

    folder: Path | None = options["render"]
    if folder is None:
        raise UserError(f"--on {on} writes files and starts nothing: name a folder, --render DIR")
    for option in ("kind", "disk"):
        if on == "compose" and options[option] is not None:
            raise UserError(f"--{option} is for --on kubernetes")
    files.check_free(folder)
    given = parsed(words, REFUSED | TAKEN)
    nodes, ranks = options["nodes"], options["ranks"]
    asked = request(
        experiment(given, nodes * ranks), given, words=words,
        memory=nbytes(options["memory"], "--memory") if options["memory"] else 0,
        disk=nbytes(options["disk"] or DISK, "--disk"),
        seconds=quantities.seconds(options["time"]) if options["time"] is not None else 0,
        rate=quantities.bits(options["rate"]) if options["rate"] is not None else 0,
        **{key: options[key] for key in KEPT},
    )  # fmt: skip
    if on == "compose":
        written = files.compose_files(asked)
    else:
        written = files.kubernetes_files(asked, kind_of(options["kind"], asked.backend))
    files.write(folder, written)
    if as_json:
        print_json({"folder": str(folder), "files": sorted(written)}, "files")
    else:
        names = ", ".join(written)
        print_text(Words(options["lang"])("render.written", folder=folder, files=names))


def experiment(given: Mapping[str, Any], size: int) -> Experiment:
    """The experiment as ``size`` ranks run it.

    One that they cannot run is read as its file says, so that `request` can say what it needs.
    """
    if size == 1:
        return opened(given, None)
    try:
        return opened(given, size)
    except UserError:
        return opened(given, None)
