"""The communicator that a student's code receives: every call is a request to the mediator."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dualml.common.errors import CommunicationError
from dualml.course.frames import receive, send
from dualml.course.returned import describe_value

#: Time limit in seconds of an answer. It comes as soon as the other ranks have asked, or never; the
#: call's own time limit ends the wait.
ANSWER_S = 3600.0
ERRORS: dict[str, type[Exception]] = {"ValueError": ValueError}
Tensor = Any


class StudentCommunicator:
    """A group of ranks, as seen by one of them.

    Arguments are not modified, except by `exchange`; results are new tensors, in the order of
    ranks.

    Args:
        door: the socket to the mediator.
        rank, size: this rank, from 0, and the number of ranks.
        to_array, to_tensor: conversions between a framework's tensor and a NumPy array; the second
            also receives a tensor that gives dtype and device.
        fill: function that writes an array into a tensor, as a message into a buffer.

    Attributes:
        silent: whether tensors stay here and are returned unchanged, since only the duration
            matters.
        number: number of the current call.
    """

    def __init__(
        self,
        door: socket.socket,
        rank: int,
        size: int,
        to_array: Callable[[Tensor], Any],
        to_tensor: Callable[[Any, Tensor], Tensor],
        fill: Callable[[Any, Tensor], Tensor] | None = None,
    ) -> None:
        self._door, self.rank, self.size = door, rank, size
        self._to_array, self._to_tensor = to_array, to_tensor
        self._fill = fill or to_tensor
        self.silent, self.number, self.waiting = False, -1, False

    def all_reduce(self, x: Tensor, op: str = "sum") -> Tensor:
        """Return the reduction of ``x`` over all ranks (sum, mean, max, min, prod)."""
        return self._ask("all_reduce", x, op=op)["x"]

    def reduce(self, x: Tensor, root: int = 0, op: str = "sum") -> Tensor | None:
        """Return the reduction of ``x`` on rank ``root``, None elsewhere."""
        return self._ask("reduce", x, op=op, root=root).get("x")

    def broadcast(self, x: Tensor, root: int = 0) -> Tensor:
        """Return ``x`` of rank ``root``; on other ranks ``x`` only gives shape and dtype."""
        return self._ask("broadcast", x, root=root)["x"]

    def gather(self, x: Tensor, root: int = 0) -> list[Tensor] | None:
        """Return every rank's ``x`` on rank ``root``, a list in the order of ranks; None
        elsewhere."""
        parts = self._ask("gather", x, root=root)
        return self._in_rank_order(parts) if self.rank == root else None

    def all_gather(self, x: Tensor) -> list[Tensor]:
        """Return every rank's ``x``, a list in the order of ranks."""
        return self._in_rank_order(self._ask("all_gather", x))

    def scatter(self, parts: Sequence[Tensor] | None, like: Tensor, root: int = 0) -> Tensor:
        """Return part r of rank ``root``'s ``parts`` on rank r; each has the shape and dtype of
        ``like``. On other ranks ``parts`` is ignored."""
        own = list(parts or ()) if self.rank == root else []
        return self._ask("scatter", like, root=root, parts=own)["x"]

    def reduce_scatter(self, x: Tensor, op: str = "sum") -> Tensor:
        """Return on rank r part r of the reduction of the 1-D ``x`` over all ranks; the parts are
        nearly equal."""
        return self._ask("reduce_scatter", x, op=op)["x"]

    def all_to_all(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Return on rank r part r of every rank, a list in the order of ranks; raise
        `CommunicationError` unless there is one part for each rank."""
        own = list(parts)
        if len(own) != self.size:
            raise CommunicationError(
                f"all_to_all over {self.size} ranks needs as many parts; received {len(own)}"
            )
        return self._in_rank_order(self._ask("all_to_all", own[0], parts=own))

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self._request({"op": "barrier"}, {})

    def exchange(
        self, send: Mapping[int, Tensor], receive: Mapping[int, Tensor]
    ) -> dict[int, Tensor]:
        """Send to some ranks and receive from others, all at once.

        Args:
            send: rank → tensor.
            receive: rank → tensor of the expected shape and dtype, a buffer for the message: in
                PyTorch, if it is contiguous, it is overwritten; else it stays as it is.

        Returns:
            rank → tensor that it sent; it shares the memory of an overwritten buffer.
        """
        arrays = {f"send/{int(peer)}": self._to_array(x) for peer, x in send.items()}
        likes = {int(peer): x for peer, x in receive.items()}
        expected = [[peer, *self._describe_tensor(like)] for peer, like in likes.items()]
        came = self._request({"op": "exchange", "receive": expected}, arrays)
        return {peer: self._fill(came[str(peer)], like) for peer, like in likes.items()}

    def mark(self) -> None:
        """Begin a new part of the call, whose traffic is counted separately."""
        send(self._door, {"event": "mark", "call": self.number})

    def _describe_tensor(self, x: Tensor) -> tuple[str, list[int]]:
        """Return the name of a tensor's dtype, as ``float32``, and its shape; raise `TypeError` for
        what is no tensor."""
        if not hasattr(x, "dtype") or not hasattr(x, "shape"):
            raise TypeError(
                f"comm takes tensors; received {describe_value(x)}, which has to be made into one"
            )
        dtype = str(x.dtype).lower().rpartition(".")[2]
        return dtype, [int(n) for n in x.shape]

    def _ask(
        self,
        name: str,
        x: Tensor,
        op: str = "sum",
        root: int = 0,
        parts: Sequence[Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Request a collective and return its result's tensors by key; while ``silent`` return
        ``x`` itself, once the collective is over."""
        dtype, shape = self._describe_tensor(x)
        header = {"op": name, "reduce": op, "root": root, "dtype": dtype, "shape": shape}
        if self.silent:
            self._request(header, {})
            return {"x": x}
        if parts is None:
            arrays = {"x": self._to_array(x)}
        else:
            arrays = {str(i): self._to_array(part) for i, part in enumerate(parts)}
        return {k: self._to_tensor(a, x) for k, a in self._request(header, arrays).items()}

    def _in_rank_order(self, parts: Mapping[str, Tensor]) -> list[Tensor]:
        """Return parts ``0``, ``1``, … as a list in the order of ranks."""
        return [parts[str(r)] for r in range(self.size)]

    def _request(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request to the mediator, wait for its answer and return its arrays; raise the
        `CommunicationError` or `ValueError` with which it may answer."""
        self.waiting = True
        send(self._door, {"event": "ask", "call": self.number, **header}, arrays)
        while True:
            answer, came = receive(self._door, ANSWER_S)
            if answer.get("reply") == self.number:
                break
        self.waiting = False
        if "error" in answer:
            raise ERRORS.get(answer["error"], CommunicationError)(answer["message"])
        return came
