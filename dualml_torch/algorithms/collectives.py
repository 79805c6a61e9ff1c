"""Collectives of torch.distributed: start, wait, and errors as one line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dualml.algorithms.communicator import Communicator, RankContext
from dualml.algorithms.communicator.parts import part_lengths, part_start
from dualml.algorithms.communicator.primitives import EngineWork
from dualml.common.errors import CommunicationError
from dualml_torch.algorithms.rendezvous import Membership, first_line

OPS = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}
#: A started operation, None if it is complete already; and a function that returns its result.
StartedCollective = tuple[Any, Callable[[], Any]]


class TorchCollectives(Communicator):
    """The collectives of a `dualml_torch.algorithms.communicator.TorchCommunicator`."""

    member: Membership

    def _native(self, primitive: str, x: Tensor, **options: Any) -> Any:
        """Run a native collective and return its result; ``x`` may be overwritten. A single rank
        computes it without torch."""
        if self.group is None:
            return self._run_on_one_rank(primitive, x, options)
        with self._translate_errors(primitive):
            _, result = getattr(self, f"_{primitive}_begin")(x, False, **options)
            return result()

    def _start(self, primitive: str, x: Tensor, **options: Any) -> EngineWork:
        """Start a native collective without waiting and return its work; ``x`` may be overwritten.
        gloo's reduce_scatter starts an all_reduce."""
        if self.group is None:
            result = self._run_on_one_rank(primitive, x, options)
            return EngineWork(lambda: result, lambda: True)
        if primitive == "reduce_scatter" and self.member.engine == "gloo":
            return self._start_gloo_reduce_scatter(x, **options)
        with self._translate_errors(primitive):
            work, result = getattr(self, f"_{primitive}_begin")(x, True, **options)
        return self._make_work(primitive, work, result)

    def _start_gloo_reduce_scatter(self, x: Tensor, op: str) -> EngineWork:
        """Start an all_reduce of the 1-D ``x`` whose work returns this rank's part. gloo does the
        same: its own reduce_scatter copies the part only when it is waited for, and never reports
        completion before."""
        with self._translate_errors("reduce_scatter"):
            work, result = self._all_reduce_begin(x, True, op)
        start, size = (
            part_start(len(x), self.size, self.rank),
            part_lengths(len(x), self.size)[self.rank],
        )
        return self._make_work("reduce_scatter", work, lambda: result()[start : start + size])

    def _make_work(self, primitive: str, work: Any, result: Callable[[], Any]) -> EngineWork:
        """Wrap torch's ``work`` (None: complete already) and the function that reads its ``result``
        in an `EngineWork` whose errors are translated."""

        def wait() -> Any:
            with self._translate_errors(primitive):
                if work is not None:
                    work.wait()
            return result()

        return EngineWork(wait, work.is_completed if work is not None else lambda: True)

    # Each starts a collective, without waiting if ``later``; it returns the work, and a function
    # that gives the result once the work is complete.

    def _all_reduce_begin(self, x: Tensor, later: bool, op: str) -> StartedCollective:
        """Start an all-reduce of ``x`` by ``op``, without waiting if ``later``, in place if ``x``
        is contiguous; the result is the reduced tensor on every rank."""
        x = x.contiguous()
        return dist.all_reduce(x, OPS[op], self.group, later), lambda: x

    def _reduce_begin(self, x: Tensor, later: bool, op: str, root: int) -> StartedCollective:
        """Start a reduction of ``x`` by ``op``, without waiting if ``later``, in place; only the
        group rank ``root`` gets the result, and elsewhere ``x`` is undefined afterwards."""
        return dist.reduce(x, self.ranks[root], OPS[op], self.group, later), lambda: x

    def _broadcast_begin(self, x: Tensor, later: bool, root: int) -> StartedCollective:
        """Start a broadcast of the group rank ``root``'s ``x``, without waiting if ``later``, in
        place if ``x`` is contiguous; the result is the tensor received."""
        x = x.contiguous()
        return dist.broadcast(x, self.ranks[root], self.group, later), lambda: x

    def _gather_begin(self, x: Tensor, later: bool, root: int) -> StartedCollective:
        """Start a gather of every rank's ``x``, without waiting if ``later``; the result is their
        list in rank order on the group rank ``root``, else None."""
        parts = self._buffers(x) if self.rank == root else None
        return dist.gather(x, parts, self.ranks[root], self.group, later), lambda: parts

    def _all_gather_begin(self, x: Tensor, later: bool) -> StartedCollective:
        """Start an all-gather, without waiting if ``later``; the result is the list of every rank's
        ``x``, in rank order."""
        parts = self._buffers(x)
        return dist.all_gather(parts, x, self.group, later), lambda: parts

    def _scatter_begin(
        self, x: Tensor, later: bool, parts: list[Tensor] | None, root: int
    ) -> StartedCollective:
        """Start a scatter of the group rank ``root``'s ``parts`` (None elsewhere), without waiting
        if ``later``; this rank's part overwrites ``x`` and is the result."""
        return dist.scatter(x, parts, self.ranks[root], self.group, later), lambda: x

    def _reduce_scatter_begin(self, x: Tensor, later: bool, op: str) -> StartedCollective:
        """Start a reduce-scatter of the 1-D ``x`` by ``op``, without waiting if ``later``; the
        result is this rank's part. Parts of unequal length are padded with zeros meanwhile."""
        sizes = part_lengths(len(x), self.size)
        if sizes[0] != sizes[-1]:
            rows = x.new_zeros((self.size, sizes[0]))
            for row, part in zip(rows, x.split(sizes), strict=True):
                row[: len(part)] = part
            x = rows.view(-1)
        own = x.new_empty(sizes[0])
        with warnings.catch_warnings():
            # torch 2.13 calls it reduce_scatter_single; 2.4 does not know that name.
            warnings.simplefilter("ignore", FutureWarning)
            work = dist.reduce_scatter_tensor(own, x, OPS[op], self.group, later)
        return work, lambda: own[: sizes[self.rank]]

    def _all_to_all_begin(self, x: Tensor, later: bool, parts: list[Tensor]) -> StartedCollective:
        """Start an all-to-all of ``parts``, one per rank and of one shape, without waiting if
        ``later``; the result is the list of the parts received, by sender. ``x`` is ignored."""
        rows = torch.stack(parts)
        received = torch.empty_like(rows)
        work = None
        if rows.numel():
            work = dist.all_to_all_single(received, rows, group=self.group, async_op=later)
        return work, lambda: list(received.unbind(0))

    def _barrier_begin(self, x: None, later: bool) -> StartedCollective:
        """Start a barrier of the group, without waiting if ``later``; NCCL's runs on this rank's
        GPU. The result is None, and ``x`` is ignored."""
        bound = {}
        if self.member.engine == "nccl":
            bound = {"device_ids": [self.member.device.index]}
        return dist.barrier(self.group, later, **bound), lambda: None

    def _buffers(self, x: Tensor) -> list[Tensor]:
        """Allocate one uninitialised tensor of the shape of ``x`` per rank, contiguous in one
        buffer."""
        return list(x.new_empty((self.size, *x.shape)).unbind(0))

    def _run_on_one_rank(self, primitive: str, x: Any, options: dict[str, Any]) -> Any:
        """Return the result of a collective of a single rank without a copy: [``x``] of a gather or
        all-gather, the only part of a scatter, the list of parts of an all-to-all, else ``x``."""
        if primitive in ("gather", "all_gather"):
            return [x]
        parts = options.get("parts")
        return {"scatter": parts and parts[0], "all_to_all": parts}.get(primitive, x)

    @contextmanager
    def _translate_errors(self, primitive: str) -> Iterator[None]:
        """Turn a RuntimeError, torch's errors, inside the block into a CommunicationError of one
        line, with the rank, the operation and the likely cause, and mark the membership as broken;
        a CommunicationError passes as it is."""
        try:
            yield
        except CommunicationError:
            raise
        except RuntimeError as error:
            self.member.broken = True
            text = (
                f"rank {self.rank} of {self.size}, {primitive}: {likely_cause(error, self.context)}"
            )
            raise CommunicationError(text) from error


def likely_cause(error: BaseException, place: RankContext) -> str:
    """Return one line on the most likely cause of an error of torch.distributed: a lost connection,
    a timeout or ranks that differ; else the error's own first line."""
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
    return first_line(error)
