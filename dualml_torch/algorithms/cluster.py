"""Joining and leaving the group of ranks: process groups and their timeouts."""

from __future__ import annotations

import contextlib
import os
import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from dualml.algorithms.communicator import RankContext
from dualml.algorithms.communicator.rendezvous import all_gather_via_store
from dualml.common.errors import CommunicationError, Unsupported, UserError
from dualml.common.machine import parse_device
from dualml_torch.algorithms.gloo import use_batch_scheduling
from dualml_torch.algorithms.rendezvous import (
    INTERFACE,
    Membership,
    first_line,
    group_key,
    open_shared_store,
)

#: Seconds to wait when leaving: enough for ranks that end together, little if one is gone.
FAREWELL_S = 5.0


def join(place: RankContext, device: str | torch.device = "cpu") -> Membership:
    """Make torch's default process group of all ranks, which all call this, and return the
    membership; a single rank gets no group. A GPU becomes the current one, and
    ``GLOO_SOCKET_IFNAME`` may be set.

    Args:
        device: ``cpu`` (gloo), ``cuda`` (nccl; every rank takes a GPU of its own) or ``auto``, see
            `rank_device`.

    Raises:
        CommunicationError: ranks that did not come in time, or a port that is in use.
        UserError: an invalid device, rendezvous or environment, a process that is in a group
            already, or, for a single rank, a GPU that does not exist.
        Unsupported: ``ascend``, or ``cuda`` for several ranks with fewer GPUs than ranks on this
            machine.
    """
    chosen, limit = rank_device(place, str(device)), timedelta(seconds=place.timeout)
    if place.size == 1:
        return Membership(chosen, "", limit)
    if dist.is_initialized():
        raise UserError("this process is in a process group already; close that one first")
    member = Membership(chosen, "nccl" if chosen.type == "cuda" else "gloo", limit)
    try:
        store = open_shared_store(place, member)
        bound = {"device_id": chosen} if member.engine == "nccl" else {}
        dist.init_process_group(
            member.engine,
            store=dist.PrefixStore(f"dualml/{group_key(place)}", store),
            rank=place.rank,
            world_size=place.size,
            timeout=limit,
            **bound,
        )
    except (CommunicationError, UserError):
        _clean_up(member)
        raise
    except (RuntimeError, ValueError) as error:  # torch's network, store and backend errors
        _clean_up(member)
        raise CommunicationError(
            f"rank {place.rank} of {place.size} cannot join by {place.rendezvous}: "
            f"{first_line(error)}"
        ) from error
    use_batch_scheduling()
    return member


def new_group(place: RankContext, member: Membership, ranks: list[int], key: str) -> Any:
    """Make and return a process group of the world ranks ``ranks``; only these ranks call it.

    torch names such a group after its ranks and the number of groups its maker is in already. If
    members differ in that number, they would wait for one another under different names: those in
    fewer groups first make some groups of themselves alone.

    Args:
        place: context of this rank.
        member: its membership, from `join`.
        key: key in the store of ``place``, the same on all members and used once.
    """
    count = len(dist.distributed_c10d._world.pg_names)
    what = f"a group of ranks {ranks}"
    notes = all_gather_via_store(
        place.store, key, place.rank, ranks, str(count), place.timeout, what
    )
    for _ in range(max(map(int, notes.values())) - count):
        dist.new_group([place.rank], timeout=member.limit, use_local_synchronization=True)
    group = dist.new_group(ranks, timeout=member.limit, use_local_synchronization=True)
    use_batch_scheduling()
    return group


def leave(member: Membership) -> None:
    """Run the exit callbacks, wait at most `FAREWELL_S` seconds for the other ranks (not at all
    after a failed collective), and as long again for the process group to be destroyed; undo what
    `join` left behind.

    gloo's threads can still abort the interpreter's exit (pytorch #190489): a process that was in a
    group should end with ``os._exit``.
    """
    while member.exit_callbacks:
        member.exit_callbacks.pop()()
    if member.engine and dist.is_initialized():
        if not member.broken:
            # A rank that leaves while another still receives would cut that one's connection.
            with contextlib.suppress(RuntimeError):
                dist.barrier(async_op=True).wait(timedelta(seconds=FAREWELL_S))
        # With a dead peer, destroying the group can hang: in a thread, it cannot block us.
        end = threading.Thread(target=_destroy, daemon=True)
        end.start()
        end.join(FAREWELL_S)
    _clean_up(member)


def rank_device(place: RankContext, device: str) -> torch.device:
    """Return the device of this rank and make a GPU the current one. A single rank may name a GPU
    by its index; several take the GPU of their local rank each. With fewer GPUs than ranks here
    ``auto`` is a CPU. Unsupported: ``ascend``, or ``cuda`` for several ranks with fewer GPUs;
    UserError: a single rank's GPU that does not exist."""
    kind, index = parse_device(device)
    if kind == "ascend":
        raise Unsupported("PyTorch drives Ascend only with torch_npu, which dualml does not use")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    here = int(os.environ.get("LOCAL_WORLD_SIZE", place.size))
    if kind == "cpu" or (kind == "auto" and count < here):
        return torch.device("cpu")
    if place.size > 1:  # an index only applies to a single rank; several take one GPU each
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


def _destroy() -> None:
    """Destroy the default process group and ignore torch's errors about it."""
    with contextlib.suppress(RuntimeError, AssertionError):
        dist.destroy_process_group()


def _clean_up(member: Membership) -> None:
    """Undo what joining left behind: gloo's network interface in the environment, the store's file
    and the temporary folder."""
    if member.interface:
        os.environ.pop(INTERFACE, None)
    if member.store_file is not None:
        # torch removes it with the last store, which a rank that ends by `os._exit` still holds.
        with contextlib.suppress(OSError):
            member.store_file.unlink()
    if member.temp_folder is not None:
        with contextlib.suppress(OSError):
            for path in member.temp_folder.iterdir():
                path.unlink()
            member.temp_folder.rmdir()
