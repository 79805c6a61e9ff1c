"""Whole arrays of a sharded model: weights and gradients by their canonical names, put together
from the parts of all ranks and divided among them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from dualml.backend import Array, Arrays, MixedPrecisionStage
from dualml.backend.capability import Tensor
from dualml.parallel.zero.forward_backward import ShardedForwardBackward


class WholeArrays(ShardedForwardBackward):
    """A sharded model whose weights and gradients can be read and replaced as whole arrays by
    canonical name, as on a single rank."""

    def tensor_to_host(self, output: Tensor) -> Array:
        """Return a copy of a tensor as a NumPy array, in float32 if the stage computes in mixed
        precision."""
        if isinstance(self.stage, MixedPrecisionStage) and self.stage.is_low_precision:
            output = self.stage.upcast(output)
        array: Array = self.comm.numpy(output)
        return array

    def unflatten_all(self, wholes: Iterable[Array]) -> Arrays:
        """Return canonical name → array, from one whole vector per unit."""
        parts: Arrays = {}
        for unit, vector in zip(self.units, wholes, strict=True):
            parts |= unit.unflatten(vector)
        return parts

    def local_part(self, vector: Array) -> Array:
        """Return this rank's part of a whole host ``vector``, as a view."""
        return np.split(vector, self.comm.size)[self.comm.rank]

    def gradients(self) -> Arrays:
        """Return canonical name → gradient summed over the ranks, as the optimizer receives it
        (still scaled with a loss scaler); a collective call."""
        return self.unflatten_all(
            self.collectives.gather_to_host(self.comm.numpy(part)) for part in self.master_grads()
        )

    def local_gradients(self) -> Arrays:
        """Return this rank's contribution to the gradient sum, by canonical name, without
        communication. Meaningful only in stage 1 and before the reduction; stages 2 and 3 keep no
        whole gradient."""
        return self.unflatten_all(map(self.tensor_to_host, self.unit_gradients))

    def weights(self) -> Arrays:
        """Return the whole float32 weights by canonical name; a collective call in stage 3 or with
        low-precision weights, where no rank has all of them."""
        if self.sharding.stage == 3 or self.sharding.lower:
            parts = map(self.master_part, range(len(self.units)))
            return self.unflatten_all(map(self.collectives.gather_to_host, parts))
        return self.unflatten_all(map(self.comm.numpy, self.unit_weights))

    def local_weights(self) -> Arrays:
        """Return what this rank holds without communication: the whole weights, in stage 3 its part
        of each unit's weights under keys that name unit and rank."""
        if self.sharding.stage < 3:
            return self.unflatten_all(map(self.tensor_to_host, self.unit_weights))
        rank = self.comm.rank
        return {f"unit {i} of rank {rank}": self.master_part(i) for i in range(len(self.units))}

    def master_part(self, number: int) -> Array:
        """Return a copy of this rank's part of the float32 weights of unit ``number``."""
        part: Array = self.comm.numpy(self.master_weights[number])
        return part

    def set_master_part(self, number: int, part: Array) -> None:
        """Overwrite this rank's part of the float32 weights of unit ``number`` by ``part``."""
        self.shardable.copy_from_host(self.master_weights[number], part)

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Replace this rank's part of the weights by that of the whole arrays ``weights``, without
        communication; where ranks hold whole weights, replace all."""
        self.resident.clear()
        for number, unit in enumerate(self.units):
            whole = unit.flatten(weights, self.backend.dtype)
            own, given = self.comm.tensor(self.local_part(whole)), self.comm.tensor(whole)
            self.set_master_part(number, self.local_part(whole))
            if self.sharding.lower:
                own, given = self.mixed_stage.downcast(own), self.mixed_stage.downcast(given)
            if self.sharding.stage == 3:
                if self.sharding.lower:
                    self.comm.write(self.weight_shards[number], 0, own, "put")
            else:
                self.comm.write(self.unit_weights[number], 0, given, "put")

    def transform_weights(self, fn: Callable[[Arrays], Mapping[str, Array]]) -> None:
        """Replace the weights by ``fn`` of the whole weights; a collective call where no rank has
        all of them."""
        self.set_weights(fn(self.weights()))
