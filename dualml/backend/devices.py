"""Devices of one process that hold the stages of a model: device names and the stage placement.

On a CPU ``cpu:0``, ``cpu:1``, … are logical devices: they share one memory, but a value that moves
from one to another is copied and counted as it would be between two GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dualml.common.errors import Unsupported, UserError

MAX_DEVICES = 64
NAME = re.compile(r"(cpu|cuda|gpu|ascend)(?::([0-9]{1,2}))?")
#: Device kind as users may write it → canonical kind.
KINDS = {"cpu": "cpu", "cuda": "cuda", "gpu": "cuda", "ascend": "ascend"}


def parse_device(name: str) -> tuple[str, int]:
    """Parse a device name into its kind (``cpu``, ``cuda`` or ``ascend``; ``gpu`` is ``cuda``) and
    its index, 0 if the name has none.

    >>> parse_device("gpu:1"), parse_device("cpu")
    (('cuda', 1), ('cpu', 0))

    Raises:
        UserError: the name is not a device, or its index is not below `MAX_DEVICES`.
    """
    match = NAME.fullmatch(name)
    if match is None or int(match[2] or 0) >= MAX_DEVICES:
        raise UserError(
            f"split.devices: {name!r} is no device; use cpu:0, cpu:1, … (logical devices of the "
            f"processor), cuda:0, … or ascend:0, … with an index below {MAX_DEVICES}"
        )
    return KINDS[match[1]], int(match[2] or 0)


def canonical_names(names: Sequence[str]) -> list[str]:
    """Return the full names of some devices, in their order, such as ``cuda:0`` for ``gpu``.

    Raises:
        UserError: a name is not a device, or a device is named twice.
    """
    spelt = ["{}:{}".format(*parse_device(name)) for name in names]
    for name in spelt:
        if spelt.count(name) > 1:
            raise UserError(
                f"split.devices names {name} {spelt.count(name)} times; name each device once, and "
                "let split.place say which stages lie on it"
            )
    return spelt


def shift_devices(devices: Sequence[str], replica: int) -> tuple[str, ...]:
    """Return the device names of a replica: every replica uses its own accelerators (``cuda``,
    ``ascend``), numbered after those of the previous replica. Logical CPU devices belong to their
    process and keep their names.

    >>> shift_devices(["cuda:0", "cuda:1", "cpu:0"], 1)
    ('cuda:2', 'cuda:3', 'cpu:0')
    """
    parsed = [parse_device(name) for name in devices]
    width: dict[str, int] = {}
    for kind, index in parsed:
        width[kind] = max(width.get(kind, 0), index + 1)
    return tuple(
        f"{kind}:{index + (0 if kind == 'cpu' else replica * width[kind])}"
        for kind, index in parsed
    )


def check_present(
    devices: Sequence[str], present: Mapping[str, int], reasons: Mapping[str, str]
) -> None:
    """Raise if a device is missing on this machine; the message lists the available devices.
    Logical CPU devices are always present.

    Args:
        present: kind of accelerator → number of devices.
        reasons: kind → reason why none is available.

    Raises:
        Unsupported: a device is missing.
    """
    there = [f"{kind}:{i}" for kind, count in present.items() for i in range(count)]
    listed = ", ".join([f"cpu:0 to cpu:{MAX_DEVICES - 1} (logical)", *there])
    for name in dict.fromkeys(devices):
        kind, index = parse_device(name)
        if kind != "cpu" and index >= present.get(kind, 0):
            why = f" ({reasons[kind]})" if kind in reasons else ""
            raise Unsupported(f"split.devices: {name} is not there{why}; there are {listed}")
