"""Ring attention: each rank has some positions, and the keys and values of all ranks travel around
a ring.

In step i rank r has the keys and values of rank r − i; it attends to them while it sends them on to
rank r + 1. The results of the blocks are merged by the logarithms of the sums of exponentials. In
the backward pass the keys and values go around again, together with their gradients, to which every
rank adds its part before they return to the rank that owns them.

Sources: Liu, Zaharia and Abbeel 2023, "Ring Attention with Blockwise Transformers for Near-Infinite
Context", sec. 3; Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", alg. 3,
for the merging; Dao et al. 2022, "FlashAttention", app. B.4, for the backward pass of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.model.decoder import GroupedAttention
from dualml.backend.stage import Block, BlockAttention, Tensor

#: Makes the context manager that records a wait for messages, given the bytes sent.
RecordWait = Callable[..., AbstractContextManager[None]]
#: Tensors saved for the backward pass: queries, local keys and values, output, logarithms of the
#: sums of exponentials.
SavedAttention = tuple[Tensor, Tensor, Tensor, Tensor]


def kv_numel(layer: GroupedAttention, ranks: int) -> int:
    """Return the elements of keys and values that a rank sends per sample in one step of the ring.

    Example:
        >>> kv_numel(GroupedAttention(heads=4, kv_heads=2, width=8, length=32), ranks=2)
        512
    """
    return 2 * (layer.length // ranks) * layer.kv_heads * layer.width


def kv_block(rank: int, source: int) -> Block:
    """Classify the keys and values of rank ``source`` for the queries of ``rank``: ``own`` if they
    are the same rank, ``early`` if ``source`` is lower, else ``late``.

    Each rank has an early chunk of the positions and the late chunk that mirrors it; of a lower
    rank its early chunk is visible to all queries here, of a higher one both chunks to the late
    queries only.
    """
    if rank == source:
        return "own"
    return "early" if source < rank else "late"


class RingAttention:
    """Attention of one layer on one rank of the group that shards the positions.

    Args:
        attention: attends to one block of keys and values at a time.
        group: communicator of the ranks that shard the positions, at least two.
    """

    def __init__(self, attention: BlockAttention, group: Communicator) -> None:
        self.attention, self.group = attention, group
        n, rank = group.size, group.rank
        self.next_rank, self.previous_rank = (rank + 1) % n, (rank - 1) % n
        self.blocks = [kv_block(rank, (rank - step) % n) for step in range(n)]

    def forward(self, x: Tensor, during: RecordWait) -> tuple[Tensor, SavedAttention]:
        """Return the output for the local positions and the tensors that `backward` needs.

        Args:
            x: input of `GroupedAttention` for the local positions.
            during: makes the context manager that records a wait for messages.
        """
        q, own = self.attention.split_qkv(x)
        state, kv, last = None, own, len(self.blocks) - 1
        for step, which in enumerate(self.blocks):
            arrival = self.send_to_next(kv, during) if step < last else None
            state = self.attention.attend(q, kv, which, state)
            if arrival is not None:
                kv = arrival()
        assert state is not None
        y, lse = state
        y = self.attention.merge_heads(y)
        return y, (q, own, y, lse)

    def backward(self, kept: SavedAttention, flow: Tensor, during: RecordWait) -> Tensor:
        """Return the gradient of the input of `forward` from the gradient ``flow`` of its output.

        Args:
            kept: the tensors that `forward` returned for this.
            during: makes the context manager that records a wait for messages.
        """
        q, kv, y, lse = kept
        flow, y = self.attention.split_heads(flow), self.attention.split_heads(y)
        home: Any = None  # local part of the gradient of the local keys and values
        arrival = arriving = None
        last, dq = len(self.blocks) - 1, None
        for step, which in enumerate(self.blocks):
            arrival = self.send_to_next(kv, during) if step < last else None
            more, change = self.attention.backward_block(q, kv, which, flow, y, lse)
            dq = more if dq is None else dq + more
            if step == 0:
                home = change
            else:
                change = change if arriving is None else change + arriving()
                arriving = self.send_to_next(change, during)
            if arrival is not None:
                kv = arrival()
        assert arriving is not None
        return self.attention.merge_qkv_gradients(dq, home + arriving())

    def send_to_next(self, x: Tensor, during: RecordWait) -> Callable[[], Tensor]:
        """Start sending a tensor to the next rank and receiving one of equal size from the previous
        rank; return a function that waits for both and returns the received tensor."""
        sent = self.group.isend(x, self.next_rank)
        came = self.group.irecv(self.group.empty_like(x), self.previous_rank)

        def wait_for_block() -> Tensor:
            with during(nbytes=self.group.nbytes(x)):
                got = came.wait()
                sent.wait()
            return got

        return wait_for_block
