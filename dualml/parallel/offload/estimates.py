"""Memory and data movement of offloading in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dualml.parallel.offload.settings import KINDS, Offload
from dualml.parallel.zero.units import Unit


@dataclass(frozen=True)
class OffloadFootprint:
    """Memory of one rank under offloading, in elements.

    Attributes:
        host: in host memory, including the buffers of what is on disk.
        disk: in files.
        device_buffer: on the device, for the state of one unit at a time. Weights of one unit use
            the memory into which stage 3 gathers them
            (`dualml.parallel.zero.units.MemoryModel.gathered`).
        largest: the largest record of one unit that is copied in at once.
    """

    host: int
    disk: int
    device_buffer: int
    largest: int


@dataclass(frozen=True)
class OffloadVolume:
    """Data movement of one rank, in elements: between host and device, and between disk and
    host."""

    to_device: int
    to_host: int
    read: int
    written: int


def record_lengths(units: Sequence[Unit], n: int, slots: int) -> dict[str, list[int]]:
    """Return ``state`` and ``weights`` → elements of each unit's record on one of ``n`` ranks, with
    ``slots`` elements of state per parameter, whether offloaded or not."""
    parts = [unit.length // n for unit in units]
    return {"state": [slots * part for part in parts], "weights": parts}


def estimate_offload_footprint(
    units: Sequence[Unit], n: int, offload: Offload, slots: int
) -> OffloadFootprint:
    """Return the memory of one rank under offloading, in elements.

    With N = ``n`` ranks, k = ``slots`` and Ψ elements in all units, padding included: kΨ/N of state
    and Ψ/N of weights are where ``offload`` places them; each kind on disk also needs one or two
    buffers of its largest unit in host memory.
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


def estimate_offload_volume(
    units: Sequence[Unit],
    n: int,
    offload: Offload,
    slots: int,
    rounds: int = 1,
    updates: int = 1,
    applied_updates: int | None = None,
) -> OffloadVolume:
    """Return the data movement of one rank in ``updates`` updates, in elements; kinds that are not
    offloaded count nothing.

    State moves in and out once per update, kΨ/N each way. Weights move in before the forward and
    before the backward pass of each of ``rounds`` passes (chunks of batches, of all updates
    together), except for the resident unit (`dualml.parallel.zero.units.communication_volume`), and
    in and out for the update. Only the applied updates (default: all) move state and weights for
    the update; the others were skipped because of the loss scale.

    Source: Rajbhandari et al. 2021, section 4.2, also counts two loads of the weights for forward
    and backward passes; the state is read and written once.
    """
    applied_updates = updates if applied_updates is None else applied_updates
    own = {kind: sum(elements) for kind, elements in record_lengths(units, n, slots).items()}
    first, last = (units[end].length // n for end in (0, -1))
    fetched = rounds * (2 * own["weights"] - last) - (rounds - updates) * first
    to_device = {
        "state": applied_updates * own["state"],
        "weights": fetched + applied_updates * own["weights"],
    }
    to_host = {kind: applied_updates * own[kind] for kind in KINDS}
    away = [kind for kind in KINDS if offload.is_offloaded(kind)]
    disk = [kind for kind in KINDS if offload.place(kind) == "disk"]
    return OffloadVolume(
        sum(to_device[kind] for kind in away),
        sum(to_host[kind] for kind in away),
        sum(to_device[kind] for kind in disk),
        sum(to_host[kind] for kind in disk),
    )
