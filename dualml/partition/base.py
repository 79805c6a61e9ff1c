"""How samples are dealt to ranks: a frozen dataclass for each rule, pure NumPy.

A rule deals *positions*: rank r of n gets a list of numbers from 0 to N - 1 and trains on them in
that order. Everything is drawn from a local generator made of the seed, so that the same rule,
samples, number of ranks, seed and epoch always give the same lists, on every machine and for every
framework.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dualml.communicator.parts import parts_of
from dualml.errors import UserError
from dualml.registry import Kinds
from dualml.seeds import generator

Index = NDArray[np.int64]
#: The samples to deal: how many there are, or their labels, integers (N,).
Samples = int | NDArray[Any]


@dataclass(frozen=True)
class Promise:
    """What every deal of a rule keeps; None where it is left to chance.

    Attributes:
        disjoint: no sample is dealt twice, to two ranks or to one.
        covering: every sample is dealt.
        sizes: how many samples each rank has.
    """

    disjoint: bool | None = True
    covering: bool | None = True
    sizes: Sequence[int] | None = None


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Base of every rule.

    In its methods ``samples`` (labels (N,), or how many there are: ``n``) are dealt to ``ranks``
    ranks; ``seed`` and ``epoch`` decide what is drawn, ``draw`` is the generator made of them, and
    ``parts`` are the positions of each rank.

    Args:
        shuffle: each rank goes through its samples in a new random order in every epoch; else in
            the order of the dataset (or, where samples are drawn, in the order of the draw).

    Attributes:
        name: the word in experiment files.
        redeals: whether every epoch deals anew; else each rank keeps its samples.
        needs_labels: whether the number of samples is not enough.
        changes_features: whether ranks see their samples otherwise than they are; see `features`.

    Raises:
        UserError: a value of another type, or outside of its range.
    """

    name: ClassVar[str]
    redeals: ClassVar[bool] = False
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
                raise UserError(f"{self.name}: {field.name} must be a {field.type}; "
                                f"received {field.name} = {value!r}")  # fmt: skip

    def require(self, right: bool, what: str, field: str) -> None:
        """Check what a ``field`` must be: ``what`` says it.

        Raises:
            UserError: not ``right``, as in ``alpha must be above 0; received alpha = -1``.
        """
        if not right:
            raise UserError(f"{self.name}: {what}; received {field} = {getattr(self, field)!r}")

    # --- dealing ---------------------------------------------------------------------------------

    def deal(self, samples: Samples, ranks: int, seed: int = 0, epoch: int = 0) -> list[Index]:
        """Positions that each rank trains on in ``epoch``, in order; int64, one array a rank.

        Raises:
            UserError: more ranks than samples, labels missing, settings that cannot be met.
        """
        n = count(samples)
        if not 1 <= ranks <= n:
            raise UserError(f"{self.name}: {ranks} ranks cannot share {n} samples; "
                            f"use 1 to {n} ranks")  # fmt: skip
        if self.needs_labels and not isinstance(samples, np.ndarray):
            raise UserError(f"{self.name} deals by label; give the labels of the {n} samples "
                            "instead of their number")  # fmt: skip
        return self.lists(samples, ranks, seed, epoch)

    def lists(self, samples: Samples, ranks: int, seed: int, epoch: int) -> list[Index]:
        """What `deal` returns, of samples that so many ranks can share."""
        draw = generator(seed, "partition", self.name, epoch if self.redeals else 0)
        return self.order(self.own(samples, ranks, draw), seed, epoch)

    def own(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """The samples of each rank, before they are put in order: what most rules define; one
        with a generator or an order of its own defines `lists`."""
        raise NotImplementedError

    def order(self, parts: list[Index], seed: int, epoch: int) -> list[Index]:
        """The order in which the ranks go through their samples in ``epoch``."""
        if not self.shuffle:
            return parts
        return [
            generator(seed, "partition order", epoch, rank).permutation(part)
            for rank, part in enumerate(parts)
        ]

    def sizes(self, n: int, ranks: int) -> list[int] | None:
        """How many of n samples each rank has; None where that is left to chance."""
        return parts_of(n, ranks)

    def promise(self, samples: Samples, ranks: int) -> Promise:
        """What every deal of these samples to so many ranks keeps."""
        return Promise(sizes=self.sizes(count(samples), ranks))

    def features(
        self, x: NDArray[np.float32], parts: Sequence[Index], seed: int
    ) -> NDArray[np.float32]:
        """The features as the ranks see them; of most rules, as they are.

        Args:
            x: (N, …), normalised.
            parts: what `deal` returned for these samples.
        """
        return x

    def describe(self) -> dict[str, Any]:
        """Fields as JSON values, with the rule's name: what `partition_from` takes."""
        return {"name": self.name, **{k: _plain(v) for k, v in asdict(self).items()}}


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def count(samples: Samples) -> int:
    """How many samples there are."""
    return len(samples) if isinstance(samples, np.ndarray) else int(samples)


def cut(order: NDArray[Any], sizes: Sequence[int]) -> list[Index]:
    """Consecutive pieces of these sizes; the last one takes what is left."""
    return [piece.astype(np.int64) for piece in np.split(order, np.cumsum(sizes)[:-1])]


def rounded(shares: NDArray[np.float64], n: int) -> list[int]:
    """Whole numbers near ``shares * n`` that add up to n: the largest remainders are rounded up.

    >>> rounded(np.array([0.7, 0.2, 0.1]), 11)
    [8, 2, 1]
    """
    exact = shares * n
    sizes = np.floor(exact + 1e-9).astype(np.int64)  # 0.7 * 10 is a little less than 7
    missing = n - int(sizes.sum())
    sizes[np.argsort(sizes - exact, kind="stable")[:missing]] += 1
    return [int(s) for s in sizes]


#: Name → rule, in the order of tables.
PARTITIONS: Kinds[Partition] = Kinds("partition", "dualml.partition")
