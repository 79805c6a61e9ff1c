"""The agent of `torch.distributed.rpc` in a rank: how it starts and ends, what its errors mean.

It starts once in a process and serves all trials of its ranks.

Measured between three processes on two cores: its shared memory transport, which it prefers, brings
back a small call in 0.2 ms where sockets need 0.5 ms, but a thread of it polls all the time, half a
core in every rank, also in the trials that follow. So only sockets are used: what else a rank does
then costs what it costs without the agent, and calls between the nodes of an emulated network cross
that network.
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

from dualml.errors import CommunicationError, TrialError, Unsupported
from dualml_torch.cluster import FAREWELL_S
from dualml_torch.collectives import cause
from dualml_torch.communicator import TorchCommunicator
from dualml_torch.rendezvous import INTERFACE

with warnings.catch_warnings():
    # Every functional optimizer, none of which is used here, is compiled at the import.
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
    from torch.distributed.optim import DistributedOptimizer

__all__ = ["DistributedOptimizer", "name_of", "start", "told"]

SCHEME = "dualml"
#: Threads that serve calls. A rank serves few at once, and every one that computes brings a pool of
#: OpenMP threads of its own.
SERVING = 2
#: `DistributedOptimizer` says so of every optimizer that is not its own.
SLOWER = "without TorchScript support"


def name_of(rank: int) -> str:
    """How the agents call a rank."""
    return f"rank{rank}"


def start(comm: TorchCommunicator) -> None:
    """Start this rank's agent, unless it runs; all ranks of the world call it.

    Raises:
        Unsupported: ranks on GPUs, or a rank that is alone.
        CommunicationError: ranks that did not come in time.
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
        rpc_timeout=comm.place.timeout,
        num_worker_threads=SERVING,
        _transports=["uv"],
        _channels=["basic"],
    )
    logging.getLogger("torch.distributed.optim.optimizer").addFilter(
        lambda record: SLOWER not in str(record.msg)
    )
    with told(comm, "starting"), warnings.catch_warnings():
        # torch's own use of a group of its own, not ours.
        warnings.filterwarnings("ignore", "You are using a Backend", UserWarning)
        rpc.init_rpc(name_of(comm.rank), None, comm.rank, comm.size, options)
    comm.member.ends.append(lambda: stop(comm))


def stop(comm: TorchCommunicator) -> None:
    """End the agent, together with the others where all is well; never waits long."""

    def end() -> None:
        with contextlib.suppress(RuntimeError):
            rpc.shutdown(graceful=not comm.member.broken, timeout=FAREWELL_S)

    ending = threading.Thread(target=end, daemon=True)
    ending.start()
    ending.join(2 * FAREWELL_S)


@contextlib.contextmanager
def told(comm: TorchCommunicator, what: str) -> Iterator[None]:
    """What happens around a call as one line: who called, and what is likely behind it.

    Raises:
        TrialError: the function that was called failed, with its rank.
        CommunicationError: the rank that was called did not answer.
    """
    try:
        yield
    except TrialError:
        raise
    except Exception as error:
        comm.member.broken = True
        text, who = str(error), f"rank {comm.rank} of {comm.size}, {what} by rpc"
        far = re.search(r"(?:On WorkerInfo\(id=|Error on Node )(\d+)[^\n:]*:\s*([^\n]*)", text)
        if far and not silent(far[2]):
            raise TrialError(f"{who}: rank {far[1]} failed: {far[2]}") from error
        if not isinstance(error, RuntimeError):
            raise
        if silent(text) and "timeout" not in text:  # in the words that `cause` knows
            error = RuntimeError("Connection closed by peer")
        raise CommunicationError(f"{who}: {cause(error, comm.place)}") from error


def silent(text: str) -> bool:
    """Whether an error is that of a rank that does not answer: too late, or no more."""
    words = r"\beof\b|connection (reset|refused|closed)|broken pipe|pipe closed|cancell?ed|RPCErr"
    return bool(re.search(words, text, re.IGNORECASE))


def _rendezvous(url: str, **_: Any) -> Iterator[tuple[dist.Store, int, int]]:
    """The agents find one another in the store in which the process groups did."""
    store = dist.distributed_c10d._get_default_store()
    yield dist.PrefixStore("dualml/rpc", store), dist.get_rank(), dist.get_world_size()


register_rendezvous_handler(SCHEME, _rendezvous)
