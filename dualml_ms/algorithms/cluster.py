"""Joining and leaving MindSpore's cluster on the CPU.

The fastest way is a key-value store in rank 0 (0.1 s). Its functions are not public: where they are
missing, rank 0 starts the documented scheduler process instead (2 to 6 s).
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import mindspore as ms
import mindspore.mint.distributed as md
import numpy as np
from mindspore import communication
from mindspore.mint.distributed import distributed as private

from dualml.algorithms.communicator import RankContext
from dualml.algorithms.communicator.rendezvous import all_gather_via_store
from dualml.common import machine
from dualml.common.errors import CommunicationError, Unsupported, UserError
from dualml_ms.algorithms.rendezvous import (
    LOOPBACK,
    Scheduler,
    cluster_environ,
    end_scheduler,
    first_line,
    open_at_port,
    open_store,
    parse_address,
    start_scheduler,
    store_functions,
)

#: Seconds until a sleep is cut short for the first time, and between the next times. MindSpore
#: looks for a rank's address 19 times, 3 s apart: half a second leaves 9 s to ranks that share a
#: core.
WAKE_S = 0.1, 0.5


class Membership:
    """Membership of this process in the cluster, the group of all ranks that MindSpore has formed.

    Attributes:
        join_method: ``alone``, ``store``, ``scheduler`` or ``env``, see `join`.
        broken: whether a collective has failed; then leaving does not wait for other ranks.
    """

    def __init__(
        self, way: str, size: int, store: Any = None, scheduler: Scheduler | None = None
    ) -> None:
        self.join_method, self.size, self.scheduler = way, size, scheduler
        self.broken = False
        self._store = store  # kept alive: the server of rank 0 lives in it
        self._groups: dict[tuple[int, ...], str] = {}
        self._left = False

    def group_name(self, ranks: Sequence[int]) -> str | None:
        """Return MindSpore's name of the group of these world ranks, None for a single rank. All
        members of the group call it, and no others; a group smaller than the world is made at the
        first call. Raise `CommunicationError` if MindSpore cannot make it."""
        chosen = tuple(ranks)
        if len(chosen) == 1:
            return None
        if len(chosen) == self.size:
            return md.new_group()
        if chosen not in self._groups:  # a second group of the same ranks is an error
            if not (name := md.new_group(list(chosen))):
                raise CommunicationError(f"MindSpore could not make a group of ranks {chosen}")
            self._groups[chosen] = name
        return self._groups[chosen]

    def leave(self, place: RankContext) -> None:
        """Wait until every rank is done, because a rank that ends takes its message queues along;
        after a failed collective (`broken`) do not wait. Then end rank 0's scheduler. Further calls
        do nothing. Raise `CommunicationError` for ranks that are not done in time."""
        if self._left:
            return
        self._left = True
        try:
            if self.broken:  # the others need not wait for this rank
                place.store.set(f"leave.{place.key}.{place.rank}", "broken")
            elif self.size > 1:
                gather_notes(place, "leave", "done")
        finally:
            end_scheduler(self.scheduler)


def join(place: RankContext, device: str = "cpu") -> Membership:
    """Join the cluster of all ranks, within about ``place.timeout`` seconds; all ranks call it. In
    this process operators run when they are called from then on, and for several ranks MindSpore's
    environment variables for the cluster are set.

    Ranks meet at a key-value store in rank 0, where MindSpore's version lacks it at a scheduler
    process, or, for a rendezvous ``env://``, as ``msrun`` has arranged.

    Raises:
        CommunicationError: ranks missing, by number; a port in use; a cluster that does not form.
        UserError: a rendezvous this backend does not have, or one that disagrees with ``place``.
        Unsupported: a device other than the CPU.
    """
    if machine.parse_device(device)[0] not in ("auto", "cpu") or (
        ms.get_context("device_target") != "CPU"
    ):
        raise Unsupported(f"MindSpore's ranks talk on the CPU only here; device {device} asked for")
    scheme, _, address = place.rendezvous.partition("://")
    if scheme == "file":
        raise UserError("MindSpore has no rendezvous by file; use auto, tcp://host:port or env://")
    host, port = parse_address(address) if scheme == "tcp" else (LOOPBACK, 0)
    if scheme == "env":
        check_environment(place)
    # Otherwise operators are queued: a message could still change after `send`, errors would be
    # raised elsewhere, and the threads of the queue spin.
    ms.runtime.launch_blocking()
    if place.size == 1:
        return Membership("alone", 1)
    # Read when the cluster forms and by every collective; the default is 30 s.
    os.environ["MS_CPU_COMM_OP_TIMEOUT"] = str(max(1, math.ceil(place.timeout)))
    ways = gather_notes(place, "join", "store" if store_functions() else "scheduler")
    way = "store" if set(ways.values()) == {"store"} else "scheduler"
    # With a scheduler the sleeps give a slower rank its time, because attempts are counted.
    with shorten_sleeps() if way == "store" and scheme != "env" else nullcontext():
        env = scheme == "env"
        member = join_by_environment(place) if env else join_by_address(place, way, host, port)
        with report_join_errors(place):
            # The first collective makes the connections: made here, they are part of joining.
            one = ms.Tensor.from_numpy(np.ones(1, np.float32))
            md.all_reduce(one)
            if one.asnumpy()[0] != place.size:
                raise RuntimeError(f"{place.size} ranks added up to {one.asnumpy()[0]:g}")
    if wrong := [note for note in gather_notes(place, "formed", "").values() if note]:
        raise CommunicationError("; ".join(wrong))
    return member


def join_by_address(place: RankContext, way: str, host: str, port: int) -> Membership:
    """Join at an address: rank 0 opens ``port`` (0: a free one) of ``host`` and publishes it; the
    others wait for it in ``place.store`` and ignore ``port``. ``way`` is ``store`` or
    ``scheduler``, see `join`; rank 0 falls back to a scheduler if the store does not work. Raise
    `CommunicationError` if the cluster does not form."""
    key = f"address.{place.key}"
    store = scheduler = None
    if place.rank == 0:
        try:
            if way == "store":
                try:
                    store, port = open_at_port(lambda p: open_store(place, host, p), host, port)
                except (TypeError, AttributeError):  # another signature: not the version we know
                    way = "scheduler"
            if way == "scheduler":
                scheduler, port = open_at_port(
                    lambda p: start_scheduler(place, host, p), host, port
                )
        except CommunicationError as error:
            place.store.set(key, f"failed {error}")
            raise
        place.store.set(key, f"{way} {port}")
    way, _, detail = wait_for_note(place, key).partition(" ")
    if way == "failed":
        raise CommunicationError(detail)
    try:
        with report_join_errors(place):
            if way == "store":
                store = store or open_store(place, host, int(detail))
                gather_notes(
                    place, "store", ""
                )  # further attempts assume that ranks begin together
                form = store_functions()[1]
                form("mccl", timedelta(seconds=place.timeout), place.size, place.rank, store)
            else:
                os.environ.update(cluster_environ(place, "MS_WORKER", host, int(detail)))
                communication.init()
            register_world_group(place)
    except CommunicationError:
        end_scheduler(scheduler)
        raise
    return Membership(way, place.size, store, scheduler)


def check_environment(place: RankContext) -> None:
    """Raise UserError unless the environment is that of an ``msrun`` worker among ``place.size``
    ranks, which a rendezvous ``env://`` needs."""
    settings = {name: os.environ.get(name, "") for name in ("MS_ROLE", "MS_WORKER_NUM")}
    if settings != {"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": str(place.size)}:
        raise UserError(
            f"rendezvous env:// needs what msrun sets: MS_ROLE=MS_WORKER, "
            f"MS_WORKER_NUM={place.size}; received: {settings}"
        )


def join_by_environment(place: RankContext) -> Membership:
    """Join the cluster that ``msrun`` has prepared for this process, with MindSpore's timeouts set
    in the environment. Raise `UserError` if it gives this process another rank or size than
    ``place``, `CommunicationError` if the cluster does not form."""
    # msrun's defaults are 30 min for all to join, and 3 to 5 s between two attempts.
    os.environ["MS_TOPO_TIMEOUT"] = str(max(1, math.ceil(place.timeout)))
    for name in ("MS_RETRY_INTERVAL_LOWER", "MS_RETRY_INTERVAL_UPPER"):
        os.environ.setdefault(name, "1")
    with report_join_errors(place):
        communication.init()
        assigned = communication.get_rank(), communication.get_group_size()
        register_world_group(place)
    if assigned != (place.rank, place.size):
        raise UserError(
            f"msrun calls this rank {assigned[0]} of {assigned[1]}; "
            f"this is rank {place.rank} of {place.size}"
        )
    return Membership("env", place.size)


def register_world_group(place: RankContext) -> None:
    """Register this rank and the number of ranks under the world group's name on another device,
    which `send` of MindSpore 2.10 looks up even on a CPU."""
    for cache, value in (("_GROUP_RANK_CACHE", place.rank), ("_GROUP_SIZE_CACHE", place.size)):
        getattr(private, cache, {})["hccl_world_group"] = value


@contextmanager
def report_join_errors(place: RankContext) -> Iterator[None]:
    """Turn MindSpore's errors inside the block into a `CommunicationError` that names the ranks of
    which ``place.store`` has no note yet, and post its reason there for the other ranks."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError) as error:
        reason = f"rank {place.rank} could not join: {first_line(error)}"
        place.store.set(f"formed.{place.key}.{place.rank}", reason)
        notes = {r: place.store.get(f"formed.{place.key}.{r}") for r in range(place.size)}
        silent = [str(r) for r, note in notes.items() if note is None]
        suffix = f"; nothing heard from rank {', '.join(silent)}" if silent else ""
        raise CommunicationError(reason + suffix) from error


@contextmanager
def shorten_sleeps() -> Iterator[None]:
    """Shorten the seconds that MindSpore sleeps between its attempts to join, by a timer signal;
    nothing changes outside of the main thread or if the timer is in use."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getitimer(signal.ITIMER_REAL)[0]:  # the timer is in use
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, *WAKE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def gather_notes(place: RankContext, what: str, note: str) -> dict[int, str]:
    """Post ``note``, a text, for the step ``what`` in ``place.store``, wait for those of all ranks
    and return rank → note; raise an error that names the ranks that sent none. All ranks call
    it."""
    everyone = range(place.size)
    notes = all_gather_via_store(
        place.store, f"{what}.{place.key}", place.rank, everyone, note, place.timeout, what
    )
    return dict(notes)


def wait_for_note(place: RankContext, key: str) -> str:
    """Wait until rank 0 has stored a text under ``key`` in ``place.store`` and return it; raise
    `CommunicationError` after ``place.timeout`` seconds."""
    end_ = time.monotonic() + place.timeout
    while (note := place.store.get(key)) is None:
        if time.monotonic() > end_:
            raise CommunicationError(
                f"rank {place.rank} waited {place.timeout:g} s for the address; missing: rank 0"
            )
        time.sleep(0.005)
    return note
