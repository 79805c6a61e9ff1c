"""How a rank joins the others, and how it leaves: stores, process groups and their timeouts.

`auto` is gloo with a file as its store, because a `TCPStore` listens on every network interface;
gloo itself is told to stay on the loopback where all ranks are on one machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import tempfile
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist

from dualml.communicator import FileBoard, Place
from dualml.communicator.board import exchange_notes
from dualml.errors import CommunicationError, Unsupported, UserError
from dualml.machine import parse_device

INTERFACE = "GLOO_SOCKET_IFNAME"
#: Seconds to take leave: enough for ranks that end together, little where one is gone already.
FAREWELL_S = 5.0


@dataclass
class Membership:
    """What a rank that joined holds: its device, the engine, and what it has to undo.

    Attributes:
        engine: ``gloo``, ``nccl``, or ``""`` for a rank that is alone.
        limit: how long a collective may wait.
        interface: whether the network interface was chosen here, not by the user.
    """

    device: torch.device
    engine: str
    limit: timedelta
    interface: bool = False
    scrap: Path | None = None
    broken: bool = False


def join(place: Place, device: str | torch.device = "cpu") -> Membership:
    """Make torch's default process group of all ranks of a place.

    Args:
        device: ``cpu`` (gloo), ``cuda`` (nccl; every rank takes a GPU of its own) or ``auto``.

    Raises:
        CommunicationError: ranks that did not come in time, or a port that is in use.
        UserError: a rendezvous or environment that cannot be meant.
        Unsupported: fewer GPUs than ranks.
    """
    chosen, limit = device_of(place, str(device)), timedelta(seconds=place.timeout)
    if place.size == 1:
        return Membership(chosen, "", limit)
    if dist.is_initialized():
        raise UserError("this process is in a process group already; close that one first")
    member = Membership(chosen, "nccl" if chosen.type == "cuda" else "gloo", limit)
    try:
        store = _meet(place, member)
        bound = {"device_id": chosen} if member.engine == "nccl" else {}
        dist.init_process_group(
            member.engine,
            store=dist.PrefixStore(f"dualml/{_attempt(place)}", store),
            rank=place.rank,
            world_size=place.size,
            timeout=limit,
            **bound,
        )
    except (CommunicationError, UserError):
        _undo(member)
        raise
    except (RuntimeError, ValueError) as error:  # torch's network, store and backend errors
        _undo(member)
        raise CommunicationError(
            f"rank {place.rank} of {place.size} cannot join by {place.rendezvous}: {first(error)}"
        ) from error
    return member


def new_group(place: Place, member: Membership, ranks: list[int], key: str) -> Any:
    """A process group of some ranks of the world, made by these alone.

    torch names such a group after its ranks and the number of groups its maker is in already. Where
    members differ in that, they would wait for one another under different names: those in fewer
    groups first make some of themselves alone.

    Args:
        key: the same on the members, used once.
    """
    mine = len(dist.distributed_c10d._world.pg_names)
    what = f"a group of ranks {ranks}"
    told = exchange_notes(place.board, key, place.rank, ranks, str(mine), place.timeout, what)
    for _ in range(max(map(int, told.values())) - mine):
        dist.new_group([place.rank], timeout=member.limit, use_local_synchronization=True)
    return dist.new_group(ranks, timeout=member.limit, use_local_synchronization=True)


def leave(member: Membership) -> None:
    """Wait a moment for the others and take the process group down; never waits long.

    gloo's threads can still abort the interpreter's own way out (pytorch #190489): a process that
    was in a group best ends with ``os._exit``.
    """
    if member.engine and dist.is_initialized():
        if not member.broken:
            # Who leaves while another still receives cuts that one's connection.
            with contextlib.suppress(RuntimeError):
                dist.barrier(async_op=True).wait(timedelta(seconds=FAREWELL_S))
        # With a peer that died, taking down can wait for it: in a thread, it cannot hold us up.
        end = threading.Thread(target=_destroy, daemon=True)
        end.start()
        end.join(FAREWELL_S)
    _undo(member)


def device_of(place: Place, device: str) -> torch.device:
    """The device of this rank; on GPUs, the one of its number on this machine."""
    kind, index = parse_device(device)
    if kind == "ascend":
        raise Unsupported("PyTorch drives Ascend only with torch_npu, which dualml does not use")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    here = int(os.environ.get("LOCAL_WORLD_SIZE", place.size))
    if kind == "cpu" or (kind == "auto" and count < here):
        return torch.device("cpu")
    if place.size > 1:  # an index counts for a rank alone; several take one GPU each
        if count < here:
            raise Unsupported(
                f"nccl needs a GPU for every rank: {here} ranks, {count} GPUs here; "
                "use --device cpu, or fewer ranks"
            )
        index = int(os.environ.get("LOCAL_RANK", place.rank)) % count
    elif index >= count:
        raise UserError(f"no CUDA device {index}: there are {count}; use --device cpu")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def first(error: BaseException) -> str:
    """The first line of what torch has to say, without its C++ stack."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _meet(place: Place, member: Membership) -> Any:
    """Find the others over the board, then the store all of them share.

    The one who hosts the store opens it before it says so; where it cannot, it tells everybody.
    """
    told: dict[str, str] = {"machine": _machine()}
    scheme = place.rendezvous.partition(":")[0]
    open_store, hosts = {"auto": _file, "file": _file, "tcp": _tcp, "env": _env}[scheme](
        place, member, told
    )
    store, key = None, f"join.{_attempt(place)}"
    if hosts:
        try:
            store = open_store(told)
        except RuntimeError as error:
            told["error"] = _cannot_host(place, error)
            place.board.post(f"{key}.{place.rank}", json.dumps(told))
            raise CommunicationError(told["error"]) from error
    text, what = json.dumps(told), "the others to join"
    notes = exchange_notes(
        place.board, key, place.rank, range(place.size), text, place.timeout, what
    )
    others = {rank: json.loads(note) for rank, note in notes.items()}
    if "error" in others[0]:
        raise CommunicationError(others[0]["error"])
    if INTERFACE not in os.environ and len({o["machine"] for o in others.values()}) == 1:
        os.environ[INTERFACE] = "lo0" if sys.platform == "darwin" else "lo"
        member.interface = True
    return store if store is not None else open_store(others[0])


def _file(place: Place, member: Membership, told: dict[str, str]) -> tuple[Any, bool]:
    if place.rendezvous != "auto":
        # One file for each group: torch wants it fresh, and the user's own stays untouched.
        path = Path(f"{urlsplit(place.rendezvous).path}.{_attempt(place)}")
    elif isinstance(place.board, FileBoard):
        path = place.board.folder / f"store{_attempt(place)}"
    elif place.rank == 0:
        member.scrap = Path(tempfile.mkdtemp(prefix="dualml-"))
        path = member.scrap / "store"
    else:
        path = Path()
    if place.rank == 0:
        path.unlink(missing_ok=True)  # what a run that died left there
        told["store"] = str(path)
    return (lambda host: dist.FileStore(host["store"], place.size)), False


def _tcp(place: Place, member: Membership, told: dict[str, str]) -> tuple[Any, bool]:
    url = urlsplit(place.rendezvous)
    hosts = place.rank == 0
    return _server(str(url.hostname), int(url.port or 0), place, hosts), hosts


def _env(place: Place, member: Membership, told: dict[str, str]) -> tuple[Any, bool]:
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
    return _server(host, int(port), place, hosts), hosts


def _server(host: str, port: int, place: Place, hosts: bool) -> Any:
    limit = timedelta(seconds=place.timeout)
    return lambda _: dist.TCPStore(
        host, port, place.size, is_master=hosts, timeout=limit, wait_for_workers=False
    )


def _cannot_host(place: Place, error: RuntimeError) -> str:
    where = place.rendezvous
    if where.startswith("env"):
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    if "EADDRINUSE" in str(error) or "already in use" in str(error):
        return f"the port of {where} is in use on rank 0's machine; choose another one, or auto"
    return f"rank 0 cannot host the rendezvous {where}: {first(error)}"


def _attempt(place: Place) -> str:
    """Tells this group from others on one store: the trial, and torchrun's count of restarts."""
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return place.key if restarts == "0" else f"{place.key}.{restarts}"


def _machine() -> str:
    """Equal for ranks that reach one another by the loopback; containers have networks of their
    own under one host name."""
    try:
        network = os.readlink("/proc/self/ns/net")
    except OSError:
        network = ""
    return f"{socket.gethostname()} {network}"


def _destroy() -> None:
    with contextlib.suppress(RuntimeError, AssertionError):
        dist.destroy_process_group()


def _undo(member: Membership) -> None:
    if member.interface:
        os.environ.pop(INTERFACE, None)
    if member.scrap is not None:
        with contextlib.suppress(OSError):
            for path in member.scrap.iterdir():
                path.unlink()
            member.scrap.rmdir()
