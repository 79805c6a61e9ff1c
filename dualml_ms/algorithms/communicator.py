"""Collectives by mindspore.mint.distributed, whose CPU engine is MindSpore's own (``mccl``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mindspore as ms
import mindspore.mint.distributed as md
import numpy as np

from dualml.algorithms.communicator import BITWISE, Implementation, RankContext
from dualml.common.former_members import keep_former_members
from dualml.common.sockets import sent_bytes
from dualml_ms.algorithms.cluster import Membership, join
from dualml_ms.algorithms.collectives import MindSporeCollectives

DTYPES = {
    ms.float16: "float16",
    ms.float32: "float32",
    ms.float64: "float64",
    ms.int32: "int32",
    ms.int64: "int64",
}
COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
NATIVE = ("broadcast", "gather", "all_gather", "scatter")
#: Reductions that md does not have → the functions that they are composed of.
FOLDED = {
    "all_reduce": "mint.distributed.all_gather",
    "reduce": "mint.distributed.gather",
    "reduce_scatter": "mint.distributed.send and recv",
}
COMPOSED = {
    "reduce": "mint.distributed.gather, then a fold in rank order (no reduce on a CPU)",
    "reduce_scatter": "mint.distributed.send and recv, then a fold in rank order",
    "all_to_all": "mint.distributed.send and recv",
}


def connect(place: RankContext, device: str = "cpu") -> MindSporeCommunicator:
    """Join the other ranks and return the communicator of all of them; all ranks call it.

    From here on operators outside of compiled cells run when they are called (`launch_blocking`).

    Args:
        place: number, world size, rendezvous and timeout of this rank.
        device: ``cpu`` or ``auto``; no other device supports communication between ranks here.

    Raises:
        CommunicationError: ranks that did not come in time, by number, or a port that is in use.
        UserError, Unsupported: see `dualml_ms.algorithms.cluster.join`.
    """
    return MindSporeCommunicator(place, join(place, device))


@keep_former_members
class MindSporeCommunicator(MindSporeCollectives):
    """MindSpore implementation of `dualml.algorithms.communicator.Communicator` between processes,
    made by `connect` from the ``place`` of this rank and its membership in the cluster, ``member``.
    ``ranks``: world ranks of a subgroup; None for all.

    On a CPU `Tensor.asnumpy` is a view of a contiguous tensor's own memory and `Tensor.from_numpy`
    shares an array's memory, for compiled cells and collectives alike (measured, and tested in
    tests/mindspore). So the arithmetic here is NumPy's: a copy of 4 MB takes 6 ms by `Tensor.copy`
    and a sum 0.25 ms by `ops.add`, against less than 1 and 0.1 ms.
    """

    backend: ClassVar[str] = "mindspore"
    engine = "mccl"

    def __init__(
        self, place: RankContext, member: Membership, ranks: Sequence[int] | None = None
    ) -> None:
        super().__init__(place, ranks)
        self.member, self.is_world = member, ranks is None
        self.group = member.group_name(self.ranks)

    def implementation_of(
        self, primitive: str, dtype: str = "float32", op: str = "sum"
    ) -> Implementation:
        """Return how MindSpore's engine ``mccl`` executes ``primitive`` (a collective or
        capability) for this ``dtype`` and reduction ``op``: natively, composed of other
        collectives, or not at all, with the functions it calls. Raise KeyError for an unknown
        primitive."""
        if self.group is None:
            return Implementation("composed", "one rank: nothing to send")
        if op in BITWISE and primitive in FOLDED:
            return Implementation(
                "composed", f"{FOLDED[primitive]}, then a fold in rank order (no {op})"
            )
        divided = ", divided by n" if op == "mean" else ""
        if primitive in NATIVE:
            return Implementation("native", f"mint.distributed.{primitive}")
        if primitive in COMPOSED:
            return Implementation("composed", COMPOSED[primitive] + divided)
        if primitive == "all_reduce":
            if dtype == "float64":
                detail = "mint.distributed.all_gather, then a fold in rank order (no float64)"
                return Implementation("composed", detail + divided)
            return Implementation("native", f"mint.distributed.all_reduce{divided}")
        details = {
            "exchange": Implementation("native", "mint.distributed.send, recv"),
            # On a CPU md.barrier returns before the other ranks arrive and logs an error.
            "barrier": Implementation("composed", "mint.distributed.all_reduce of one element"),
            "subgroup": Implementation("native", "mint.distributed.new_group"),
            # Besides, CommHandle has a wait, but no query of completion.
            # async_op starts in 0.4 ms where operators are queued, but nothing is gained on two
            # cores: 1.6 s for a collective and a computation that take 0.5 and 0.9 s.
            "asynchronous": Implementation(
                "unsupported", "the call returns when the result is there"
            ),
            # Asked for tag 2, recv returns what was sent with tag 1; of None and -1 it raises.
            "tags": Implementation("unsupported", "mint.distributed ignores the tag on a CPU"),
            "any_source": Implementation(
                "unsupported", "mint.distributed.recv takes a named rank alone"
            ),
        }
        return details[primitive]

    def tensor(self, array: Any) -> ms.Tensor:
        """Copy a NumPy array to a contiguous tensor of the same dtype."""
        return ms.Tensor.from_numpy(np.array(array, order="C"))

    def numpy(self, x: ms.Tensor) -> Any:
        """Return a contiguous copy of ``x`` as a NumPy array."""
        return np.array(x.asnumpy(), order="C")

    def dtype(self, x: ms.Tensor) -> str:
        """Return the NumPy name of the tensor's dtype, such as ``float32``; MindSpore's in lower
        case for dtypes that are not in `DTYPES`."""
        return DTYPES.get(x.dtype) or str(x.dtype).lower()

    def cast(self, x: ms.Tensor, dtype: str) -> ms.Tensor:
        """Return a contiguous copy of ``x``, converted by NumPy to ``dtype``, a NumPy name."""
        return ms.Tensor.from_numpy(x.asnumpy().astype(dtype, order="C"))

    def empty_like(self, x: ms.Tensor) -> ms.Tensor:
        """Return a new, contiguous, uninitialized tensor of the shape and dtype of ``x``."""
        return ms.Tensor.from_numpy(np.empty(x.shape, self.dtype(x)))

    def copy(self, x: ms.Tensor) -> ms.Tensor:
        """Return a contiguous copy of ``x``, made by NumPy."""
        return self.tensor(x.asnumpy())

    def combine(self, a: ms.Tensor, b: ms.Tensor, op: str) -> ms.Tensor:
        """Combine ``a`` and ``b`` elementwise by ``op`` (a key of `COMBINE`) with NumPy; return
        ``a``, overwritten, or a new tensor if ``a`` is not contiguous."""
        a = self._contiguous(a)
        memory = a.asnumpy()
        with np.errstate(over="ignore", invalid="ignore"):
            COMBINE[op](memory, b.asnumpy(), out=memory)
        return a

    def scale(self, x: ms.Tensor, factor: float) -> ms.Tensor:
        """Multiply ``x`` by ``factor`` in place and return it, or a new tensor if ``x`` is not
        contiguous."""
        x = self._contiguous(x)
        memory = x.asnumpy()
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(memory, memory.dtype.type(factor), out=memory)
        return x

    def slice(self, x: ms.Tensor, start: int, stop: int) -> ms.Tensor:
        """Return elements ``start`` to ``stop`` − 1 of the 1-D ``x`` as a view of its memory."""
        return ms.Tensor.from_numpy(x.asnumpy()[start:stop])

    def write(self, x: ms.Tensor, start: int, value: ms.Tensor, op: str) -> ms.Tensor:
        """Write the 1-D ``value`` into ``x`` from ``start`` on, or add it if ``op`` is ``add``;
        return ``x``, changed in place, or a new tensor if it is not contiguous."""
        x = self._contiguous(x)
        new = value.asnumpy()
        place = x.asnumpy()[start : start + len(new)]
        if op == "add":
            with np.errstate(over="ignore", invalid="ignore"):
                place += new
        elif place.ctypes.data != new.ctypes.data:
            place[...] = new
        return x

    def synchronize(self) -> None:
        """Do nothing: every method here returns when its result is complete."""

    def count_sent_bytes(self) -> int | None:
        """Return the bytes written so far to this process's open TCP connections, all those of the
        process; None where the system does not count them."""
        return sent_bytes()

    def close(self) -> None:
        """Wait until every rank is done, and leave the cluster. Further calls, and calls on a
        subgroup's communicator, do nothing.

        Raises:
            CommunicationError: ranks that did not finish in time, by number.
        """
        if self.is_world:
            self.member.leave(self.context)

    def _exchange(
        self, send: Mapping[int, ms.Tensor], receive: Mapping[int, ms.Tensor]
    ) -> dict[int, ms.Tensor]:
        """Send each tensor of ``send`` and receive into the buffers of ``receive``, both by the
        peer's rank in this group; return peer → received tensor. Empty tensors are not sent."""
        # Messages are copied into a queue, so that all may send first. World ranks and the world's
        # group, also in a subgroup: a pair of ranks shares one queue whatever the group.
        buffers = {peer: self._contiguous(x) for peer, x in receive.items()}
        with self._translate_errors("exchange"):
            for peer, x in send.items():
                if x.size:
                    whole = self._contiguous(x)
                    md.send(whole, self.ranks[peer])
                    whole.asnumpy()  # until then a caller who writes to x would change the message
            for peer, x in buffers.items():
                if x.size:
                    md.recv(x, self.ranks[peer])
                    x.asnumpy()
        return buffers

    def _subgroup(self, ranks: Sequence[int]) -> MindSporeCommunicator:
        """Return the communicator of these ranks, numbered within this group; it shares the
        cluster."""
        return MindSporeCommunicator(self.context, self.member, [self.ranks[r] for r in ranks])
