"""Hostfiles, as mpirun, DeepSpeed and Horovod read them: each line is ``HOST slots=N``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from dualml.errors import UserError
from dualml.experiment.arm import MOST_RANKS
from dualml.files import read_bytes
from dualml.strict import shortened

#: Bytes of a hostfile: the longest line of every rank there may be, with comments.
MOST_BYTES = 2**20
#: What ssh takes for a host and nothing that it, or a shell, takes for more.
HOST = re.compile(r"[A-Za-z0-9_][\w.@:%+-]*", re.ASCII)
MOST_LETTERS = 200
LINE = re.compile(r"(\S+)\s+slots\s*=\s*([0-9]{1,6})")
#: How a file of TOML begins: a table, or a key.
TABLE = re.compile(r"\[|[\w.\"'-]+\s*=")


class HostSlots(NamedTuple):
    """Processes that a machine takes part with."""

    host: str
    slots: int


def read_hostfile(path: Path) -> list[HostSlots]:
    """Read the machines of a hostfile, in the order of its lines.

    Empty lines count for nothing, and so does what follows a ``#``.

    Raises:
        UserError: a file that is missing, too large or without a host, a line of another form, a
            host that stands there twice, more than `MOST_RANKS` slots; the text has the line.
    """
    hosts = list[HostSlots]()
    lines = dict[str, int]()
    for number, text in meaningful_lines(path):
        match = LINE.fullmatch(text)
        if match is None:
            form = "a line is HOST slots=N, as in worker-1 slots=4"
            raise UserError(f"{path}, line {number}: {form}; received {shortened(repr(text))}")
        host, slots = match[1], int(match[2])
        if len(host) > MOST_LETTERS or not HOST.fullmatch(host):
            name = f"{shortened(repr(host))} is no name of a host"
            raise UserError(f"{path}, line {number}: {name}")
        if slots < 1:
            text = f"{host} has slots=0; leave the line out, or give it one at least"
            raise UserError(f"{path}, line {number}: {text}")
        key = host.rpartition("@")[2].lower()  # names of hosts know no case
        if key in lines:
            text = f"{host} is in line {lines[key]} already; one line says all of its slots"
            raise UserError(f"{path}, line {number}: {text}")
        lines[key] = number
        hosts.append(HostSlots(host, slots))
    if not hosts:
        raise UserError(f"{path} names no host; write a line HOST slots=N for each machine")
    if (total := sum(host.slots for host in hosts)) > MOST_RANKS:
        raise UserError(f"{path}: {total} slots; at most {MOST_RANKS}")
    return hosts


def is_hostfile(path: Path) -> bool:
    """Tell a hostfile from a file of TOML, by its first line that says anything.

    Raises:
        UserError: the file cannot be read.
    """
    first = next((text for _, text in meaningful_lines(path)), "")
    return bool(first) and not TABLE.match(first)


def meaningful_lines(path: Path) -> list[tuple[int, str]]:
    """Read the lines that are more than a comment, with their numbers from 1.

    Raises:
        UserError: the file cannot be read, is too large, or is no text.
    """
    try:
        content = read_bytes(path, MOST_BYTES).decode("utf-8")
    except UserError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    stripped = (line.partition("#")[0].strip() for line in content.split("\n"))
    return [(number, line) for number, line in enumerate(stripped, start=1) if line]
