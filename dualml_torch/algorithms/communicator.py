"""Collectives by torch.distributed: gloo between processors, nccl between GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from dualml.algorithms.communicator import BITWISE, Communicator, Implementation, RankContext
from dualml.algorithms.communicator.primitives import EngineWork
from dualml.common.clock import EVENTS, WALL
from dualml.common.former_members import keep_former_members
from dualml.common.sockets import sent_bytes
from dualml_torch.algorithms.cluster import join, leave, new_group
from dualml_torch.algorithms.collectives import TorchCollectives
from dualml_torch.algorithms.rendezvous import Membership
from dualml_torch.common.clock import start_events

DTYPES = {
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int32: "int32",
    torch.int64: "int64",
}
KINDS = {name: kind for kind, name in DTYPES.items()}
COMBINE = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum, "prod": torch.mul}
#: Primitive → functions of `torch.distributed` that implement it, if their name differs.
DIST_FUNCTIONS = {
    "reduce_scatter": "reduce_scatter_tensor",
    "all_to_all": "all_to_all_single",
    "exchange": "isend, irecv",
    "subgroup": "new_group",
    "asynchronous": "collectives with async_op",
    "tags": "isend, irecv with tag",
    "any_source": "irecv with src=None",
}
#: Primitives that gloo supports and nccl does not → reason.
GLOO_ONLY = {
    "tags": "nccl ignores the tag of a message",
    "any_source": "nccl receives from a named rank alone",
}
BITS = {"band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor}
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
#: Compositions of bitwise reductions for nccl, which has none.
FOLDED = {
    "all_reduce": "dist.all_gather, then a fold in rank order",
    "reduce": "dist.gather, then a fold in rank order",
    "reduce_scatter": "isend, irecv, then a fold in rank order",
}


def connect(place: RankContext, device: str | torch.device = "cpu") -> TorchCommunicator:
    """Join the other ranks, which all call this, and return the communicator of all of them.

    Args:
        place: context of this rank: its number, the number of ranks and how they find one another.
        device: ``cpu``, ``cuda`` or ``auto``. With several ranks every one takes a GPU of its own,
            which `TorchCommunicator.device` names.

    Raises:
        CommunicationError: ranks that did not come in time, by number, or a port that is in use.
        UserError, Unsupported: see `dualml_torch.algorithms.cluster.join`.
    """
    return TorchCommunicator(place, join(place, device))


@keep_former_members
class TorchCommunicator(TorchCollectives):
    """PyTorch implementation of `dualml.algorithms.communicator.Communicator` between processes,
    made by `connect`.

    Args:
        place: of this rank.
        member: this rank's membership in the process group.

    Attributes:
        ranks: world ranks of the group; all when omitted.
        group: the process group of torch.distributed; None for a single rank.
    """

    backend: ClassVar[str] = "torch"
    more_types: ClassVar[tuple[str, ...]] = ("bfloat16",)

    def __init__(
        self,
        place: RankContext,
        member: Membership,
        ranks: Sequence[int] | None = None,
        group: Any = None,
    ) -> None:
        super().__init__(place, ranks)
        self.member, self.device = member, str(member.device)
        self.engine = member.engine
        self.clock = EVENTS if member.device.type == "cuda" else WALL
        if ranks is None and self.size > 1:
            group = dist.group.WORLD
        self.group, self.is_world = group, ranks is None

    def implementation_of(
        self, primitive: str, dtype: str = "float32", op: str = "sum"
    ) -> Implementation:
        """Return the `torch.distributed` function behind ``primitive``, or how NCCL's is composed,
        or why NCCL does not support it; a single rank sends nothing. ``dtype`` is ignored, and
        ``op`` matters only to reductions."""
        if self.group is None:
            return Implementation("native", "one rank: nothing to send")
        if self.member.engine == "nccl" and primitive in GLOO_ONLY:
            return Implementation("unsupported", GLOO_ONLY[primitive])
        if self.member.engine == "nccl" and op in BITWISE and primitive in REDUCTIONS:
            return Implementation("composed", FOLDED[primitive])
        text = f"dist.{DIST_FUNCTIONS.get(primitive, primitive)}, {self.member.engine}"
        if op == "mean" and primitive in REDUCTIONS:
            text += ", then divided by n"
        if primitive == "reduce_scatter":
            if self.member.engine == "gloo":
                text += " (which reduces all of it everywhere)"
            text += "; unequal parts padded"
        return Implementation("native", text)

    def stopwatch(self) -> Callable[[], float]:
        """Start a stopwatch and return a function that gives the seconds since; on a GPU it uses
        CUDA events, so that launch latency is not measured."""
        if self.clock == EVENTS:
            return start_events(self.member.device)
        return super().stopwatch()

    def tensor(self, array: Any) -> Tensor:
        """Copy a NumPy array to a new tensor of the same type on the device."""
        return torch.from_numpy(np.array(array, order="C")).to(self.member.device)

    def numpy(self, x: Tensor) -> Any:
        """Copy a tensor, detached, to a C-contiguous NumPy array on the host. Raise TypeError for
        bfloat16, which NumPy lacks."""
        return np.array(x.detach().cpu().numpy(), order="C")

    def dtype(self, x: Tensor) -> str:
        """Return the name of a tensor's type without ``torch.``, such as ``float32``."""
        return DTYPES.get(x.dtype) or str(x.dtype).removeprefix("torch.")

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """Return a copy of ``x`` in the type ``dtype``, also if ``x`` has that type already."""
        return x.to(KINDS[dtype], copy=True)

    def empty_like(self, x: Tensor) -> Tensor:
        """Return an uninitialised contiguous tensor of the shape, type and device of ``x``."""
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    def copy(self, x: Tensor) -> Tensor:
        """Return a detached contiguous copy of ``x``."""
        return x.detach().clone(memory_format=torch.contiguous_format)

    def combine(self, a: Tensor, b: Tensor, op: str) -> Tensor:
        """Overwrite ``a`` with ``a`` and ``b`` combined by ``op`` (sum, max, min or prod) and
        return it."""
        result: Tensor = COMBINE[op](a, b, out=a)
        return result

    def median(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the elementwise median of ``parts``: of an even number the mean of the middle two,
        and nan where any part is nan."""
        # torch.median takes the lower of the middle two.
        ordered, n = torch.stack(list(parts)).sort(0).values, len(parts)
        middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
        return torch.where(ordered[-1].isnan(), ordered[-1], middle)  # nan is sorted to the end

    def combine_bits(self, a: Tensor, b: Tensor, op: str) -> Tensor:
        """Return a new tensor: the bitwise ``op`` (band, bor or bxor) of ``a`` and ``b``, which are
        unchanged."""
        return BITS[op](a, b)

    def scale(self, x: Tensor, factor: float) -> Tensor:
        """Multiply ``x`` in place and return it; for an integer ``x`` the factor is truncated, so
        that 0.5 gives zeros."""
        return x.mul_(factor if x.is_floating_point() else int(factor))

    def slice(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Return a view of the elements ``start`` to ``stop`` − 1 of the 1-D ``x``."""
        return x[start:stop]

    def write(self, x: Tensor, start: int, value: Tensor, op: str) -> Tensor:
        """Copy ``value`` into the 1-D ``x`` from ``start`` on, or add it if ``op`` is ``add``;
        return ``x``, changed in place."""
        place = x[start : start + len(value)]
        if op == "add":
            place.add_(value)
        elif value.data_ptr() != place.data_ptr():  # else received in place
            place.copy_(value)
        return x

    def synchronize(self) -> None:
        """Wait for this rank's GPU; do nothing on a CPU."""
        if self.member.device.type == "cuda":
            torch.cuda.synchronize(self.member.device)

    def count_sent_bytes(self) -> int | None:
        """Return the bytes written so far to this process's open TCP connections, gloo's among
        them; None if unknown, for a single rank, and for NCCL, which also uses other transports."""
        return sent_bytes() if self.member.engine == "gloo" else None

    def close(self) -> None:
        """Leave the group of all ranks; its subgroups end with it. Do nothing for a subgroup."""
        if self.is_world:
            leave(self.member)

    def _subgroup(self, ranks: Sequence[int]) -> Communicator:
        """Make the communicator of these ranks of this group, which all of them call; a single rank
        gets no process group."""
        chosen = [self.ranks[r] for r in ranks]
        group = None
        if len(chosen) > 1:
            made_of = "-".join(map(str, self.ranks))
            key = f"group.{self.context.key}.{made_of}.{self._sequence}"
            with self._translate_errors("subgroup"):
                group = new_group(self.context, self.member, chosen, key)
        return type(self)(self.context, self.member, chosen, group)

    def _exchange(
        self, send: Mapping[int, Tensor], receive: Mapping[int, Tensor]
    ) -> dict[int, Tensor]:
        """Send and receive one tensor per named group rank at the same time, wait, and return the
        received ones by rank. Contiguous tensors in ``receive`` are overwritten."""
        buffers = {peer: x.contiguous() for peer, x in receive.items()}
        with self._translate_errors("exchange"):
            if self.member.engine == "nccl":  # separate calls could deadlock
                steps = [(dist.irecv, peer, x) for peer, x in buffers.items()]
                steps += [(dist.isend, peer, x.contiguous()) for peer, x in send.items()]
                pairs = [dist.P2POp(f, x, self.ranks[p], self.group) for f, p, x in steps]
                works = dist.batch_isend_irecv(pairs) if pairs else []
            else:
                ranks, group = self.ranks, self.group
                works = [dist.irecv(x, ranks[p], group) for p, x in buffers.items()]
                works += [dist.isend(x.contiguous(), ranks[p], group) for p, x in send.items()]
            for work in works:
                work.wait()
        return buffers

    def _isend(self, x: Tensor, peer: int) -> EngineWork:
        """Start sending ``x`` to the group rank ``peer``; the work returns ``x``."""
        return self._start_message(dist.isend, x, peer)

    def _irecv(self, buffer: Tensor, peer: int) -> EngineWork:
        """Start receiving from the group rank ``peer`` into ``buffer``, which the work returns."""
        return self._start_message(dist.irecv, buffer, peer)

    def _isend_tagged(self, x: Tensor, peer: int, tag: int) -> EngineWork:
        """Start sending ``x`` with the number ``tag`` to the group rank ``peer``; only for gloo."""
        return self._start_message(dist.isend, x, peer, tag)

    def _irecv_tagged(self, buffer: Tensor, peer: int | None, tag: int) -> EngineWork:
        """Start receiving a message with the number ``tag`` into ``buffer``, from any rank if
        ``peer`` is None; only for gloo."""
        return self._start_message(dist.irecv, buffer, peer, tag)

    def _start_message(self, begin: Any, x: Tensor, peer: int | None, tag: int = 0) -> EngineWork:
        """Start a message by ``begin``, `dist.isend` or `dist.irecv`, to or from the group rank
        ``peer``; None receives from any rank, which the work then names."""
        with self._translate_errors("exchange"):
            work = begin(x, None if peer is None else self.ranks[peer], self.group, tag)
        read: list[int] = []

        def wait() -> Tensor:
            with self._translate_errors("exchange"):
                work.wait()
                if peer is None:
                    read.append(work._source_rank())  # in the group
            return x

        source = (lambda: read[0]) if peer is None else None
        done = work.is_completed if self.member.engine == "nccl" else None
        return EngineWork(wait, done, "gloo does not tell of a message", source)
