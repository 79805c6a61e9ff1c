"""Collectives by torch.distributed: gloo between processors, nccl between GPUs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from dualml.clock import EVENTS, WALL
from dualml.communicator import Communicator, How, Place
from dualml.communicator.parts import parts_of
from dualml.errors import CommunicationError
from dualml.sockets import sent_bytes
from dualml_torch.clock import start_events
from dualml_torch.cluster import join, leave, new_group
from dualml_torch.rendezvous import Membership, first

DTYPES = {
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int32: "int32",
    torch.int64: "int64",
}
KINDS = {name: kind for kind, name in DTYPES.items()}
OPS = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
}
COMBINE = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum, "prod": torch.mul}
CALLED = {
    "reduce_scatter": "reduce_scatter_tensor",
    "all_to_all": "all_to_all_single",
    "exchange": "isend, irecv",
    "subgroup": "new_group",
    "asynchronous": "all_reduce, all_gather with async_op",
}


def connect(place: Place, device: str | torch.device = "cpu") -> TorchCommunicator:
    """Join the other ranks; the communicator of all of them.

    Args:
        place: of this rank.
        device: ``cpu``, ``cuda`` or ``auto``. With several ranks every one takes a GPU of its own,
            which `TorchCommunicator.device` names.

    Raises:
        CommunicationError: ranks that did not come in time, by number, or a port that is in use.
        UserError, Unsupported: see `dualml_torch.cluster.join`.
    """
    return TorchCommunicator(place, join(place, device))


class TorchCommunicator(Communicator):
    """Tensors between processes; see `dualml.communicator.Communicator`. `connect` makes it.

    Args:
        place: of this rank.
        member: what it has joined.

    Attributes:
        ranks: of the group, in the world; all when omitted.
        group: the process group of torch.distributed; None for a rank that is alone.
    """

    backend: ClassVar[str] = "torch"
    more_types: ClassVar[tuple[str, ...]] = ("bfloat16",)

    def __init__(
        self,
        place: Place,
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
        self.group, self.whole = group, ranks is None

    def how(self, primitive: str, dtype: str = "float32", op: str = "sum") -> How:
        if self.group is None:
            return How("native", "one rank: nothing to send")
        text = f"dist.{CALLED.get(primitive, primitive)}, {self.member.engine}"
        if op == "mean" and primitive in ("all_reduce", "reduce", "reduce_scatter"):
            text += ", then divided by n"
        if primitive == "reduce_scatter":
            if self.member.engine == "gloo":
                text += " (which reduces all of it everywhere)"
            text += "; unequal parts padded"
        return How("native", text)

    def stopwatch(self) -> Callable[[], float]:
        """On a GPU by its own events: what is measured is the device, not the way to it."""
        if self.clock == EVENTS:
            return start_events(self.member.device)
        return super().stopwatch()

    def tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(np.array(array, order="C")).to(self.member.device)

    def numpy(self, x: Tensor) -> Any:
        return np.array(x.detach().cpu().numpy(), order="C")

    def dtype(self, x: Tensor) -> str:
        return DTYPES.get(x.dtype) or str(x.dtype).removeprefix("torch.")

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        return x.to(KINDS[dtype], copy=True)

    def empty_like(self, x: Tensor) -> Tensor:
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    def copy(self, x: Tensor) -> Tensor:
        return x.detach().clone(memory_format=torch.contiguous_format)

    def combine(self, a: Tensor, b: Tensor, op: str) -> Tensor:
        result: Tensor = COMBINE[op](a, b, out=a)
        return result

    def median(self, parts: Sequence[Tensor]) -> Tensor:
        # torch.median takes the lower of the middle two.
        ordered, n = torch.stack(list(parts)).sort(0).values, len(parts)
        middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
        return torch.where(ordered[-1].isnan(), ordered[-1], middle)  # nan is sorted to the end

    def scale(self, x: Tensor, factor: float) -> Tensor:
        return x.mul_(factor if x.is_floating_point() else int(factor))

    def slice(self, x: Tensor, start: int, stop: int) -> Tensor:
        return x[start:stop]

    def write(self, x: Tensor, start: int, value: Tensor, then: str) -> Tensor:
        place = x[start : start + len(value)]
        if then == "add":
            place.add_(value)
        elif value.data_ptr() != place.data_ptr():  # else received where it belongs
            place.copy_(value)
        return x

    def synchronize(self) -> None:
        if self.member.device.type == "cuda":
            torch.cuda.synchronize(self.member.device)

    def sent(self) -> int | None:
        """Count what gloo writes to its sockets; NCCL sends by other ways, too."""
        return sent_bytes() if self.member.engine == "gloo" else None

    def close(self) -> None:
        """Leave the group of all ranks; groups made of some of them end with it."""
        if self.whole:
            leave(self.member)

    def _subgroup(self, ranks: Sequence[int]) -> Communicator:
        chosen = [self.ranks[r] for r in ranks]
        group = None
        if len(chosen) > 1:
            made_of = "-".join(map(str, self.ranks))
            key = f"group.{self.place.key}.{made_of}.{self._sequence}"
            with self._told("subgroup"):
                group = new_group(self.place, self.member, chosen, key)
        return TorchCommunicator(self.place, self.member, chosen, group)

    def _exchange(
        self, send: Mapping[int, Tensor], receive: Mapping[int, Tensor]
    ) -> dict[int, Tensor]:
        buffers = {peer: x.contiguous() for peer, x in receive.items()}
        with self._told("exchange"):
            if self.member.engine == "nccl":  # one by one, a send could wait for its receiver
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

    def _isend(self, x: Tensor, peer: int) -> Callable[[], Tensor]:
        return self._message(dist.isend, x, peer)

    def _irecv(self, buffer: Tensor, peer: int) -> Callable[[], Tensor]:
        return self._message(dist.irecv, buffer, peer)

    def _message(self, begin: Any, x: Tensor, peer: int) -> Callable[[], Tensor]:
        with self._told("exchange"):
            work = begin(x, self.ranks[peer], self.group)

        def wait() -> Tensor:
            with self._told("exchange"):
                work.wait()
            return x

        return wait

    def _native(self, primitive: str, x: Tensor, **options: Any) -> Any:
        if self.group is None:
            return self._alone(primitive, x, options)
        with self._told(primitive):
            return getattr(self, f"_{primitive}_now")(x, **options)

    def _start(self, primitive: str, x: Tensor, **options: Any) -> Callable[[], Any]:
        if self.group is None:
            result = self._alone(primitive, x, options)
            return lambda: result
        with self._told(primitive):
            if primitive == "all_reduce":
                x = x.contiguous()
                output: Any = x
                work = dist.all_reduce(x, OPS[options["op"]], self.group, async_op=True)
            else:
                output = self._buffers(x)
                work = dist.all_gather(output, x, self.group, async_op=True)

        def wait() -> Any:
            with self._told(primitive):
                work.wait()
            return output

        return wait

    def _all_reduce_now(self, x: Tensor, op: str) -> Tensor:
        x = x.contiguous()
        dist.all_reduce(x, OPS[op], self.group)
        return x

    def _reduce_now(self, x: Tensor, op: str, root: int) -> Tensor:
        dist.reduce(x, self.ranks[root], OPS[op], self.group)
        return x

    def _broadcast_now(self, x: Tensor, root: int) -> Tensor:
        x = x.contiguous()
        dist.broadcast(x, self.ranks[root], self.group)
        return x

    def _gather_now(self, x: Tensor, root: int) -> list[Tensor] | None:
        parts = self._buffers(x) if self.rank == root else None
        dist.gather(x, parts, self.ranks[root], self.group)
        return parts

    def _all_gather_now(self, x: Tensor) -> list[Tensor]:
        parts = self._buffers(x)
        dist.all_gather(parts, x, self.group)
        return parts

    def _scatter_now(self, x: Tensor, parts: list[Tensor] | None, root: int) -> Tensor:
        dist.scatter(x, parts, self.ranks[root], self.group)
        return x

    def _reduce_scatter_now(self, x: Tensor, op: str) -> Tensor:
        sizes = parts_of(len(x), self.size)
        if sizes[0] != sizes[-1]:
            rows = x.new_zeros((self.size, sizes[0]))
            for row, part in zip(rows, x.split(sizes), strict=True):
                row[: len(part)] = part
            x = rows.view(-1)
        own = x.new_empty(sizes[0])
        with warnings.catch_warnings():
            # torch 2.13 calls it reduce_scatter_single; 2.4 does not know that name.
            warnings.simplefilter("ignore", FutureWarning)
            dist.reduce_scatter_tensor(own, x, OPS[op], self.group)
        return own[: sizes[self.rank]]

    def _all_to_all_now(self, x: Tensor, parts: list[Tensor]) -> list[Tensor]:
        rows = torch.stack(parts)
        received = torch.empty_like(rows)
        if rows.numel():
            dist.all_to_all_single(received, rows, group=self.group)
        return list(received.unbind(0))

    def _barrier_now(self, x: None) -> None:
        if self.member.engine == "nccl":
            dist.barrier(self.group, device_ids=[self.member.device.index])
        else:
            dist.barrier(self.group)

    def _buffers(self, x: Tensor) -> list[Tensor]:
        """One tensor of the shape of ``x`` for every rank, side by side in one memory."""
        return list(x.new_empty((self.size, *x.shape)).unbind(0))

    def _alone(self, primitive: str, x: Any, options: dict[str, Any]) -> Any:
        if primitive in ("gather", "all_gather"):
            return [x]
        parts = options.get("parts")
        return {"scatter": parts and parts[0], "all_to_all": parts}.get(primitive, x)

    @contextmanager
    def _told(self, primitive: str) -> Iterator[None]:
        """torch's errors as one line: who, in what, and what is likely behind it."""
        try:
            yield
        except CommunicationError:
            raise
        except RuntimeError as error:
            self.member.broken = True
            text = f"rank {self.rank} of {self.size}, {primitive}: {cause(error, self.place)}"
            raise CommunicationError(text) from error


def cause(error: BaseException, place: Place) -> str:
    """What an error of torch.distributed most likely comes from."""
    text = str(error)
    if any(words in text for words in ("losed by peer", "reset by peer", "Broken pipe")):
        return "the connection to another rank is gone; that rank most likely failed, see its log"
    if any(words in text.lower() for words in ("timed out", "timeout")):
        return (
            f"no answer within {place.timeout:g} s; a rank hangs, is late, or does something else "
            "(checking mode says what)"
        )
    if "op.preamble" in text or "mismatch" in text.lower():
        return "ranks ask for different sizes or types (checking mode says who asks for what)"
    return first(error)
