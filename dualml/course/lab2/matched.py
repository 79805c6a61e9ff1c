"""The communicator of the ring: it says when what comes is not what a rank expects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from dualml.course.watched import Watched

#: What comes where a rank has ended and the framework says nothing of it: so lengths are told with
#: one added.
UNTOLD = 0


class Matched(Watched):
    """``rank``, ``size`` and ``exchange`` alone.

    Before each message its number of elements is sent: frameworks end in different errors, or in
    none, where a message has another length than the tensor that is to hold it.

    Args:
        number: makes a tensor with one whole number.
    """

    def __init__(self, comm: Any, number: Callable[[int], Any]) -> None:
        super().__init__(comm, ("exchange",))
        self._number = number
        self.moved = 0  # elements that were sent, whatever their type

    def exchange(self, send: Mapping[int, Any], receive: Mapping[int, Any]) -> dict[int, Any]:
        comm = self._comm
        before = replace(comm.traffic)
        told = {peer: self._number(elements(x) + 1) for peer, x in send.items()}
        lengths = comm.exchange(told, {peer: self._number(UNTOLD) for peer in receive})
        for name in ("sent", "received", "bytes_sent", "bytes_received"):  # these are not theirs
            setattr(comm.traffic, name, getattr(before, name))
        for peer, told_length in lengths.items():
            number, expected = int(told_length[0]), elements(receive[peer])
            if number not in (UNTOLD, expected + 1):
                raise ValueError(
                    f"rank {comm.rank} receives {number - 1} elements from rank {peer} "
                    f"and expects {expected}"
                )
        self.moved += sum(map(elements, send.values()))
        return dict(comm.exchange(send, receive))


def elements(x: Any) -> int:
    return prod(int(n) for n in x.shape)
