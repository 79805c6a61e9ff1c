"""Hostfiles in the format of mpirun, DeepSpeed and Horovod: each line is ``HOST slots=N``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from dualml.common.errors import UserError
from dualml.common.files import read_bytes
from dualml.common.strict_model import clip_text
from dualml.experiment.arm import MAX_RANKS

#: Largest hostfile in bytes: enough for the longest line of every possible rank, with comments.
MAX_HOSTFILE_BYTES = 2**20
#: A host for ssh, without characters that are special to ssh or a shell.
HOST = re.compile(r"[A-Za-z0-9_][\w.@:%+-]*", re.ASCII)
MAX_HOST_CHARS = 200
LINE = re.compile(r"(\S+)\s+slots\s*=\s*([0-9]{1,6})")
#: Begin of a TOML file: a table, or a key.
TABLE = re.compile(r"\[|[\w.\"'-]+\s*=")


class HostSlots(NamedTuple):
    """A machine and the number of processes on it."""

    host: str
    slots: int


def read_hostfile(path: Path) -> list[HostSlots]:
    """Read the machines of a hostfile, in the order of its lines.

    Empty lines are ignored, and so is everything after a ``#``.

    Raises:
        UserError: the file is missing, too large or names no host; a line has another form; a host
            occurs twice; there are more than `MAX_RANKS` slots. The text has the line, if it is
            one line's fault.
    """
    hosts = list[HostSlots]()
    lines = dict[str, int]()
    for number, text in meaningful_lines(path):
        match = LINE.fullmatch(text)
        if match is None:
            form = "a line is HOST slots=N, as in worker-1 slots=4"
            raise UserError(f"{path}, line {number}: {form}; received {clip_text(repr(text))}")
        host, slots = match[1], int(match[2])
        if len(host) > MAX_HOST_CHARS or not HOST.fullmatch(host):
            name = f"{clip_text(repr(host))} is no name of a host"
            raise UserError(f"{path}, line {number}: {name}")
        if slots < 1:
            text = f"{host} has slots=0; leave the line out, or give it one at least"
            raise UserError(f"{path}, line {number}: {text}")
        key = host.rpartition("@")[2].lower()  # host names are case-insensitive
        if key in lines:
            text = f"{host} is in line {lines[key]} already; one line says all of its slots"
            raise UserError(f"{path}, line {number}: {text}")
        lines[key] = number
        hosts.append(HostSlots(host, slots))
    if not hosts:
        raise UserError(f"{path} names no host; write a line HOST slots=N for each machine")
    if (total := sum(host.slots for host in hosts)) > MAX_RANKS:
        raise UserError(f"{path}: {total} slots; at most {MAX_RANKS}")
    return hosts


def is_hostfile(path: Path) -> bool:
    """Return whether a file is a hostfile rather than TOML, by its first line that is neither empty
    nor a comment; False if there is none.

    Raises:
        UserError: the file cannot be read.
    """
    first = next((text for _, text in meaningful_lines(path)), "")
    return bool(first) and not TABLE.match(first)


def meaningful_lines(path: Path) -> list[tuple[int, str]]:
    """Read the lines that are not empty or a comment, stripped and without comments, each with its
    line number, from 1.

    Raises:
        UserError: the file cannot be read, is too large, or is not text.
    """
    try:
        content = read_bytes(path, MAX_HOSTFILE_BYTES).decode("utf-8")
    except UserError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    stripped = (line.partition("#")[0].strip() for line in content.split("\n"))
    return [(number, line) for number, line in enumerate(stripped, start=1) if line]
