"""Checks of reductions other than sums, and of a ring whose chunks are layers, on any backend."""

from __future__ import annotations

import numpy as np
from conformance.contributions import Failures

from dualml.algorithms.communicator import Communicator
from dualml.parallel.aggregation import Ring, strategy
from dualml.parallel.aggregation.coordinates import COORDINATEWISE, reduce_coordinates

LENGTH = 101
#: Elements of layers: one larger than all others together, one empty, and fewer layers than some
#: groups have ranks.
LAYERS = ((3, 5, 80, 0, 13), (60, 41))


def values(size: int) -> np.ndarray:
    """Return every rank's vector (size, `LENGTH`), with numbers of both signs."""
    draw = np.random.default_rng(5)
    return draw.normal(size=(size, LENGTH)).astype(np.float32)


def check_coordinates(comm: Communicator) -> None:
    """Check the coordinatewise maximum and median over the ranks."""
    wrong, arrays = Failures(), values(comm.size)
    want = {"max": arrays.max(0), "median": np.median(arrays, axis=0)}
    for reduce, names in COORDINATEWISE.items():
        for name in names:
            own = comm.tensor(arrays[comm.rank])
            found = comm.numpy(reduce_coordinates(strategy(name), comm, own, reduce))
            wrong.expect_equal(found, want[reduce], f"{reduce} by {name}", 1e-6)
    arrays[0, 7] = np.nan
    own = comm.tensor(arrays[comm.rank])
    found = comm.numpy(reduce_coordinates(strategy("all_gather"), comm, own, "median"))
    wrong.expect(bool(np.isnan(found[7])), "the median of a nan is a nan")
    wrong.expect(int(np.isnan(found).sum()) == 1, "the other entries have no nan")
    wrong.assert_none()


def check_ring_by_layers(comm: Communicator) -> None:
    """Check the sum, and that the busiest rank sends as many messages and bytes as the closed form
    says."""
    wrong, arrays = Failures(), values(comm.size)
    for layers in LAYERS:
        ring, before = Ring(layers), comm.traffic.describe()
        found = comm.numpy(ring.sum(comm, comm.tensor(arrays[comm.rank])))
        after = comm.traffic.describe()
        sent = tuple(after[key] - before[key] for key in ("sent", "bytes_sent"))
        messages, elements = ring.schedule(comm.size).sent_volume(comm.rank, LENGTH)
        wrong.expect_equal(found, arrays.sum(0), f"layers {layers}", 1e-5)
        wrong.expect(sent == (messages, 4 * elements), f"layers {layers}: sent {sent}")
        most = [comm.numpy(x) for x in comm.all_gather(comm.tensor(np.array(sent, np.int64)))]
        busiest = ring.max_rank_volume(comm.size, LENGTH)
        told = max((int(m), int(b) // 4) for m, b in most)
        wrong.expect(told == busiest, f"layers {layers}: the busiest sent {told}, not {busiest}")
    wrong.assert_none()
