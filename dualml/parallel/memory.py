"""Memory of a rank in closed form: weights, gradients, optimizer state and what is beside them.

Planner, ZeRO, offloading, the search for the largest model and the report compute it here. With Ψ
parameters of b bytes, an optimizer with k state tensors per parameter and N ranks, a rank holds
bΨ + bΨ + kbΨ bytes; a component that the ranks shard is divided by N. Mixed precision with master
weights holds weights and gradients in low precision, and the weights once more in the state.

What a forward pass saves for its backward pass is counted layer by layer, by
`dualml.algorithms.model.saved_activations`, and for many decoders at once by
`dualml.planning.planner.memory`.

Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC20, sections 3 and 5.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.backend.shard import slot_lengths
from dualml.parallel.offload.estimates import record_lengths
from dualml.parallel.offload.settings import KINDS, Offload
from dualml.parallel.zero.units import Unit

#: Components of the memory; ZeRO's stage z shards the last z of them.
PARTS = ("weights", "gradients", "state")


@dataclass(frozen=True)
class StateMemory:
    """Weights, gradients and optimizer state: their bytes or elements, per parameter or on a rank,
    or for each the number of ranks that share it. Fields are numbers, or arrays of one shape."""

    weights: Any
    gradients: Any
    state: Any

    @property
    def total(self) -> Any:
        """Sum of the three components."""
        return self.weights + self.gradients + self.state

    def on_rank(self, parameters: Any, ranks: StateMemory) -> StateMemory:
        """Return the memory of a rank, in the unit of this object, which holds sizes per parameter:
        times ``parameters``, divided by ``ranks``.

        Args:
            parameters: Ψ, the number of parameters before the ranks shard them.
            ranks: number of ranks that share each component.

        Example:
            >>> mixed = size_per_parameter(4, slots=2, low=2)
            >>> stages = [mixed.on_rank(7.5e9, sharding_ranks(z, 64)) for z in range(4)]
            >>> [round(float(stage.total) / 1e9, 1) for stage in stages]
            [120.0, 31.4, 16.6, 1.9]
        """
        return StateMemory(
            self.weights * parameters / ranks.weights,
            self.gradients * parameters / ranks.gradients,
            self.state * parameters / ranks.state,
        )


def size_per_parameter(width: int, slots: int, low: int = 0) -> StateMemory:
    """Return the sizes of one parameter's weight, gradient and optimizer state, in the unit of
    ``width``.

    Args:
        width: b, bytes of a number; 1 to count elements.
        slots: k, state tensors per parameter.
        low: bytes of a weight or gradient in low precision; the state then contains the weight with
            ``width`` bytes as well. 0: there are no such copies.
    """
    return StateMemory(low or width, low or width, width * (slots + bool(low)))


def sharded_parts(stage: int) -> tuple[str, ...]:
    """Return the components, in the order of `PARTS`, that ranks shard in ZeRO stage 1, 2 or 3;
    none in stage 0."""
    return PARTS[len(PARTS) - stage :]


def sharing_ranks(parts: Collection[str], n: int) -> StateMemory:
    """Return the number of ranks that share each component: ``n`` for those in ``parts`` (names of
    `PARTS`), which are sharded over ``n`` ranks, 1 for the others."""
    return StateMemory(*(n if part in parts else 1 for part in PARTS))


def sharding_ranks(stage: Any, n: Any) -> StateMemory:
    """Return the number of ranks that share each component in ZeRO stage ``stage`` (0 … 3): ``n``
    for those that it shards, else 1, as NumPy arrays. ``stage`` and ``n``, the number of ranks, may
    be arrays."""
    return StateMemory(*(np.where(np.greater_equal(stage, z), n, 1) for z in (3, 2, 1)))


@dataclass(frozen=True)
class ShardedMemory(StateMemory):
    """Memory of one rank under ZeRO, in elements.

    Attributes:
        weights, gradients, state: kept from update to update; the state includes the float32
            weights if ``weights`` and ``gradients`` are in low precision.
        gathered: see `gathered_elements`.
    """

    gathered: int


def estimate_sharded_memory(
    units: Sequence[Unit],
    n: int,
    stage: int,
    state_slots: int,
    buffer_slots: int = 1,
    lower: bool = False,
) -> ShardedMemory:
    """Return the memory of one rank of ``n`` under ZeRO in closed form, in elements.

    With Ψ elements in all units, padding included, and k elements of optimizer state per parameter:
    Ψ + Ψ + kΨ/N in stage 1, Ψ + (1 + k)Ψ/N in stage 2, (2 + k)Ψ/N in stage 3. In bytes, with k = 2
    and numbers of 4 bytes, that is 8Ψ + 8Ψ/N, 4Ψ + 12Ψ/N and 16Ψ/N; with weights and gradients of 2
    bytes 4Ψ + 12Ψ/N, 2Ψ + 14Ψ/N and 16Ψ/N.

    Args:
        units: units of the model, whose lengths are multiples of ``n``.
        stage: ZeRO stage, 0 … 3; 0 shards nothing.
        state_slots: k.
        buffer_slots: buffers for whole units, see `gathered_elements`.
        lower: whether weights and gradients are in low precision
            (`dualml.parallel.zero.Sharding.lower`); the state is then (1 + k)Ψ/N.
    """
    whole = sum(unit.length for unit in units)
    ranks = sharing_ranks(sharded_parts(stage), n)
    own = size_per_parameter(1, state_slots, low=int(lower)).on_rank(whole, ranks)
    gathered = gathered_elements(units, stage, buffer_slots)
    # Exact: the length of a unit is a multiple of n.
    return ShardedMemory(int(own.weights), int(own.gradients), int(own.state), gathered)


def gathered_elements(units: Sequence[Unit], stage: int, buffer_slots: int = 1) -> int:
    """Return the elements of a rank's temporary buffers under ZeRO: in stage 2 the whole gradient
    of the largest unit before the reduction, in stage 3 also its whole weights, else 0. With two
    ``buffer_slots``, as overlap needs, units alternate between them, and each slot is as large as
    the largest unit that uses it."""
    return max(stage - 1, 0) * sum(slot_lengths([unit.length for unit in units], buffer_slots))


@dataclass(frozen=True)
class OffloadFootprint:
    """Memory of one rank under offloading, in elements.

    Attributes:
        host: in host memory, including the buffers of what is on disk.
        disk: in files.
        device_buffer: on the device, for the state of one unit at a time. Weights of one unit use
            the memory into which stage 3 gathers them (`gathered_elements`).
        largest: the largest record of one unit that is copied in at once.
    """

    host: int
    disk: int
    device_buffer: int
    largest: int


def estimate_offload_footprint(
    units: Sequence[Unit], n: int, offload: Offload, slots: int
) -> OffloadFootprint:
    """Return the memory of one rank under offloading, in elements.

    With N = ``n`` ranks, k = ``slots`` and Ψ elements in all ``units``, padding included: kΨ/N of
    state and Ψ/N of weights are where ``offload`` places them; each kind on disk also needs one or
    two buffers of its largest unit in host memory. What stays on the device is not counted.
    """
    host = disk = largest = 0
    own = record_lengths(units, n, slots)
    for kind in KINDS:
        if offload.is_offloaded(kind):
            largest = max(largest, *own[kind])
        if offload.place(kind) == "host":
            host += sum(own[kind])
        elif offload.place(kind) == "disk":
            disk += sum(own[kind])
            host += offload.buffer_count * max(own[kind])
    return OffloadFootprint(
        host, disk, max(own["state"]) if offload.is_offloaded("state") else 0, largest
    )
