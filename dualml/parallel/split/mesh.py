"""The device mesh of a split model: data parallel × pipeline × tensor parallel.

Source: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", sec. 2.3. Neighbours in the tensor-parallel dimension have neighbouring ranks, because
they communicate most.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mesh:
    """A mesh of ``data`` replicas × ``pipeline`` ranks × ``tensor`` ranks."""

    data: int = 1
    pipeline: int = 1
    tensor: int = 1

    @property
    def size(self) -> int:
        """Total number of ranks."""
        return self.data * self.pipeline * self.tensor

    def rank(self, data: int, pipeline: int, tensor: int) -> int:
        """Return the rank at these coordinates, all from 0; ``tensor`` varies fastest, then
        ``pipeline``."""
        return (data * self.pipeline + pipeline) * self.tensor + tensor

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """Return the (data, pipeline, tensor) coordinates of a rank."""
        rest, tensor = divmod(rank, self.tensor)
        return (*divmod(rest, self.pipeline), tensor)

    def tensor_groups(self) -> list[list[int]]:
        """Return all tensor-parallel groups, as lists of ascending ranks that hold slices of the
        same layers; every rank is in exactly one, maybe alone."""
        return [
            [self.rank(d, p, t) for t in range(self.tensor)]
            for d in range(self.data)
            for p in range(self.pipeline)
        ]

    def data_groups(self) -> list[list[int]]:
        """Return all data-parallel groups, as lists of ascending ranks that hold the same
        parameters; every rank is in exactly one, maybe alone."""
        return [
            [self.rank(d, p, t) for d in range(self.data)]
            for p in range(self.pipeline)
            for t in range(self.tensor)
        ]

    def __str__(self) -> str:
        return f"{self.data} × {self.pipeline} × {self.tensor}"
