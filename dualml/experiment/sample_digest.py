"""Digest of the samples that were trained on, in their order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator import Communicator

START = "0" * 64


class SampleDigest:
    """Running SHA-256 per rank over the samples of every update.

    It covers the indices that were handed to the framework, not the plan: equal digests mean that
    two trials trained on the same samples in the same order.

    Args:
        rank_digests: rank → digest from which to continue; None: begin anew.
        counts: rank → number of samples so far.

    Attributes:
        rank_digests: rank → digest so far, hexadecimal.
        counts: rank → number of samples so far.
    """

    def __init__(
        self, rank_digests: Mapping[int, str] | None = None, counts: Mapping[int, int] | None = None
    ) -> None:
        self.rank_digests, self.counts = dict(rank_digests or {}), dict(counts or {})

    def add(self, rank: int, samples: NDArray[np.int64]) -> None:
        """Extend the rank's digest by its samples of the next update, and count them; an empty part
        changes the digest, too."""
        link = hashlib.sha256(bytes.fromhex(self.rank_digests.get(rank, START)))
        link.update(np.ascontiguousarray(samples, "<i8").data)
        self.rank_digests[rank] = link.hexdigest()
        self.counts[rank] = self.counts.get(rank, 0) + len(samples)


def combined_digest(chains: Mapping[int, str]) -> str:
    """Return one SHA-256, hexadecimal, over ``chains``, the digests of all ranks, in the order of
    ranks."""
    return hashlib.sha256("".join(chains[rank] for rank in sorted(chains)).encode()).hexdigest()


def gather_digests(comm: Communicator, seen: SampleDigest) -> dict[int, str]:
    """Return rank → its own digest of samples, hexadecimal, of every rank, all-gathered. All ranks
    call it, each after its first `SampleDigest.add`."""
    own = np.frombuffer(bytes.fromhex(seen.rank_digests[comm.rank]), np.int64)
    chains = comm.all_gather(comm.tensor(own))
    return {r: comm.numpy(x).tobytes().hex() for r, x in enumerate(chains)}
