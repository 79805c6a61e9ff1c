"""The communicator: framework-independent semantics of the collectives.

A backend provides only its native collectives, point-to-point messages and tensor arithmetic.
Primitives that it lacks are composed here from those it has; `Communicator.implementation_of` tells
which is which. Apart from rounding, results do not depend on the implementation.

n is the number of ranks; ranks are those of the group, from 0 to n - 1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from dualml.algorithms.communicator.parts import part_start
from dualml.algorithms.communicator.point_to_point import PointToPoint
from dualml.algorithms.communicator.primitives import (
    BITWISE,
    DTYPES,
    OPS,
    CompletedWork,
    PendingWork,
    Tensor,
)
from dualml.algorithms.communicator.rendezvous import all_gather_via_store, ranks_per_machine
from dualml.common.errors import CommunicationError
from dualml.common.former_members import keep_former_members
from dualml.common.machine import network_id


def sum_op(op: str) -> str:
    """Return the operation that combines two tensors: ``sum`` for ``mean``, whose division comes
    last, else ``op``."""
    return "sum" if op == "mean" else op


def wrap_completed(result: Tensor, wait: bool) -> Any:
    """Return a finished result in the form the caller asked for: the result itself, or a
    `WorkHandle` if not ``wait``."""
    return result if wait else CompletedWork(result)


@keep_former_members
class Communicator(PointToPoint):
    """A group of ranks as one of them sees it.

    Tensors are called ``x``; ``root`` and ``peer`` are ranks of the group; ``op`` is one of `OPS`.

    Arguments are not modified unless ``inplace`` is set. All ranks of the group call the same
    methods in the same order with tensors of the same shape and type, except where noted. Results
    are in the order of ranks. Tensors may be empty, of any shape, and need not be contiguous.

    With ``wait=False`` a collective returns a `WorkHandle` instead of its result, with
    ``is_completed()`` and ``wait()``. It runs in the background where `implementation_of` says that
    ``asynchronous`` is native; otherwise it is complete when the call returns.

    Attributes:
        rank, size: this rank and the number of ranks.
        ranks: rank in this group → rank in the world.
        traffic: counts of what this rank sent and received.
        backend, device: names for tables.
        calls: number of collectives and exchanges entered so far, where `isend` or `irecv` and the
            wait for it count separately; ``inside`` names the running one.
        more_types: types that this engine supports beyond `DTYPES`.
    """

    more_types: ClassVar[tuple[str, ...]] = ()

    # --- the collectives --------------------------------------------------------------------------

    def all_reduce(
        self, x: Tensor, op: str = "sum", *, inplace: bool = False, wait: bool = True
    ) -> Any:
        """Return the reduction of ``x`` over all ranks, on every rank.

        Args:
            op: one of `OPS`; ``mean`` divides the sum by n and needs a floating type. Integers may
                also be reduced by one of `BITWISE`.
            inplace: ``x`` may be overwritten; use the returned tensor either way.
        """
        self._validate("all_reduce", x, op)
        if self._use_native("all_reduce", x, op):
            own = x if inplace else self.copy(x)
            return self._run_or_start(
                "all_reduce", own, wait, lambda y: self._mean(y, op), op=sum_op(op)
            )
        return wrap_completed(self._reduce_parts(self._all_gather(x), op), wait)

    def reduce(self, x: Tensor, root: int = 0, op: str = "sum", *, wait: bool = True) -> Any:
        """Return the reduction of ``x`` over all ranks on rank ``root``, None elsewhere; ``op`` as
        for `all_reduce`."""
        self._validate("reduce", x, op, root)
        if self._use_native("reduce", x, op):

            def mean_at_root(total: Tensor) -> Tensor | None:
                return self._mean(total, op) if self.rank == root else None

            return self._run_or_start(
                "reduce", self.copy(x), wait, mean_at_root, op=sum_op(op), root=root
            )
        parts = self._gather(x, root)
        return wrap_completed(None if parts is None else self._reduce_parts(parts, op), wait)

    def broadcast(
        self, x: Tensor, root: int = 0, *, inplace: bool = False, wait: bool = True
    ) -> Any:
        """Return rank ``root``'s ``x`` on every rank; elsewhere ``x`` only gives the shape and
        type. With ``inplace`` it may be overwritten; use the returned tensor either way."""
        self._validate("broadcast", x, root=root)
        own = x if inplace else self.copy(x)
        if self._use_native("broadcast", x, handed=(x,) if self.rank == root else ()):
            return self._run_or_start("broadcast", own, wait, root=root)
        if self.rank != root:
            return wrap_completed(self.exchange({}, {root: own})[root], wait)
        self.exchange(dict.fromkeys(self._other_ranks(), own), {})
        return wrap_completed(own, wait)

    def gather(self, x: Tensor, root: int = 0, *, wait: bool = True) -> Any:
        """Return the list of every rank's ``x``, in the order of ranks, on rank ``root``, None
        elsewhere."""
        self._validate("gather", x, root=root)
        if not wait and self._use_native("gather", x):
            return self._run_or_start("gather", self.copy(x), wait, root=root)
        return wrap_completed(self._gather(x, root), wait)

    def all_gather(self, x: Tensor, *, wait: bool = True) -> Any:
        """Return the list of every rank's ``x``, in the order of ranks, on every rank."""
        self._validate("all_gather", x)
        if not wait and self._use_native("all_gather", x):
            return self._run_or_start("all_gather", self.copy(x), wait)
        return wrap_completed(self._all_gather(x), wait)

    def scatter(
        self, parts: Sequence[Tensor] | None, like: Tensor, root: int = 0, *, wait: bool = True
    ) -> Any:
        """Return part r of rank ``root``'s ``parts`` on rank r; all parts have the shape of
        ``like``.

        Args:
            parts: n tensors on rank ``root``, ignored elsewhere.
            like: gives the shape and type on every rank; its content is ignored.

        Raises:
            CommunicationError: on rank ``root`` alone, there are not n parts, and the others wait;
                on every rank, an unsupported type or root.
        """
        if self.rank == root and (parts is None or len(parts) != self.size):
            count = None if parts is None else len(parts)
            raise CommunicationError(f"scatter over {self.size} ranks needs as many parts: {count}")
        self._validate("scatter", like, root=root)
        own = [self.copy(p) for p in parts or ()] if self.rank == root else None
        if self._use_native("scatter", like, handed=own or ()):
            return self._run_or_start("scatter", self.empty_like(like), wait, parts=own, root=root)
        if own is None:
            return wrap_completed(self.exchange({}, {root: self.empty_like(like)})[root], wait)
        self.exchange({r: own[r] for r in self._other_ranks()}, {})
        return wrap_completed(own[root], wait)

    def reduce_scatter(self, x: Tensor, op: str = "sum", *, wait: bool = True) -> Any:
        """Return part r of the reduction of the 1-D ``x`` over all ranks on rank r. The parts are
        consecutive and nearly equal, of the lengths `part_lengths`; ``op`` as for `all_reduce`."""
        self._validate("reduce_scatter", x, op)
        if self._use_native("reduce_scatter", x, op):
            own, options = self.copy(x), {"op": sum_op(op)}
            return self._run_or_start(
                "reduce_scatter", own, wait, lambda y: self._mean(y, op), **options
            )
        whole, ends = self.copy(x), [part_start(len(x), self.size, r) for r in range(self.size + 1)]
        parts = self._pairwise_exchange([self.slice(whole, a, b) for a, b in pairwise(ends)])
        return wrap_completed(self._reduce_parts(parts, op), wait)

    def all_to_all(self, parts: Sequence[Tensor], *, wait: bool = True) -> Any:
        """Send part j to rank j; return the parts received, in the order of ranks. All parts of all
        ranks have one shape.

        Args:
            parts: n tensors, the one for rank j at index j.

        Raises:
            CommunicationError: there are not n parts, or their type is unsupported.
        """
        if len(parts) != self.size:
            raise CommunicationError(
                f"all_to_all over {self.size} ranks needs as many parts; received {len(parts)}"
            )
        self._validate("all_to_all", parts[0])
        native = self._use_native("all_to_all", parts[0], handed=parts)
        own = [self.copy(p) for p in parts]
        if native:
            return self._run_or_start("all_to_all", own[0], wait, list, parts=own)
        return wrap_completed(self._pairwise_exchange(own), wait)

    def barrier(self, *, wait: bool = True) -> Any:
        """Return None once every rank has called it; without ``wait`` return a `WorkHandle` that
        waits for them."""
        return self._run_or_start("barrier", None, wait, lambda _: None)

    def ranks_per_machine(self) -> int:
        """Return the number of ranks on each machine, if all machines have the same number of
        consecutive ranks; else 0.

        All ranks call it. The first call exchanges the machines over the store; later calls return
        the stored result.

        Raises:
            CommunicationError: a rank does not report its machine in time.
        """
        if self._per_machine is None:
            what = "every rank to say on which machine it is"
            key = f"machine.{self.context.key}.{'-'.join(map(str, self.ranks))}"
            place = self.context
            notes = all_gather_via_store(
                place.store, key, place.rank, self.ranks, network_id(), place.timeout, what
            )
            self._per_machine = ranks_per_machine([notes[r] for r in self.ranks])
        return self._per_machine

    def subgroup(self, ranks: Sequence[int]) -> Communicator | None:
        """Return a communicator of some ranks; every rank of this group calls it, and the others
        get None.

        Its ranks are numbered from 0 in the ascending order of ``ranks``, in whatever order they
        are given.

        Raises:
            CommunicationError: a rank that does not exist, or is listed twice, or no rank at all;
                ranks that call it with different ``ranks``, or do not call it in time.
        """
        chosen = sorted(set(ranks))
        if not chosen or chosen[0] < 0 or chosen[-1] >= self.size or len(chosen) != len(ranks):
            raise CommunicationError(
                f"a subgroup of {self.size} ranks takes some of 0 to {self.size - 1}, each once; "
                f"received {list(ranks)}"
            )
        self._check_consistency(f"subgroup {chosen}")
        return self._subgroup(chosen) if self.rank in chosen else None

    # --- implementation ---------------------------------------------------------------------------

    @abstractmethod
    def _subgroup(self, ranks: Sequence[int]) -> Communicator:
        """Return a communicator of these ranks of the group, which include this one."""

    def _run_or_start(
        self,
        primitive: str,
        x: Tensor,
        wait: bool,
        postprocess: Callable[[Tensor], Tensor] = lambda y: y,
        **options: Any,
    ) -> Any:
        """Run a native collective and return ``postprocess`` of its result. Without ``wait`` return
        a `WorkHandle`: started in the background where ``asynchronous`` is native, else already
        complete. The time spent in it or waiting for it is counted."""
        if wait or self.implementation_of("asynchronous").kind != "native":
            return wrap_completed(postprocess(self._run(primitive, x, **options)), wait)
        work = self._start(primitive, x, **options)
        return PendingWork(lambda: self._timed(primitive, work), postprocess, work)

    def _use_native(
        self, primitive: str, x: Tensor, op: str = "sum", handed: Sequence[Tensor] | None = None
    ) -> bool:
        """Return whether the framework executes the primitive; if so, count the call and its
        payload: the bytes of ``handed``, which may be empty, or of ``x`` if ``handed`` is None."""
        if self.implementation_of(primitive, self.dtype(x), op).kind != "native":
            return False
        self.traffic.calls += 1
        self.traffic.payload += sum(map(self.nbytes, (x,) if handed is None else handed))
        return True

    def _other_ranks(self) -> list[int]:
        """Return the ranks of the group except this one, ascending."""
        return [r for r in range(self.size) if r != self.rank]

    def _pairwise_exchange(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Send part r to rank r; return what every rank sent to this one, in the order of ranks."""
        own, others = parts[self.rank], self._other_ranks()
        buffers = {r: self.empty_like(own) for r in others}
        came = self.exchange({r: parts[r] for r in others}, buffers)
        return [own if r == self.rank else came[r] for r in range(self.size)]

    def _all_gather(self, x: Tensor) -> list[Tensor]:
        """Return the list of every rank's ``x``, in the order of ranks; composed of messages where
        the framework has no all-gather."""
        if self._use_native("all_gather", x):
            return list(self._run("all_gather", self.copy(x)))
        return self._pairwise_exchange([self.copy(x)] * self.size)

    def _gather(self, x: Tensor, root: int) -> list[Tensor] | None:
        """Return the list of every rank's ``x`` on rank ``root``, None elsewhere; composed of
        messages where the framework has no gather."""
        if self._use_native("gather", x):
            parts: list[Tensor] | None = self._run("gather", self.copy(x), root=root)
            return parts
        own = self.copy(x)
        if self.rank != root:
            self.exchange({root: own}, {})
            return None
        came = self.exchange({}, {r: self.empty_like(own) for r in self._other_ranks()})
        return [own if r == root else came[r] for r in range(self.size)]

    def _reduce_parts(self, parts: Sequence[Tensor], op: str) -> Tensor:
        """Return the reduction of ``parts`` by ``op``, ``mean`` included, as a new tensor. They are
        combined in the order of ranks, so that all ranks round in the same way."""
        total = self.copy(parts[0])
        for part in parts[1:]:
            if op in BITWISE:
                total = self.combine_bits(total, part, op)
            else:
                total = self.combine(total, part, sum_op(op))
        return self._mean(total, op)

    def _mean(self, total: Tensor, op: str) -> Tensor:
        """Divide the sum ``total`` by the number of ranks if ``op`` is ``mean``, else return it
        unchanged; may overwrite ``total``."""
        return self.scale(total, 1 / self.size) if op == "mean" else total

    def _validate(self, primitive: str, x: Tensor, op: str = "sum", root: int = 0) -> None:
        """Check the arguments of a collective; in checking mode also compare them with the other
        ranks'.

        Raises:
            CommunicationError: an unsupported type, operation or root, or ranks that disagree.
        """
        kind = self.dtype(x)
        known = (*DTYPES, *self.more_types)
        if kind not in known:
            raise CommunicationError(f"{primitive} takes {', '.join(known)}; received {kind}")
        if op not in OPS and op not in BITWISE:
            known = (*OPS, *BITWISE)
            raise CommunicationError(f"{primitive}: op must be one of {known}; received {op!r}")
        if op in BITWISE and not kind.startswith("int"):
            raise CommunicationError(f"{primitive}: {op} is of int32 and int64; received {kind}")
        if op == "mean" and kind.startswith("int"):
            raise CommunicationError(f"{primitive}: the mean of {kind} is not a {kind}; use sum")
        if not 0 <= root < self.size:
            raise CommunicationError(f"{primitive}: root {root} is not one of {self.size} ranks")
        if self.context.check:
            self._check_consistency(f"{primitive} {kind} {tuple(x.shape)} op={op} root={root}")

    def _check_consistency(self, what: str) -> None:
        """Compare the call ``what`` with those of the other ranks over the store, in any mode, and
        report who asks for what if they differ.

        Raises:
            CommunicationError: a rank asks for something else, or for nothing in time.
        """
        self._sequence += 1
        group = "-".join(map(str, self.ranks))
        key = f"meet.{self.context.key}.{group}.{self._sequence}"
        notes = all_gather_via_store(
            self.context.store,
            key,
            self.ranks[self.rank],
            self.ranks,
            what,
            self.context.timeout,
            what,
        )
        if len(set(notes.values())) > 1:
            listed = "; ".join(f"rank {r}: {note}" for r, note in sorted(notes.items()))
            raise CommunicationError(
                f"the ranks disagree on collective number {self._sequence}: {listed}"
            )
