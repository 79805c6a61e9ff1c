"""A communicator whose all-reduce takes a time that is known, with all that makes times hard to
take: a slow first call, a disturbance now and then, a rank that comes late."""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import prod
from typing import Any

#: Every so many calls one is disturbed.
DISTURBED = 4


class Clock:
    """``all_reduce`` returns its argument after α + β·bytes seconds, on ranks that are all there.

    Args:
        comm: the communicator whose barrier it is.
        options: ``alpha``, ``beta``; ``first``, seconds more of the first call of a size;
            ``disturbed``, seconds more of every fourth call; ``late``, seconds that rank 1 has
            something else to do after an all-reduce, before it comes to what is next.
    """

    def __init__(self, comm: Any, options: Mapping[str, Any]) -> None:
        self.comm, self.options = comm, options
        self.rank, self.size = comm.rank, comm.size
        self.calls: dict[int, int] = {}
        self.busy = False

    def come(self) -> None:
        if self.busy:
            time.sleep(self.options["late"])
        self.busy = False

    def barrier(self) -> None:
        self.come()
        self.comm.barrier()

    def all_reduce(self, x: Any, op: str = "sum") -> Any:
        width = {"float64": 8, "float16": 2}.get(str(x.dtype).lower().rpartition(".")[2], 4)
        nbytes = width * prod(int(n) for n in x.shape)
        made = self.calls[nbytes] = self.calls.get(nbytes, 0) + 1
        self.come()
        self.comm.barrier()  # it begins when the last rank has come
        seconds = self.options["alpha"] + self.options["beta"] * nbytes
        seconds += self.options["first"] if made == 1 else 0.0
        seconds += self.options["disturbed"] if made % DISTURBED == 0 else 0.0
        time.sleep(seconds)
        self.comm.barrier()
        self.busy = self.rank == 1
        return x
