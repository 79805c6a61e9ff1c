"""Partition that gives each rank a few classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualml.common.errors import UserError
from dualml.parallel.partition.base import PARTITIONS, Guarantees, Index, Partition, Samples


@PARTITIONS.register("label_classes", 80)
@dataclass(frozen=True, kw_only=True)
class LabelClasses(Partition):
    """Gives each rank samples of ``classes`` labels only.

    The labels are assigned in turn in a random order, so that each belongs to nearly equally many
    ranks; its samples are split into nearly equal parts for them. If ranks × ``classes`` is smaller
    than the number of labels, some labels are left out: then the partition does not cover the
    dataset.

    Args:
        classes: number of different labels per rank.
        assigned: labels of each rank, instead of a draw: ``[[0, 1], [2, 3]]``.

    Source: Li et al. 2022, "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE,
    §4.1 (quantity-based label imbalance, #C = k); there labels are drawn, here they are assigned in
    turn.
    """

    needs_labels: ClassVar[bool] = True

    classes: int = 2
    assigned: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.classes >= 1, "a rank needs at least one class", "classes")
        lists = isinstance(self.assigned, list | tuple) and all(
            isinstance(own, list | tuple) and all(isinstance(c, int) for c in own)
            for own in self.assigned
        )
        self.require(lists, "give a list of labels for each rank", "assigned")
        object.__setattr__(self, "assigned", tuple(tuple(own) for own in self.assigned))

    def assign(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """Split the samples of each label at random, in nearly equal parts, over the ranks that own
        the label; leave out labels without an owner. Return each rank's positions in ascending
        order. Raise `UserError` where `owners` does."""
        labels = np.asarray(samples)
        known = np.unique(labels)
        owners = self.owners(known, ranks, draw)
        parts: list[list[Index]] = [[] for _ in range(ranks)]
        for label in known:
            having = [rank for rank, own in enumerate(owners) if int(label) in own]
            if having:
                alike = draw.permutation(np.flatnonzero(labels == label))
                # Who gets the odd sample goes round, too.
                turn = int(draw.integers(len(having)))
                pieces = np.array_split(alike, len(having))
                for rank, piece in zip(having[turn:] + having[:turn], pieces, strict=True):
                    parts[rank].append(piece)
        return [np.sort(np.concatenate(p)) if p else np.zeros(0, np.int64) for p in parts]

    def owners(self, known: Index, ranks: int, draw: np.random.Generator) -> list[tuple[int, ...]]:
        """Return the labels of each rank: those ``assigned``, or ``classes`` of the ``known``
        labels, (C,), in turn from a random order.

        Raises:
            UserError: labels that no sample has, not one list per rank, or more ``classes`` than
                labels.
        """
        if self.assigned:
            if len(self.assigned) != ranks:
                raise UserError(
                    f"{self.name}: assigned has {len(self.assigned)} lists of labels "
                    f"for {ranks} ranks; give one for each"
                )
            strange = sorted({c for own in self.assigned for c in own} - set(known.tolist()))
            if strange:
                raise UserError(
                    f"{self.name}: no sample has the label {', '.join(map(str, strange))}; labels "
                    f"are {', '.join(map(str, known.tolist()))}"
                )
            return list(self.assigned)
        if self.classes > len(known):
            raise UserError(
                f"{self.name}: {self.classes} classes for each rank, but the samples "
                f"have only {len(known)}"
            )
        in_turn = np.resize(draw.permutation(known), (ranks, self.classes))
        return [tuple(labels) for labels in in_turn.tolist()]

    def guarantees(self, samples: Samples, ranks: int) -> Guarantees:
        """Return disjoint parts of unknown sizes, covering if every label has an owner."""
        known = np.unique(np.asarray(samples))
        if self.assigned:
            return Guarantees(covering=set(known.tolist()) <= {c for m in self.assigned for c in m})
        return Guarantees(covering=ranks * self.classes >= len(known))
