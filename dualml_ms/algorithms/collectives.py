"""Collectives of mindspore.mint.distributed, with errors as one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mindspore as ms
import mindspore.mint.distributed as md
import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.common.errors import CommunicationError
from dualml_ms.algorithms.cluster import Membership, first_line


class MindSporeCollectives(Communicator):
    """The collectives of a `dualml_ms.algorithms.communicator.MindSporeCommunicator`, its base
    class."""

    member: Membership

    def _contiguous(self, x: ms.Tensor) -> ms.Tensor:
        """Return ``x`` itself if it is contiguous, so that collectives and NumPy write to its
        memory, else a contiguous copy."""
        return x if x.is_contiguous() else self.copy(x)

    def _native(self, primitive: str, x: Any, **options: Any) -> Any:
        """Run the collective ``primitive`` of `mint.distributed` on ``x``, or on a contiguous copy,
        and return its result; a barrier is an all-reduce of one element. A single rank returns
        ``x``.

        Raises:
            CommunicationError: the collective failed or timed out.
        """
        if self.group is None:
            return x
        if primitive == "barrier":
            x, options = self.tensor(np.zeros(1, np.float32)), {"op": "sum"}
            primitive = "all_reduce"
        with self._translate_errors(primitive):
            return getattr(self, f"_{primitive}_native")(self._contiguous(x), **options)

    def _all_reduce_native(self, x: ms.Tensor, op: str) -> ms.Tensor:
        """Reduce ``x`` over the group by ``op``, in place, wait, and return ``x``; an empty tensor
        is not sent."""
        if x.size:
            md.all_reduce(x, op, self.group)
            x.asnumpy()  # waits, even if the queue has been switched on again
        return x

    def _broadcast_native(self, x: ms.Tensor, root: int) -> ms.Tensor:
        """Overwrite ``x`` with that of the group's rank ``root``, wait, and return it; an empty
        tensor is not sent."""
        if x.size:
            md.broadcast(x, self.ranks[root], self.group)
            x.asnumpy()
        return x

    def _all_gather_native(self, x: ms.Tensor) -> list[ms.Tensor]:
        """Return every rank's ``x`` as new tensors, in rank order; an empty tensor is not sent."""
        parts = [self.empty_like(x) for _ in self.ranks]
        if x.size:
            md.all_gather(parts, x, self.group)
            parts[-1].asnumpy()
        return parts

    def _gather_native(self, x: ms.Tensor, root: int) -> list[ms.Tensor] | None:
        """Return every rank's ``x`` as new tensors, in rank order, on rank ``root``; None on the
        others."""
        at_root = self.rank == root
        # The other ranks have to pass tensors too, which are not written.
        parts = [self.empty_like(x) for _ in self.ranks] if at_root else [x] * self.size
        if x.size:
            md.gather(x, parts, self.ranks[root], self.group)
            parts[-1].asnumpy()
        return parts if at_root else None

    def _scatter_native(
        self, x: ms.Tensor, parts: Sequence[ms.Tensor] | None, root: int
    ) -> ms.Tensor:
        """Send ``parts``, one per rank and None on the other ranks, from rank ``root``; return this
        rank's part in the shape of ``x``, which it overwrites. An empty ``x`` is returned, and
        nothing sent."""
        if not x.size:
            return x
        # A 0-dim tensor crashes the process with a segmentation fault.
        flat = x.asnumpy().reshape(-1)
        into = ms.Tensor.from_numpy(flat)
        pieces = [ms.Tensor.from_numpy(p.asnumpy().reshape(-1)) for p in parts or [x] * self.size]
        md.scatter(into, pieces, self.ranks[root], self.group)
        return ms.Tensor.from_numpy(into.asnumpy().reshape(x.shape))

    @contextmanager
    def _translate_errors(self, primitive: str) -> Iterator[None]:
        """Turn MindSpore's errors inside the block into a `CommunicationError` of one line (the
        operation ``primitive``, the rank and the likely cause), and mark the membership as
        `broken`."""
        try:
            yield
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            self.member.broken = True
            raise CommunicationError(
                f"{primitive} failed on rank {self.ranks[self.rank]} of {self.context.size} "
                f"(a rank that ended, or one later than {self.context.timeout:g} s): "
                f"{first_line(error)}"
            ) from error
