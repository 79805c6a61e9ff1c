"""What a machine allows of walls."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

#: ``auto``, ``on`` (walls, or nothing is judged) or ``off``.
SWITCH = "DUALML_ISOLATION"


@dataclass(frozen=True)
class Isolation:
    """What is around students' code.

    Attributes:
        walls: whether there are any.
        why: why there are none.
    """

    walls: bool
    why: str = ""


WALLS = Isolation(True)


def wanted(isolated: bool | None = None) -> Isolation:
    """Return what is asked for: by the caller, else by the variable, else walls on Linux."""
    if isolated is False or (isolated is None and os.environ.get(SWITCH) == "off"):
        return Isolation(False, "as asked for")
    if sys.platform != "linux":
        return Isolation(False, f"{sys.platform} has no namespaces")
    return WALLS
