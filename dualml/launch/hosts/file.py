"""The file of ``--hosts``: which machines take part, with how many ranks each. It is either TOML,
with all settings, or a hostfile as other launchers read it."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from dualml.common.errors import UserError
from dualml.common.files import read_toml
from dualml.common.strict_model import StrictModel, describe_validation_error
from dualml.experiment.arm import MAX_RANKS
from dualml.launch.hosts.hostfile import is_hostfile, read_hostfile

Ranks = Annotated[int, Field(ge=1, le=MAX_RANKS)]
Port = Annotated[int, Field(ge=1, le=65535)]
#: A host for ssh, without characters that are special to ssh or a shell.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][\w.@:%+-]*$", max_length=200)]

Variable = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]


class LocalHost(StrictModel):
    """The machine of rank 0, on which this process runs.

    Attributes:
        address: by which the others reach it.
        port: at this address; by default any free one.
        ranks: number of ranks on this machine.
    """

    address: Annotated[str, Field(pattern=r"^[\w.:%-]+$", max_length=200)]
    port: Port | None = None
    ranks: Ranks = 1


class RemoteHost(StrictModel):
    """A machine that ssh reaches without a prompt.

    Attributes:
        ssh: ``HOST``, ``USER@HOST`` or a name of ``~/.ssh/config``.
        port: of its ssh server.
        ranks: number of ranks on it.
        python: interpreter there, with dualml and the frameworks.
        options: additional arguments of ssh.
        environ: additional variables for its ranks, such as ``DUALML_DATA``.
    """

    ssh: Name
    port: Port | None = None
    ranks: Ranks = 1
    python: Annotated[str, Field(min_length=1)] = "python3"
    options: list[str] = Field(default_factory=list)
    environ: dict[Variable, str] = Field(default_factory=dict)


class Hosts(StrictModel):
    """All machines of a run; ranks are numbered in this order."""

    here: LocalHost
    hosts: Annotated[list[RemoteHost], Field(min_length=1)]

    @property
    def size(self) -> int:
        """Number of ranks on all machines."""
        return self.here.ranks + sum(host.ranks for host in self.hosts)


def read_hosts(path: Path) -> Hosts:
    """Read the machines of a run.

    Raises:
        UserError: the file is missing or wrong; the text names the key, or the line.
    """
    table = table_of_hostfile(path) if is_hostfile(path) else read_toml(path)
    try:
        hosts = Hosts.model_validate(table)
    except ValidationError as error:
        raise UserError(f"{path}: {describe_validation_error(error, Hosts)}") from None
    if hosts.size > MAX_RANKS:
        raise UserError(f"{path}: {hosts.size} ranks; at most {MAX_RANKS}")
    return hosts


def table_of_hostfile(path: Path) -> dict[str, object]:
    """Convert a hostfile to the keys of the TOML file: its first line is this machine, and the
    others get this process's path of Python, as on the nodes of a cluster.

    Raises:
        UserError: the file is wrong, its first host is not this machine, or it is the only one.
    """
    first, *others = read_hostfile(path)
    address = first.host.rpartition("@")[2]
    if not is_local(address):
        text = f"rank 0 runs where the command is given, and {address} is not this machine"
        raise UserError(f"{path}: {text}: run it there, or put this machine's line first")
    if not others:
        text = f"{address} is the only host; for ranks on one machine: --world-size {first.slots}"
        raise UserError(f"{path}: {text}")
    hosts = [{"ssh": host, "ranks": slots, "python": sys.executable} for host, slots in others]
    return {"here": {"address": address, "ranks": first.slots}, "hosts": hosts}


def is_local(host: str) -> bool:
    """Return whether a name or address belongs to this machine: only its own addresses can be
    bound."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True
