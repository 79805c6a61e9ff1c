"""Checks of how a student's code starts a group of ranks: its rank and the size of the group.

A rank with a wrong number waits for others that never come, for half an hour by default. Here it is
stopped before it begins to wait, with a message that names the mistake.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

#: Variables by which frameworks and launchers describe a process's group.
VARIABLES = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "MS_ROLE",
    "MS_NODE_ID",
    "MS_WORKER_NUM",
    "MS_SCHED_HOST",
    "MS_SCHED_PORT",
)
LOOPBACK = "127.0.0.1"


class GroupError(RuntimeError):
    """Error: a rank started with a wrong number, or in a group of a wrong size."""


class WorkFailed(RuntimeError):
    """Error of work that is made to fail, to see what a student's function leaves behind."""


def check_port(port: int, meeting: int) -> None:
    """Raise `GroupError` if ranks meet at another port than the one that they were given."""
    if meeting != port:
        raise GroupError(f"the ranks meet at port {meeting}; port {port} was handed over")


def run_work(run: Callable[[], Any], fails: bool) -> float:
    """Call a student's function and return its result as a number, −1 if it is none. ``fails`` says
    that its work raises `WorkFailed`: 1 is returned if that error comes through."""
    try:
        return as_number(run())
    except WorkFailed:
        if not fails:
            raise
        return 1.0


def check_rank(rank: int, size: int, told_rank: int, told_size: int) -> None:
    """Raise `GroupError` if a process that is ``rank`` of ``size`` starts as ``told_rank`` of
    ``told_size``."""
    if told_size != size:
        raise GroupError(f"the group is started for {told_size} ranks; {size} processes take part")
    if told_rank != rank:
        raise GroupError(f"the process of rank {rank} calls itself rank {told_rank}")


def find_port() -> int:
    """Return a port of the loopback interface that is unused now; it is not reserved."""
    with socket.socket() as door:
        door.bind((LOOPBACK, 0))
        return int(door.getsockname()[1])


@contextlib.contextmanager
def hide_variables() -> Iterator[None]:
    """Remove `VARIABLES` from the environment, and restore them at the end of the block, whatever
    it has set."""
    before = {name: os.environ.pop(name, None) for name in VARIABLES}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def replace_functions(
    student: Any, owners: Sequence[Any], functions: Mapping[str, Callable[..., Any]]
) -> Iterator[None]:
    """Replace functions by others of the same name, also where the student's file has imported
    them, until the end of the block.

    Args:
        student: the module of the student's file.
        owners: modules of the framework that have the functions.
        functions: name → replacement.
    """
    changed: list[tuple[Any, str, Any]] = []
    for name, function in functions.items():
        originals = [getattr(owner, name) for owner in owners if hasattr(owner, name)]
        for place in (*owners, student):
            for key, value in list(vars(place).items()):
                if any(value is original for original in originals):
                    changed.append((place, key, value))
                    setattr(place, key, function)
    try:
        yield
    finally:
        for place, key, value in changed:
            setattr(place, key, value)


def as_number(returned: Any) -> float:
    """Return the result of a student's function as a float; −1 if it is no number."""
    try:
        return float(returned)
    except (TypeError, ValueError):
        return -1.0
