"""dualml's ring attention as a split model runs it, for either framework."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from efficiency import own_core
from ranks import paced

from dualml.algorithms.model.decoder import GroupedAttention
from dualml.backend import Array, BlockAttention
from dualml.common.seeds import make_generator
from dualml.interface.bench.timing import Times, time_interleaved
from dualml.parallel.split.ring import RingAttention
from dualml.parallel.split.shards import TensorShard

#: Function that makes the block attention of a layer, for a rank with some positions.
Blocks = Callable[[GroupedAttention, Array], BlockAttention]


@contextlib.contextmanager
def untold(**_: Any) -> Iterator[None]:
    """Ignore the times of messages."""
    yield


class Case:
    """The inputs of both variants on a rank: positions, layer input, and the gradient of the
    output.

    Attributes:
        places: the rank's positions, in ascending order.
        x, flow: layer input (B, T, G·(R + 2)·K) and output gradient (B, T, G·R·K) there.
    """

    def __init__(self, comm: Any, shape: tuple[int, ...]) -> None:
        samples, length, heads, groups, width = shape
        self.layer = GroupedAttention(heads, groups, width, length)
        draw = make_generator(0, "benchmark", "attention")
        deal = TensorShard((length,), 0, comm.rank, comm.size, 2, mirrored=True)
        self.places = deal.extract(np.arange(length))
        x, flow = (
            draw.normal(size=(samples, length, n * width)).astype(np.float32)
            for n in (heads + 2 * groups, heads)
        )
        self.x, self.flow = (np.ascontiguousarray(a[:, self.places]) for a in (x, flow))


def ring(comm: Any, case: Case, blocks: Blocks) -> Callable[[], Any]:
    """Return forward and backward pass of ring attention, which give the gradient of ``x``."""
    attention = RingAttention(blocks(case.layer, case.places), comm)
    x, flow = comm.tensor(case.x), comm.tensor(case.flow)

    def run_once() -> Any:
        _, kept = attention.forward(x, untold)
        return attention.backward(kept, flow, untold)

    return run_once


def race(
    comm: Any,
    shapes: Mapping[str, tuple[int, ...]],
    rounds: int,
    blocks: Blocks,
    others: Callable[[Any, Case], Mapping[str, Callable[[], Any]]],
) -> dict[str, Times]:
    """Return the milliseconds of both passes, by shape and variant; the gathered variant must give
    our result.

    Raises:
        AssertionError: both variants differ by more than rounding.
    """
    own_core(comm.rank)
    found = {}
    for name, shape in shapes.items():
        case = Case(comm, tuple(shape))
        calls = {"ring": ring(comm, case, blocks), **others(comm, case)}
        ours, theirs = (comm.numpy(calls[way]()) for way in ("ring", "collected"))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-5 * np.abs(theirs).max())
        found[name] = time_interleaved({n: paced(comm, call) for n, call in calls.items()}, rounds)
    return found
