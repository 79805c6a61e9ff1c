"""Partitioning rules, which assign samples to ranks: one frozen dataclass per rule, pure NumPy.

A rule assigns *positions*: rank r of n gets a list of numbers from 0 to N - 1 and trains on them in
that order. Everything random is drawn from a local generator seeded by the trial, so that the same
rule, samples, number of ranks, seed and epoch always give the same lists, on every machine and for
every framework.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator.parts import part_lengths
from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.common.json_types import JsonObject
from dualml.common.registry import ClassRegistry
from dualml.common.seeds import make_generator

Index = NDArray[np.int64]
#: The samples to partition: how many there are, or their labels, integers (N,).
Samples = int | NDArray[Any]


@dataclass(frozen=True)
class Guarantees:
    """Guarantees that every partition by a rule satisfies; None where it depends on the draw.

    Attributes:
        disjoint: whether no sample is assigned twice, to two ranks or to one.
        covering: whether every sample is assigned.
        sizes: number of samples of each rank.
    """

    disjoint: bool | None = True
    covering: bool | None = True
    sizes: Sequence[int] | None = None


@keep_former_members
@dataclass(frozen=True, kw_only=True)
class Partition:
    """Base class of every partitioning rule.

    In its methods ``samples`` (labels (N,), or their number ``n``) are partitioned over ``ranks``
    ranks; ``seed`` and ``epoch`` determine what is drawn, ``draw`` is the generator seeded by them,
    and ``parts`` are the positions of each rank.

    Args:
        shuffle: whether each rank visits its samples in a new random order in every epoch;
            otherwise in the order of the dataset (or of the draw, where samples are drawn).

    Attributes:
        name: name of the rule in experiment files.
        repartitions_each_epoch: whether every epoch draws a new partition; otherwise each rank
            keeps its samples.
        needs_labels: whether the rule needs the labels, not only the number of samples.
        changes_features: whether ranks see modified samples; see `features`.

    Raises:
        UserError: a value of the wrong type, or out of range.
    """

    name: ClassVar[str]
    repartitions_each_epoch: ClassVar[bool] = False
    needs_labels: ClassVar[bool] = False
    changes_features: ClassVar[bool] = False

    shuffle: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "float" and type(value) is int:  # TOML writes 1 for 1.0
                object.__setattr__(self, field.name, value := float(value))
            wanted = {"bool": bool, "int": int, "float": float, "str": str}.get(str(field.type))
            odd = isinstance(value, bool) and field.type != "bool"
            if wanted is not None and (odd or not isinstance(value, wanted)):
                raise UserError(
                    f"{self.name}: {field.name} must be a {field.type}; "
                    f"received {field.name} = {value!r}"
                )

    def require(self, right: bool, what: str, field: str) -> None:
        """Raise an error unless the condition ``right`` on ``field`` is true; ``what`` states the
        condition in the error message.

        Raises:
            UserError: ``right`` is false, as in ``alpha must be above 0; received alpha = -1``.
        """
        if not right:
            raise UserError(f"{self.name}: {what}; received {field} = {getattr(self, field)!r}")

    # --- partitioning -----------------------------------------------------------------------------

    def partition(self, samples: Samples, ranks: int, seed: int = 0, epoch: int = 0) -> list[Index]:
        """Return the positions that each rank trains on in ``epoch``, in order; one int64 array per
        rank.

        Raises:
            UserError: ``ranks`` below 1 or above the number of samples, missing labels, or settings
                that cannot be satisfied.
        """
        n = count_samples(samples)
        if not 1 <= ranks <= n:
            raise UserError(
                f"{self.name}: {ranks} ranks cannot share {n} samples; use 1 to {n} ranks"
            )
        if self.needs_labels and not isinstance(samples, np.ndarray):
            raise UserError(
                f"{self.name} partitions by label; give the labels of the {n} samples "
                "instead of their number"
            )
        return self.ordered_indices(samples, ranks, seed, epoch)

    def ordered_indices(self, samples: Samples, ranks: int, seed: int, epoch: int) -> list[Index]:
        """Return the positions of each rank in the order of its training, without checking the
        arguments; rules with their own generator or order override this part of `partition`."""
        draw = make_generator(
            seed, "partition", self.name, epoch if self.repartitions_each_epoch else 0
        )
        return self.order(self.assign(samples, ranks, draw), seed, epoch)

    def assign(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """Return the positions of each rank before they are put in order. The base class raises
        `NotImplementedError`: most rules define this method; a rule with its own generator or order
        overrides `ordered_indices` instead."""
        raise NotImplementedError

    def order(self, parts: list[Index], seed: int, epoch: int) -> list[Index]:
        """Return each rank's positions in the order in which it visits them in ``epoch``: permuted
        with a generator for this seed, epoch and rank; without ``shuffle`` the parts as they
        are."""
        if not self.shuffle:
            return parts
        return [
            make_generator(seed, "partition order", epoch, rank).permutation(part)
            for rank, part in enumerate(parts)
        ]

    def sizes(self, n: int, ranks: int) -> list[int] | None:
        """Return the number of samples of each rank, of ``n`` in all: nearly equal numbers that add
        up to ``n``, unless a rule overrides this; None where it depends on the draw."""
        return part_lengths(n, ranks)

    def guarantees(self, samples: Samples, ranks: int) -> Guarantees:
        """Return the guarantees of every partition of these samples over this number of ranks:
        disjoint, covering and with the sizes from `sizes`, unless a rule overrides this."""
        return Guarantees(sizes=self.sizes(count_samples(samples), ranks))

    def features(
        self, x: NDArray[np.float32], parts: Sequence[Index], seed: int
    ) -> NDArray[np.float32]:
        """Return the features as the ranks see them, (N, …), in the order of ``x``; most rules
        return ``x`` itself.

        Args:
            x: (N, …), normalised.
            parts: result of `partition` for these samples.
            seed: seed of what a rule draws.
        """
        return x

    def describe(self) -> JsonObject:
        """Return the rule's name and its settings as JSON values, which `partition_from` turns back
        into an equal rule."""
        return {"name": self.name, **{k: _plain(v) for k, v in asdict(self).items()}}


def _plain(value: Any) -> Any:
    """Return ``value`` with a tuple, also tuples in tuples, as lists, as JSON has them; other
    values unchanged."""
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def count_samples(samples: Samples) -> int:
    """Return the number of samples, given that number or their labels."""
    return len(samples) if isinstance(samples, np.ndarray) else int(samples)


def split_by_sizes(order: NDArray[Any], sizes: Sequence[int]) -> list[Index]:
    """Return consecutive pieces of ``order``, int64, of these sizes; the last piece takes all that
    is left, whatever its size says."""
    return [piece.astype(np.int64) for piece in np.split(order, np.cumsum(sizes)[:-1])]


def apportion(shares: NDArray[np.float64], n: int) -> list[int]:
    """Return integers near ``shares * n`` that add up to n: rounded down, except for the largest
    remainders (the first of equal ones), which are rounded up.

    >>> apportion(np.array([0.7, 0.2, 0.1]), 11)
    [8, 2, 1]
    """
    exact = shares * n
    sizes = np.floor(exact + 1e-9).astype(np.int64)  # 0.7 * 10 is a little less than 7
    missing = n - int(sizes.sum())
    sizes[np.argsort(sizes - exact, kind="stable")[:missing]] += 1
    return [int(s) for s in sizes]


#: Name → rule, in the order of tables.
PARTITIONS: ClassRegistry[Partition] = ClassRegistry("partition", "dualml.parallel.partition")
