"""What is held where and moved, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dualml.offload.settings import KINDS, Offload
from dualml.zero.units import Unit


@dataclass(frozen=True)
class Kept:
    """Of one rank, in elements.

    Attributes:
        host: in host memory, with the buffers of what is on disk.
        disk: in files.
        room: on the device, for the state of one unit at a time. Weights of one unit are in the
            memory into which stage 3 gathers them (`dualml.zero.units.Held.gathered`).
        largest: of the record of one unit that is brought in at once.
    """

    host: int
    disk: int
    room: int
    largest: int


@dataclass(frozen=True)
class Moved:
    """Of one rank, in elements: from the host to the device and back, from disk and back."""

    to_device: int
    to_host: int
    read: int
    written: int


def records(units: Sequence[Unit], n: int, slots: int) -> dict[str, list[int]]:
    """Kind → elements of each unit's record on one of n ranks, for an optimizer of k slots."""
    parts = [unit.length // n for unit in units]
    return {"state": [slots * part for part in parts], "weights": parts}


def kept(units: Sequence[Unit], n: int, offload: Offload, slots: int) -> Kept:
    """With Ψ elements in all units, padding included: kΨ/N of state and Ψ/N of weights where the
    offload says; of each kind on disk one or two times its largest unit in host memory."""
    host = disk = largest = 0
    own = records(units, n, slots)
    for kind in KINDS:
        if offload.away(kind):
            largest = max(largest, *own[kind])
        if offload.place(kind) == "host":
            host += sum(own[kind])
        elif offload.place(kind) == "disk":
            disk += sum(own[kind])
            host += offload.buffers * max(own[kind])
    return Kept(host, disk, max(own["state"]) if offload.away("state") else 0, largest)


def moved(
    units: Sequence[Unit],
    n: int,
    offload: Offload,
    slots: int,
    rounds: int = 1,
    updates: int = 1,
    made: int | None = None,
) -> Moved:
    """In so many updates: kΨ/N of state in and out; Ψ/N of weights in before the forward and before
    the backward pass of each of their ``rounds``, but not of the unit that is there
    (`dualml.zero.units.moved`), in and out for the update. Of updates only ``made`` ones, all
    unless it is given, move state and weights; the others of a scaled loss were skipped.

    Source: Rajbhandari et al. 2021, section 4.2, counts two loads of the weights for forward and
    backward passes, too; the state is read and written once.
    """
    made = updates if made is None else made
    own = {kind: sum(elements) for kind, elements in records(units, n, slots).items()}
    first, last = (units[end].length // n for end in (0, -1))
    fetched = rounds * (2 * own["weights"] - last) - (rounds - updates) * first
    to_device = {"state": made * own["state"], "weights": fetched + made * own["weights"]}
    to_host = {kind: made * own[kind] for kind in KINDS}
    away = [kind for kind in KINDS if offload.away(kind)]
    disk = [kind for kind in KINDS if offload.place(kind) == "disk"]
    return Moved(
        sum(to_device[kind] for kind in away),
        sum(to_host[kind] for kind in away),
        sum(to_device[kind] for kind in disk),
        sum(to_host[kind] for kind in disk),
    )
