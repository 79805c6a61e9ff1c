"""Devices of one process on which the stages of a model lie: their names, and who has which.

On a CPU ``cpu:0``, ``cpu:1``, … are logical devices: all are the same memory, yet a value that goes
from one to another is copied and counted, as it would be between two GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dualml.errors import Unsupported, UserError

MOST_DEVICES = 64
NAME = re.compile(r"(cpu|cuda|gpu|ascend)(?::([0-9]{1,2}))?")
#: What users may write → what it is called here.
KINDS = {"cpu": "cpu", "cuda": "cuda", "gpu": "cuda", "ascend": "ascend"}


def parse_device(name: str) -> tuple[str, int]:
    """Read a device's name as kind and index.

    >>> parse_device("gpu:1"), parse_device("cpu")
    (('cuda', 1), ('cpu', 0))

    Raises:
        UserError: another word, or an index that is no number below `MOST_DEVICES`.
    """
    match = NAME.fullmatch(name)
    if match is None or int(match[2] or 0) >= MOST_DEVICES:
        raise UserError(
            f"split.devices: {name!r} is no device; use cpu:0, cpu:1, … (logical devices of the "
            f"processor), cuda:0, … or ascend:0, … with an index below {MOST_DEVICES}"
        )
    return KINDS[match[1]], int(match[2] or 0)


def canonical_names(names: Sequence[str]) -> list[str]:
    """Spell out device names: ``gpu`` becomes ``cuda:0``.

    Raises:
        UserError: no device's name, or a device that is named twice.
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
    """Name the devices of a replica: each has GPUs of its own, those after its predecessor's;
    logical devices are of its own process anyway.

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
    """Refuse devices that are not there, and name those that are.

    Args:
        present: kind of accelerator → how many there are.
        reasons: kind → why there is none of it.

    Raises:
        Unsupported: a device that is not there.
    """
    there = [f"{kind}:{i}" for kind, count in present.items() for i in range(count)]
    listed = ", ".join([f"cpu:0 to cpu:{MOST_DEVICES - 1} (logical)", *there])
    for name in dict.fromkeys(devices):
        kind, index = parse_device(name)
        if kind != "cpu" and index >= present.get(kind, 0):
            why = f" ({reasons[kind]})" if kind in reasons else ""
            raise Unsupported(f"split.devices: {name} is not there{why}; there are {listed}")
