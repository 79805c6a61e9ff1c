"""How the ranks find one another: first through the store of notes, then a torch store for all
ranks.

`auto` uses a file, because a `TCPStore` listens on every network interface; gloo itself stays on
the loopback interface if all ranks are on one machine.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist

from dualml.algorithms.communicator import FileStore, RankContext
from dualml.algorithms.communicator.rendezvous import all_gather_via_store
from dualml.common.bounded_io import decode_header
from dualml.common.errors import CommunicationError, UserError
from dualml.common.machine import network_id

INTERFACE = "GLOO_SOCKET_IFNAME"
#: Largest size of a rank's note, in bytes.
NOTE = 1 << 16


@dataclass
class Membership:
    """A rank's membership in a process group: its device, the engine, and the resources to release.

    Attributes:
        engine: ``gloo``, ``nccl``, or ``""`` for a single rank.
        limit: timeout of a collective.
        exit_callbacks: called before the process group is destroyed.
        interface: whether the network interface was chosen here, not by the user.
        temp_folder: a folder that rank 0 made, and removes with its contents.
        store_file: the file of the ranks' store, which rank 0 removes.
    """

    device: torch.device
    engine: str
    limit: timedelta
    interface: bool = False
    temp_folder: Path | None = None
    store_file: Path | None = None
    broken: bool = False
    exit_callbacks: list[Callable[[], None]] = field(default_factory=list)


def first_line(error: BaseException) -> str:
    """Return the first line of a torch error, without its C++ stack; the name of its class if it
    has no text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def open_shared_store(place: RankContext, member: Membership) -> Any:
    """Exchange notes with the other ranks, which all call this, then open and return the torch
    store that all of them share; choose gloo's network interface in the environment if it names
    none. CommunicationError: ranks that did not come, a bad note, or rank 0 cannot host; UserError:
    see `_env_store`.

    The rank that hosts the store opens it before it posts its note; if it fails, its note says so.
    """
    details: dict[str, str] = {"machine": network_id()}
    scheme = place.rendezvous.partition(":")[0]
    open_store, hosts = {
        "auto": _file_store,
        "file": _file_store,
        "tcp": _tcp_store,
        "env": _env_store,
    }[scheme](place, member, details)
    store, key = None, f"join.{group_key(place)}"
    if hosts:
        try:
            store = open_store(details)
        except RuntimeError as error:
            details["error"] = _hosting_error(place, error)
            place.store.set(f"{key}.{place.rank}", json.dumps(details))
            raise CommunicationError(details["error"]) from error
    text, what = json.dumps(details), "the others to join"
    notes = all_gather_via_store(
        place.store, key, place.rank, range(place.size), text, place.timeout, what
    )
    try:
        others = {rank: decode_header(note.encode(), NOTE) for rank, note in notes.items()}
    except ValueError as error:
        raise CommunicationError(f"a rank's note is not understood: {error}") from None
    if "error" in others[0]:
        raise CommunicationError(others[0]["error"])
    if INTERFACE not in os.environ:
        near = len({o["machine"] for o in others.values()}) == 1
        local = ("lo0" if sys.platform == "darwin" else "lo") if near else ""
        if chosen := place.interface or local:
            os.environ[INTERFACE] = chosen
            member.interface = True
    return store if store is not None else open_store(others[0])


def _file_store(
    place: RankContext, member: Membership, details: dict[str, str]
) -> tuple[Any, bool]:
    """Choose the store's file, which rank 0 names in ``details`` after it has removed an old one
    (for ``auto`` without a folder of notes in a temporary folder that rank 0 makes); return the
    function that opens it from rank 0's details, and False: no rank has to host it."""
    if place.rendezvous != "auto":
        # One file for each group: torch needs a fresh one, and the user's file is not touched.
        path = Path(f"{urlsplit(place.rendezvous).path}.{group_key(place)}")
    elif isinstance(place.store, FileStore):
        path = place.store.folder / f"store{group_key(place)}"
    elif place.rank == 0:
        member.temp_folder = Path(tempfile.mkdtemp(prefix="dualml-"))
        path = member.temp_folder / "store"
    else:
        path = Path()
    if place.rank == 0:
        path.unlink(missing_ok=True)  # remains of a killed run
        member.store_file = path
        details["store"] = str(path)
    return (lambda host: dist.FileStore(host["store"], place.size)), False


def _tcp_store(place: RankContext, member: Membership, details: dict[str, str]) -> tuple[Any, bool]:
    """Return the function that opens the store at the URL's host and port, and whether this rank
    hosts it: rank 0."""
    url = urlsplit(place.rendezvous)
    hosts = place.rank == 0
    return _tcp_server(str(url.hostname), int(url.port or 0), place, hosts), hosts


def _env_store(place: RankContext, member: Membership, details: dict[str, str]) -> tuple[Any, bool]:
    """Return the function that opens the store of ``MASTER_ADDR`` and ``MASTER_PORT``, and whether
    this rank hosts it: rank 0, unless torchrun's agent does. UserError: variables that are missing
    or name another rank."""
    names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
    if missing := [name for name in names if not os.environ.get(name)]:
        raise UserError(
            f"rendezvous env:// needs {', '.join(missing)} in the environment; "
            "start the ranks with torchrun, or use auto"
        )
    host, port, rank, size = (os.environ[name] for name in names)
    if (rank, size) != (str(place.rank), str(place.size)):
        raise UserError(
            f"the environment says RANK={rank} of WORLD_SIZE={size}; "
            f"this is rank {place.rank} of {place.size}"
        )
    # Under torchrun the agent keeps the store, and the same one for every group of the job.
    hosts = place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return _tcp_server(host, int(port), place, hosts), hosts


def _tcp_server(host: str, port: int, place: RankContext, hosts: bool) -> Any:
    """Return a function that opens the `TCPStore` at ``host`` and ``port``, as its server if
    ``hosts``; its argument is ignored."""
    limit = timedelta(seconds=place.timeout)
    return lambda _: dist.TCPStore(
        host, port, place.size, is_master=hosts, timeout=limit, wait_for_workers=False
    )


def _hosting_error(place: RankContext, error: RuntimeError) -> str:
    """Return the message of a rank 0 that cannot open the store: a port in use, or torch's first
    line."""
    where = place.rendezvous
    if where.startswith("env"):
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    if "EADDRINUSE" in str(error) or "already in use" in str(error):
        return f"the port of {where} is in use on rank 0's machine; choose another one, or auto"
    return f"rank 0 cannot host the rendezvous {where}: {first_line(error)}"


def group_key(place: RankContext) -> str:
    """Return a key that distinguishes this group on a store: the trial, and torchrun's restart
    count."""
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return place.key if restarts == "0" else f"{place.key}.{restarts}"
