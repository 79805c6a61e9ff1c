"""A fingerprint of the samples that were trained on, in their order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dualml.communicator import Communicator

START = "0" * 64


class Seen:
    """A chain of SHA-256 for each rank: of the link before and the samples of the update.

    Not of the plan, but of the indices that were handed to the framework: equal chains mean that
    two trials trained on the same samples in the same order.

    Attributes:
        chains: rank → the last link, hexadecimal.
        counts: rank → samples so far.
    """

    def __init__(
        self, chains: Mapping[int, str] | None = None, counts: Mapping[int, int] | None = None
    ) -> None:
        self.chains, self.counts = dict(chains or {}), dict(counts or {})

    def add(self, rank: int, samples: NDArray[np.int64]) -> None:
        """The samples of a rank in the next update; an empty part is one, too."""
        link = hashlib.sha256(bytes.fromhex(self.chains.get(rank, START)))
        link.update(np.ascontiguousarray(samples, "<i8").data)
        self.chains[rank] = link.hexdigest()
        self.counts[rank] = self.counts.get(rank, 0) + len(samples)


def combined(chains: Mapping[int, str]) -> str:
    """One SHA-256 for all ranks."""
    return hashlib.sha256("".join(chains[rank] for rank in sorted(chains)).encode()).hexdigest()


def all_chains(comm: Communicator, seen: Seen) -> dict[int, str]:
    """Every rank's chain of samples, from its own."""
    own = np.frombuffer(bytes.fromhex(seen.chains[comm.rank]), np.int64)
    chains = comm.all_gather(comm.tensor(own))
    return {r: comm.numpy(x).tobytes().hex() for r, x in enumerate(chains)}
