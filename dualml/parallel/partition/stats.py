"""Statistics of a partition: coverage, overlap, sizes, labels, skew and fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.parallel.partition.base import Index, Partition, Samples, count_samples


@dataclass(frozen=True)
class PartitionStats:
    """Statistics of one partition, counted from the lists.

    Attributes:
        samples: number N of samples to partition.
        sizes: number of positions in each rank's list.
        missed: number of samples that no rank has.
        repeated: number of entries that a rank's list repeats, over all ranks.
        shared: number of samples that several ranks have.
        sha256: SHA-256 of the lists, `fingerprint`.
        histogram: ranks × labels, entries of each rank's list per label; None without labels.
        labels: label of each column.
        emd: for each rank, the earth mover's distance between its labels and all samples': half the
            sum of |p_r(y) - p(y)|, which is the mass that moves when any two labels are at distance
            one; 0 means equal distributions, 1 disjoint ones. None for a rank without samples.
            (Zhao et al. 2018, "Federated Learning with Non-IID Data", §3.2, give twice that.)
        js: for each rank, the Jensen-Shannon divergence between the same two, in bits: 0 … 1. (Lin
            1991, "Divergence Measures Based on the Shannon Entropy".)
    """

    samples: int
    sizes: list[int]
    missed: int
    repeated: int
    shared: int
    sha256: str
    histogram: list[list[int]] | None = None
    labels: list[int] | None = None
    emd: list[float | None] | None = None
    js: list[float | None] | None = None

    @property
    def disjoint(self) -> bool:
        """Whether no sample was assigned twice, neither to two ranks nor twice to one."""
        return not self.repeated and not self.shared

    @property
    def covering(self) -> bool:
        """Whether every sample was assigned to at least one rank."""
        return not self.missed

    @property
    def empty(self) -> list[int]:
        """Numbers of the ranks without a sample, ascending."""
        return [rank for rank, size in enumerate(self.sizes) if not size]

    def describe(self) -> JsonObject:
        """Return the statistics as JSON values, with ``disjoint`` and ``covering`` and without
        those that are None."""
        facts = {k: v for k, v in asdict(self).items() if v is not None}
        return {**facts, "disjoint": self.disjoint, "covering": self.covering}


def partition_stats(parts: Sequence[Index], samples: Samples) -> PartitionStats:
    """Return the statistics of a partition; those of labels are None if ``samples`` is only a
    number.

    Args:
        parts: positions of each rank, as `Partition.partition` returns them.
        samples: labels (N,), or the number of samples.

    Raises:
        UserError: a list holds a number that is no sample.
    """
    n = count_samples(samples)
    for rank, part in enumerate(parts):
        if len(part) and not (part.min() >= 0 and part.max() < n):
            wrong = part[(part < 0) | (part >= n)][0]
            raise UserError(f"rank {rank} has sample {wrong}, but there are only {n}, from 0")
    ranks_having, repeated = np.zeros(n, np.int32), 0
    for part in parts:
        own = np.unique(part)
        ranks_having[own] += 1
        repeated += len(part) - len(own)
    facts: dict[str, Any] = {
        "samples": n,
        "sizes": [len(part) for part in parts],
        "missed": int((ranks_having == 0).sum()),
        "repeated": repeated,
        "shared": int((ranks_having > 1).sum()),
        "sha256": fingerprint(parts),
    }
    if isinstance(samples, np.ndarray):
        labels, column = np.unique(samples, return_inverse=True)
        table = np.array([np.bincount(column[part], minlength=len(labels)) for part in parts])
        whole = np.bincount(column, minlength=len(labels)) / n
        facts |= {
            "histogram": table.tolist(),
            "labels": [int(label) for label in labels],
            "emd": [earth_mover_distance(row, whole) for row in table],
            "js": [jensen_shannon(row, whole) for row in table],
        }
    return PartitionStats(**facts)


def verify_partition(rule: Partition, parts: Sequence[Index], samples: Samples) -> PartitionStats:
    """Return the statistics of a partition, after checking them against the guarantees of ``rule``.

    Args:
        rule: rule that made the partition.
        parts, samples: as for `partition_stats`; labels (N,) or the number of samples.

    Raises:
        UserError: a guarantee is violated; the message has the numbers. Or a list holds a number
            that is no sample.
    """
    dealt, promised = partition_stats(parts, samples), rule.guarantees(samples, len(parts))
    if promised.disjoint and not dealt.disjoint:
        raise UserError(
            f"{rule.name} promises disjoint parts; {dealt.repeated} samples are "
            f"repeated and {dealt.shared} shared"
        )
    if promised.covering and not dealt.covering:
        raise UserError(
            f"{rule.name} promises every sample to a rank; "
            f"{dealt.missed} of {dealt.samples} are missing"
        )
    if promised.sizes is not None and list(promised.sizes) != dealt.sizes:
        raise UserError(
            f"{rule.name} promises parts of {list(promised.sizes)} samples; found {dealt.sizes}"
        )
    return dealt


def fingerprint(parts: Sequence[Index]) -> str:
    """Return the SHA-256 of the lists: the number of ranks, then each list's length and
    little-endian int64 entries."""
    digest = hashlib.sha256(f"{len(parts)}\n".encode())
    for part in parts:
        digest.update(f"{len(part)}\n".encode())
        digest.update(np.ascontiguousarray(part, "<i8").data)
    return digest.hexdigest()


def earth_mover_distance(counts: NDArray[Any], whole: NDArray[np.float64]) -> float | None:
    """Return ½ Σ |p(y) - q(y)|, see `PartitionStats.emd`: p are the shares of the ``counts`` per
    label of a rank, q is ``whole``, the shares in the dataset; None for a rank without samples."""
    total = counts.sum()
    return float(np.abs(counts / total - whole).sum() / 2) if total else None


def jensen_shannon(counts: NDArray[Any], whole: NDArray[np.float64]) -> float | None:
    """Return H((p + q) / 2) - (H(p) + H(q)) / 2 in bits, see `PartitionStats.js`, rounded to 12
    decimals: p are the shares of the ``counts`` per label of a rank, q is ``whole``, the shares in
    the dataset; None for a rank without samples."""
    total = counts.sum()
    if not total:
        return None
    p = counts / total
    gap = _entropy((p + whole) / 2) - (_entropy(p) + _entropy(whole)) / 2
    # Rounding may lead a little outside, and is not the same on every machine: twelve digits are.
    return round(float(min(max(gap, 0.0), 1.0)), 12)


def _entropy(p: NDArray[np.float64]) -> float:
    """Return the entropy −Σ p log₂ p of the distribution ``p`` in bits, with 0 log 0 = 0."""
    positive = p[p > 0]
    return float(-(positive * np.log2(positive)).sum())
