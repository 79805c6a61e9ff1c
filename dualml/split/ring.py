"""Ring attention: a rank has some positions, and the keys and values of all go round the ranks.

In step i rank r has the keys and values of rank r − i, attends to them and meanwhile sends them on
to rank r + 1. What a query found in each block is merged by the logarithms of the sums of
exponentials. Backward the keys and values go round again, and with them the gradients that all
ranks add to them, home to the rank whose they are.

Sources: Liu, Zaharia and Abbeel 2023, "Ring Attention with Blockwise Transformers for Near-Infinite
Context", sec. 3; Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", alg. 3,
for the merging; Dao et al. 2022, "FlashAttention", app. B.4, for the backward pass of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from dualml.backend.stage import Block, BlockAttention, Tensor
from dualml.communicator import Communicator
from dualml.model.decoder import GroupedAttention

#: Makes the event of a wait for messages, given the bytes sent meanwhile.
During = Callable[..., AbstractContextManager[None]]
#: Queries, own keys and values, output, logarithms of the sums.
Kept = tuple[Tensor, Tensor, Tensor, Tensor]


def keys_and_values(layer: GroupedAttention, ranks: int) -> int:
    """Elements of one sample that a rank sends in a step.

    Example:
        >>> keys_and_values(GroupedAttention(heads=4, kv_heads=2, width=8, length=32), ranks=2)
        512
    """
    return 2 * (layer.length // ranks) * layer.kv_heads * layer.width


def block(rank: int, source: int) -> Block:
    """What the keys and values of rank ``source`` are to the queries of ``rank``, where each has an
    early chunk of the positions and the late one that mirrors it."""
    if rank == source:
        return "own"
    return "early" if source < rank else "late"


class RingAttention:
    """A layer's attention on one rank of the group whose ranks share out the positions."""

    def __init__(self, attention: BlockAttention, group: Communicator) -> None:
        self.attention, self.group = attention, group
        n, rank = group.size, group.rank
        self.after, self.before = (rank + 1) % n, (rank - 1) % n
        self.blocks = [block(rank, (rank - step) % n) for step in range(n)]

    def forward(self, x: Tensor, during: During) -> tuple[Tensor, Kept]:
        """The output of one's own positions, and what `backward` needs.

        Args:
            x: what `GroupedAttention` takes, of one's own positions.
        """
        q, own = self.attention.split(x)
        state, kv, last = None, own, len(self.blocks) - 1
        for step, which in enumerate(self.blocks):
            arrival = self.pass_on(kv, during) if step < last else None
            state = self.attention.attend(q, kv, which, state)
            if arrival is not None:
                kv = arrival()
        assert state is not None
        y, lse = state
        y = self.attention.joined(y)
        return y, (q, own, y, lse)

    def backward(self, kept: Kept, flow: Tensor, during: During) -> Tensor:
        """The gradient of what `forward` took, from that of what it gave."""
        q, kv, y, lse = kept
        flow, y = self.attention.heads(flow), self.attention.heads(y)
        home: Any = None  # one's own part of the gradient of one's own keys and values
        arrival = arriving = None
        last, dq = len(self.blocks) - 1, None
        for step, which in enumerate(self.blocks):
            arrival = self.pass_on(kv, during) if step < last else None
            more, change = self.attention.back(q, kv, which, flow, y, lse)
            dq = more if dq is None else dq + more
            if step == 0:
                home = change
            else:
                change = change if arriving is None else change + arriving()
                arriving = self.pass_on(change, during)
            if arrival is not None:
                kv = arrival()
        assert arriving is not None
        return self.attention.whole(dq, home + arriving())

    def pass_on(self, x: Tensor, during: During) -> Callable[[], Tensor]:
        """Begin to send to the next rank, and to receive as much from the one before; what comes
        when it is there."""
        sent = self.group.isend(x, self.after)
        came = self.group.irecv(self.group.empty_like(x), self.before)

        def arrived() -> Tensor:
            with during(nbytes=self.group.nbytes(x)):
                got = came.wait()
                sent.wait()
            return got

        return arrived
