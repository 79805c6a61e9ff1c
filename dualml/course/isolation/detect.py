"""What a machine allows of walls around students' code."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Literal

from dualml.errors import UserError

Kind = Literal["namespaces", "bubblewrap", "none"]
#: Names the kind of walls, or ``auto``, the default: namespaces, else bubblewrap, else none.
SWITCH = "DUALML_ISOLATION"


@dataclass(frozen=True)
class Isolation:
    """What is around students' code.

    Attributes:
        kind: who puts the walls up: ``namespaces``, we ourselves, by system calls, which takes
            milliseconds; ``bubblewrap``, that program, where the system lets nobody else, which
            starts the framework anew for every check; ``none``.
        why: why there are none.
    """

    kind: Kind
    why: str = ""

    @property
    def walls(self) -> bool:
        return self.kind != "none"


WALLS = Isolation("namespaces")


def candidates() -> list[Isolation]:
    """Return what is to be tried, the best first, unless a variable names the kind.

    Raises:
        UserError: the variable has another value.
    """
    wanted = os.environ.get(SWITCH) or "auto"
    if wanted == "none":
        return [Isolation("none", f"{SWITCH}=none")]
    if sys.platform != "linux":
        return [Isolation("none", f"{sys.platform} has no namespaces")]
    kinds: dict[str, list[Isolation]] = {
        "namespaces": [WALLS],
        "bubblewrap": [Isolation("bubblewrap")],
        "auto": [WALLS, Isolation("bubblewrap")],
    }
    if wanted not in kinds:
        raise UserError(f"{SWITCH} must be auto, none, {' or '.join(list(kinds)[:2])}; "
                        f"received {wanted!r}")  # fmt: skip
    return kinds[wanted]
