"""The file of ``--hosts``: which machines take part, with how many ranks each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from dualml.errors import UserError
from dualml.experiment.arm import MOST_RANKS
from dualml.files import read_toml
from dualml.strict import Strict, explain

Ranks = Annotated[int, Field(ge=1, le=MOST_RANKS)]
Port = Annotated[int, Field(ge=1, le=65535)]
#: What ssh takes for a host and nothing that it, or a shell, takes for more.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][\w.@:%+-]*$", max_length=200)]

Variable = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]


class Here(Strict):
    """This machine, which has rank 0.

    Attributes:
        address: by which the others reach it.
        port: of this address; any free one without it.
    """

    address: Annotated[str, Field(pattern=r"^[\w.:%-]+$", max_length=200)]
    port: Port | None = None
    ranks: Ranks = 1


class Host(Strict):
    """A machine that ssh reaches without a question.

    Attributes:
        ssh: ``HOST``, ``USER@HOST`` or a name of ``~/.ssh/config``.
        python: with dualml and the frameworks, there.
        options: more words for ssh.
        environ: more variables for its ranks, such as ``DUALML_DATA``.
    """

    ssh: Name
    port: Port | None = None
    ranks: Ranks = 1
    python: Annotated[str, Field(min_length=1)] = "python3"
    options: list[str] = Field(default_factory=list)
    environ: dict[Variable, str] = Field(default_factory=dict)


class Hosts(Strict):
    """All machines of a run; ranks are numbered in this order."""

    here: Here
    hosts: Annotated[list[Host], Field(min_length=1)]

    @property
    def size(self) -> int:
        """Ranks, all together."""
        return self.here.ranks + sum(host.ranks for host in self.hosts)


def read(path: Path) -> Hosts:
    """Raises `UserError` for a file that is missing or wrong; the text names the key."""
    table = read_toml(path)
    try:
        hosts = Hosts.model_validate(table)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error, Hosts)}") from None
    if hosts.size > MOST_RANKS:
        raise UserError(f"{path}: {hosts.size} ranks; at most {MOST_RANKS}")
    return hosts
