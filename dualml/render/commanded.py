"""A command to be rendered: any script, with a container for each of its workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from dualml.cost.units import nbytes
from dualml.errors import UserError
from dualml.experiment.arm import MOST_RANKS
from dualml.files import is_regular, read_bytes
from dualml.jobs.command import label_of, script_of
from dualml.render import quantities
from dualml.render.request import ASCEND, NVIDIA, Request, image_of, name_of

#: Default size of each volume.
DISK = "10GB"
#: Largest ConfigMap in bytes; etcd accepts no larger objects.
MOST_SCRIPT = 900_000
#: Name of the single arm as which a command is rendered.
ARM = "command"


def numbers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the sizes, times and rates among the options of ``dualml submit`` to numbers."""
    memory, time, rate = options["memory"], options["time"], options["rate"]
    return {
        "memory": nbytes(memory, "--memory") if memory else 0,
        "disk": nbytes(options["disk"] or DISK, "--disk"),
        "seconds": quantities.seconds(time) if time is not None else 0,
        "rate": quantities.bits(rate) if rate is not None else 0,
    }


def command_request(
    command: Sequence[str], size: int, gpus: int, options: Mapping[str, Any], *, lend: bool
) -> Request:
    """Make the request that renders a command.

    Args:
        command: of each worker.
        size: number of workers.
        gpus: of each worker.
        options: of ``dualml submit``.
        lend: whether the script is packed into the rendered files; otherwise the current folder is
            mounted.

    Raises:
        UserError: it cannot be rendered; the text has the remedy.
    """
    if size > MOST_RANKS:
        raise UserError(f"--workers {size}: at most {MOST_RANKS}")
    mindspore = options["mindspore"]
    resource = ASCEND if mindspore else NVIDIA
    return Request(
        name=name_of(options["name"], label_of(command)), words=list(command), arms={ARM: size},
        backend="mindspore" if mindspore else "torch", nodes=size, ranks=1, gpus=gpus,
        resource=resource, cores=options["cores"], lang=options["lang"],
        image=image_of(options["image"], gpus, resource), is_command=True, mindspore=mindspore,
        folder=Path.cwd(), scripts=scripts_of(command) if lend else {}, **numbers(options),
    )  # fmt: skip


def scripts_of(command: Sequence[str]) -> dict[str, bytes]:
    """Read the script of a command if it is in this folder; otherwise the image must contain it.

    Raises:
        UserError: it is too large for a ConfigMap, or not text.
    """
    script = script_of(command)
    path = PurePosixPath(script or "/")
    if path.is_absolute() or ".." in path.parts or not is_regular(Path(path)):
        return {}
    content = read_bytes(Path(path), MOST_SCRIPT)
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is no text in UTF-8; put it into the image") from None
    return {str(path): content}
