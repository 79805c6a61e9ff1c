"""The agent of `torch.distributed.rpc` in a rank: start, end, and translation of its errors.

It starts once per process and serves all trials of its ranks.

Measured between three processes on two cores: with its preferred shared memory transport a small
call takes 0.2 ms instead of 0.5 ms with sockets, but one of its threads polls all the time and
takes half a core in every rank, also in later trials. So only sockets are used: the rest of a
rank's work costs the same as without the agent, and calls between the nodes of an emulated network
cross that network.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
import torch.distributed.rpc as rpc
from torch.distributed.rendezvous import register_rendezvous_handler

from dualml.common.errors import CommunicationError, TrialError, Unsupported
from dualml_torch.algorithms.cluster import FAREWELL_S
from dualml_torch.algorithms.collectives import likely_cause
from dualml_torch.algorithms.communicator import TorchCommunicator
from dualml_torch.algorithms.rendezvous import INTERFACE

with warnings.catch_warnings():
    # Every functional optimizer, none of which is used here, is compiled at the import.
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
    from torch.distributed.optim import DistributedOptimizer

__all__ = ["DistributedOptimizer", "start_agent", "translate_errors", "worker_name"]

SCHEME = "dualml"
#: Threads that serve calls. A rank serves few calls at once, and every thread that computes has an
#: OpenMP pool of its own.
SERVING = 2
#: Part of a warning of `DistributedOptimizer` about every optimizer that is not its own.
SLOWER = "without TorchScript support"


def worker_name(rank: int) -> str:
    """Return the name of a rank's RPC agent, such as ``rank0``."""
    return f"rank{rank}"


def start_agent(comm: TorchCommunicator) -> None:
    """Start this rank's agent, unless it is running; all ranks of the world call it. It stops when
    the rank leaves the group; ``TP_SOCKET_IFNAME`` may be set.

    Raises:
        Unsupported: ranks on GPUs, or a single rank.
        CommunicationError, TrialError: see `translate_errors`, such as ranks that came too late.
    """
    if comm.group is None or comm.member.device.type != "cpu":
        raise Unsupported(
            f"engine = rpc is for several ranks on CPUs; this is rank {comm.rank} of {comm.size} "
            f'on {comm.device}; use engine = "messages"'
        )
    with contextlib.suppress(RuntimeError):
        rpc.get_worker_info()
        return  # it runs
    if INTERFACE in os.environ:  # nothing listens where gloo does not
        os.environ.setdefault("TP_SOCKET_IFNAME", os.environ[INTERFACE])
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"{SCHEME}://",
        rpc_timeout=comm.context.timeout,
        num_worker_threads=SERVING,
        _transports=["uv"],
        _channels=["basic"],
    )
    logging.getLogger("torch.distributed.optim.optimizer").addFilter(
        lambda record: SLOWER not in str(record.msg)
    )
    with translate_errors(comm, "starting"), warnings.catch_warnings():
        # A warning about torch's own use of a group.
        warnings.filterwarnings("ignore", "You are using a Backend", UserWarning)
        rpc.init_rpc(worker_name(comm.rank), None, comm.rank, comm.size, options)
    comm.member.exit_callbacks.append(lambda: stop_agent(comm))


def stop_agent(comm: TorchCommunicator) -> None:
    """Stop the agent, together with the other ranks if no error occurred; return after twice
    `FAREWELL_S` seconds at the latest, stopped or not."""

    def end() -> None:
        with contextlib.suppress(RuntimeError):
            rpc.shutdown(graceful=not comm.member.broken, timeout=FAREWELL_S)

    ending = threading.Thread(target=end, daemon=True)
    ending.start()
    ending.join(2 * FAREWELL_S)


@contextlib.contextmanager
def translate_errors(comm: TorchCommunicator, what: str) -> Iterator[None]:
    """Turn errors of a remote call inside the block into one line, the caller and the likely cause,
    and mark the membership as broken; a TrialError passes as it is, and so does what is neither a
    RuntimeError nor from another rank.

    Raises:
        TrialError: the called function failed, with its rank.
        CommunicationError: the called rank did not answer.
    """
    try:
        yield
    except TrialError:
        raise
    except Exception as error:
        comm.member.broken = True
        text, who = str(error), f"rank {comm.rank} of {comm.size}, {what} by rpc"
        far = re.search(r"(?:On WorkerInfo\(id=|Error on Node )(\d+)[^\n:]*:\s*([^\n]*)", text)
        if far and not is_unresponsive(far[2]):
            raise TrialError(f"{who}: rank {far[1]} failed: {far[2]}") from error
        if not isinstance(error, RuntimeError):
            raise
        if is_unresponsive(text) and "timeout" not in text:  # as `likely_cause` says it
            error = RuntimeError("Connection closed by peer")
        raise CommunicationError(f"{who}: {likely_cause(error, comm.context)}") from error


def is_unresponsive(text: str) -> bool:
    """Return whether the text of an error means that a rank does not answer: too late, or not any
    more."""
    words = r"\beof\b|connection (reset|refused|closed)|broken pipe|pipe closed|cancell?ed|RPCErr"
    return bool(re.search(words, text, re.IGNORECASE))


def _rendezvous(url: str, **_: Any) -> Iterator[tuple[dist.Store, int, int]]:
    """Yield the store of the process groups, by which the agents find one another, the rank and the
    number of ranks; ``url`` is ignored."""
    store = dist.distributed_c10d._get_default_store()
    yield dist.PrefixStore("dualml/rpc", store), dist.get_rank(), dist.get_world_size()


register_rendezvous_handler(SCHEME, _rendezvous)
