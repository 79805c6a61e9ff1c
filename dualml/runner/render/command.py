"""A command to be rendered: any script, with a container for each of its workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TypedDict

from dualml.common.errors import UserError
from dualml.common.files import is_regular, read_bytes
from dualml.experiment.arm import MAX_RANKS
from dualml.planning.cost.units import parse_bytes
from dualml.runner.jobs.command import folder_label, script_path
from dualml.runner.render import quantities
from dualml.runner.render.request import ASCEND, NVIDIA, RenderRequest, choose_image, choose_name

#: Default size of each volume.
DISK = "10GB"
#: Largest ConfigMap in bytes; etcd accepts no larger objects.
MAX_CONFIGMAP_BYTES = 900_000
#: Name of the single arm as which a command is rendered.
ARM = "command"


class SubmitOptions(TypedDict):
    """Options of ``dualml submit`` that rendered files depend on."""

    memory: str | None
    disk: str | None
    time: str | None
    rate: str | None
    name: str | None
    cores: int
    image: str | None
    lang: str
    mindspore: bool


class RenderNumbers(TypedDict):
    """Sizes in bytes, a time limit in seconds, and a rate in bits per second; 0 for no limit."""

    memory: int
    disk: int
    seconds: int
    rate: int


def parse_numbers(options: SubmitOptions) -> RenderNumbers:
    """Convert the sizes, times and rates among the options of ``dualml submit`` to bytes, seconds
    and bits per second; an absent one is 0, but the disk `DISK`. `UserError` for a wrong one."""
    memory, time, rate = options["memory"], options["time"], options["rate"]
    return {
        "memory": parse_bytes(memory, "--memory") if memory else 0,
        "disk": parse_bytes(options["disk"] or DISK, "--disk"),
        "seconds": quantities.parse_time_limit(time) if time is not None else 0,
        "rate": quantities.parse_rate(rate) if rate is not None else 0,
    }


def command_request(
    command: Sequence[str], size: int, gpus: int, options: SubmitOptions, *, lend: bool
) -> RenderRequest:
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
    if size > MAX_RANKS:
        raise UserError(f"--workers {size}: at most {MAX_RANKS}")
    mindspore = options["mindspore"]
    resource = ASCEND if mindspore else NVIDIA
    return RenderRequest(
        name=choose_name(options["name"], folder_label(command)),
        words=list(command),
        arms={ARM: size},
        backend="mindspore" if mindspore else "torch",
        nodes=size,
        ranks=1,
        gpus=gpus,
        resource=resource,
        cores=options["cores"],
        lang=options["lang"],
        image=choose_image(options["image"], gpus, resource),
        is_command=True,
        mindspore=mindspore,
        folder=Path.cwd(),
        scripts=read_scripts(command) if lend else {},
        **parse_numbers(options),
    )


def read_scripts(command: Sequence[str]) -> dict[str, bytes]:
    """Read the script of a command (see `script_path`), and return path → content; empty if it has
    none, or its path is absolute, leads out of the current folder or is no file: then the image
    must contain it.

    Raises:
        UserError: it is too large for a ConfigMap, or not text.
    """
    script = script_path(command)
    path = PurePosixPath(script or "/")
    if path.is_absolute() or ".." in path.parts or not is_regular(Path(path)):
        return {}
    content = read_bytes(Path(path), MAX_CONFIGMAP_BYTES)
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is no text in UTF-8; put it into the image") from None
    return {str(path): content}
