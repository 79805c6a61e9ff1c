"""Data movement of offloading in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dualml.parallel.offload.settings import KINDS, Offload
from dualml.parallel.zero.units import Unit


@dataclass(frozen=True)
class OffloadVolume:
    """Data movement of one rank, in elements: between host and device, and between disk and
    host."""

    to_device: int
    to_host: int
    read: int
    written: int


def record_lengths(units: Sequence[Unit], n: int, slots: int) -> dict[str, list[int]]:
    """Return ``state`` and ``weights`` → number of elements of each unit's record on one of ``n``
    ranks, with ``slots`` elements of state per parameter, even for kinds that are not offloaded."""
    parts = [unit.length // n for unit in units]
    return {"state": [slots * part for part in parts], "weights": parts}


def estimate_offload_volume(
    units: Sequence[Unit],
    n: int,
    offload: Offload,
    slots: int,
    rounds: int = 1,
    updates: int = 1,
    applied_updates: int | None = None,
) -> OffloadVolume:
    """Return the data movement of one rank in ``updates`` updates, in elements, by direction and
    summed over weights and state; a kind that is not offloaded adds nothing.

    With N = ``n`` ranks, k = ``slots`` and Ψ elements in all ``units``: state moves in and out once
    per update, kΨ/N each way. Weights move in before the forward and before the backward pass of
    each of ``rounds`` passes (chunks of batches, of all updates together), except for the resident
    unit (`dualml.parallel.zero.units.communication_volume`), and in and out for the update. Only
    the applied updates (default: all) move state and weights for the update; the others were
    skipped because of the loss scale.

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
